"""What runs on Kaggle's machines: a training kernel, and the inference of a competition that takes notebooks only.

The kernels that kernels.py and bundle.py make unpack this code and call `train` or `infer`. Until packages are there it
needs nothing but Python. Writes /kaggle/working.
"""

import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import podium
from podium import STOPPED, PodiumError

KAGGLE = Path("/kaggle")
CODE = Path(podium.__file__).parents[2]  # what was unpacked: src/, requirements.txt, data/
# Seconds until training is asked to stop: after twelve hours Kaggle ends a kernel, and keeps nothing of it.
LIMIT = 11.0 * 3600
GRACE = 900.0  # seconds for that: a step, a save
OF_KAGGLE = ("kaggle", "six")  # which inference does without
REPORT = "podium.json"  # in the output of a kernel: how its training ended


def train(slug: str, run: str, words: Sequence[str], previous: str | None, token: str) -> int:
    """Trains, or goes on with what the previous kernel left, until it ends or Kaggle's time does."""
    end = time.monotonic() + LIMIT
    _install([])
    runs = KAGGLE / "working" / "runs"
    if previous:
        left = [path for path in KAGGLE.glob(f"input/**/runs/{slug}/{run}") if path.is_dir()]
        if not left:
            raise PodiumError(f"the output of {previous} is not among this kernel's sources")
        shutil.copytree(left[0], runs / slug / run)
    root = _root(slug, runs)
    prepared = root / "data" / "prepared" / slug
    if not (prepared / "folds.csv").exists():
        subprocess.run(_podium(root, "folds", "-c", slug), check=True, env=_environment())
    for path in prepared.glob("folds.*"):
        shutil.copyfile(path, KAGGLE / "working" / path.name)
    gpus = _gpus()
    several = ["--processes", str(gpus)] if gpus > 1 and "--linear" not in words else []
    command = _podium(root, "train", "-c", slug, "--name", run, *words, *several)
    ended = _within(command, end - time.monotonic())
    folds = sorted(int(path.parent.name.removeprefix("fold")) for path in (runs / slug / run).glob("fold*/oof.npz"))
    (KAGGLE / "working" / REPORT).write_text(json.dumps({"exit": ended, "token": token, "folds": folds}))
    return 0 if ended == STOPPED else ended


def infer(slug: str, runs: Sequence[str], way: str) -> Path:
    """submission.csv, from a bundle's models and the test images that Kaggle has mounted; needs no network."""
    _install([f"--find-links={CODE / 'wheels'}", "--no-index"])
    mine = KAGGLE / "working" / ".podium-runs"  # the bundle cannot be written to
    shutil.copytree(CODE / "runs", mine, dirs_exist_ok=True)
    root = _root(slug, mine)
    command = _podium(root, "submit", "-c", slug, "--runs", *runs, "--blend", way, "--anyway", "--store", "off")
    path = KAGGLE / "working" / "submission.csv"
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=_environment())
        shutil.copyfile(done.stdout.splitlines()[-1], path)
    finally:
        shutil.rmtree(mine)
    return path


def _root(slug: str, runs: Path) -> Path:
    """A project's folder whose data are Kaggle's, whose runs are elsewhere, and whose pixels are no output."""
    root = CODE / "root"
    shutil.rmtree(root, ignore_errors=True)
    if not os.access(CODE, os.W_OK):
        import tempfile

        root = Path(tempfile.mkdtemp(prefix="podium-"))
    mounted = [path for path in (KAGGLE / "input" / slug, KAGGLE / "input" / "competitions" / slug) if path.is_dir()]
    if not mounted:
        raise PodiumError(f"the files of {slug} are not mounted; add the competition to the kernel's sources")
    runs.mkdir(parents=True, exist_ok=True)
    (root / "data" / "raw").mkdir(parents=True)
    (root / "data" / "raw" / slug).symlink_to(mounted[0])
    (root / "runs").symlink_to(runs)
    for name in ("competitions", "prepared"):
        if (CODE / "data" / name).is_dir():
            shutil.copytree(CODE / "data" / name, root / "data" / name)
    return root


def _podium(root: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "podium", "--root", str(root), *words]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{CODE / 'src'}:{os.environ.get('PYTHONPATH', '')}"}


def requirements() -> list[str]:
    """What training and prediction run on, without what notebooks and tests do."""
    text = (CODE / "requirements.txt").read_text().partition("# For the notebooks")[0]
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def _install(options: Sequence[str]) -> None:
    """The packages that the image lacks, or has of another version, but for torch, whose build fits the driver."""
    from packaging.requirements import Requirement

    missing = []
    for each in map(Requirement, requirements()):
        try:
            fits = each.specifier.contains(importlib.metadata.version(each.name), prereleases=True)
        except importlib.metadata.PackageNotFoundError:
            fits = False
        if not fits and each.name == "torch":
            raise PodiumError(f"this image has no {each}; choose the latest environment in the kernel's settings")
        if not fits and not (each.name in OF_KAGGLE and "--no-index" in options):
            missing.append(str(each))
    if missing:
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", *options, *missing], check=True)


def _gpus() -> int:
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    return len(re.findall("^GPU ", listed.stdout, re.MULTILINE))


def _within(command: Sequence[str], seconds: float) -> int:
    """The command's exit status; after so many seconds it is asked to save and to stop."""
    process = subprocess.Popen(command, env=_environment(), start_new_session=True)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(GRACE)
    except subprocess.TimeoutExpired:  # what it saved before is sound
        os.killpg(process.pid, signal.SIGKILL)
        return STOPPED
