"""The real Kaggle client against a stand-in of Kaggle's service on 127.0.0.1.

The client takes no address, only names of Kaggle's own hosts. The tests give the name of the real one an
address on this machine; everything above that is the client as it is.
"""

import io
import json
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from conftest import Podium, write_competition

TOKEN = "KGAT_0123456789abcdef"


class Service:
    """What Kaggle answers; a status other than 200 is its answer to a download."""

    def __init__(self, archive: bytes, status: int = 200) -> None:
        self.archive, self.status = archive, status
        self.asked: list[str] = []
        self.tokens: set[str] = set()


@contextmanager
def serve(service: Service) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            service.asked.append(self.path)
            service.tokens.add(self.headers.get("Authorization", ""))
            if self.path.endswith("IntrospectToken"):
                self.answer(200, json.dumps({"active": True, "username": "somebody"}).encode(), "application/json")
            elif service.status != 200:
                problem = json.dumps({"code": service.status, "message": "no"}).encode()
                self.answer(service.status, problem, "application/json")
            else:
                self.send_response(302)
                self.send_header("Location", "/storage/bundle/archive.zip?signature=x")
                self.send_header("Content-Length", "0")
                self.end_headers()

        def do_GET(self) -> None:
            service.asked.append(self.path.partition("?")[0])
            self.answer(200, service.archive, "application/zip")

        def answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Last-Modified", "Fri, 20 Nov 2026 00:00:00 GMT")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A person without an account, in a home of their own."""
    for name in ("KAGGLE_API_TOKEN", "KAGGLE_USERNAME", "KAGGLE_KEY", "KAGGLE_CONFIG_DIR", "KAGGLE_API_ENVIRONMENT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def archive(tmp_path: Path) -> bytes:
    folder = write_competition(tmp_path / "elsewhere")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for path in sorted(folder.rglob("*")):
            file.write(path, path.relative_to(folder))
    return packed.getvalue()


@contextmanager
def kaggle(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from kagglesdk import kaggle_env

    with serve(service) as address:
        monkeypatch.setitem(kaggle_env._env_to_endpoint, kaggle_env.KaggleEnv.PROD, address)
        yield


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
    assert sorted(path.name for path in raw.iterdir()) == ["tiny", "tiny.zip"]
    assert (raw / "tiny.zip").read_bytes() == archive
    assert TOKEN not in out + err


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
        (401, "Kaggle refused your token (401)"),
        (403, "accept the rules once at https://www.kaggle.com/competitions/tiny/rules"),
        (404, "Kaggle has no competition 'tiny' (404)"),
        (429, "Kaggle asks to wait (429)"),
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
