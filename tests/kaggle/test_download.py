"""Downloading a competition: the real client of Kaggle talks to a stand-in of Kaggle's service on 127.0.0.1."""

import io
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from podium.basics.disk import locked
from stand_ins.kaggle_service import TOKEN, Service, kaggle
from tiny import Podium, assert_says, done, one_line, write_card, write_competition

MIB = 1 << 20


@pytest.fixture
def archive(tmp_path: Path) -> bytes:
    folder = write_competition(tmp_path / "elsewhere")
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for path in sorted(folder.rglob("*")):
            file.write(path, path.relative_to(folder))
    return content.getvalue()


def test_a_competition_is_downloaded_with_a_token_and_unpacked(
    tmp_path: Path, podium: Podium, archive: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAGGLE_API_TOKEN", TOKEN)
    service = Service(archive)
    with kaggle(service, monkeypatch):
        out, err = done(podium("data", "-c", "tiny"))
        assert "25 images in train_image/" in out
        assert f"next: podium --root {tmp_path} folds -c tiny" in err
        request_count = len(service.requests)
        done(podium("data", "-c", "tiny"))
        assert len(service.requests) == request_count  # nothing is downloaded again
    assert service.tokens == {f"Bearer {TOKEN}"}
    assert service.requests[-1] == "/storage/bundle/archive.zip"
    raw = tmp_path / "data" / "raw"
    assert sorted(path.name for path in raw.iterdir()) == [".tiny.lock", "tiny", "tiny.zip"]
    assert (raw / "tiny.zip").read_bytes() == archive
    assert TOKEN not in out + err


def test_a_mistake_in_the_card_is_refused_before_the_download(tmp_path: Path, podium: Podium) -> None:
    card = write_card(tmp_path, "[recipe]\nepohcs = 3\n")
    one_line(podium("data", "-c", "tiny"), f"{card}: [recipe]: no option 'epohcs'; did you mean epochs?")
    assert not (tmp_path / "data" / "raw").exists()


def test_an_interrupted_download_continues_where_it_stopped(
    tmp_path: Path, podium: Podium, archive: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAGGLE_API_TOKEN", TOKEN)
    monkeypatch.setattr("time.sleep", lambda _: None)  # between the client's own attempts
    content = io.BytesIO(archive)
    with zipfile.ZipFile(content, "a") as file:
        file.writestr("notes.bin", np.random.default_rng(0).bytes(3 * MIB))
    archive = content.getvalue()
    service = Service(archive)
    service.cut_after = [5 * MIB // 2]
    with kaggle(service, monkeypatch):
        status, out, err = podium("data", "-c", "tiny")
    assert status == 0, err
    assert "25 images" in out
    assert service.download_starts == [0, 2 * MIB]  # the client tries again itself, and it writes chunks of 1 MiB

    for path in (tmp_path / "data" / "raw").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    service = Service(archive)
    service.cut_after = [3 * MIB // 2] + [0] * 99  # and no byte more in the client's next attempts
    with kaggle(service, monkeypatch):
        status, _, err = podium("data", "-c", "tiny")
        assert status == 1
        assert "Kaggle cannot be reached" in err
        service.cut_after = []
        status, out, err = podium("data", "-c", "tiny")
    assert status == 0, err
    assert "25 images" in out
    assert service.download_starts[-1] == MIB
    assert not (tmp_path / "data" / "raw" / ".download").exists()


def test_an_archive_from_the_browser_needs_no_account(tmp_path: Path, podium: Podium, archive: bytes) -> None:
    (tmp_path / "data" / "raw").mkdir(parents=True)
    (tmp_path / "data" / "raw" / "tiny.zip").write_bytes(archive)
    out, _ = done(podium("data", "-c", "tiny"))
    assert_says(out, "id, predict", "sample_submission.csv")


def test_without_an_account_or_an_archive_the_message_names_both_ways(tmp_path: Path, podium: Podium) -> None:
    message = one_line(podium("data", "-c", "tiny"))
    for hint in (
        "https://www.kaggle.com/settings",
        "~/.kaggle/access_token",
        "KAGGLE_API_TOKEN",
        "https://www.kaggle.com/competitions/tiny/data",
        str(tmp_path / "data" / "raw" / "tiny.zip"),
    ):
        assert hint in message
    assert not (tmp_path / "data" / "raw" / "tiny").exists()


def test_what_is_here_under_another_name_or_in_another_folder_is_named(tmp_path: Path, podium: Podium) -> None:
    write_competition(tmp_path, "signs-mini")
    one_line(podium("data", "-c", "sings-mini"), "did you mean signs-mini, which is here?")
    assert "did you mean" not in one_line(podium("data", "-c", "galaxies"))
    (tmp_path / "data" / "galaxies.zip").write_bytes(b"")
    message = one_line(podium("data", "-c", "galaxies"), f"{tmp_path / 'data' / 'galaxies.zip'} is there: move it to")
    assert str(tmp_path / "data" / "raw" / "galaxies.zip") in message


@pytest.mark.parametrize(
    ("status", "problem", "remedy"),
    [
        (401, "Kaggle refused your token (401: no)", "https://www.kaggle.com/settings"),
        (403, "(403: no)", "accept the rules once at https://www.kaggle.com/competitions/tiny/rules"),
        (404, "Kaggle has no competition 'tiny' (404: no)", "the last part of its page's address"),
        (429, "(429: no)", "try again in a few minutes"),
        (500, "Kaggle answered 500", "https://www.kaggle.com/competitions/tiny/data"),
    ],
)
def test_each_refusal_of_kaggle_has_its_remedy(
    podium: Podium, monkeypatch: pytest.MonkeyPatch, status: int, problem: str, remedy: str
) -> None:
    monkeypatch.setenv("KAGGLE_USERNAME", "somebody")
    monkeypatch.setenv("KAGGLE_KEY", "0123456789abcdef")
    with kaggle(Service(b"", status), monkeypatch):
        code, _, err = podium("data", "-c", "tiny")
    assert code == 1
    assert problem in err
    assert remedy in err
    assert "0123456789abcdef" not in err


def test_a_missing_network_is_explained_in_one_line(podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    from kagglesdk import kaggle_env

    monkeypatch.setenv("KAGGLE_API_TOKEN", TOKEN)
    monkeypatch.setitem(kaggle_env._env_to_endpoint, kaggle_env.KaggleEnv.PROD, "http://127.0.0.1:9")
    assert "Kaggle cannot be reached (ConnectionError)" in one_line(podium("data", "-c", "tiny"))


def test_a_download_that_is_not_an_archive_is_refused_and_leaves_no_folder(
    tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAGGLE_API_TOKEN", TOKEN)
    with kaggle(Service(b"<html>please log in</html>"), monkeypatch):
        message = one_line(podium("data", "-c", "tiny"))
    assert_says(message, "tiny.zip: not a valid zip archive", "delete it")
    assert not (tmp_path / "data" / "raw" / "tiny").exists()


def test_two_processes_do_not_download_at_once(tmp_path: Path, podium: Podium) -> None:
    with locked(tmp_path / "data" / "raw" / ".tiny.lock"):
        assert "another process is already downloading tiny" in one_line(podium("data", "-c", "tiny"))
