"""A run's folder: where its files are, and what they contain.

    runs/<competition>/<run>/recipe.json
                             corrections.csv, if the labels were corrected
                             regions.csv, if it sees boxes of its images (regions_of_run.py)
                             fold<k>/{model.safetensors, metrics.jsonl, trained.json, oof.npz, test.npz}
                             all<n>/, the same of a model that has learned from all images (--folds all)

Predictions from elsewhere (import_predictions.py) are a run without weights: fold<k>/ holds oof.npz and test.npz.
A fold is finished when its oof.npz is there: training writes it last. trained_with.py describes trained.json; test.npz
is a cache of `podium submit`. The oof.npz of a model of all images is empty.
"""

import importlib.metadata
import json
import math
import platform
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, wraps
from pathlib import Path
from types import NoneType
from typing import Any, ParamSpec

import numpy as np

from podium.basics.disk import NAME_PATTERN, locked, sha256, write_json, write_text
from podium.basics.errors import InUse, PodiumError
from podium.basics.project_root import runs_folder
from podium.basics.terminal import command_for, did_you_mean, duration, first_few, say, table
from podium.options.recipe import differences, file_hashes, fits_only_head, problem_in, recorded_values, share_features
from podium.options.removed_options import REMOVED, why_gone
from podium.saved_runs.checkpoint import checkpoints
from podium.saved_runs.epoch_record import EpochRecord
from podium.saved_runs.fold_names import MOST_FOLDS, WHOLE, fold_folder_name
from podium.saved_runs.pooled_parts import best_pooling
from podium.saved_runs.prediction_files import Predictions
from podium.saved_runs.pretrained_backbones import PRETRAINING
from podium.tasks.metrics import evaluate

READ_BY_SUBMIT: dict[str, Any] = {  # keys of recipe.json and their types
    "folds": int,
    "image_size": (int, str),
    "test_size": (int, str),
    "batch_size": int,
    "views": str,
    "precision": str,
}
READ_ELSEWHERE: dict[str, Any] = {"model": str, "metric": str, "epochs": int}
READ_OF_IMPORTED: dict[str, Any] = {"folds": int, "model": str, "metric": str}
OTHER_FACTS: dict[str, Any] = {  # keys of recipe.json that are no options, and their types; a run may lack them
    **dict.fromkeys(
        ("competition", "folds_sha256", "data_sha256", "test_sha256", "region_sha256", "series_sha256"), str
    ),
    "device": str,
    "computed_in": str,
    **dict.fromkeys(("own_parts_sha256", "corrections_sha256", "also_sha256"), (str, NoneType)),
    **dict.fromkeys(("columns_sha256", "extra_sha256", "unlabelled_sha256"), (str, NoneType)),
    "weights_source": (str, NoneType),
    **dict.fromkeys(("auto", "budget", "own_parts", "soup", "soup_sha256", "versions", "weights_copies"), dict),
    **dict.fromkeys(("imported", "threads_of"), dict),
    **dict.fromkeys(("start_sha256", "teacher_sha256", "pseudo_sha256", "pseudo_power", "other_versions"), dict),
    "weights_licence": str,
    **dict.fromkeys(("extra", "made_from", "of_notebook"), list),
    "range": (str, list, NoneType),
    "channels": (list, NoneType),
    "compiled": bool,
    **dict.fromkeys(("multiply_adds", "threads"), int),
    "changed_on_gpu": bool,
}
Classes = tuple[str, ...]
CORRECTIONS = "corrections.csv"  # a copy of those that the run was trained with
TRAINED_FILES = ("fold*/*.safetensors", "fold*/oof.npz", "all*/*.safetensors", "all*/oof.npz")
PATIENCE = 3.0  # seconds for a lock that others hold for a moment only
TRIAL_PREFIX = ".trial-"  # of the folders of trial runs, which only measure
PACKAGES = (
    *("torch", "torchvision", "timm", "albumentations", "numpy", "scipy", "scikit-learn"),
    *("opencv-python-headless", "pillow", "pillow-heif"),
)

Words = ParamSpec("Words")


def _alone_with_recipe(change: Callable[Words, None]) -> Callable[Words, None]:
    """Reads recipe.json anew and changes it while no other process does: each may train a fold of the run."""

    @wraps(change)
    def changed(*args: Words.args, **options: Words.kwargs) -> None:
        run: Run = args[0]  # type: ignore[assignment]
        with locked(run.path / ".recipe.lock", patience=20 * PATIENCE) as is_mine:
            if not is_mine:
                raise PodiumError(f"{run.path / 'recipe.json'} is being written by another process; wait")
            if (run.path / "recipe.json").exists():
                vars(run).pop("recipe", None)
            change(*args, **options)

    return changed


