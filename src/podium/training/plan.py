"""The plan of a run: its recipe, folds and teachers, made in one place from what the user asked for.

Everything that can be refused before an image is read is refused here; request.py has refused what needs no tables.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from podium.basics.disk import sha256
from podium.basics.errors import PodiumError
from podium.basics.project_root import runs_folder
from podium.basics.terminal import podium_command
from podium.basics.torchrun import world_size
from podium.competition.card import read_card
from podium.competition.extras.further_targets import FurtherTargets
from podium.competition.load import Competition, load_and_report
from podium.folds.folds import Folds
from podium.folds.folds_csv import folds_path, read_folds
from podium.images.usual_shape import usual_shape
from podium.models.build import backbone_of, resolve_recipe
from podium.models.device import is_cpu, pick_device
from podium.options.extensions.own_parts import own_parts_digest
from podium.options.moves import MOVES
from podium.options.moves.move import refuse_unless_one_class
from podium.options.moves.seen_parts import SeenParts
from podium.options.recipe import Options, Recipe, files_of, has_neighbours, hashes_of_files, learns_from, start_of
from podium.options.recipe_defaults import Data, layers_of, learns_anew, origins_of
from podium.options.recipe_options import ARCFACE
from podium.saved_runs.doubts import doubt_about_recipe
from podium.saved_runs.earlier_runs import check_same_folds, find_earlier_runs
from podium.saved_runs.fold_names import holds_nothing_out
from podium.saved_runs.known_images import find_origin, inherited_origin
from podium.saved_runs.made_from import made_from
from podium.saved_runs.pretrained_backbones import find_backbone
from podium.saved_runs.regions_of_run import found_regions
from podium.saved_runs.run_folder import Run, find_runs, recorded_threads, refuse_other_content
from podium.tasks.metrics import METRICS
from podium.training.columns import refuse_without_features, sha256_of_train
from podium.training.finder import finder_of
from podium.training.request import CheckedRequest, Request, name_of_run

SKEWED = 1.0  # the third moment of numbers with a deviation of 1: exponentials have 2, and even ones 0


@dataclass(frozen=True)
class Plan:
    competition: Competition
    request: Request
    run: Run
    recipe: Recipe
    folds: Folds  # of every training image
    folds_to_train: tuple[int, ...]
    data: Data  # what the defaults depend on
    earlier_runs: Mapping[str, tuple[Run, ...]] = field(default_factory=dict)  # by option: see learns_from()
    origins: Mapping[str, str] = field(default_factory=dict)  # of the options of the recipe
    facts: Mapping[str, Any] = field(default_factory=dict)  # for recipe.json: see known_images.py

    @property
    def teachers(self) -> tuple[Run, ...]:
        return self.earlier_runs.get("teacher", ())

    @property
    def start(self) -> Run | None:
        """Returns the run that this one goes on from."""
        return next(iter(self.earlier_runs.get("start", ())), None)

    @property
    def backbone(self) -> Path | None:
        """Returns the weights of the pretraining that the recipe names."""
        return find_backbone(self.competition.slug, self.competition.root, self.recipe.weights)

    @property
    def further(self) -> FurtherTargets | None:
        """Returns what is learned beside the answers, if anything is: the outputs of a fitted head are all needed."""
        return self.competition.further if self.recipe.takes_steps else None

    @property
    def parts(self) -> SeenParts:
        """Returns which parts of its images the run sees."""
        return SeenParts.of(self.recipe)

    @property
    def found_regions(self) -> dict[int, Path]:
        """Returns the boxes of each fold that an earlier run's models have found, if the recipe names it."""
        if not (name := self.parts.run):
            return {}
        (source,) = find_runs(self.competition.slug, self.competition.root, [name])
        return found_regions(source)

    def identity(self) -> dict[str, Any]:
        """Returns what must stay the same when the run is resumed; the images are checked when they are read."""
        slug, extra, unknown = self.competition.slug, self.competition.extra, self.competition.unknown
        unlabelled = self.competition.unlabelled
        return {
            **self.recipe.values(),
            **hashes_of_files(self.recipe.values()),
            "competition": slug,
            "folds_sha256": sha256(folds_path(slug, self.competition.root)),
            "own_parts_sha256": own_parts_digest(self.recipe.values()),
            "corrections_sha256": self.competition.corrections.sha256,
            "range": self.competition.card.get("range") or None,
            "channels": self.competition.card.get("channels") or None,
            "unknown": unknown.name if unknown else None,
            "unknown_share": unknown.share if unknown else None,
            "also_sha256": self.further.sha256 if self.further else None,
            "columns_sha256": sha256_of_train(self.competition) if self.recipe.joins_columns else None,
            "extra_sha256": extra.sha256 if extra and self.recipe.weight_of_extra else None,
            "unlabelled_sha256": unlabelled.sha256 if unlabelled and self.recipe.joins_test_images else None,
            "test_sha256": self.competition.test_hash if self.recipe.joins_test_images else None,
        }

    @property
    def recorded_threads(self) -> int | None:
        """Returns how many threads the run has begun with on a CPU; None if it has not begun."""
        recorded: int | None = self.facts.get("threads")
        return recorded_threads(self.run) if recorded is None else recorded

    def asked_identity(self) -> dict[str, Any]:
        """Returns the identity without what the first call of the run chooses."""
        undecided = {"epochs": self.request.budget is not None, "accumulate": self.recipe.parts_are_open}
        return {name: value for name, value in self.identity().items() if not undecided.get(name)}

    @property
    def may_choose(self) -> bool:
        """Returns whether `--model auto` looks for the best model: on a CPU, by one process, for a run that is new."""
        request = self.request
        return (
            request.options.get("model") == "auto"
            and self.recipe.weights == "none"
            and {**self.competition.recipe, **request.options}.get("weights") != "none"
            and is_cpu(pick_device(request.machine.device))
            and world_size() == 1
            and not self.run.has_begun()
        )

    def unfinished_folds(self) -> list[int]:
        finished = self.run.models()
        return [fold for fold in self.folds_to_train if fold not in finished]


