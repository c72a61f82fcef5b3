"""A stand-in of Kaggle's service on 127.0.0.1, for the real client to talk to.

The client takes no address, only names of Kaggle's own hosts. The tests give the name of the real one an
address on this machine; everything above that is the client as it is.
"""

import json
import re
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

TOKEN = "KGAT_0123456789abcdef"


class Service:
    """What Kaggle has and how it answers."""

    def __init__(self, archive: bytes = b"", status: int = 200) -> None:
        self.archive = archive
        self.status = status  # of every answer to a call of the API; 0 cuts the connection
        self.failing: dict[str, list[int]] = {}  # of the next answers to these calls alone
        self.garbled: dict[str, bytes] = {}  # what these calls are answered instead
        self.slow: dict[str, float] = {}  # seconds until these calls are answered
        self.asked: list[str] = []
        self.broken: list[str] = []  # what went wrong in here, which is nobody's fault but the test's
        self.began: list[int] = []  # where each download began
        self.tokens: set[str] = set()
        self.submissions: list[dict[str, Any]] = []  # the newest first
        self.cuts: list[int] = []  # bytes of the archive after which the next connections break
        self.left = 5  # submissions today
        self.upload_status = 200
        self.loses_uploads = False  # says that all is well, and has nothing
        self.looks_until_judged = 2
        self.verdict: dict[str, Any] = {"status": "COMPLETE", "publicScore": "0.97125"}
        self.kernels: list[dict[str, Any]] = []  # as they were pushed
        self.kernel_statuses: list[str] = []  # of the next looks, until the kernel ends
        self.kernel_end = "COMPLETE"
        self.kernel_error = ""
        self.kernel_output: dict[str, dict[str, bytes]] = {}
        self.kernel_log: list[dict[str, Any]] = []
        self.run_kernel: Callable[[dict[str, Any]], dict[str, bytes]] = lambda kernel: {}
        self.page: dict[str, Any] = {
            "ref": "https://www.kaggle.com/competitions/tiny",
            "userHasEntered": True,
            "evaluationMetric": "Categorization Accuracy",
            "maxDailySubmissions": 5,
            "deadline": "2030-01-31T23:59:00Z",
        }
        self.uploaded: dict[str, bytes] = {}
        self.datasets: dict[str, list[dict[str, Any]]] = {}  # the versions of each
        self.dataset_statuses: list[str] = []  # of the next looks, until it is ready
        self.loses_files: set[str] = set()

    def calls(self, name: str) -> int:
        return sum(path.endswith(f"/{name}") for path in self.asked)

    def submit(self, token: str, description: str) -> dict[str, Any]:
        ref = 1000 + len(self.submissions)
        if not self.loses_uploads:
            self.left -= 1
            self.submissions.insert(0, self.submission(ref, description, fileName=token, status="PENDING"))
        return {"message": "Successfully submitted", "ref": ref}

    def submission(self, ref: int, description: str, **more: Any) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"ref": ref, "description": description, "date": now, "looks": 0, **more}

    def save_kernel(self, kernel: dict[str, Any]) -> dict[str, Any]:
        if self.kernel_error:
            return {"error": self.kernel_error}
        self.kernels.append(kernel)
        self.kernel_output[kernel["slug"].rpartition("/")[2]] = self.run_kernel(kernel)
        return {"ref": kernel["slug"], "versionNumber": 1}

    def save_dataset(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        files = {each["token"]: self.uploaded[each["token"]] for each in asked["files"]}
        self.datasets.setdefault(name, []).append({**asked, "files": files})
        return {"ref": f"somebody/{name}", "status": "ok"}

    def listed(self) -> dict[str, Any]:
        for each in self.submissions:
            each["looks"] += 1
            if each["status"] == "PENDING" and each["looks"] >= self.looks_until_judged:
                each.update(self.verdict)
        return {"submissions": [{k: v for k, v in each.items() if k != "looks"} for each in self.submissions]}

    def answer(self, call: str, asked: dict[str, Any], address: str) -> dict[str, Any]:
        match call:
            case "IntrospectToken":
                return {"active": True, "username": "somebody"}
            case "StartSubmissionUpload":
                return {"token": asked["fileName"], "createUrl": f"{address}/upload/{asked['fileName']}"}
            case "CreateSubmission":
                return self.submit(asked["blobFileTokens"], asked.get("submissionDescription", ""))
            case "ListSubmissions":
                return self.listed()
            case "SaveKernel":
                return self.save_kernel(asked)
            case "GetKernelSessionStatus":
                return {"status": self.kernel_statuses.pop(0) if self.kernel_statuses else self.kernel_end}
            case "ListKernelSessionOutput":
                files = self.kernel_output[asked["kernelSlug"]]
                listed = [{"fileName": name, "url": f"{address}/output/{asked['kernelSlug']}/{name}"} for name in files]
                return {"files": listed, "log": json.dumps(self.kernel_log)}
            case "StartBlobUpload":
                name = "lost" if asked["name"] in self.loses_files else asked["name"]
                return {"token": name, "createUrl": f"{address}/upload/{name}"}
            case "CreateDataset":
                return self.save_dataset(asked["slug"], asked)
            case "CreateDatasetVersion":
                return self.save_dataset(asked["datasetSlug"], asked["body"])
            case "GetDatasetStatus":
                return {"status": self.dataset_statuses.pop(0) if self.dataset_statuses else "READY"}
            case "GetDataset":
                return {"currentVersionNumber": len(self.datasets[asked["datasetSlug"]])}
            case "GetCompetition":
                return self.page
            case "GetSubmissionLimits":
                today = len(self.submissions)
                return {"numToday": today, "numTotal": today, "numAllowedNow": self.left}
        raise AssertionError(f"nobody has written what Kaggle answers to {call}")


@contextmanager
def serve(service: Service) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            service.asked.append(self.path)
            service.tokens.add(self.headers.get("Authorization", ""))
            call = self.path.rpartition("/")[2]
            status = service.failing.get(call, [service.status]).pop(0)
            service.failing = {name: left for name, left in service.failing.items() if left}
            asked = json.loads(body or b"{}")
            if call == "IntrospectToken":
                status = 200
            if call in ("GetDataset", "GetDatasetStatus") and asked["datasetSlug"] not in service.datasets:
                status = 403  # as the real one says of what is not there
            threading.Event().wait(service.slow.get(call, 0.0))  # tests give time.sleep other meanings
            if call in service.garbled:
                self.answer(200, service.garbled[call], "application/json")
            elif status == 0:
                self.connection.close()
            elif status != 200:
                self.answer(status, json.dumps({"code": status, "message": "no"}).encode(), "application/json")
            elif call == "DownloadDataFiles":
                self.send_response(302)
                self.send_header("Location", "/storage/bundle/archive.zip?signature=x")
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                try:
                    found = service.answer(call, asked, f"http://{self.headers['Host']}")
                except Exception:
                    service.broken.append(traceback.format_exc())
                    raise
                self.answer(200, json.dumps(found).encode(), "application/json")

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            service.asked.append("/upload")
            status, name = service.upload_status, self.path.rpartition("/")[2]
            if name == "lost":
                status = 400
            if status == 200:
                service.uploaded[name] = body
            self.answer(status, b"", "text/plain")

        def do_GET(self) -> None:
            service.asked.append(self.path.partition("?")[0])
            if self.path.startswith("/output/"):
                _, _, kernel, name = self.path.split("/", 3)
                self.answer(200, service.kernel_output[kernel][name], "application/octet-stream")
                return
            wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            begin = int(wanted[1]) if wanted else 0
            service.began.append(begin)
            cut = service.cuts.pop(0) if service.cuts else None
            self.answer(206 if wanted else 200, service.archive[begin:], "application/zip", cut)

        def answer(self, status: int, body: bytes, kind: str, cut: int | None = None) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Last-Modified", "Fri, 20 Nov 2026 00:00:00 GMT")
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("ETag", '"one"')
            with suppress(ConnectionError):  # whoever asked may have gone, and no later test should hear of it
                self.end_headers()
                self.wfile.write(body[:cut])

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


@contextmanager
def kaggle(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from kagglesdk import kaggle_env

    with serve(service) as address:
        monkeypatch.setitem(kaggle_env._env_to_endpoint, kaggle_env.KaggleEnv.PROD, address)
        try:
            yield
        finally:
            assert not service.broken, service.broken[0]


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A person without an account, in a home of their own."""
    for name in ("KAGGLE_API_TOKEN", "KAGGLE_USERNAME", "KAGGLE_KEY", "KAGGLE_CONFIG_DIR", "KAGGLE_API_ENVIRONMENT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
