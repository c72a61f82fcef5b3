"""Runs on Kaggle's machines: trains or competes in a kernel, or predicts in the notebook of a bundle.

pack_kernel.py and bundle.py write the code that unpacks this package there and calls `run_training`, `run_competing` or
`run_inference`. Until these have installed the missing packages, this module may import only Python's library and
`podium`. Reads /kaggle/input, writes /kaggle/working. For trials elsewhere, PODIUM_KAGGLE names another folder than
/kaggle.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import podium
from podium.basics.errors import STOPPED, PodiumError
from podium.basics.extras import requirements_of
from podium.options.recipe import fits_only_head

KAGGLE = Path(os.environ.get("PODIUM_KAGGLE", "/kaggle"))
# Where this package was unpacked: src/, requirements.txt (extras.py) and PROJECT.
CODE = Path(podium.__file__).parents[2]
PROJECT = "project"  # the folder of the files that come from the user's root: card, folds, podium.toml, extensions
# Seconds until training is asked to stop. Kaggle ends a kernel after twelve hours and then keeps none of its output.
LIMIT = 11.0 * 3600
GRACE = 900.0  # seconds to stop in: the current step and a save
NOT_IN_BUNDLES = ("kaggle", "six")  # packages that prediction does not need
REPORT = "podium.json"  # in the output of a kernel: how its command ended
COMPETED = "compete"  # in the output of a kernel: the ledger's folder; Kaggle may not keep a hidden one
LEDGER = ".compete"  # its name in runs/<slug> (saved_runs/ledger.py)


@dataclass(frozen=True)
class TrainFlags:
    """What a kernel trains, as data; `to_words` renders it as flags of `podium train`."""

    recipe: dict[str, Any]
    folds: list[int] | None = None  # None: all
    budget: float | None = None  # seconds
    files: dict[str, str] = field(default_factory=dict)  # of options that name one: its place in PROJECT

    def to_words(self, project: Path = Path()) -> list[str]:
        """Returns the words of a command line, with the files where PROJECT is."""
        words = []
        for name, value in (self.recipe | {name: project / place for name, place in self.files.items()}).items():
            flag = name.replace("_", "-")
            if isinstance(value, bool):
                words.append(f"--{flag}" if value else f"--no-{flag}")
            else:
                words += [f"--{flag}", str(value)]
        if self.folds is not None:
            words += ["--folds", ",".join(map(str, self.folds))]
        if self.budget is not None:
            words += ["--budget", f"{self.budget}s"]
        return words


def run_training(slug: str, run: str, options: dict[str, Any], previous: str | None, token: str) -> int:
    """Trains a run in this kernel; `options` are the fields of TrainFlags."""
    flags, gpus = TrainFlags(**options), _count_gpus()
    processes = ["--processes", str(gpus)] if gpus > 1 and not fits_only_head(flags.recipe) else []
    words = ["train", "-c", slug, "--name", run, *flags.to_words(CODE / PROJECT), *processes]
    return _work(slug, words, previous, token)


def run_competing(slug: str, budget: float, previous: str | None, token: str) -> int:
    """Runs `podium compete` in this kernel, for so many seconds in all kernels together."""
    return _work(slug, ["compete", "-c", slug, "--budget", f"{budget}s"], previous, token)


def _work(slug: str, words: Sequence[str], previous: str | None, token: str) -> int:
    """Runs a command until all is done or Kaggle's time is over; it goes on with what the kernel `previous` has left.

    The report repeats the token. Returns the exit status of the kernel.
    """
    end = time.monotonic() + LIMIT
    _install_packages([])
    working = KAGGLE / "working"
    runs = working / "runs"
    if previous:
        outputs = [path for path in KAGGLE.glob(f"input/**/runs/{slug}") if path.is_dir()]
        if not outputs:
            raise PodiumError(f"the output of {previous} is not among this kernel's sources; add it in its settings")
        shutil.copytree(outputs[0], runs / slug)
        if (ledger := outputs[0].parents[1] / COMPETED).is_dir():
            shutil.copytree(ledger, runs / slug / LEDGER)
    root = _make_root(slug, runs)
    prepared = root / "data" / "prepared" / slug
    if not (prepared / "folds.csv").exists():
        subprocess.run(_podium_command(root, "folds", "-c", slug), check=True, env=_environment())
    for path in prepared.glob("folds.*"):
        shutil.copyfile(path, working / path.name)
    status = run_for(_podium_command(root, *words), end - time.monotonic())
    if (ledger := runs / slug / LEDGER).is_dir():
        ledger.rename(working / COMPETED)
    if (submissions := root / "submissions").is_dir():
        shutil.copytree(submissions, working / "submissions")
    folds = {path.parent.name: _finished_folds(path.parent) for path in runs.glob(f"{slug}/*/recipe.json")}
    (working / REPORT).write_text(json.dumps({"exit": status, "token": token, "folds": folds}))
    return 0 if status == STOPPED else status


def _finished_folds(run: Path) -> list[int]:
    return sorted(int(path.parent.name.removeprefix("fold")) for path in run.glob("fold*/oof.npz"))


def run_inference(slug: str, runs: Sequence[str], blend: str) -> Path:
    """Writes submission.csv from the bundle's models and the mounted test images; needs no network."""
    _install_packages([f"--find-links={CODE / 'wheels'}", "--no-index"])
    writable_runs = KAGGLE / "working" / ".podium-runs"  # the bundle itself is read-only
    shutil.copytree(CODE / "runs", writable_runs, dirs_exist_ok=True)
    root = _make_root(slug, writable_runs)
    flags = ["--runs", *runs, "--blend", blend, "--anyway", "--store", "off"]
    command = _podium_command(root, "submit", "-c", slug, *flags)
    path = KAGGLE / "working" / "submission.csv"
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=_environment())
        shutil.copyfile(done.stdout.splitlines()[-1], path)
    finally:
        shutil.rmtree(writable_runs)
    return path


