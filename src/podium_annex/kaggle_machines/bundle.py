"""Packs what a competition that accepts notebooks only needs: models, code, packages and the notebook.

    podium kaggle-bundle [--runs A B | --except A B]

Writes submissions/<slug>/bundle/: a data set for publish_bundle.py to upload, with the notebook that makes
submission.csv in it. The notebook is tried here first (offline_trial.py).
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from podium.basics.disk import rename_durably, write_json, write_text
from podium.basics.errors import PodiumError
from podium.basics.extras import COPY, declared_lines, requirements_of
from podium.basics.terminal import say
from podium.blending.select_runs import select_runs
from podium.competition.load import Competition
from podium.saved_runs.fold_names import fold_folder_name
from podium.saved_runs.imported_runs import refuse_imported
from podium.saved_runs.regions_of_run import region_files
from podium.saved_runs.run_folder import Run
from podium.submissions.lineage import read_lineage
from podium.submissions.submission import submit
from podium_annex.kaggle_machines.inside_kernel import NOT_IN_BUNDLES
from podium_annex.kaggle_machines.offline_trial import try_offline
from podium_annex.kaggle_machines.pack_kernel import find_code_files, name_project_files
from podium_annex.kaggle_machines.push_kernel import make_kernel_name

METADATA = "dataset-metadata.json"
NOTEBOOK = "inference.ipynb"
PYTHON = "3.12"  # of Kaggle's image
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64")
FOLD_FILES = ("model.safetensors", "oof.npz")


def bundle(
    competition: Competition,
    names: list[str] | None = None,
    except_names: list[str] | None = None,
    strategy: str | None = None,
) -> Path:
    """Writes the bundle of these runs, blended with this strategy, and tries its notebook; returns its folder."""
    slug, runs = competition.slug, select_runs(competition, names, except_names)
    refuse_imported(runs, "podium kaggle-bundle")
    run_names = [run.name for run in runs]
    folder = competition.root / "submissions" / slug / "bundle"
    unfinished = folder.with_name(".bundle")  # renamed at the end: a bundle from before stays until there is a new one
    shutil.rmtree(unfinished, ignore_errors=True)
    dataset = make_kernel_name(slug, "bundle")
    try:
        _download_packages(unfinished / "wheels")  # first, because nothing else needs a network
        csv = submit(competition, run_names, blend=strategy, anyway=True)
        code = _build_notebook_code(dataset, slug, run_names, read_lineage(csv).blend.strategy)
        _write_files(unfinished, competition.root, slug, runs, dataset, code)
        agreement = try_offline(code, unfinished, dataset, competition, csv)
        if folder.exists():
            shutil.rmtree(folder)
        rename_durably(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    say(f"podium: wrote {folder}, {size / 1e6:,.0f} MB; without a network its notebook makes {agreement} as here")
    return folder


def _write_files(folder: Path, root: Path, slug: str, runs: Sequence[Run], dataset: str, code: str) -> None:
    """Writes all of the bundle but the packages."""
    for path, name in [*find_code_files(), *name_project_files(slug, root)]:
        _copy(path, folder / name)
    write_text(folder / COPY.name, "\n".join(declared_lines()))
    for run in runs:
        _copy_run(run, folder / "runs" / slug / run.name)
    metadata = {"id": f"INSERT_USER/{dataset}", "title": dataset.replace("-", " "), "licenses": [{"name": "other"}]}
    write_json(folder / METADATA, metadata)
    write_text(folder / NOTEBOOK, json.dumps(_build_notebook(slug, code), indent=1))


def _copy(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)


def _copy_run(run: Run, target: Path) -> None:
    _copy(run.path / "recipe.json", target / "recipe.json")
    for path in region_files(run):
        _copy(path, target / path.relative_to(run.path))
    for fold in run.models():
        run.check_weights(fold)
        for name in FOLD_FILES:
            _copy(run.fold_folder(fold) / name, target / fold_folder_name(fold) / name)


def _download_packages(folder: Path) -> None:
    """Downloads the packages that Kaggle's image may lack, for its Python and not for this one. torch is there."""
    packages = [str(one) for one in requirements_of() if one.name not in ("torch", *NOT_IN_BUNDLES)]
    say(f"podium: downloading packages for Python {PYTHON}")
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command = [*pip, "--python-version", PYTHON, *platforms, "-d", str(folder), *packages]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["pip gives no reason"])[-1]
        raise PodiumError(
            f"the packages of the bundle cannot be downloaded ({reason}); run the same command where there is a network"
        )


def _build_notebook_code(dataset: str, slug: str, runs: Sequence[str], strategy: str) -> str:
    return f"""import glob
import os
import sys

# Kaggle unpacks the data set below its input folder
kaggle = os.environ.get("PODIUM_KAGGLE", "/kaggle")
(code,) = glob.glob(kaggle + "/input/**/{dataset}/src", recursive=True)[:1]
sys.path.insert(0, code)
import podium_annex.kaggle_machines.inside_kernel

podium_annex.kaggle_machines.inside_kernel.run_inference({slug!r}, {list(runs)!r}, {strategy!r})"""


def _build_notebook(slug: str, code: str) -> dict[str, Any]:
    text = (
        f"Predicts the test images of {slug} with the models of this data set and writes submission.csv. Add the"
        " competition and the data set as inputs, switch the internet off, and submit."
    )
    code_cell = {"cell_type": "code", "id": "infer", "metadata": {}, "source": code, "outputs": []}
    return {
        "cells": [
            {"cell_type": "markdown", "id": "what", "metadata": {}, "source": text},
            {**code_cell, "execution_count": None},
        ],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
