"""Packs what a competition that takes notebooks only needs: models, code, packages and the notebook, for no network.

    podium kaggle-bundle [--runs A B]

Writes submissions/<slug>/bundle/: a data set for deliver.py to upload and, in it, the notebook that makes
submission.csv. It is tried here, in a process whose network is cut off, and has to make what `podium submit` makes.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from podium import PodiumError
from podium.competition.csv_files import read_table
from podium.competition.load import Competition
from podium.competition.submission_format import SubmissionFormat
from podium.disk import write_json, write_text
from podium.kaggle.inside_kernel import OF_KAGGLE, requirements
from podium.kaggle.kernels import card_of, code_files, kernel_name
from podium.submit.lineage import read_lineage
from podium.submit.submission import SubmitOptions, submit
from podium.terminal import say
from podium.training.run_folder import Run, find_runs

METADATA = "dataset-metadata.json"
NOTEBOOK = "inference.ipynb"
PYTHON = "3.12"  # of Kaggle's image
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64")
OF_A_FOLD = ("model.safetensors", "oof.npz")
# The system's own way is used too, where it lets us.
NO_NETWORK = """
import socket
class Refused(socket.socket):
    def connect(self, address):
        if self.family != socket.AF_UNIX: raise OSError(101, "the network is cut off")
        return super().connect(address)
    connect_ex = connect
socket.socket = Refused
def refuse(*_, **__): raise OSError(101, "the network is cut off")
socket.create_connection = socket.getaddrinfo = refuse
"""


def bundle(competition: Competition, root: Path, names: list[str] | None = None, way: str | None = None) -> Path:
    runs, slug = find_runs(competition.slug, root, names), competition.slug
    here = submit(competition, root, SubmitOptions(runs=[run.name for run in runs], blend=way, anyway=True))
    way = read_lineage(here).blend.strategy
    folder = root / "submissions" / slug / "bundle"
    if folder.exists():
        shutil.rmtree(folder)
    for path, inside in code_files():
        _copy(path, folder / inside)
    for path in card_of(slug, root):
        _copy(path, folder / path.relative_to(root))
    for run in runs:
        _copy_run(run, folder / "runs" / slug / run.name)
    _wheels(folder / "wheels")
    name = kernel_name(slug, "bundle")
    write_json(
        folder / METADATA,
        {"id": f"INSERT_USER/{name}", "title": name.replace("-", " "), "licenses": [{"name": "other"}]},
    )
    write_text(folder / NOTEBOOK, json.dumps(_notebook(name, slug, [run.name for run in runs], way), indent=1))
    made = _prove(folder, name, competition, here)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    say(f"podium: wrote {folder}, {size / 1e6:,.0f} MB; without a network its notebook makes {made} as here")
    return folder


def _copy(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)


def _copy_run(run: Run, target: Path) -> None:
    _copy(run.path / "recipe.json", target / "recipe.json")
    for fold in run.finished():
        run.check_weights(fold)
        for name in OF_A_FOLD:
            _copy(run.fold(fold) / name, target / f"fold{fold}" / name)


def _wheels(folder: Path) -> None:
    """For Kaggle's Python, not for this one: all that its image may lack, but for torch, which it has."""
    wanted = [each for each in requirements() if not each.startswith(("torch", *OF_KAGGLE))]
    say(f"podium: fetching packages for Python {PYTHON}")
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run(
        [*pip, "--python-version", PYTHON, *platforms, "-d", str(folder), *wanted], capture_output=True, text=True
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["pip gives no reason"])[-1]
        raise PodiumError(f"the packages of the bundle cannot be had ({reason}); it takes a network to make one")


def _notebook(name: str, slug: str, runs: Sequence[str], way: str) -> dict[str, Any]:
    source = f"""import glob
import sys

# Where Kaggle has unpacked the data set
(bundle,) = [path[: -len("/src")] for path in glob.glob("/kaggle/input/**/{name}/src", recursive=True)][:1]
sys.path.insert(0, bundle + "/src")
import podium.kaggle.inside_kernel

podium.kaggle.inside_kernel.infer({slug!r}, {list(runs)!r}, {way!r})"""
    text = (
        f"Predicts the test images of {slug} with the models of this data set and writes submission.csv. Add the"
        " competition and the data set as inputs, switch the internet off, and submit."
    )
    return {
        "cells": [
            {"cell_type": "markdown", "id": "what", "metadata": {}, "source": text},
            {
                "cell_type": "code",
                "id": "infer",
                "metadata": {},
                "source": source,
                "outputs": [],
                "execution_count": None,
            },
        ],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _prove(folder: Path, name: str, competition: Competition, here: Path) -> str:
    """The notebook's own code in a copy of Kaggle's folders, with nothing of this machine but its packages; what it
    makes, in words."""
    say("podium: trying the notebook without a network")
    (cell,) = [each for each in json.loads((folder / NOTEBOOK).read_text())["cells"] if each["id"] == "infer"]
    with tempfile.TemporaryDirectory() as kaggle:
        mounted = Path(kaggle) / "input"
        (Path(kaggle) / "working").mkdir()
        mounted.mkdir()
        shutil.copytree(folder, mounted / name)
        (mounted / competition.slug).symlink_to(competition.folder.resolve())
        elsewhere = f"podium.kaggle.inside_kernel.KAGGLE = type(podium.kaggle.inside_kernel.KAGGLE)({kaggle!r})"
        source = cell["source"].replace("/kaggle/", f"{kaggle}/")
        source = source.replace(
            "import podium.kaggle.inside_kernel", f"import podium.kaggle.inside_kernel; {elsewhere}"
        )
        (Path(kaggle) / "cut").mkdir()
        write_text(Path(kaggle) / "cut" / "sitecustomize.py", NO_NETWORK)
        environment = {**os.environ, "PYTHONPATH": f"{kaggle}/cut", "HF_HUB_OFFLINE": "1"}
        command = [*_cut_off(), sys.executable, "-c", source]
        done = subprocess.run(command, cwd=kaggle, env=environment, capture_output=True, text=True)
        made = Path(kaggle) / "working" / "submission.csv"
        if done.returncode or not made.exists():
            reason = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
            raise PodiumError(f"the bundle's notebook fails without a network: {reason}")
        if made.read_bytes() == here.read_bytes():
            return "the same CSV"
        if _alike(made, here, competition.submission_format):
            return "the same answers, but for rounding,"
        raise PodiumError(f"the bundle's notebook makes another CSV than {here}")


def _alike(made: Path, here: Path, submission_format: SubmissionFormat) -> bool:
    """But for rounding: what is kept here may have been predicted on another device."""
    one, other = read_table(made), read_table(here)
    ids, answers = submission_format.columns[submission_format.id_position], list(submission_format.answer_columns)
    if list(one.columns) != list(other.columns) or list(one[ids]) != list(other[ids]):
        return False
    if submission_format.wants == "labels":
        return float((one[answers] != other[answers]).to_numpy().mean()) < 0.002
    return bool(np.allclose(one[answers].astype(float), other[answers].astype(float), atol=0.01))


def _cut_off() -> list[str]:
    """Words before a command that leave it no network, where the system lets us."""
    for words in (["unshare", "--net"], ["unshare", "--net", "--map-root-user"]):
        try:
            if subprocess.run([*words, "true"], capture_output=True, timeout=10).returncode == 0:
                return words
        except (OSError, subprocess.SubprocessError):
            continue
    return []
