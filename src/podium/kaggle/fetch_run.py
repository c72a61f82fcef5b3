"""Downloads what a kernel has trained and merges it into the run on this machine."""

import json
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podium.disk import write_bytes
from podium.errors import PodiumError
from podium.folds.folds_csv import folds_path
from podium.kaggle.inside_kernel import REPORT
from podium.kaggle.kernel_chain import Kernel, chain_path
from podium.kaggle.push_kernel import KernelFailed
from podium.recipe import differences, recipe_options, recorded_values
from podium.saved_runs.run_folder import Run
from podium.terminal import say


@dataclass(frozen=True)
class Report:
    """How a kernel's training ended."""

    exit_status: int
    token: str
    folds: list[int]  # that are finished


def fetch_run(client: Any, slug: str, root: Path, run: Run, kernel: Kernel) -> int:
    """Downloads the kernel's run, checks it and merges it into the run here; returns its training's exit status."""
    with tempfile.TemporaryDirectory(prefix=f".{run.name}.", dir=run.path.parent) as folder:
        say(f"podium: downloading the output of {kernel.name}")
        client.kernels_output(kernel.name, folder, force=True)
        report = _read_report(Path(folder), kernel)
        fetched = Run(Path(folder) / "runs" / slug / run.name)
        if report.token != kernel.token or not fetched.path.is_dir():
            raise KernelFailed(
                f"{kernel.name} has not trained this run; run the same command again to start another kernel"
            )
        _check_fetched(fetched, report, Path(folder), kernel, chain_path(run))
        if not folds_path(slug, root).exists():
            for path in Path(folder).glob("folds.*"):
                write_bytes(folds_path(slug, root).with_name(path.name), path.read_bytes())
        if run.path.exists():
            with run.lock():
                _merge(fetched, run)
        else:
            fetched.path.rename(run.path)
    return report.exit_status


def _read_report(folder: Path, kernel: Kernel) -> Report:
    try:
        content = json.loads((folder / REPORT).read_text())
        return Report(int(content["exit"]), content["token"], list(map(int, content["folds"])))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise KernelFailed(
            f"{kernel.name} left no {REPORT} ({error!r}); see https://www.kaggle.com/code/{kernel.name}"
            " and run the same command again to start another kernel"
        ) from None


def _check_fetched(fetched: Run, report: Report, folder: Path, kernel: Kernel, chain: Path) -> None:
    """Raises if a file is missing or damaged: Kaggle's client writes any response into the file."""
    try:
        for fold in report.folds if fetched.recipe else ():
            fetched.check_weights(fold)
    except PodiumError as error:
        damage = str(error).partition(";")[0].replace(f"{folder}/", "")
        raise PodiumError(
            f"the output of {kernel.name} is incomplete or damaged ({damage}); run the same command again to download"
            f" it again; if that does not help, delete {chain} to start a new kernel"
        ) from None


def _merge(fetched: Run, run: Run) -> None:
    """Moves the fetched files into the run, except folds that are finished here. If the recipes differ, moves them into
    a run of their own."""
    hashes = ("folds_sha256", "data_sha256", "region_sha256", "own_parts_sha256", "corrections_sha256")
    identity = (*recipe_options(), *hashes) if run.has_begun() else ()
    recipe_here, recipe_fetched = (recorded_values(side.recipe, identity) for side in (run, fetched))
    changes = differences(recipe_here, recipe_fetched)
    if changes:
        names = (f"{run.name}-kaggle{number or ''}" for number in range(99))
        own_path = next(path for path in map(run.path.with_name, names) if not path.exists())
        fetched.path.rename(own_path)
        raise KernelFailed(
            f"{run.path} is another run than the kernel's: {changes[0]}; what the kernel trained is at {own_path}"
        )
    finished = run.finished()
    for path in fetched.path.iterdir():
        fold = re.fullmatch(r"fold(\d+)", path.name)
        if fold and int(fold[1]) in finished:
            continue
        target = run.path / path.name
        if target.is_dir():
            shutil.rmtree(target)
        path.rename(target)
