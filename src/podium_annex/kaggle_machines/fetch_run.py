"""Downloads what a kernel has made and merges it into what is on this machine.

Each run joins the run of its name. The ledger of compete and its CSV belong together: both come where there is no
ledger here, or where Kaggle's goes on from the one here; otherwise both stay.
"""

import json
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from podium.basics.disk import locked, sha256, write_bytes
from podium.basics.errors import InUse, PodiumError
from podium.basics.project_root import runs_folder
from podium.basics.terminal import say
from podium.folds.folds_csv import folds_path
from podium.options.recipe import differences, file_hashes, recipe_options, recorded_values
from podium.saved_runs.ledger import FOLDER, LEDGER, LOG, SUBMITTED, WORKED, Ledger
from podium.saved_runs.run_folder import Run
from podium_annex.kaggle_machines.inside_kernel import COMPETED, REPORT
from podium_annex.kaggle_machines.kernel_chain import Kernel, chain_path
from podium_annex.kaggle_machines.push_kernel import KernelFailed


class Fetched(NamedTuple):
    exit_status: int  # of the kernel's command
    csv: Path | None = None  # of compete, if the one here is the kernel's


@dataclass(frozen=True)
class Report:
    """How a kernel's command ended."""

    exit_status: int
    token: str
    folds: dict[str, list[int]]  # that are finished, by run


def fetch_run(client: Any, slug: str, root: Path, made: Path, kernel: Kernel) -> Fetched:
    """Downloads the kernel's output, checks it and merges it into what is here.

    `made` is the folder of a run, or that of the ledger of compete, whose members come with it.
    """
    with tempfile.TemporaryDirectory(prefix=".kernel.", dir=made.parent) as folder:
        say(f"podium: downloading the output of {kernel.name}")
        client.kernels_output(kernel.name, folder, force=True)
        report, fetched = _read_report(Path(folder), kernel), runs_folder(slug, Path(folder))
        if (competed := Path(folder) / COMPETED).is_dir():
            fetched.mkdir(parents=True, exist_ok=True)  # compete may have trained nothing
            competed.rename(fetched / FOLDER)
        if report.token != kernel.token or not (fetched / made.name).is_dir():
            raise KernelFailed(
                f"{kernel.name} has not worked on {made}; run the same command again to start another kernel"
            )
        _check_fetched(slug, Path(folder), report, kernel, made)
        if not folds_path(slug, root).exists():
            for path in Path(folder).glob("folds.*"):
                write_bytes(folds_path(slug, root).with_name(path.name), path.read_bytes())
        apart = [text for name in report.folds if (text := _take_run(Run(fetched / name), made.with_name(name)))]
        if apart and made.name != FOLDER:
            raise KernelFailed(apart[0])
        for text in apart:
            say(f"podium: warning: {text}")
        csv = _take_competing(slug, Path(folder), root) if made.name == FOLDER else None
    return Fetched(report.exit_status, csv)


def _read_report(folder: Path, kernel: Kernel) -> Report:
    try:
        content = json.loads((folder / REPORT).read_text())
        folds = {str(name): list(map(int, folds)) for name, folds in dict(content["folds"]).items()}
        return Report(int(content["exit"]), content["token"], folds)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise KernelFailed(
            f"{kernel.name} left no {REPORT} ({error!r}); see https://www.kaggle.com/code/{kernel.name}"
            " and run the same command again to start another kernel"
        ) from None


def _check_fetched(slug: str, folder: Path, report: Report, kernel: Kernel, made: Path) -> None:
    """Raises if a file is missing or damaged: Kaggle's client writes any response into the file."""
    try:
        for name, folds in report.folds.items():
            fetched = Run(runs_folder(slug, folder) / name)
            for fold in sorted({*folds, *fetched.models()}) if fetched.recipe else ():
                fetched.check_weights(fold)
        Ledger(slug, folder)
    except PodiumError as error:
        damage = str(error).partition(";")[0].replace(f"{folder}/", "")
        raise PodiumError(
            f"the output of {kernel.name} is incomplete or damaged ({damage}); run the same command again to download"
            f" it again; if that does not help, delete {chain_path(made)} to start a new kernel"
        ) from None


def _take_run(fetched: Run, path: Path) -> str:
    """Moves a run to its place here. If another one has its name, it gets a name of its own; returns a text of that."""
    problem = ""
    for number in range(99):
        run = Run(path.with_name(f"{path.name}-kaggle{number - 1 or ''}") if number else path)
        if not run.path.exists():
            fetched.path.rename(run.path)
            break
        with run.lock():
            changes = _changes_of(fetched, run)
            if not changes:
                _merge(fetched, run)
                break
        problem = problem or f"{path} is another run than the kernel's: {changes[0]}"
    return problem and f"{problem}; what the kernel trained is at {run.path}"


def _changes_of(fetched: Run, run: Run) -> list[str]:
    """Returns how the recipe here differs from that of a fetched run."""
    hashes = ("folds_sha256", "data_sha256", "region_sha256", "own_parts_sha256", "corrections_sha256")
    identity = (*recipe_options(), *hashes, *file_hashes()) if run.has_begun() else ()
    recipe_here, recipe_fetched = (recorded_values(side.recipe, identity) for side in (run, fetched))
    return differences(recipe_here, recipe_fetched)


def _merge(fetched: Run, run: Run) -> None:
    """Moves the fetched files into the run, except folds that are finished here."""
    finished = run.finished()
    for path in fetched.path.iterdir():
        fold = re.fullmatch(r"fold(\d+)", path.name)
        if fold and int(fold[1]) in finished:
            continue
        target = run.path / path.name
        if target.is_dir():
            shutil.rmtree(target)
        path.rename(target)


def _take_competing(slug: str, folder: Path, root: Path) -> Path | None:
    """Takes the ledger of compete, and its CSV with the lineage, if no other ledger is here; returns the CSV."""
    theirs, ours = Ledger(slug, folder), Ledger(slug, root)
    csv = root / "submissions" / slug / "compete.csv"
    with locked(ours.folder / ".lock") as is_free:
        if not is_free:
            raise InUse(f"podium compete works on {ours.folder.parent}; wait for it, then run the same command again")
        if theirs.lines[: len(ours.lines)] != ours.lines:
            say(f"podium: the members are here; {ours.path} and {csv} do not know them, and stay")
            return None
        for path in (folder / "submissions" / slug).glob("compete.*"):
            write_bytes(csv.with_name(path.name), path.read_bytes())
        for path in (theirs.folder / name for name in (LEDGER, WORKED, LOG)):
            if path.exists():
                write_bytes(ours.folder / path.name, path.read_bytes())
    submitted = theirs.of(SUBMITTED)
    return csv if submitted and csv.exists() and sha256(csv) == submitted[-1]["sha256"] else None
