"""A stand-in of Kaggle's service on 127.0.0.1; the real client talks to it.

The client accepts no address, only names of Kaggle's own hosts. So the tests map the real host's name to an address on
this machine; everything above that is the real client.
"""

import json
import re
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

TOKEN = "KGAT_0123456789abcdef"


class Service:
    """What Kaggle has and how it answers."""

    def __init__(self, archive: bytes = b"", status: int = 200) -> None:
        # How calls are answered
        self.status = status  # of every answer; 0 cuts the connection
        self.next_statuses: dict[str, list[int]] = {}  # of the next answers to these calls
        self.raw_answers: dict[str, bytes] = {}  # to these calls
        self.delays: dict[str, float] = {}  # seconds before these calls are answered
        self.interrupts: dict[str, str] = {}  # Ctrl-C is pressed "before" or "after" the next of these calls works
        # What was asked
        self.requests: list[str] = []  # paths
        self.tokens: set[str] = set()
        self.errors: list[str] = []  # of this stand-in itself
        # The competition
        self.page: dict[str, Any] = {
            "ref": "https://www.kaggle.com/competitions/tiny",
            "userHasEntered": True,
            "evaluationMetric": "Categorization Accuracy",
            "maxDailySubmissions": 5,
            "deadline": "2030-01-31T23:59:00Z",
        }
        self.archive = archive
        self.cut_after: list[int] = []  # bytes of the archive after which the next connections break
        self.download_starts: list[int] = []  # bytes
        # Submissions
        self.submissions: list[dict[str, Any]] = []  # the newest first
        self.submissions_left = 5
        self.uploaded: dict[str, bytes] = {}
        self.upload_status = 200
        self.loses_uploads = False  # reports success and keeps nothing
        self.looks_until_judged = 2
        self.verdict: dict[str, Any] = {"status": "COMPLETE", "publicScore": "0.97125"}
        # Kernels
        self.kernels: list[dict[str, Any]] = []  # as they were pushed
        self.run_kernel: Callable[[dict[str, Any]], dict[str, bytes]] = lambda kernel: {}  # returns its output
        self.kernel_statuses: list[str] = []  # of the next looks
        self.kernel_end = "COMPLETE"  # the status after them
        self.push_error = ""
        self.kernel_outputs: dict[str, dict[str, bytes]] = {}
        self.kernel_log: list[dict[str, Any]] = []
        # Data sets
        self.datasets: dict[str, list[dict[str, Any]]] = {}  # the versions of each
        self.dataset_statuses: list[str] = []  # of the next looks; READY after them
        self.lost_files: set[str] = set()

    def count_requests(self, call: str) -> int:
        return sum(path.endswith(f"/{call}") for path in self.requests)

    def submit(self, token: str, description: str) -> dict[str, Any]:
        ref = 1000 + len(self.submissions)
        if not self.loses_uploads:
            self.submissions_left -= 1
            self.submissions.insert(0, self.new_submission(ref, description, fileName=token, status="PENDING"))
        return {"message": "Successfully submitted", "ref": ref}

    def new_submission(self, ref: int, description: str, **fields: Any) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"ref": ref, "description": description, "date": now, "looks": 0, **fields}

    def list_submissions(self) -> dict[str, Any]:
        for submission in self.submissions:
            submission["looks"] += 1
            if submission["status"] == "PENDING" and submission["looks"] >= self.looks_until_judged:
                submission.update(self.verdict)
        fields = [{key: value for key, value in item.items() if key != "looks"} for item in self.submissions]
        return {"submissions": fields}

    def save_kernel(self, kernel: dict[str, Any]) -> dict[str, Any]:
        if self.push_error:
            return {"error": self.push_error}
        self.kernels.append(kernel)
        self.kernel_outputs[kernel["slug"].rpartition("/")[2]] = self.run_kernel(kernel)
        return {"ref": kernel["slug"], "versionNumber": 1}

    def list_output(self, kernel: str, address: str) -> dict[str, Any]:
        names = self.kernel_outputs[kernel]
        files = [{"fileName": name, "url": f"{address}/output/{kernel}/{name}"} for name in names]
        return {"files": files, "log": json.dumps(self.kernel_log)}

    def save_dataset(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        files = {file["token"]: self.uploaded[file["token"]] for file in body["files"]}
        self.datasets.setdefault(name, []).append({**body, "files": files})
        return {"ref": f"somebody/{name}", "status": "ok"}

    def answer(self, call: str, body: dict[str, Any], address: str) -> dict[str, Any]:
        match call:
            case "IntrospectToken":
                return {"active": True, "username": "somebody"}
            case "GetCompetition":
                return self.page
            case "StartSubmissionUpload":
                return {"token": body["fileName"], "createUrl": f"{address}/upload/{body['fileName']}"}
            case "CreateSubmission":
                return self.submit(body["blobFileTokens"], body.get("submissionDescription", ""))
            case "ListSubmissions":
                return self.list_submissions()
            case "GetSubmissionLimits":
                today = len(self.submissions)
                return {"numToday": today, "numTotal": today, "numAllowedNow": self.submissions_left}
            case "SaveKernel":
                return self.save_kernel(body)
            case "GetKernelSessionStatus":
                return {"status": self.kernel_statuses.pop(0) if self.kernel_statuses else self.kernel_end}
            case "ListKernelSessionOutput":
                return self.list_output(body["kernelSlug"], address)
            case "StartBlobUpload":
                name = "lost" if body["name"] in self.lost_files else body["name"]
                return {"token": name, "createUrl": f"{address}/upload/{name}"}
            case "CreateDataset":
                return self.save_dataset(body["slug"], body)
            case "CreateDatasetVersion":
                return self.save_dataset(body["datasetSlug"], body["body"])
            case "GetDatasetStatus":
                return {"status": self.dataset_statuses.pop(0) if self.dataset_statuses else "READY"}
            case "GetDataset":
                return {"currentVersionNumber": len(self.datasets[body["datasetSlug"]])}
        raise AssertionError(f"this stand-in does not know the call {call}")


class Handler(BaseHTTPRequestHandler):
    def __init__(self, service: Service, *arguments: Any) -> None:
        self.service = service
        super().__init__(*arguments)

    def do_POST(self) -> None:
        """A call of the API."""
        service, body = self.service, json.loads(self.read_body() or b"{}")
        service.requests.append(self.path)
        service.tokens.add(self.headers.get("Authorization", ""))
        call = self.path.rpartition("/")[2]
        status = self.next_status(call, body)
        threading.Event().wait(service.delays.get(call, 0.0))  # not time.sleep, which tests replace
        interrupt = service.interrupts.pop(call, "")
        if interrupt == "before":
            press_ctrl_c()
        elif call in service.raw_answers:
            self.send(200, service.raw_answers[call])
        elif status == 0:
            self.connection.close()
        elif status != 200:
            self.send(status, json.dumps({"code": status, "message": "no"}).encode())
        elif call == "DownloadDataFiles":
            self.send_response(302)
            self.send_header("Location", "/storage/bundle/archive.zip?signature=x")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            try:
                answer = service.answer(call, body, f"http://{self.headers['Host']}")
            except Exception:
                service.errors.append(traceback.format_exc())
                raise
            if interrupt == "after":
                press_ctrl_c()
            else:
                self.send(200, json.dumps(answer).encode())

    def next_status(self, call: str, body: dict[str, Any]) -> int:
        service = self.service
        status = service.next_statuses.get(call, [service.status]).pop(0)
        service.next_statuses = {name: statuses for name, statuses in service.next_statuses.items() if statuses}
        if call == "IntrospectToken":
            return 200
        if call in ("GetDataset", "GetDatasetStatus") and body["datasetSlug"] not in service.datasets:
            return 403  # Kaggle's answer about a data set that does not exist
        return status

    def do_PUT(self) -> None:
        """An upload of a file."""
        body = self.read_body()
        self.service.requests.append("/upload")
        name = self.path.rpartition("/")[2]
        status = 400 if name == "lost" else self.service.upload_status
        if status == 200:
            self.service.uploaded[name] = body
        self.send(status, b"", "text/plain")

    def do_GET(self) -> None:
        """A download: a file of a kernel's output, or the competition's archive."""
        service = self.service
        service.requests.append(self.path.partition("?")[0])
        if self.path.startswith("/output/"):
            _, _, kernel, name = self.path.split("/", 3)
            self.send(200, service.kernel_outputs[kernel][name], "application/octet-stream")
            return
        byte_range = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(byte_range[1]) if byte_range else 0
        service.download_starts.append(start)
        cut = service.cut_after.pop(0) if service.cut_after else None
        self.send(206 if byte_range else 200, service.archive[start:], "application/zip", cut)

    def read_body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def send(self, status: int, body: bytes, kind: str = "application/json", cut: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Fri, 20 Nov 2026 00:00:00 GMT")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", '"one"')
        with suppress(ConnectionError):  # a client that has gone must not fail a later test
            self.end_headers()
            self.wfile.write(body[:cut])

    def log_message(self, *_: object) -> None:
        pass


def press_ctrl_c() -> None:
    """Interrupts the test's own thread, which waits for an answer."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


@contextmanager
def serve(service: Service) -> Iterator[str]:
    """Yields the address of the service."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, service))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def kaggle(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes Kaggle's client talk to the service."""
    from kagglesdk import kaggle_env

    with serve(service) as address:
        monkeypatch.setitem(kaggle_env._env_to_endpoint, kaggle_env.KaggleEnv.PROD, address)
        try:
            yield
        finally:
            assert not service.errors, service.errors[0]


@pytest.fixture(autouse=True)
def no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user without an account, in a home of their own."""
    for name in ("KAGGLE_API_TOKEN", "KAGGLE_USERNAME", "KAGGLE_KEY", "KAGGLE_CONFIG_DIR", "KAGGLE_API_ENVIRONMENT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
