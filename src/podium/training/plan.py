"""The plan of a run: its recipe, folds and teachers, made in one place from what the user asked for.

Everything that can be refused before an image is read is refused here, for the command line and for Python alike, the
cheapest checks first: nothing heavy is imported before a misspelt name is found.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from podium import PodiumError
from podium.machine import Machine
from podium.recipe import Options, Recipe, check_card_options, check_options, expand_auto
from podium.terminal import say

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from podium.competition.load import Competition
    from podium.training.budget import Budget
    from podium.training.run_folder import Run


@dataclass(frozen=True)
class Request:
    """What the user asked for; everything else has a default."""

    options: Options  # of the recipe
    folds: Sequence[int] = ()  # default: all
    name: str | None = None  # of the run; default: the model
    machine: Machine = field(default_factory=Machine)
    budget: "Budget | None" = None


@dataclass(frozen=True)
class Plan:
    competition: "Competition"
    root: Path
    request: Request
    run: "Run"
    recipe: Recipe
    folds: "NDArray[np.int64]"  # of every training image
    chosen: tuple[int, ...]  # the folds to train
    teachers: tuple["Run", ...] = ()

    @property
    def fold_count(self) -> int:
        return int(self.folds.max()) + 1


def make_plan(slug: str, root: Path, request: Request) -> Plan:
    options = check_request(slug, root, request)
    from podium.competition.load import load_and_report
    from podium.folds.folds_csv import read_folds
    from podium.models.build import resolve_recipe
    from podium.training.run_folder import Run, runs_folder

    competition = load_and_report(slug, root)
    folds = read_folds(competition, root)
    chosen = _choose_folds(request.folds, int(folds.max()) + 1, slug)
    recipe = resolve_recipe(options, competition.recipe)
    run = Run(runs_folder(slug, root) / (request.name or recipe.model))
    unfinished = [fold for fold in chosen if fold not in run.finished()]
    teachers = _find_teachers(recipe.teacher, run, slug, root, unfinished) if recipe.teacher and unfinished else ()
    _refuse_contradictions(options, recipe, request)
    _refuse_small_share_of_batch(recipe, int((folds != 0).sum()))
    _warn_of_known_images(recipe, competition)
    return Plan(competition, root, request, run, recipe, folds, chosen, teachers)


def check_request(slug: str, root: Path, request: Request) -> Options:
    """Returns the options with the model `auto` resolved; refuses wrong names and weights that cannot be had."""
    from podium.competition.card import read_card
    from podium.models.hub import check_model_name, check_weights_available

    options = request.options
    check_options(options)
    if options.get("model") == "auto":
        from podium.models.device import device_kind, pick_device

        options = expand_auto(options, device_kind(pick_device(request.machine.device)))
    check_model_name(options.get("model"))
    card = read_card(slug, root).get("recipe", {})
    check_card_options(card)
    check_weights_available(options["model"], {**card, **options}.get("weights", "pretrained"))
    return options


# --- refusals ----------------------------------------------------------------------------------------


def _choose_folds(folds: Sequence[int], count: int, slug: str) -> tuple[int, ...]:
    for fold in folds:
        if not 0 <= fold < count:
            raise PodiumError(f"there is no fold {fold}; the folds of {slug} are 0 to {count - 1}")
    return tuple(sorted(set(folds)) or range(count))


def _find_teachers(names: str, student: "Run", slug: str, root: Path, folds: Sequence[int]) -> tuple["Run", ...]:
    """Returns the runs that teach these folds of the student."""
    from podium.training.run_folder import find_runs

    wanted = names.split("+")
    if student.name in wanted:
        raise PodiumError(
            f"run '{student.name}' cannot be its own teacher; give the student another name (--name RUN, with make"
            " NAME=RUN) or take another --teacher"
        )
    teachers = find_runs(slug, root, wanted)
    for teacher in teachers:
        missing = [fold for fold in folds if fold not in teacher.finished()]
        if missing:
            raise PodiumError(
                f"the teacher {teacher.name} has not finished fold {missing[0]}; run its training command again to"
                f" resume, or choose the student's --folds among {','.join(map(str, teacher.finished()))}"
            )
    return tuple(teachers)


def _refuse_contradictions(options: Options, recipe: Recipe, request: Request) -> None:
    from podium.training.processes import world_size

    if recipe.linear:
        others = {
            "--processes": world_size() > 1,
            "--budget": request.budget is not None,
            "--teacher": bool(recipe.teacher),
        }
        for flag, is_given in others.items():
            if is_given:
                raise PodiumError(f"--linear fits a head in minutes and does not go with {flag}; leave out one of them")
    if "distil" in options and not recipe.teacher:
        raise PodiumError("--distil is the share of a teacher; name one with --teacher, or leave --distil out")


def _refuse_small_share_of_batch(recipe: Recipe, training_images: int) -> None:
    from podium.training.processes import world_size

    if 1 < world_size() > min(recipe.batch_size, training_images) // 2:
        raise PodiumError(
            f"a batch of {recipe.batch_size} images is too small for {world_size()} processes; use a larger"
            " --batch-size, or fewer processes"
        )


def _warn_of_known_images(recipe: Recipe, competition: "Competition") -> None:
    from podium.models.model_file import classes_of_weights

    if classes_of_weights(recipe.weights) == competition.classes:
        say(
            f"podium: warning: {recipe.weights} was trained by Podium on these classes; if it has seen a fold's"
            " held-out images, that fold's score will be too good (a model of the same fold has not seen them)"
        )
