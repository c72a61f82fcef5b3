"""Uploading a submission: only what is in Kaggle's list of submissions counts."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from podium.basics.disk import locked
from stand_ins.kaggle_service import TOKEN, Service
from tiny import Podium, assert_says, done, one_line, write_file

UPLOAD = ("submit", "-c", "tiny", "--upload")


@pytest.fixture
def service(service: Service, trained_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    """A Kaggle that is asked without pauses; the user has a trained run."""
    shutil.copytree(trained_run, tmp_path / "runs" / "tiny" / "test_vit")
    monkeypatch.setattr("podium.kaggle.upload_submission.PAUSES", (0.0,))
    return service


def read_history(root: Path) -> pd.DataFrame:
    return pd.read_csv(root / "submissions" / "tiny" / "history.csv", dtype=str, keep_default_na=False)


def test_a_submission_is_uploaded_judged_and_written_to_the_history(
    service: Service, tmp_path: Path, podium: Podium
) -> None:
    service.submissions = [
        service.new_submission(7, "better", status="COMPLETE", publicScore="0.99"),
        service.new_submission(6, "worse", status="COMPLETE", publicScore="0.5"),
        {**service.new_submission(5, "old", status="COMPLETE", publicScore="1.0"), "date": "2020-01-01T00:00:00Z"},
    ]
    out, err = done(podium(*UPLOAD, "--message", "a first try"))
    csv = Path(out.strip())
    assert service.uploaded == {csv.name: csv.read_bytes()}
    assert "public 0.97125; rank 2 of today's 3 submissions; 4 submissions left today" in err
    (row,) = read_history(tmp_path).to_dict("records")
    assert (row["file"], row["message"], row["status"]) == (csv.name, "a first try", "complete")
    assert (row["public_score"], row["rank_today"]) == ("0.97125", "2")
    assert (row["submissions_today"], row["left_today"]) == ("3", "4")
    assert row["sha256"] == json.loads(csv.with_suffix(".json").read_text())["sha256"]
    assert service.tokens == {f"Bearer {TOKEN}"}
    paths = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix in (".csv", ".json", ".jsonl")]
    assert all(TOKEN not in path.read_text() for path in paths)
    assert TOKEN not in out + err


@pytest.mark.parametrize("command", ["submit", pytest.param("kaggle-bundle", marks=pytest.mark.annex)])
def test_without_a_token_nothing_is_predicted(
    service: Service, podium: Podium, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KAGGLE_API_TOKEN")
    line = one_line(podium(command, "-c", "tiny", "--upload"), "no Kaggle token found", "without uploading")
    assert ("https://www.kaggle.com/competitions/tiny/submit" in line) == (command == "submit")
    assert not list(tmp_path.glob("runs/tiny/*/fold*/test.npz"))


def test_without_a_token_the_page_is_that_of_the_lineage(
    service: Service, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _ = done(podium("submit", "-c", "tiny"))
    monkeypatch.delenv("KAGGLE_API_TOKEN")
    line = one_line(podium("submit", "--from", str(Path(out.strip()).with_suffix(".json")), "--upload"), "no Kaggle")
    assert "https://www.kaggle.com/competitions/tiny/submit" in line


def test_the_description_says_what_the_submission_is(service: Service, podium: Podium) -> None:
    done(podium(*UPLOAD))
    description = service.submissions[0]["description"]
    assert description.startswith("[podium ")
    assert "] test_vit x 2, equal, accuracy " in description


def test_a_submission_that_kaggle_has_is_not_uploaded_again(service: Service, tmp_path: Path, podium: Podium) -> None:
    """As after an interruption while Kaggle was judging it."""
    done(podium(*UPLOAD))
    _, err = done(podium(*UPLOAD))
    assert "is already at Kaggle" in err
    assert service.count_requests("upload") == service.count_requests("CreateSubmission") == 1
    assert len(read_history(tmp_path)) == 1


def test_an_upload_that_failed_silently_is_noticed(
    service: Service, tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.loses_uploads = True
    monkeypatch.setattr("podium.kaggle.upload_submission.APPEARS", 0.2)
    one_line(podium(*UPLOAD), "not in Kaggle's list of submissions", "https://www.kaggle.com/competitions/tiny/submit")
    service.loses_uploads, service.upload_status = False, 400
    assert "could not upload test_vit.csv" in one_line(podium(*UPLOAD))
    assert not (tmp_path / "submissions" / "tiny" / "history.csv").exists()
    service.upload_status = 200
    done(podium(*UPLOAD))


def test_a_submission_that_kaggle_refuses_is_explained_and_can_be_uploaded_again(
    service: Service, tmp_path: Path, podium: Podium
) -> None:
    verdict = service.verdict
    service.verdict = {"status": "ERROR", "errorDescription": "Evaluation Exception: row 3"}
    one_line(podium(*UPLOAD), "Evaluation Exception: row 3", "history.csv")
    service.verdict = verdict
    done(podium(*UPLOAD))
    assert read_history(tmp_path)["status"].tolist() == ["error", "complete"]


def test_nothing_is_uploaded_when_no_submission_is_left_today(service: Service, podium: Podium) -> None:
    service.submissions_left = 0
    service.submissions = [service.new_submission(7, "another", status="COMPLETE", publicScore="0.9")]
    message = one_line(podium(*UPLOAD))
    assert_says(message, "no submission to tiny is left for today", "tomorrow")
    assert not service.uploaded


def test_waiting_outlives_a_busy_kaggle_and_a_cut_connection(service: Service, podium: Podium) -> None:
    service.next_statuses["ListSubmissions"] = [200, 429, 0, 500]
    service.looks_until_judged = 4
    _, err = done(podium(*UPLOAD))
    assert "public 0.97125" in err


@pytest.mark.parametrize(
    ("status", "answer"),
    [(401, "refused your token"), (403, "accept the rules once"), (404, "has no competition"), (429, "try again in")],
)
def test_each_refusal_has_its_remedy_and_the_csv_is_kept(
    service: Service, tmp_path: Path, podium: Podium, status: int, answer: str
) -> None:
    service.status = status
    assert answer in one_line(podium(*UPLOAD))
    assert (tmp_path / "submissions" / "tiny" / "test_vit.csv").exists()


def test_the_same_command_waits_again_for_a_score_that_takes_too_long(
    service: Service, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.looks_until_judged = 10**9
    monkeypatch.setattr("podium.kaggle.upload_submission.PATIENCE", 0.2)
    one_line(podium(*UPLOAD), "has not judged the submission", "run the same command again")
    service.looks_until_judged = 0
    done(podium(*UPLOAD))
    assert service.count_requests("CreateSubmission") == 1


def test_a_history_with_other_columns_is_not_overwritten(service: Service, tmp_path: Path, podium: Podium) -> None:
    path = tmp_path / "submissions" / "tiny" / "history.csv"
    write_file(path, "my,notes\n1,2\n")
    message = one_line(podium(*UPLOAD))
    assert_says(message, f"{path} has other columns", "move it away")
    assert path.read_text() == "my,notes\n1,2\n"


def test_a_score_is_kept_even_if_its_rank_cannot_be_had(service: Service, tmp_path: Path, podium: Podium) -> None:
    service.next_statuses["ListSubmissions"] = [200, 200, 200, 500]
    _, err = done(podium(*UPLOAD))
    assert "public 0.97125; 4 submissions left today" in err
    assert read_history(tmp_path)["rank_today"].tolist() == [""]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(b"null", "cannot read Kaggle's response", marks=pytest.mark.all),
        (b'{"submissions": null}', "cannot read Kaggle's response"),
        pytest.param(b'{"code": "no"}', "cannot read Kaggle's response", marks=pytest.mark.all),
        (b"<html>", "the response is not JSON"),
        (b'{"code": 400, "message": "Only notebooks are accepted"}', "Kaggle says: Only notebooks are accepted"),
    ],
)
def test_an_unexpected_answer_is_explained_in_one_line(
    service: Service, podium: Podium, answer: bytes, problem: str
) -> None:
    service.raw_answers["ListSubmissions"] = answer
    assert problem in one_line(podium(*UPLOAD))
    service.raw_answers = {}
    done(podium(*UPLOAD))


def test_an_answer_that_does_not_come_ends_with_a_timeout(
    service: Service, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.kaggle.client.TIMEOUT", (5.0, 0.2))
    service.delays["ListSubmissions"] = 2.0
    assert "Kaggle cannot be reached (ReadTimeout)" in one_line(podium(*UPLOAD))


def test_a_message_may_hold_any_characters(service: Service, tmp_path: Path, podium: Podium) -> None:
    done(podium(*UPLOAD, '--message=-5 %\tof\nlr,\0 \ud83d "so"'))
    assert read_history(tmp_path)["message"].tolist() == ['-5 % of lr,  "so"']


def test_two_processes_do_not_upload_at_once(service: Service, tmp_path: Path, podium: Podium) -> None:
    with locked(tmp_path / "submissions" / "tiny" / ".upload.lock"):
        message = one_line(podium(*UPLOAD))
    assert_says(message, "another process is already uploading to tiny", "wait for it")
    assert not service.uploaded
