"""A hub of weights on 127.0.0.1: it answers what huggingface_hub's client asks for a file, and no more."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def serve(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Serves folder/<owner>/<model>/<file> as the hub does; yields its address and the requests it gets."""
    requests: list[str] = []

    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.respond(with_body=False)

        def do_GET(self) -> None:
            self.respond(with_body=True)

        def respond(self, with_body: bool) -> None:
            requests.append(f"{self.command} {self.path}")
            repository, _, name = self.path.strip("/").partition("/resolve/main/")
            path = folder / repository / name
            exists = bool(name) and path.is_file()
            content = path.read_bytes() if exists else b""
            self.send_response(200 if exists or self.path == "/" else 404)
            if exists:
                self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            else:
                self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if with_body:
                self.wfile.write(content)

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
