"""Uploading: what counts is what stands in Kaggle's list of submissions."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from podium.disk import locked
from stand_ins.kaggle_service import TOKEN, Service, kaggle, nobody
from tiny import Podium, one_line, podium_at, write_competition

__all__ = ["nobody"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("trained")
    write_competition(root)
    common = ("--weights", "none", "--image-size", "32", "--batch-size", "8", "--workers", "0", "--epochs", "2")
    podium_at(root, "folds", "-c", "tiny", "--k", "2")
    podium_at(root, "train", "-c", "tiny", "--model", "test_convnext", *common)
    return root


@pytest.fixture
def service(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    """A Kaggle that knows this person, whose run is trained; nobody waits between two looks."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("KAGGLE_API_TOKEN", TOKEN)
    monkeypatch.setattr("podium.kaggle.upload.PAUSES", (0.0,))
    return Service()


def history(root: Path) -> pd.DataFrame:
    return pd.read_csv(root / "submissions" / "tiny" / "history.csv", dtype=str, keep_default_na=False)


def test_a_submission_is_uploaded_judged_and_written_down(
    service: Service, tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.submissions = [
        service.submission(7, "better", status="COMPLETE", publicScore="0.99"),
        service.submission(6, "worse", status="COMPLETE", publicScore="0.5"),
        {**service.submission(5, "of old", status="COMPLETE", publicScore="1.0"), "date": "2020-01-01T00:00:00Z"},
    ]
    with kaggle(service, monkeypatch):
        status, out, err = podium("submit", "-c", "tiny", "--upload", "--message", "a first try")
    assert status == 0, err
    csv = Path(out.strip())
    assert service.uploaded == {csv.name: csv.read_bytes()}
    assert "Kaggle says: public 0.97125; number 2 of today's 3; 4 more may follow today" in err
    (row,) = history(tmp_path).to_dict("records")
    assert (row["file"], row["message"], row["status"]) == (csv.name, "a first try", "complete")
    assert (row["public_score"], row["rank_today"], row["submissions_today"], row["left_today"]) == (
        *("0.97125", "2"),
        *("3", "4"),
    )
    assert row["sha256"] == json.loads(csv.with_suffix(".json").read_text())["sha256"]
    assert service.tokens == {f"Bearer {TOKEN}"}
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix in (".csv", ".json", ".jsonl")]
    assert all(TOKEN not in path.read_text() for path in written)
    assert TOKEN not in out + err


