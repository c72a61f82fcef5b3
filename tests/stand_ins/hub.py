"""A hub of weights on 127.0.0.1: it answers what huggingface_hub's client asks for a file, and no more."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

UNREACHABLE = "http://127.0.0.1:9"  # an address where nothing answers
GATED = ".gated"  # a file in the folder of a repository that is given to nobody


@contextmanager
def serve(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Serves folder/<owner>/<model>/<file> as the hub does; yields its address and the requests it gets.

    A repository's only revision is `main`, whose commit changes with its files.
    """
    requests: list[str] = []

    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.respond(with_body=False)

        def do_GET(self) -> None:
            self.respond(with_body=True)

        def respond(self, with_body: bool) -> None:
            requests.append(f"{self.command} {self.path}")
            repository, _, place = self.path.strip("/").partition("/resolve/")
            revision, _, name = place.partition("/")
            path = folder / repository / name
            status, problem = self.answer(path, revision, folder / repository)
            content = path.read_bytes() if status == 200 and name else b""
            self.send_response(status)
            if problem:
                self.send_header("X-Error-Code", problem)
            else:
                self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", commit_of(folder / repository))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if with_body:
                self.wfile.write(content)

        def answer(self, path: Path, revision: str, repository: Path) -> tuple[int, str]:
            """Returns the status, and the hub's word for what is wrong."""
            if self.path == "/":
                return 200, ""
            if not repository.is_dir():
                return 401, "RepoNotFound"
            if (repository / GATED).exists():
                return 403, "GatedRepo"
            if revision not in ("main", commit_of(repository)):
                return 404, "RevisionNotFound"
            return (200, "") if path.is_file() else (404, "EntryNotFound")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def commit_of(repository: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in repository.glob("*") if path.is_file()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:40]