def _make_root(slug: str, runs: Path) -> Path:
    """Returns a new root for podium: it links to Kaggle's data and to `runs`. It lies outside /kaggle/working, because
    the decoded pixels must not become output of the kernel."""
    root = CODE / "root"
    shutil.rmtree(root, ignore_errors=True)
    if not os.access(CODE, os.W_OK):
        import tempfile

        root = Path(tempfile.mkdtemp(prefix="podium-"))
    mounts = [path for path in (KAGGLE / "input" / slug, KAGGLE / "input" / "competitions" / slug) if path.is_dir()]
    if not mounts:
        raise PodiumError(f"the files of {slug} are not mounted; add the competition to the kernel's sources")
    runs.mkdir(parents=True, exist_ok=True)
    (root / "data" / "raw").mkdir(parents=True)
    (root / "data" / "raw" / slug).symlink_to(mounts[0])
    (root / "runs").symlink_to(runs)
    if (CODE / PROJECT).is_dir():
        shutil.copytree(CODE / PROJECT, root, dirs_exist_ok=True)
    return root


def _podium_command(root: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "podium", "--root", str(root), *words]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{CODE / 'src'}:{os.environ.get('PYTHONPATH', '')}"}


def _install_packages(pip_options: Sequence[str]) -> None:
    """Installs the packages that Kaggle's image lacks or has in another version. Refuses to replace torch, whose build
    must fit the driver."""
    missing = []
    for requirement in requirements_of():
        try:
            version = importlib.metadata.version(requirement.name)
            if requirement.specifier.contains(version, prereleases=True):
                continue
        except importlib.metadata.PackageNotFoundError:
            pass
        if requirement.name == "torch":
            raise PodiumError(
                f"this image has no {requirement}; choose the latest environment in the kernel's settings"
            )
        if not (requirement.name in NOT_IN_BUNDLES and "--no-index" in pip_options):
            missing.append(str(requirement))
    if missing:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, *pip_options, *missing], check=True)


def _count_gpus() -> int:
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    return len(re.findall("^GPU ", done.stdout, re.MULTILINE))


def run_for(command: Sequence[str], seconds: float) -> int:
    """Returns the command's exit status. Asks it to save and stop when the seconds are over."""
    process = subprocess.Popen(command, env=_environment(), start_new_session=True)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(GRACE)
    except subprocess.TimeoutExpired:  # its last checkpoint is complete
        os.killpg(process.pid, signal.SIGKILL)
        return STOPPED
