"""Plans members, forecasts how long they take on this machine, and trains them as `podium train` does."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from podium.basics.errors import PodiumError
from podium.basics.image_size import area_of
from podium.basics.machine import Machine
from podium.basics.project_root import runs_folder
from podium.competing.portfolio import HEAD, SCRATCH, SIDES, Candidate
from podium.models.build import resolve_recipe
from podium.models.hub import backbones_in
from podium.options.recipe import Options, Recipe, needing_end
from podium.saved_runs.run_folder import Run
from podium.training.plan import Plan, make_plan, with_run
from podium.training.request import check_before_plan
from podium.training.timing.fold_work import FORWARD_SHARE, FoldWork
from podium.training.timing.measure_step import measure_training
from podium.training.train import train_folds

FIT_SECONDS = 2.0  # of a head, for each fold: at first; later as measured
FIT_POWER = 1.6  # with which it grows with the backbones whose features one head sees
USUAL_SIDE = 128  # of the images that a ConvNet's speed is measured with
START_SECONDS = 3.0  # of a fold: reading, building, saving
MARGIN = 1.15  # times a forecast, so that what is begun can be finished
LEAST_EPOCHS = 1 / 3  # of the recipe's: with fewer, a model has only begun to learn

Train = Callable[[Plan], None]


def options_of_run(run: Run, options: Options) -> Options:
    """Returns the options with which a member is trained; the epochs of a run that has begun stay."""
    return {**options, "epochs": run.recipe["epochs"]} if run.has_begun() else options


@dataclass
class Workshop:
    base: Plan  # its competition, folds and data serve all members
    machine: Machine
    train_plan: Train = train_folds
    rates: dict[str, float] = field(default_factory=dict)  # of training, by model: pixels a second
    taken: dict[str, tuple[float, float]] = field(default_factory=dict)  # by kind: seconds forecast, and taken
    folder: Path | None = None  # of its runs; None: that of all runs

    @property
    def slug(self) -> str:
        return self.base.competition.slug

    @property
    def root(self) -> Path:
        return self.base.competition.root

    def run_of(self, candidate: Candidate) -> Run:
        return Run((self.folder or runs_folder(self.slug, self.root)) / candidate.name)

    def options_of(self, candidate: Candidate) -> Options:
        is_head = candidate.kind == HEAD
        return candidate.options if is_head else options_of_run(self.run_of(candidate), candidate.options)

    def recipe_of(self, candidate: Candidate) -> Recipe:
        return resolve_recipe(self.options_of(candidate), self.base.competition.recipe, self.base.data)

    def train(self, candidate: Candidate, folds: Sequence[int], seconds_left: float) -> Run:
        """Trains the folds that are not finished, within the time; learns how good the forecast was."""
        recipe, started = self.recipe_of(candidate), time.monotonic()
        forecast = self._forecast(candidate, recipe, folds)
        # A head has no steps that a budget could shorten, and an end of its own must not be cut off.
        keeps_epochs = candidate.kind == HEAD or needing_end(recipe.values()) or math.isinf(seconds_left)
        budget = None if keeps_epochs else max(seconds_left, 1.0)
        request = replace(
            self.base.request,
            options=self.options_of(candidate),
            folds=tuple(folds),
            name=candidate.name,
            machine=self.machine,
            budget=budget,
            started=started,
        )
        plan = make_plan(check_before_plan(self.slug, self.root, request, only_shown=self.folder is not None))
        self.train_plan(with_run(plan, self.run_of(candidate)) if self.folder else plan)
        before = self.taken.get(candidate.kind, (0.0, 0.0))
        self.taken[candidate.kind] = before[0] + forecast, before[1] + time.monotonic() - started
        return self.run_of(candidate)

    # --- forecasts ---

    def seconds(self, candidate: Candidate, folds: Sequence[int]) -> float:
        """Returns how long the unfinished folds take, with their predictions of the test images."""
        return MARGIN * self._forecast(candidate, self.recipe_of(candidate), folds) * self._correction(candidate)

    def with_epochs_for(
        self, candidate: Candidate, folds: Sequence[int], seconds: float, least: float = LEAST_EPOCHS
    ) -> Candidate | None:
        """Returns the member with as many epochs as there is time for; None if these are less than a share of them."""
        recipe = self.recipe_of(candidate)
        if candidate.kind == HEAD or self.run_of(candidate).has_begun():
            return candidate if self.seconds(candidate, folds) <= seconds else None
        needed = self.seconds(candidate, folds)
        if needed <= seconds:
            return candidate
        epochs = max(1, int(recipe.epochs * seconds / needed))
        if epochs < recipe.epochs * least or (least and needed > recipe.epochs * seconds):
            return None
        options = {**candidate.options, "epochs": epochs}
        return replace(candidate, options=options, share=epochs / recipe.epochs)

    def _correction(self, candidate: Candidate) -> float:
        forecast, taken = self.taken.get(candidate.kind, (0.0, 0.0))
        return taken / forecast if forecast else 1.0

    def _forecast(self, candidate: Candidate, recipe: Recipe, folds: Sequence[int]) -> float:
        plan, finished = self.base, set(self.run_of(candidate).models())
        todo = [fold for fold in folds if fold not in finished]
        if not todo:
            return 0.0
        rate = self._rate(candidate, recipe)  # images a second
        tests = self._tests(recipe, rate)
        if candidate.kind == HEAD:
            images = int(plan.folds.is_used.sum()) * recipe.view_count * FORWARD_SHARE / rate
            fit = FIT_SECONDS * (1 + len(plan.folds) / 5_000) * math.pow(len(backbones_in(candidate.model)), FIT_POWER)
            return images + tests + len(todo) * fit
        seconds = int(plan.folds.is_used.sum()) * recipe.view_count * FORWARD_SHARE / rate if recipe.fits_head else 0.0
        for fold in todo:
            training, held_out = int(plan.folds.trains(fold).sum()), int(plan.folds.validates(fold).sum())
            joined = min(training, plan.competition.without_labels) if recipe.joins_test_images else 0
            seconds += START_SECONDS + tests + FoldWork(recipe, training + joined, held_out).total / rate
        return seconds

    def seconds_to_predict(self, candidate: Candidate) -> float:
        """Returns how long the test images of a trained member take; a head's folds share their features."""
        recipe = self.recipe_of(candidate)
        models = 1 if candidate.kind == HEAD else len(self.run_of(candidate).models())
        return MARGIN * models * self._tests(recipe, self._rate(candidate, recipe))

    def _tests(self, recipe: Recipe, rate: float) -> float:
        return len(self.base.competition.test) * recipe.view_count * FORWARD_SHARE / rate

    def _rate(self, candidate: Candidate, recipe: Recipe) -> float:
        """Returns training images a second, measured once for each model: the time grows with the pixels."""
        area = float(area_of(recipe.image_size))
        for model in backbones_in(candidate.model):
            if model not in self.rates:
                # Of the smallest images, other work takes most of the time, which does not grow with the pixels.
                has_sizes = candidate.kind != SCRATCH and candidate.side in SIDES and candidate.side < USUAL_SIDE
                single = recipe.but(model=model, image_size=USUAL_SIDE if has_sizes else recipe.image_size)
                try:
                    rate = measure_training(single, self.base.competition.classes, self.machine.device)
                except PodiumError:
                    rate = 1e-6  # it does not fit into memory: no time is enough for it
                self.rates[model] = rate * area_of(single.image_size)
        return 1 / sum(area / self.rates[model] for model in backbones_in(candidate.model))
