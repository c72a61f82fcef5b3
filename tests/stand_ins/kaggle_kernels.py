"""Kernels for the stand-in of Kaggle's service.

KernelMachine really runs them, in copies of Kaggle's folders and without this checkout's code. InstantKernels return a
run that was trained before, InstantCompete also a ledger and a CSV.
"""

import ast
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from stand_ins.kaggle_service import Service

KNOBS = ("--model", "test_vit", "--weights", "none", "--image-size", "32", "--batch-size", "8", "--epochs", "2")
TRAIN = ("kaggle-train", "-c", "tiny", *KNOBS)

# Code for sitecustomize.py: training ends after its first fold as if it had been stopped.
STOP_AFTER_FOLD_0 = """
import os, subprocess, sys
if "train" in sys.orig_argv and "--folds" not in sys.orig_argv:
    os._exit(subprocess.call([*sys.orig_argv, "--folds", "0"]) or 75)
"""


class KernelMachine:
    """Service.run_kernel of tests in which kernels really run."""

    def __init__(self, folder: Path, competition: Path, service: Service, sitecustomize: str = "") -> None:
        self.folder = folder
        self.competition = competition
        self.service = service
        self.sitecustomize = sitecustomize  # Python code that runs first in each process of a kernel
        self.outputs: dict[str, Path] = {}

    def __call__(self, kernel: dict[str, Any]) -> dict[str, bytes]:
        """Returns the files that the kernel leaves in working/."""
        kaggle = self.folder / kernel["slug"].rpartition("/")[2]
        working = kaggle / "working"
        working.mkdir(parents=True)
        self.mount_inputs(kernel, kaggle / "input")
        script = kaggle / "kernel.py"
        script.write_text(extract_code(kernel))
        (kaggle / "site").mkdir()
        (kaggle / "site" / "sitecustomize.py").write_text(self.sitecustomize)
        environment = {
            **os.environ,
            "PODIUM_KAGGLE": str(kaggle),
            "PODIUM_KAGGLE_CODE": str(kaggle / "code"),
            "PYTHONPATH": str(kaggle / "site"),  # without this checkout: the kernel has the code in it
        }
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        self.outputs[kernel["slug"]] = working
        return {str(path.relative_to(working)): path.read_bytes() for path in working.rglob("*") if path.is_file()}

    def mount_inputs(self, kernel: dict[str, Any], folder: Path) -> None:
        folder.mkdir()
        (folder / self.competition.name).symlink_to(self.competition)
        for source in kernel.get("kernelDataSources", []):
            shutil.copytree(self.outputs[source], folder / source.rpartition("/")[2])
        for source in kernel.get("datasetDataSources", []):
            self.mount_dataset(source.rpartition("/")[2], folder)

    def mount_dataset(self, name: str, folder: Path) -> None:
        """Writes the newest version; unpacks each archive into a folder of its name."""
        for file_name, content in self.service.datasets[name][-1]["files"].items():
            path = folder / name / file_name
            if path.suffix == ".zip":
                zipfile.ZipFile(io.BytesIO(content)).extractall(path.with_suffix(""))
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)


def extract_code(kernel: dict[str, Any]) -> str:
    if kernel["kernelType"] != "notebook":
        return str(kernel["text"])
    cells = json.loads(kernel["text"])["cells"]
    return "\n".join(cell["source"] for cell in cells if cell["cell_type"] == "code")


class InstantKernels:
    """Service.run_kernel of tests in which kernels need not run: each returns a run that was trained before."""

    def __init__(self, trained_run: Path) -> None:
        self.run = trained_run
        self.stop_after: list[list[int]] = []  # folds that the next kernels finish before Kaggle's time is over

    def __call__(self, kernel: dict[str, Any]) -> dict[str, bytes]:
        slug, run, _, _, token = parse_arguments(kernel)
        folds, exit_status = (self.stop_after.pop(0), 75) if self.stop_after else ([0, 1], 0)
        paths = [self.run / "recipe.json", *(path for fold in folds for path in self.run.glob(f"fold{fold}/*"))]
        files = {f"runs/{slug}/{run}/{path.relative_to(self.run)}": path.read_bytes() for path in paths}
        report = json.dumps({"exit": exit_status, "token": token, "folds": {run: folds}})
        return {**files, "podium.json": report.encode()}


class InstantCompete:
    """Service.run_kernel of tests in which kernels need not compete: their member is a run that was trained before."""

    def __init__(self, trained_run: Path) -> None:
        self.run = trained_run
        self.exits = [0]  # of the next kernels; the last one stays
        self.lines: list[dict[str, Any]] = []  # of the ledger
        self.csv = b""

    def __call__(self, kernel: dict[str, Any]) -> dict[str, bytes]:
        slug, budget, _, token = parse_call(kernel)
        name, exit_status = self.run.name, self.exits.pop(0) if len(self.exits) > 1 else self.exits[0]
        self.lines.append({"event": "started", "budget": budget})
        self.csv = f"id,predict\n{len(self.lines)},red\n".encode()
        digest = hashlib.sha256(self.csv).hexdigest()
        self.lines.append({"event": "submitted", "runs": [name], "folds": [0, 1], "sha256": digest})
        ledger = "".join(json.dumps(line) + "\n" for line in self.lines)
        report = {"exit": exit_status, "token": token, "folds": {name: [0, 1]}}
        paths = [self.run / "recipe.json", *self.run.glob("fold*/*")]
        return {
            **{f"runs/{slug}/{name}/{path.relative_to(self.run)}": path.read_bytes() for path in paths},
            "compete/compete.jsonl": ledger.encode(),
            "compete/worked.json": b'{"seconds": 3600.0}',
            f"submissions/{slug}/compete.csv": self.csv,
            f"submissions/{slug}/compete.json": b"{}",
            "podium.json": json.dumps(report).encode(),
        }


def parse_call(kernel: dict[str, Any]) -> Any:
    """Returns what the kernel's script passes to run_training or run_competing."""
    (arguments,) = re.findall(r"inside_kernel\.run_\w+(\(.*\))\)", kernel["text"])
    return ast.literal_eval(arguments)


def parse_arguments(kernel: dict[str, Any]) -> tuple[str, str, dict[str, Any], str | None, str]:
    """Returns what the kernel's script passes to run_training: slug, run, options, previous kernel and token."""
    slug, run, options, previous, token = parse_call(kernel)
    return slug, run, options, previous, token
