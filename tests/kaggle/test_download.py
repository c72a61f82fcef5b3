"""The real Kaggle client downloads a competition from a stand-in of Kaggle's service on 127.0.0.1."""

import io
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from podium.disk import locked
from stand_ins.kaggle_service import TOKEN, Service, kaggle, nobody
from tiny import Podium, one_line, write_competition

__all__ = ["nobody"]


@pytest.fixture
def archive(tmp_path: Path) -> bytes:
    folder = write_competition(tmp_path / "elsewhere")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for path in sorted(folder.rglob("*")):
            file.write(path, path.relative_to(folder))
    return packed.getvalue()


def test_a_competition_is_downloaded_with_a_token_and_unpacked(
    tmp_path: Path, podium: Podium, archive: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAGGLE_API_TOKEN", TOKEN)
    service = Service(archive)
    with kaggle(service, monkeypatch):
        status, out, err = podium("data", "-c", "tiny")
        assert status == 0, err
        assert "25 images in train_image/" in out
        assert f"next: podium --root {tmp_path} folds -c tiny" in err
        asked = len(service.asked)
        assert podium("data", "-c", "tiny")[0] == 0  # it is there: nothing is asked again
        assert len(service.asked) == asked
    assert service.tokens == {f"Bearer {TOKEN}"}
    assert service.asked[-1] == "/storage/bundle/archive.zip"
    raw = tmp_path / "data" / "raw"
    assert sorted(path.name for path in raw.iterdir()) == [".tiny.lock", "tiny", "tiny.zip"]
    assert (raw / "tiny.zip").read_bytes() == archive
    assert TOKEN not in out + err


def test_a_download_that_breaks_goes_on_where_it_was(
    tmp_path: Path, podium: Podium, archive: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAGGLE_API_TOKEN", TOKEN)
    monkeypatch.setattr("time.sleep", lambda _: None)  # between the client's own attempts
    packed = io.BytesIO(archive)
    with zipfile.ZipFile(packed, "a") as file:
        file.writestr("notes.bin", np.random.default_rng(0).bytes(3 << 20))
    archive = packed.getvalue()
    service = Service(archive)
    service.cuts = [5 << 19]
    with kaggle(service, monkeypatch):
        status, out, err = podium("data", "-c", "tiny")
    assert status == 0, err
    assert "25 images" in out
    assert service.began == [0, 2 << 20]  # the client's own attempt, and it writes whole chunks

    for path in (tmp_path / "data" / "raw").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    service = Service(archive)
    service.cuts = [3 << 19] + [0] * 99  # and nothing more, however often it is tried
    with kaggle(service, monkeypatch):
        status, _, err = podium("data", "-c", "tiny")
        assert status == 1
        assert "Kaggle cannot be reached" in err
        service.cuts = []
        status, out, err = podium("data", "-c", "tiny")
    assert status == 0, err
    assert "25 images" in out
    assert service.began[-1] == 1 << 20
    assert not (tmp_path / "data" / "raw" / ".download").exists()


def test_an_archive_from_the_browser_serves_without_an_account(tmp_path: Path, podium: Podium, archive: bytes) -> None:
    (tmp_path / "data" / "raw").mkdir(parents=True)
    (tmp_path / "data" / "raw" / "tiny.zip").write_bytes(archive)
    status, out, err = podium("data", "-c", "tiny")
    assert status == 0, err
    assert "id, predict: one label a row, as in sample_submission.csv" in out


def test_without_an_account_or_an_archive_both_ways_are_told(tmp_path: Path, podium: Podium) -> None:
    status, out, err = podium("data", "-c", "tiny")
    assert (status, out) == (1, "")
    error = err.splitlines()[-1]
    for hint in (
        "https://www.kaggle.com/settings",
        "~/.kaggle/access_token",
        "KAGGLE_API_TOKEN",
        "https://www.kaggle.com/competitions/tiny/data",
        str(tmp_path / "data" / "raw" / "tiny.zip"),
    ):
        assert hint in error
    assert not (tmp_path / "data" / "raw" / "tiny").exists()


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (401, "Kaggle refused your token (401: no)"),
        (403, "accept the rules once at https://www.kaggle.com/competitions/tiny/rules"),
        (404, "Kaggle has no competition 'tiny' (404: no)"),
        (429, "Kaggle asks to wait (429: no)"),
        (500, "Kaggle answered 500"),
    ],
)
def test_each_refusal_of_kaggle_has_its_remedy(
    podium: Podium, monkeypatch: pytest.MonkeyPatch, status: int, answer: str
) -> None:
    monkeypatch.setenv("KAGGLE_USERNAME", "somebody")
    monkeypatch.setenv("KAGGLE_KEY", "0123456789abcdef")
    with kaggle(Service(b"", status), monkeypatch):
        code, _, err = podium("data", "-c", "tiny")
    assert code == 1
    assert answer in err
    assert "0123456789abcdef" not in err


def test_no_network_is_told_in_one_line(podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    from kagglesdk import kaggle_env

    monkeypatch.setenv("KAGGLE_API_TOKEN", TOKEN)
    monkeypatch.setitem(kaggle_env._env_to_endpoint, kaggle_env.KaggleEnv.PROD, "http://127.0.0.1:9")
    status, _, err = podium("data", "-c", "tiny")
    assert status == 1
    assert "Kaggle cannot be reached (ConnectionError)" in err


def test_an_archive_that_is_no_archive_is_refused_and_leaves_nothing(
    tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAGGLE_API_TOKEN", TOKEN)
    with kaggle(Service(b"<html>please log in</html>"), monkeypatch):
        status, _, err = podium("data", "-c", "tiny")
    assert status == 1
    assert "tiny.zip: not a sound zip archive" in err
    assert not (tmp_path / "data" / "raw" / "tiny").exists()


def test_two_processes_do_not_download_at_once(tmp_path: Path, podium: Podium) -> None:
    with locked(tmp_path / "data" / "raw" / ".tiny.lock"):
        assert "another process is getting tiny already" in one_line(podium("data", "-c", "tiny"))
