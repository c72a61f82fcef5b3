"""Finished runs that a new run learns from: its teachers, those that label test images, the run that it goes on from.

Fold k learns from the fold-k models only. They have not seen the held-out images of that fold either, so the new run's
out-of-fold score stays honest. That holds only if both runs have the same folds and data, which is checked here.
"""

from collections.abc import Sequence
from pathlib import Path

from podium.basics.errors import PodiumError
from podium.options.recipe import KNOBS, Options, fits_only_head, flag_of, only_in_training, start_of
from podium.options.recipe_defaults import set_by_level
from podium.saved_runs.fold_names import fold_name, holds_nothing_out
from podium.saved_runs.imported_runs import refuse_imported
from podium.saved_runs.run_folder import Run, find_runs


def go_on_from(slug: str, root: Path, options: Options, name: str | None) -> Options:
    """Returns the options of the run that `start` names, replaced by the given ones.

    The seed is the next one: the same one would show the same crops in the same order again.
    """
    (source,) = find_runs(slug, root, [start_of(options)])
    refuse_imported([source], f"--from {source.name}")
    if name == source.name:
        raise PodiumError(f"run '{name}' cannot go on from itself; give the new run another --name")
    model = source.recipe["model"]
    if options.get("model", model) != model:
        raise PodiumError(f"--from {source.name}: that run is a {model}; leave out --model, or take another run")
    if fits_only_head(source.recipe):
        raise PodiumError(
            f"--from {source.name}: that run is a head on a frozen model; train all weights with --head-first instead"
        )
    not_taken_over = {name for name, own in KNOBS.items() if not own.is_taken_over}
    not_taken_over |= {*set_by_level(options)}
    if fits_only_head(options):  # a head on its features learns in no such way
        not_taken_over |= {*only_in_training()}
    if "image_size" in options or "finish" in options:
        not_taken_over.add("test_size")  # it follows these sizes
    names = [name for name in KNOBS if name not in not_taken_over and name in source.recipe]
    recorded = {name: source.recipe[name] for name in names}
    own = {"head_first": False, "keep": 0.0}  # its head is no new one
    return {**recorded, **own, "seed": recorded["seed"] + 1, **options}


def find_earlier_runs(slug: str, root: Path, option: str, value: str, folds: Sequence[int]) -> tuple[Run, ...]:
    """Returns the runs that an option names (`a+b`); raises unless all have finished these folds."""
    runs = find_runs(slug, root, value.split("+"))
    refuse_imported(runs, f"{flag_of(option)} {value}")
    for run in runs:
        missing = [fold for fold in folds if fold not in run.models()]
        if missing and holds_nothing_out(missing[0]):
            raise PodiumError(
                f"{_role(option)} {run.name} has no model of {fold_name(missing[0])}; train it with --folds all"
            )
        if missing:
            raise PodiumError(
                f"{_role(option)} {run.name} has not finished {fold_name(missing[0])}; run its training command again"
                f" to resume, or choose --folds among {','.join(map(str, run.finished()))}"
            )
    return tuple(runs)


def check_same_folds(
    option: str, runs: Sequence[Run], folds: Sequence[int], classes: Sequence[str], folds_sha256: str
) -> None:
    """Refuses runs of other classes or folds: they may have seen the images that score the new run."""
    for run in runs:
        if any(run.out_of_fold(fold).classes != classes for fold in folds):
            raise _other(option, run, "classes")
        if run.recipe.get("folds_sha256") != folds_sha256:
            raise _other(option, run, "folds")


def check_same_data(option: str, runs: Sequence[Run], data_sha256: str) -> None:
    """Refuses runs of other data. The hash covers labels and files, not pixels, so their image size may differ."""
    for run in runs:
        if run.recipe.get("data_sha256") != data_sha256:
            raise _other(option, run, "data")


def hash_weights(runs: Sequence[Run], folds: Sequence[int]) -> dict[str, str]:
    """Returns the hashes of the weights that each fold learns from."""
    return {str(fold): "+".join(run.check_weights(fold) for run in runs) for fold in folds}


def _role(option: str) -> str:
    return "the teacher" if option == "teacher" else "the run"


def _other(option: str, run: Run, subject: str) -> PodiumError:
    return PodiumError(
        f"{_role(option)} {run.name} was trained on other {subject} than this run would be; train it again under"
        f" another name, or take another {flag_of(option)}"
    )
