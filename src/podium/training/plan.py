"""The plan of a run: its recipe, folds and teachers, made in one place from what the user asked for.

Everything that can be refused before an image is read is refused here, for the command line and for Python callers
alike, the cheapest checks first: nothing heavy is imported before a misspelt name is found.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.disk import check_name
from podium.errors import PodiumError
from podium.extensions.own_parts import own_parts_digest
from podium.machine import Machine
from podium.recipe import LOSSES, NEUTRAL, ONLY_IN_TRAINING, Options, Recipe, check_options
from podium.recipe_defaults import expand_auto
from podium.terminal import say
from podium.torchrun import world_size

if TYPE_CHECKING:
    from podium.competition.load import Competition
    from podium.folds.folds import Folds
    from podium.recipe_defaults import Data
    from podium.saved_runs.run_folder import Run


@dataclass(frozen=True)
class Request:
    """What the user asked for; everything else has a default."""

    options: Options  # of the recipe
    folds: Sequence[int] = ()  # default: all
    name: str | None = None  # of the run; default: the model
    machine: Machine = field(default_factory=Machine)
    budget: float | None = None  # seconds
    started: float = field(default_factory=time.monotonic)  # the budget counts from this moment
    corrections: Path | None = None  # a file whose lines join the competition's own


@dataclass(frozen=True)
class Plan:
    competition: "Competition"
    root: Path
    request: Request
    run: "Run"
    recipe: Recipe
    folds: "Folds"  # of every training image
    folds_to_train: tuple[int, ...]
    data: "Data"  # what the defaults depend on
    earlier_runs: Mapping[str, tuple["Run", ...]] = field(default_factory=dict)  # by option: teacher, start
    origins: Mapping[str, str] = field(default_factory=dict)  # of the options of the recipe
    facts: Mapping[str, Any] = field(default_factory=dict)  # for recipe.json: see known_images.py, auto_look.py

    @property
    def teachers(self) -> tuple["Run", ...]:
        return self.earlier_runs.get("teacher", ())

    @property
    def start(self) -> "Run | None":
        """Returns the run that this one goes on from."""
        return next(iter(self.earlier_runs.get("start", ())), None)

    @property
    def backbone(self) -> "Path | None":
        """Returns the weights of the pretraining that the recipe names."""
        from podium.saved_runs.pretrained_backbones import find_backbone

        return find_backbone(self.competition.slug, self.root, self.recipe.weights)

    def identity(self) -> dict[str, Any]:
        """Returns what must stay the same when the run is resumed; the images are checked when they are read."""
        from podium.disk import sha256
        from podium.folds.folds_csv import folds_path

        slug = self.competition.slug
        return {
            **asdict(self.recipe),
            "competition": slug,
            "folds_sha256": sha256(folds_path(slug, self.root)),
            "own_parts_sha256": own_parts_digest(asdict(self.recipe)),
            "corrections_sha256": self.competition.corrections.sha256,
            "range": self.competition.card.get("range") or None,
        }

    def unfinished_folds(self) -> list[int]:
        finished = self.run.finished()
        return [fold for fold in self.folds_to_train if fold not in finished]


def make_plan(slug: str, root: Path, request: Request, only_shown: bool = False) -> Plan:
    """Returns the plan of a run; `only_shown`: also if a run of this name was started with another recipe."""
    options = check_request(slug, root, request, world_size())
    _refuse_unknown_teacher(slug, root, request, options)
    check_weights(slug, root, options, only_shown)
    from podium.competition.load import load_and_report
    from podium.folds.folds_csv import read_folds
    from podium.models.build import resolve_recipe
    from podium.project_root import runs_folder
    from podium.saved_runs.known_images import find_origin
    from podium.saved_runs.run_folder import Run

    competition = load_and_report(slug, root, request.corrections)
    folds = read_folds(competition, root)
    numbers = request.folds
    if options.get("start") and not numbers:
        numbers = Run(runs_folder(slug, root) / options["start"]).finished()
    folds_to_train = _choose_folds(numbers, folds.count, slug)
    data = data_of(competition, folds)
    recipe = resolve_recipe(options, competition.recipe, data)
    run = Run(runs_folder(slug, root) / name_of_run(request, options))
    plan = with_options(Plan(competition, root, request, run, recipe, folds, folds_to_train, data), options)
    plan = replace(plan, earlier_runs=_find_earlier_runs(plan))
    if not only_shown:
        _refuse_other_recipe(plan)
    return replace(plan, facts=find_origin(recipe.weights, competition, root, folds))


def with_options(plan: Plan, options: Options) -> Plan:
    """Returns the plan with the recipe that these options mean for its competition."""
    from podium.models.build import resolve_recipe

    competition = plan.competition
    recipe = resolve_recipe(options, competition.recipe, plan.data)
    if recipe.keep and (recipe.start or not recipe.head_first):
        _refuse_keep(plan, recipe)
        recipe = replace(recipe, keep=0.0)
    _refuse_small_share_of_batch(recipe, plan.data.images)
    _refuse_options_of_other_tasks(recipe, competition)
    return replace(plan, recipe=recipe, origins=_find_origins(plan, options))


def data_of(competition: "Competition", folds: "Folds") -> "Data":
    """Returns what the defaults of a run depend on; the last fold of a rolling split learns from the most images."""
    from podium.images.usual_shape import usual_shape
    from podium.recipe_defaults import Data
    from podium.tasks.metrics import METRICS

    listed = METRICS.get(competition.metric)  # a file's metric is not
    metric = listed() if listed else None
    return Data(
        images=int(folds.trains(folds.count - 1 if folds.is_rolling else 0).sum()),
        is_loss_of_probabilities=metric is not None and metric.wants == "probs" and metric.better < 0,
        shape=usual_shape(competition),
    )


def check_request(slug: str, root: Path, request: Request, processes: int = 1) -> Options:
    """Returns the options with a model in place of `auto`; refuses wrong names, wrong values and contradictions."""
    from podium.competition.card import read_card
    from podium.models.hub import check_model_name, timm_name

    card = read_card(slug, root).get("recipe", {})  # also loads the extensions, whose names options may use
    options = request.options
    if request.name is not None:
        check_name(request.name, "the name of a run")
    check_options(options)
    if "model" in options:
        options = {**options, "model": timm_name(options["model"])}
    if options.get("start"):
        from podium.saved_runs.earlier_runs import go_on_from

        options = go_on_from(slug, root, options, request.name)
        check_options(options)
    if options.get("model") == "auto":
        from podium.models.device import device_kind, pick_device

        chosen = _choice_of_begun_run(slug, root, request)
        kind = device_kind(pick_device(request.machine.device))
        options = {**options, **chosen} if chosen else expand_auto(options, kind)
    check_model_name(options.get("model"))
    _refuse_contradictions(options, card, request, processes)
    return options


def _choice_of_begun_run(slug: str, root: Path, request: Request) -> Options:
    """Returns what `--model auto` chose when this run began; nothing if it has not begun."""
    from podium.project_root import runs_folder
    from podium.saved_runs.run_folder import Run

    run = Run(runs_folder(slug, root) / name_of_run(request, request.options))
    return dict(run.recipe.get("auto", {}).get("options", {})) if run.has_begun() else {}


def _refuse_unknown_teacher(slug: str, root: Path, request: Request, options: Options) -> None:
    """Refuses a teacher that is not there before weights are sought. A finished fold needs its teacher no more."""
    if teachers := options.get("teacher"):
        from podium.project_root import runs_folder
        from podium.saved_runs.run_folder import Run, find_runs

        name = name_of_run(request, options)
        if name in teachers.split("+"):
            raise PodiumError(
                f"run '{name}' cannot be its own teacher; give the student another name (--name RUN, with make"
                " NAME=RUN) or take another --teacher"
            )
        if not Run(runs_folder(slug, root) / name).has_begun():
            find_runs(slug, root, teachers.split("+"))


def check_weights(slug: str, root: Path, options: Options, only_shown: bool) -> None:
    """Refuses weights that are neither here nor on a hub that answers."""
    from podium.competition.card import read_card
    from podium.models.hub import WeightsUnreachable, check_weights_available
    from podium.saved_runs.pretrained_backbones import find_backbone, names_of_pretrainings

    options = {**read_card(slug, root).get("recipe", {}), **options}
    weights = options.get("weights", "pretrained")
    if options.get("start") or find_backbone(slug, root, weights) is not None:  # the weights are those of a run
        return
    try:
        check_weights_available(options["model"], weights, names_of_pretrainings(slug, root))
    except WeightsUnreachable as problem:
        if not only_shown:
            raise
        say(f"podium: note: {problem}")


def name_of_run(request: Request, options: Options) -> str:
    """Returns the run's name: the user's, or else that of the model, `auto`, or the run that it goes on from."""
    from podium.models.hub import timm_name

    if request.name:
        return request.name
    if options.get("start"):
        return f"{options['start']}-more"
    if request.options.get("model") == "auto":  # whatever it becomes
        name, options = "auto", request.options
    else:
        name = timm_name(options.get("model", ""))
    return f"{name}-linear" if options.get("linear") else name


def _find_origins(plan: Plan, options: Options) -> dict[str, str]:
    from podium.models.build import backbone_of
    from podium.recipe_defaults import layers_of, origins_of

    asked = plan.request.options
    origins = origins_of(layers_of(options, plan.competition.recipe, backbone_of(options["model"]), plan.data))
    expanded = f"--from {options['start']}" if options.get("start") else "--model auto"
    given = set(asked) - ({"model"} if asked.get("model") == "auto" else set())  # auto became another model
    return origins | {name: "flag" if name in given else expanded for name in options}


# --- refusals ----------------------------------------------------------------------------------------


def _refuse_contradictions(options: Options, card: Options, request: Request, processes: int) -> None:
    chosen = {**NEUTRAL, **card, **options}
    teacher = chosen["teacher"]
    if chosen["linear"]:
        asked = {**NEUTRAL, **options, "teacher": teacher}  # the card's losses and augmentations do not apply to a head
        for flag, is_given in {
            "--processes": processes > 1,
            "--budget": request.budget is not None and {**card, **request.options}.get("linear"),  # auto may choose it
            **{f"--{name.replace('_', '-')}": asked[name] != NEUTRAL[name] for name in ONLY_IN_TRAINING},
        }.items():
            if is_given:
                raise PodiumError(
                    f"--linear cannot be combined with {flag}, because it only fits a logistic head, in minutes; leave"
                    " out one of them"
                )
    if "distil" in options and not teacher:
        raise PodiumError("--distil is the share of a teacher; name a teacher with --teacher, or leave out --distil")


def _choose_folds(folds: Sequence[int], count: int, slug: str) -> tuple[int, ...]:
    for fold in folds:
        if not 0 <= fold < count:
            raise PodiumError(f"there is no fold {fold}; the folds of {slug} are 0 to {count - 1}: correct --folds")
    return tuple(sorted(set(folds)) or range(count))


def _refuse_other_recipe(plan: Plan) -> None:
    """Refuses to resume a run with another recipe or other folds, and the name of a pretraining."""
    from podium.saved_runs.run_folder import refuse_pretraining

    refuse_pretraining(plan.run)
    if plan.run.has_begun():
        identity = plan.identity()
        if plan.request.budget is not None:
            del identity["epochs"]  # the first call chose them
        plan.run.check_same(identity)


def _find_earlier_runs(plan: Plan) -> dict[str, tuple["Run", ...]]:
    """Returns the runs that the unfinished folds learn from, by option; refuses those that cannot serve."""
    from podium.saved_runs.earlier_runs import check_same_folds, find_earlier_runs

    folds, earlier_runs = plan.unfinished_folds(), {}
    for option, value in {"teacher": plan.recipe.teacher, "start": plan.recipe.start}.items():
        if not value or not folds:
            continue
        runs = find_earlier_runs(plan.competition.slug, plan.root, option, value, folds)
        check_same_folds(option, runs, folds, plan.competition.classes, plan.identity()["folds_sha256"])
        earlier_runs[option] = runs
    return earlier_runs


def _refuse_keep(plan: Plan, recipe: Recipe) -> None:
    """Refuses --keep where no head is fitted. A card's is left out there, and `auto` may yet choose a fitted head."""
    asked = plan.request.options
    if "keep" in asked and asked.get("model") != "auto" and not recipe.linear:
        remedy = "leave it out" if recipe.start else "leave it out, or add --head-first"
        raise PodiumError(f"--keep {recipe.keep:g} needs a fitted head to start from; {remedy}")


def _refuse_small_share_of_batch(recipe: Recipe, training_images: int) -> None:
    if 1 < world_size() > min(recipe.batch_size, training_images) // 2:
        raise PodiumError(
            f"a batch of {recipe.batch_size} images is too small for {world_size()} processes; use a larger"
            " --batch-size, or fewer processes"
        )


def _refuse_options_of_other_tasks(recipe: Recipe, competition: "Competition") -> None:
    task = competition.task
    if recipe.class_weights != "none" and task.are_labels and not task.sums_to_one:
        raise PodiumError(
            f"--class-weights {recipe.class_weights} weighs images by their one class, but these have"
            f" {task.words.removesuffix(' an image')}; leave it out, or use --loss asymmetric or focal"
        )
    if not task.are_labels:
        is_for_labels = recipe.loss != "cross_entropy" and LOSSES[recipe.loss] is None
        options = {"--class-weights": recipe.class_weights != "none", "--loss": is_for_labels}
        wrong = [option for option, is_given in options.items() if is_given]
        if wrong:
            raise PodiumError(
                f"{' and '.join(wrong)} are for labels, but these images have numbers, whose loss is the squared error;"
                " leave that out"
            )