def make_plan(checked: CheckedRequest) -> Plan:
    slug, root, request, options = checked.slug, checked.root, checked.request, checked.options
    competition = _load(slug, root, request, options)
    folds = read_folds(competition)
    numbers = request.folds
    if (source := start_of(options)) and not numbers:
        numbers = Run(runs_folder(slug, root) / source).finished()
    folds_to_train = _choose_folds(numbers, folds.count, slug)
    data = data_of(competition, folds)
    recipe = _recipe_of(competition, data, request.options, options)
    run = Run(runs_folder(slug, root) / name_of_run(request, options))
    plan = Plan(competition, request, run, recipe, folds, folds_to_train, data)
    plan = replace(plan, origins=_find_origins(plan, options))
    _refuse_untested(plan)
    plan = with_run(plan, run)
    if not checked.only_shown:
        _refuse_other_recipe(plan)
    _refuse_other_regions(plan)
    earlier = [run for runs in plan.earlier_runs.values() for run in runs]
    origin = find_origin(str(plan.backbone or recipe.weights), competition, folds)
    return replace(plan, facts={**made_from(earlier, plan.backbone), **inherited_origin(earlier, origin)})


def _load(slug: str, root: Path, request: Request, options: Options) -> Competition:
    """Reads the tables, with the column that holds the boxes of --region."""
    card = read_card(slug, root)
    column = SeenParts.recorded({**card.get("recipe", {}), **options}).column
    settings = {"features": [*card.get("features", ()), column]} if column else {}
    return load_and_report(slug, root, request.corrections, **settings)


def with_run(plan: Plan, run: Run) -> Plan:
    """Returns the plan for another folder, with the runs that the folds unfinished there learn from."""
    plan = replace(plan, run=run)
    return replace(plan, earlier_runs=_find_earlier_runs(plan))


def with_options(plan: Plan, options: Options) -> Plan:
    """Returns the plan with the recipe that these options mean for its competition."""
    recipe = _recipe_of(plan.competition, plan.data, plan.request.options, options)
    return replace(plan, recipe=recipe, origins=_find_origins(plan, options))


def _recipe_of(competition: Competition, data: Data, asked: Options, options: Options) -> Recipe:
    """Returns the recipe that options mean for a competition, of which the user has asked for some; refuses others."""
    recipe = _settled(asked, resolve_recipe(options, competition.recipe, data))
    _refuse_small_share_of_batch(recipe, data.images)
    _refuse_options_of_other_tasks(recipe, competition)
    _refuse_missing_extra(recipe, competition)
    return recipe


def data_of(competition: Competition, folds: Folds) -> Data:
    """Returns what the defaults of a run depend on; the last fold of a rolling split learns from the most images."""
    listed = METRICS.get(competition.metric)  # a file's metric is not
    metric = listed() if listed else None
    return Data(
        images=int(folds.trains(folds.count - 1 if folds.is_rolling else 0).sum()),
        is_loss_of_probabilities=metric is not None and metric.wants == "probs" and metric.better < 0,
        shape=usual_shape(competition),
        are_skewed=_are_skewed(competition),
    )


def _are_skewed(competition: Competition) -> bool:
    """Returns whether the answers are numbers from 0 on, of which a column reaches far to one side."""
    if competition.task.are_labels:
        return False
    columns = [values[np.isfinite(values)] for values in competition.targets.values.T]
    deviations = [(values - values.mean()) / max(values.std(), 1e-12) for values in columns if len(values)]
    are_positive = all(values.min() >= 0 for values in columns if len(values))
    return are_positive and any(float((one**3).mean()) > SKEWED for one in deviations)


def _find_origins(plan: Plan, options: Options) -> dict[str, str]:
    asked = plan.request.options
    from_scratch = learns_anew(str({**plan.competition.recipe, **options}.get("weights", "pretrained")))
    backbone = backbone_of(options["model"], from_scratch)
    origins = origins_of(layers_of(options, plan.competition.recipe, backbone, plan.data))
    source = start_of(options)
    expanded = f"--from {source}" if source else "--model auto"
    given = set(asked) - ({"model"} if asked.get("model") == "auto" else set())  # auto became another model
    return origins | {name: "flag" if name in given else expanded for name in options}