def test_a_submission_says_what_it_is_unless_one_says_otherwise(
    service: Service, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kaggle(service, monkeypatch):
        assert podium("submit", "-c", "tiny", "--upload")[0] == 0
    description = service.submissions[0]["description"]
    assert "] test_convnext x 2, equal, accuracy " in description
    assert description.startswith("[podium ")


def test_what_kaggle_has_is_not_uploaded_again(
    service: Service, tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an interruption while it was being judged."""
    with kaggle(service, monkeypatch):
        assert podium("submit", "-c", "tiny", "--upload")[0] == 0
        status, _, err = podium("submit", "-c", "tiny", "--upload")
    assert status == 0, err
    assert "is at Kaggle already" in err
    assert service.calls("upload") == service.calls("CreateSubmission") == 1
    assert len(history(tmp_path)) == 1


def test_an_upload_that_failed_silently_is_noticed(
    service: Service, tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.loses_uploads = True
    monkeypatch.setattr("podium.kaggle.upload.APPEARS", 0.2)
    with kaggle(service, monkeypatch):
        refused = one_line(podium("submit", "-c", "tiny", "--upload"))
        assert "the upload is not in Kaggle's list of submissions" in refused
        assert "https://www.kaggle.com/competitions/tiny/submit" in refused
        service.loses_uploads, service.upload_status = False, 400
        assert "could not upload test_convnext.csv" in one_line(podium("submit", "-c", "tiny", "--upload"))
        assert not (tmp_path / "submissions" / "tiny" / "history.csv").exists()
        service.upload_status = 200
        assert podium("submit", "-c", "tiny", "--upload")[0] == 0  # the same command goes on


def test_a_submission_that_kaggle_refuses_tells_why_and_may_follow_again(
    service: Service, tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, service.verdict = service.verdict, {"status": "ERROR", "errorDescription": "Evaluation Exception: row 3"}
    with kaggle(service, monkeypatch):
        assert "Evaluation Exception: row 3" in one_line(podium("submit", "-c", "tiny", "--upload"))
        service.verdict = good
        assert podium("submit", "-c", "tiny", "--upload")[0] == 0
    assert history(tmp_path)["status"].tolist() == ["error", "complete"]


def test_nothing_is_sent_when_the_day_is_used_up(
    service: Service, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.left = 0
    service.submissions = [service.submission(7, "another", status="COMPLETE", publicScore="0.9")]
    with kaggle(service, monkeypatch):
        assert "no submission to tiny is left for today" in one_line(podium("submit", "-c", "tiny", "--upload"))
    assert not service.uploaded


def test_waiting_outlives_a_busy_kaggle_and_a_cut_connection(
    service: Service, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.failing["ListSubmissions"] = [200, 429, 0, 500]
    service.looks_until_judged = 4
    with kaggle(service, monkeypatch):
        status, _, err = podium("submit", "-c", "tiny", "--upload")
    assert status == 0, err
    assert "public 0.97125" in err


@pytest.mark.parametrize(
    ("status", "answer"),
    [(401, "refused your token"), (403, "accept the rules once"), (404, "has no competition"), (429, "asks to wait")],
)
def test_each_refusal_has_its_remedy_and_the_csv_is_kept(
    service: Service, tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch, status: int, answer: str
) -> None:
    service.status = status
    with kaggle(service, monkeypatch):
        assert answer in one_line(podium("submit", "-c", "tiny", "--upload"))
    assert (tmp_path / "submissions" / "tiny" / "test_convnext.csv").exists()


def test_a_verdict_that_never_comes_is_waited_for_again(
    service: Service, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.looks_until_judged = 10**9
    monkeypatch.setattr("podium.kaggle.upload.PATIENCE", 0.2)
    with kaggle(service, monkeypatch):
        assert "the same command goes on waiting" in one_line(podium("submit", "-c", "tiny", "--upload"))
        service.looks_until_judged = 0
        assert podium("submit", "-c", "tiny", "--upload")[0] == 0
    assert service.calls("CreateSubmission") == 1


def test_a_history_that_is_none_is_not_written_over(
    service: Service, tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "submissions" / "tiny" / "history.csv"
    path.parent.mkdir(parents=True)
    path.write_text("my,notes\n1,2\n")
    with kaggle(service, monkeypatch):
        assert "has other columns than Podium's" in one_line(podium("submit", "-c", "tiny", "--upload"))
    assert path.read_text() == "my,notes\n1,2\n"


def test_a_verdict_that_is_known_is_not_lost_for_its_rank(
    service: Service, tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.failing["ListSubmissions"] = [200, 200, 200, 500]
    with kaggle(service, monkeypatch):
        status, _, err = podium("submit", "-c", "tiny", "--upload")
    assert status == 0, err
    assert "Kaggle says: public 0.97125; 4 more may follow today" in err
    assert history(tmp_path)["rank_today"].tolist() == [""]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"null", "makes nothing of Kaggle's answer"),
        (b'{"submissions": null}', "makes nothing of Kaggle's answer"),
        (b'{"code": "no"}', "makes nothing of Kaggle's answer"),
        (b"<html>", "what answers is not Kaggle"),
        (b'{"code": 400, "message": "Only notebooks are accepted"}', "Kaggle says: Only notebooks are accepted"),
    ],
)
def test_an_answer_that_is_none_is_told_in_a_line(
    service: Service, podium: Podium, monkeypatch: pytest.MonkeyPatch, answer: bytes, said: str
) -> None:
    service.garbled["ListSubmissions"] = answer
    with kaggle(service, monkeypatch):
        assert said in one_line(podium("submit", "-c", "tiny", "--upload"))
        service.garbled = {}
        assert podium("submit", "-c", "tiny", "--upload")[0] == 0


def test_nobody_is_waited_for_without_end(service: Service, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.kaggle.client.TIMEOUT", (5.0, 0.2))
    service.slow["ListSubmissions"] = 2.0
    with kaggle(service, monkeypatch):
        assert "Kaggle cannot be reached (ReadTimeout)" in one_line(podium("submit", "-c", "tiny", "--upload"))


def test_a_message_may_hold_anything(
    service: Service, tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kaggle(service, monkeypatch):
        assert podium("submit", "-c", "tiny", "--upload", '--message=-5 %\tof\nlr,\0 \ud83d "so"')[0] == 0
    assert history(tmp_path)["message"].tolist() == ['-5 % of lr,  "so"']


def test_two_processes_do_not_upload_at_once(
    service: Service, tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kaggle(service, monkeypatch), locked(tmp_path / "submissions" / "tiny" / ".upload.lock"):
        assert "another process uploads to tiny already" in one_line(podium("submit", "-c", "tiny", "--upload"))
    assert not service.uploaded