@dataclass(frozen=True)
class Run:
    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    # --- its recipe ---

    @cached_property
    def recipe(self) -> dict[str, Any]:
        """recipe.json: every option, and what the run was trained on and with."""
        path = self.path / "recipe.json"
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise PodiumError(f"{path}: cannot be read ({error}); {self._restore()}") from None
        if problem := _problem_with_recipe(content):
            raise PodiumError(f"{path}: it is not a recipe, {problem}; {self._restore()}")
        return dict(content)

    @property
    def ingredients(self) -> list[str]:
        """The runs whose weights a soup averages; none of a run that was trained."""
        return sorted({name for counts in self.recipe.get("soup", {}).values() for name in counts})

    @property
    def imported(self) -> dict[str, Any]:
        """What is recorded of predictions from elsewhere (imported_runs.py); nothing of a run that was trained."""
        return dict(self.recipe.get("imported") or {})

    def has_begun(self) -> bool:
        """Returns whether anything is trained. A run that fails before its first checkpoint leaves a recipe only."""
        return bool((self.path / "recipe.json").exists() and self._trained_files())

    @_alone_with_recipe
    def begin(self, identity: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Writes recipe.json, or refuses to resume with another recipe, other folds or other data."""
        path = self.path / "recipe.json"
        if path.exists():
            self.check_same(identity)
            return
        if trained := self._trained_files():
            raise PodiumError(f"{path} is missing, though {trained[0]} exists; {self._restore()}")
        write_json(path, {**_known(identity), **facts, "weights_source": None, "versions": package_versions()})

    def check_same(self, identity: Mapping[str, Any]) -> None:
        """Refuses anything that differs from what the run was started with."""
        if changes := _changes(self, identity):
            raise PodiumError(
                f"{self.path} was started with other options: {'; '.join(changes)}. {_kept_corrections(self, changes)}"
                "Give the same to resume, choose another name for this run (--name RUN, with make NAME=RUN), or delete"
                " that folder to start it again"
            )

    @property
    def recorded_source(self) -> str:
        """Returns which weights the run starts from; empty until its first model is built."""
        return (self.recipe.get("weights_source") or "") if (self.path / "recipe.json").exists() else ""

    @_alone_with_recipe
    def keep_source(self, source: str) -> None:
        """Records which weights the run starts from, which is known once its first model is built."""
        if not (recorded := self.recorded_source):
            self._record("weights_source", source)
            if source != "none":
                say(f"podium: weights: {source}")
        elif recorded != source:
            raise PodiumError(
                f"{self.path} was started from the weights {recorded}, not {source}; choose another --name"
            )

    def _record(self, name: str, value: Any) -> None:
        self.recipe[name] = value
        write_json(self.path / "recipe.json", self.recipe)

    def _trained_files(self) -> list[Path]:
        return [path for pattern in TRAINED_FILES for path in self.path.glob(pattern)]

    def _restore(self, fold: int | None = None) -> str:
        folder, what = (self.path, "run") if fold is None else (self.fold_folder(fold), "fold")
        return f"restore it, or delete {folder} and train that {what} again"

    # --- its folds ---

    def fold_folder(self, fold: int) -> Path:
        return self.path / fold_folder_name(fold)

    def finished(self) -> list[int]:
        """Returns the finished folds, which have held-out predictions."""
        return self._numbers("fold")

    def models(self) -> list[int]:
        """Returns the finished folds and the finished models of all images, whose mean is the run's prediction."""
        return [*self.finished(), *(WHOLE + number for number in self._numbers("all"))]

    def _numbers(self, kind: str) -> list[int]:
        matches = (re.fullmatch(rf"{kind}(\d+)", path.parent.name) for path in self.path.glob(f"{kind}*/oof.npz"))
        return sorted(int(match[1]) for match in matches if match)

    def out_of_fold(self, fold: int, classes: Classes = ()) -> Predictions:
        """Returns the predictions for the held-out images; metrics rely on the order of `classes`, which may be new."""
        found = self._held_out(fold)
        if found.pooled:
            found = replace(found.pooled_by(self.pooling_of(fold)), key=found.key)
        return found.in_order_if_same(classes)

    def pooling_of(self, fold: int) -> str:
        """Returns how a fold's answers for the parts of an image are pooled: as the other folds have found it best."""
        return best_pooling([self._held_out(other) for other in self.finished() if other != fold])

    def _held_out(self, fold: int) -> Predictions:
        return Predictions.load(self.fold_folder(fold) / "oof.npz", self._restore(fold), is_labelled=True)

    def weights_path(self, fold: int) -> Path:
        path = self.fold_folder(fold) / "model.safetensors"
        if not path.is_file():
            raise PodiumError(why_no_weights(self) or f"{path} is missing; {self._restore(fold)}")
        return path

    def check_weights(self, fold: int) -> str:
        """Returns the hash of a finished fold's weights; refuses weights that did not compute its oof.npz."""
        path = self.weights_path(fold)
        weights_hash = sha256(path)
        if weights_hash != self.out_of_fold(fold).key:
            raise PodiumError(f"{path} was damaged or replaced after training; {self._restore(fold)}")
        return weights_hash

    def score(self, fold: int, metric: str, labels: Mapping[str, str] | None = None, classes: Classes = ()) -> float:
        """Returns the fold's score on its held-out images; `labels` by image id replace those of the training."""
        known = self.out_of_fold(fold, classes).with_labels(labels)
        return evaluate(metric, known.target, known.probs) if len(known.id) else math.nan

    def history(self, fold: int) -> list[EpochRecord]:
        """Reads metrics.jsonl: a record per epoch."""
        path = self.fold_folder(fold) / "metrics.jsonl"
        try:
            lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            if not lines:
                raise ValueError("it is empty")
            return [EpochRecord.from_json(line) for line in lines]
        except (OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
            raise PodiumError(f"{path}: cannot be read ({error}); no prediction depends on it") from None

    def write_history(self, fold: int, records: Sequence[EpochRecord]) -> None:
        lines = [json.dumps(record.to_json()) + "\n" for record in records]
        write_text(self.fold_folder(fold) / "metrics.jsonl", "".join(lines))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps a second process out of the run, and deletes what a killed one left."""
        with locked(self.path / ".lock") as is_mine:
            if not is_mine:
                raise InUse(f"{self.path} is being trained by another process; wait, or use --name")
            _delete_leftovers(self)
            yield


@_alone_with_recipe
def keep_cost(run: Run, multiply_adds: int) -> None:
    """Records what the model costs for one image: to count it takes longer than all that compares runs."""
    if "multiply_adds" not in run.recipe:
        run.recipe["multiply_adds"] = multiply_adds
        write_json(run.path / "recipe.json", run.recipe)


@_alone_with_recipe
def keep_earlier(run: Run, option: str, hashes: Mapping[str, str]) -> None:
    """Records which weights of earlier runs each fold learns from; a fold begun with others cannot resume."""
    recorded = run.recipe.get(f"{option}_sha256", {})
    for fold, weights_hash in hashes.items():
        folder = run.fold_folder(int(fold))
        if recorded.get(fold, weights_hash) != weights_hash and checkpoints(folder):
            raise PodiumError(
                f"{folder} was started with other weights of {option} {run.recipe[option]}; restore those, or"
                " delete that folder and train that fold again"
            )
    run.recipe[f"{option}_sha256"] = {**recorded, **hashes}
    write_json(run.path / "recipe.json", run.recipe)


@_alone_with_recipe
def keep_choice(run: Run, choice: Mapping[str, Any]) -> None:
    """Records what `--model auto` has seen and chosen."""
    run.recipe["auto"] = dict(choice)
    write_json(run.path / "recipe.json", run.recipe)


@_alone_with_recipe
def keep_of_fold(run: Run, key: str, fold: int, value: Any) -> None:
    """Records a fact of one fold in recipe.json."""
    run.recipe[key] = {**run.recipe.get(key, {}), str(fold): value}
    write_json(run.path / "recipe.json", run.recipe)


@contextmanager
def lock_folds(run: Run, folds: Sequence[int]) -> Iterator[None]:
    """Keeps other processes out of these folds, and deletes what a killed one left; they may train others."""
    with ExitStack() as stack:
        for fold in folds:
            if not stack.enter_context(locked(run.path / f".{fold_folder_name(fold)}.lock")):
                raise InUse(f"{run.fold_folder(fold)} is being trained by another process; wait, or use --name")
        with locked(run.path / ".lock") as is_alone:
            if is_alone:
                _delete_leftovers(run)
                if not run.has_begun():  # it failed before its first checkpoint
                    (run.path / "recipe.json").unlink(missing_ok=True)
        if not stack.enter_context(locked(run.path / ".lock", shared=True, patience=PATIENCE)):
            raise InUse(f"{run.path} is being trained by another process; wait, or use --name")
        for fold in folds:
            for temporary in run.fold_folder(fold).glob(".*.tmp"):
                temporary.unlink()
        yield


def _changes(run: Run, identity: Mapping[str, Any]) -> list[str]:
    changes = differences(recorded_values(run.recipe, identity), identity)
    for name, gone in REMOVED.items():  # a project's own move may have such a name again
        if name not in identity and (value := run.recipe.get(name, gone.value)) != gone.value:
            changes.append(f"{name} was {value}, and {why_gone(name)}")
    return changes


def _delete_leftovers(run: Run) -> None:
    """Deletes what a killed process has left."""
    for temporary in (*run.path.glob(".*.tmp"), *run.path.glob("*/.*.tmp")):
        temporary.unlink()
    for trial in run.path.glob(f"{TRIAL_PREFIX}*"):
        shutil.rmtree(trial)
    for fold in run.models():
        for path in checkpoints(run.fold_folder(fold)):
            path.unlink()


@contextmanager
def discarded_if_failed(run: Run) -> Iterator[None]:
    """Deletes the run's folder after an error if nothing is trained in it, and nobody has put anything into it."""
    try:
        yield
    except BaseException:
        if run.path.is_dir():
            with locked(run.path / ".lock") as is_alone:
                if is_alone and not run._trained_files():
                    _discard(run)
        raise


def _discard(run: Run) -> None:
    for path in (run.path / "recipe.json", run.path / CORRECTIONS, *run.path.glob(".*lock")):
        path.unlink(missing_ok=True)
    with suppress(OSError):  # it is not empty
        for folder in (*run.path.glob("fold*"), *run.path.glob("all*")):
            folder.rmdir()
        run.path.rmdir()


def _problem_with_recipe(content: Any) -> str:
    """Returns what is wrong with a recipe.json, which anybody may have written; nothing if it is right."""
    if not isinstance(content, dict):
        return "model is missing"
    needed = READ_OF_IMPORTED if content.get("imported") else READ_BY_SUBMIT | READ_ELSEWHERE
    for key, kind in needed.items():
        if not _is_of(content.get(key), kind):
            return f"{key} is missing"
    for key, kind in (OTHER_FACTS | dict.fromkeys(file_hashes(), str)).items():
        if key in content and not _is_of(content[key], kind):
            return f"{key} cannot be {str(content[key])[:40]!r}"
    if not 1 <= content["folds"] <= MOST_FOLDS:
        return f"folds must be between 1 and {MOST_FOLDS:,}, not {content['folds']}"
    return problem_in(content)


def _is_of(value: Any, kind: Any) -> bool:
    """Returns whether a value is of a kind; true and false are no numbers."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _kept_corrections(run: Run, changes: Sequence[str]) -> str:
    """Names the copy of the run's own corrections if they have changed."""
    path = run.path / CORRECTIONS
    is_useful = path.exists() and any("corrections" in change for change in changes)
    return f"{path} holds its corrections. " if is_useful else ""


def _known(identity: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value for key, value in identity.items() if value is not None
    }  # there may be no extensions and no corrections


def why_no_weights(run: Run) -> str:
    """Returns why a run has no weights; nothing of one that should have them."""
    is_imported = (run.path / "recipe.json").exists() and run.imported
    return f"{run.name} holds predictions from elsewhere and no weights; take a trained run" if is_imported else ""


def has_shared_backbone(run: Run) -> bool:
    """Returns whether all folds have the same backbone: only their heads were fitted, and not to another run's."""
    return fits_only_head(run.recipe) and share_features(run.recipe)


def recorded_threads(run: Run, fold: int | None = None) -> int | None:
    """Returns how many threads a run, or its fold, computes with on a CPU; 0 for torch's own choice, as older runs."""
    if not (run.path / "recipe.json").exists():
        return None
    return int(run.recipe.get("threads_of", {}).get(str(fold), run.recipe.get("threads", 0)))


@cache
def _installed_versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


def package_versions() -> dict[str, str]:
    return dict(_installed_versions())


# --- the runs of a competition -----------------------------------------------------------------------


def find_runs(
    slug: str, root: Path, names: list[str] | None = None, except_names: list[str] | None = None
) -> list[Run]:
    """Returns the runs of a competition that have a finished fold; with `names`, exactly those."""
    folder = runs_folder(slug, root)
    paths = {path.parent for path in folder.glob("*/recipe.json")}
    paths |= {path.parents[1] for path in folder.glob("*/fold*/oof.npz")}
    runs = {path.name: Run(path) for path in sorted(paths) if not path.name.startswith(".")}
    for name in (*(names or ()), *(except_names or ())):
        if name not in runs:
            hint = did_you_mean(name, runs, otherwise=f"there are {', '.join(runs) or 'none yet'}")
            raise PodiumError(f"no run '{name}' in {folder}; {_elsewhere(folder, name) or hint}")
    chosen = [runs[name] for name in dict.fromkeys(names or runs) if name not in (except_names or ())]
    for run in chosen:
        if not re.fullmatch(NAME_PATTERN, run.name):
            raise PodiumError(f"{run.path}: this is not a name for a run; rename it, to letters, digits and . _ - + =")
        if names and not run.finished():
            raise PodiumError(f"run '{run.name}' has no finished fold yet; run its training command again to resume")
    finished = [run for run in chosen if run.finished()]
    unfinished = [run.name for run in chosen if not run.finished() and run.has_begun()]
    if finished and unfinished:
        say(f"podium: no fold is finished yet of {', '.join(unfinished)}; their training commands resume them")
    if not finished and except_names:
        raise PodiumError(f"no finished fold in {folder} except in {', '.join(except_names)}; leave out fewer runs")
    if not finished:
        remedy = f"train one with: {command_for('train', slug, model='NAME')}"
        if elsewhere := _elsewhere(folder, "*"):
            remedy += f"; {elsewhere}"
        raise PodiumError(f"no finished fold in {folder}; {remedy}")
    return finished


def _elsewhere(folder: Path, name: str) -> str:
    """Returns which other competitions have a run of this name, for an error; nothing if none has."""
    found = {path.parents[1].name for path in folder.parent.glob(f"*/{name}/recipe.json")} - {folder.name}
    return f"there is one of {first_few(sorted(found))}: to mean it, name that competition with -c" if found else ""


def find_run(source: str, slug: str, root: Path) -> tuple[Run, str]:
    """Returns a run with a finished fold and its competition; `source` is the run's name, or its folder."""
    path = Path(source)
    if not (path / "recipe.json").is_file():
        return find_runs(slug, root, [source])[0], slug
    run = Run(path)
    if not run.finished():
        raise PodiumError(f"{run.path} has no finished fold yet; run its training command again to resume")
    return run, path.resolve().parent.name


def refuse_other_content(run: Run) -> None:
    """Refuses the name of a pretraining, or of imported predictions, for a run that is trained."""
    if run.has_begun() and run.imported:
        raise PodiumError(f"{run.path} holds predictions from elsewhere; choose another name for this run (--name RUN)")
    if (run.path / PRETRAINING).exists():
        raise PodiumError(f"{run.path} holds a pretraining; choose another name for this run (--name RUN)")


def names_of_runs_on_folds(slug: str, root: Path) -> list[str]:
    """Returns the names of the runs that have begun with the present folds.csv, without those of a damaged recipe."""
    from podium.folds.folds_csv import folds_path

    path = folds_path(slug, root)
    if not path.exists():
        return []
    folds_sha256, names = sha256(path), []
    for recipe_path in sorted(runs_folder(slug, root).glob("*/recipe.json")):
        run = Run(recipe_path.parent)
        with suppress(PodiumError):
            if run.has_begun() and run.recipe.get("folds_sha256") == folds_sha256:
                names.append(run.name)
    return names


def results_table(run: Run, fold_count: int, metric: str, classes: tuple[str, ...]) -> str:
    """Tabulates the finished folds: their scores on images that their models have not seen."""
    rows, scores, is_trained = [], [], not run.imported
    for fold in run.finished():
        held_out, loss, seconds = run.out_of_fold(fold, classes), "?", "?"
        scores.append(evaluate(metric, held_out.target, held_out.probs))
        try:
            history = run.history(fold) if is_trained else []
            if history:
                loss, seconds = f"{history[-1].loss:z.4f}", duration(sum(record.seconds for record in history))
        except PodiumError as damage:
            say(f"podium: warning: {damage}")
        rows.append([fold, f"{len(held_out.id):,}", f"{scores[-1]:z.5f}", loss, seconds])
    spread = f" ± {np.std(scores, ddof=1):z.5f}" if len(scores) > 1 else ""
    header = ["fold", "validated", metric, "train loss", "time"]
    if run.ingredients or not is_trained:
        header, rows = header[:3], [row[:3] for row in rows]
    text = table(header, rows)
    return f"{text}\n{metric} {np.mean(scores):z.5f}{spread} over {len(scores)} of {fold_count} folds"