# --- refusals ----------------------------------------------------------------------------------------


def _choose_folds(folds: Sequence[int], count: int, slug: str) -> tuple[int, ...]:
    for fold in folds:
        if not 0 <= fold < count and not holds_nothing_out(fold):
            raise PodiumError(f"there is no fold {fold}; the folds of {slug} are 0 to {count - 1}: correct --folds")
    return tuple(sorted(set(folds)) or range(count))


def _refuse_untested(plan: Plan) -> None:
    """Refuses to learn from all images where no fold of the run says how good that is, or has boxes for it."""
    folds = plan.folds_to_train
    if any(map(holds_nothing_out, folds)) and plan.parts.run:
        raise PodiumError(
            f"--folds all: the boxes of --region {plan.parts.region} are those of folds; leave out one of them"
        )
    if all(map(holds_nothing_out, folds)) and not plan.run.finished():
        raise PodiumError(
            f"--folds all: nothing would tell how good that model is; train folds of {plan.run.name} first, by the same"
            " command without --folds all"
        )


def _refuse_other_recipe(plan: Plan) -> None:
    """Refuses to resume a run with another recipe or other folds, and the name of a pretraining."""
    refuse_other_content(plan.run)
    if plan.run.has_begun():
        plan.run.check_same(plan.asked_identity())
        if edited := doubt_about_recipe(plan.run):
            raise PodiumError(edited)


def _refuse_other_regions(plan: Plan) -> None:
    """Refuses boxes of a run with other folds, whose models may have seen the labels of the images held out here."""
    if plan.parts.finder:
        finder_of(plan.competition, plan.parts.finder)
    if not (name := plan.parts.run):
        return
    if not (folds := plan.unfinished_folds()):
        return
    slug = plan.competition.slug
    (source,) = find_earlier_runs(slug, plan.competition.root, "region", name, folds)
    check_same_folds("region", (source,), folds, plan.competition.classes, plan.identity()["folds_sha256"])
    if missing := [fold for fold in folds if fold not in plan.found_regions]:
        command = f"{podium_command()} explain {name} -c {slug} --regions"
        raise PodiumError(f"run {name} has no boxes for fold {missing[0]}; find them with: {command}")


def _find_earlier_runs(plan: Plan) -> dict[str, tuple[Run, ...]]:
    """Returns the runs that the unfinished folds learn from, by option; refuses those that cannot serve."""
    folds, earlier_runs = plan.unfinished_folds(), {}
    for option, value in {name: getattr(plan.recipe, name) for name in learns_from()}.items():
        if not value or not folds:
            continue
        runs = find_earlier_runs(plan.competition.slug, plan.competition.root, option, value, folds)
        check_same_folds(option, runs, folds, plan.competition.classes, plan.identity()["folds_sha256"])
        earlier_runs[option] = runs
    return earlier_runs


def _settled(asked: Options, recipe: Recipe) -> Recipe:
    """Returns the recipe without what has nothing to do in it; refuses that if the user has asked for it.

    What the card asks for is left out, and `auto` may yet choose what it needs.
    """
    for move in [move.of(recipe) for move in MOVES]:
        settled = move.settled(recipe)
        if settled.keys() & asked.keys() and asked.get("model") != "auto" and recipe.takes_steps:
            raise PodiumError(move.why_settled(recipe))
        recipe = recipe.but(**settled)
    return recipe


def _refuse_small_share_of_batch(recipe: Recipe, training_images: int) -> None:
    if 1 < world_size() > min(recipe.batch_size, training_images) // 2:
        raise PodiumError(
            f"a batch of {recipe.batch_size} images is too small for {world_size()} processes; use a larger"
            " --batch-size, or fewer processes"
        )


def _refuse_missing_extra(recipe: Recipe, competition: Competition) -> None:
    extra = competition.extra
    if extra and extra.missing and recipe.weight_of_extra:
        raise PodiumError(f"{extra.missing[0]}; --extra-weight 0 trains without these images")
    unlabelled = competition.unlabelled
    if unlabelled and unlabelled.missing and recipe.joins_test_images:
        raise PodiumError(unlabelled.missing[0])


def _refuse_options_of_other_tasks(recipe: Recipe, competition: Competition) -> None:
    files_of(recipe.values())
    for move in recipe.moves:
        move.check_targets(competition.targets, competition.without_labels)
        move.check_classes(competition.classes)
    if recipe.joins_columns:
        refuse_without_features(competition)
    if recipe.head == ARCFACE or has_neighbours(recipe.head):
        refuse_unless_one_class(f"--head {recipe.head}", competition.targets)
    if recipe.head == ARCFACE and competition.votes is not None:
        raise PodiumError(f"--head {ARCFACE} needs one label, and these images have votes; leave it out")
