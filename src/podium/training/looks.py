"""Looks at training images before a run begins: heads on frozen features, and short trainings.

Everything is judged on an inner split of the training images of one fold: the looks see no label of the images that the
fold holds out. They leave no files but features, which a run of few images uses again. auto_look.py decides by what
they show.
"""

import math
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium import terminal
from podium.errors import PodiumError
from podium.image_size import ImageSize, area_of
from podium.models.build import build_model
from podium.models.place import place_model
from podium.recipe import Options, Recipe
from podium.recipe_defaults import AUTO_MANY_IMAGES, AUTO_PRETRAINED, AUTO_WITH_MANY, OPTIONS_OF_LEVEL
from podium.saved_runs.run_folder import Run
from podium.tasks.metrics import evaluate
from podium.tasks.task import Targets
from podium.tasks.temperature import apply_temperature, fit_temperature
from podium.terminal import plural, say
from podium.timing.fold_work import FORWARD_SHARE, estimate_seconds
from podium.timing.measure_step import measure_training
from podium.training.context import Context, complete_spec, open_context
from podium.training.learner import Diverged
from podium.training.linear_probe import Inner, fit_head, fit_head_of, inner_split
from podium.training.loop import train_fold
from podium.training.plan import Plan, with_options

IMAGES = (1_000, 2_000)  # that a look at a head takes, at least and at most
SMALLEST, LARGEST = 96, 224  # pixels
SECONDS_OF_LARGEST = 20.0  # that a look at the largest size takes, if that is enough for the least images
MIRROR_COSTS = 1.05  # times the loss without mirrored images
RATE_OPTIONS = {"lr", "norm", "batch_size", "optimizer"}  # one of these was chosen, and the rest has to suit it
# So that the losses of a trial and of a head can be compared; and a trial is short.
PLAIN = {"smoothing": 0.0, "pseudo": "", "clean": "none", "extra_weight": 0.0, "views": "none"}


class Look(NamedTuple):
    """What a model says of the images of the inner split."""

    options: Options
    loss: float  # the log loss, or that of the task
    left: float  # of the loss of the classes' shares
    leaves_little: bool  # to learn
    score: float  # by the competition's metric


class Trial(NamedTuple):
    """What a short training shows."""

    loss: float  # the log loss, or that of the task
    score: float  # by the competition's metric
    share: float = 1.0  # of the epochs of a whole run


class Looks:
    """Looks at the images of one plan, whose run is a folder that is deleted afterwards, for so many seconds."""

    def __init__(self, plan: Plan, seconds: float = math.inf) -> None:
        self.seconds, self.end = seconds, time.monotonic() + seconds
        self.seen_pixels, self.seconds_of_seeing = 0.0, 0.0  # of the looks at heads
        self.plan, self.fold = plan, plan.folds_to_train[0]
        self.given = {name: value for name, value in plan.request.options.items() if name != "model"}
        self.asked: Mapping[str, Any] = {**plan.competition.recipe, **self.given}
        self.task_loss, self.metric = plan.competition.task.loss, plan.competition.metric
        self.held_out = int(plan.folds.validates(self.fold).sum())
        self.training = int(plan.folds.trains(self.fold).sum())
        self.rates: dict[str, float] = {}  # of training, by model: pixels per second
        self.seen: list[dict[str, Any]] = []  # for recipe.json

    def head(self, options: Options, tries_mirror: bool = False) -> Look:
        """Fits a head to frozen features of one view, so that sizes can be compared in half the time.

        May also find out, with both views, whether mirrored images keep their class.
        """
        started = time.monotonic()
        tries_mirror = tries_mirror and not {"mirror", "views", "level"} & self.asked.keys()
        fixed = {"test_size": options["image_size"], "linear": True, "extra_weight": 0.0}
        if not tries_mirror:
            fixed["views"] = "none"
        with self._open({**self.options_of_pretrained(options), **fixed}) as context:
            model, spec = build_model(context.recipe, context.competition.classes)
            spec = complete_spec(context, spec, self.fold)
            normalise = place_model(model, spec, context.device, context.precision)
            most = self._most_images()
            if len(context.folds) > most:  # else the run will use all features again
                context = replace(context, folds=context.folds.without(~context.folds.trains(self.fold)))
            fitted = fit_head_of(context, self.fold, model, spec, normalise, most)
            look = self._judge(options, fitted.inner)
            if tries_mirror and len(fitted.features.values) > 1:
                plain = replace(fitted.features, values=fitted.features.values[:1])
                without = self._judge({**options, "mirror": 0.0}, fit_head(context, self.fold, plain, spec)[2])
                keeps_class = look.loss <= MIRROR_COSTS * without.loss
                look = without._replace(options=options) if keeps_class else without
            pixels = area_of(options["image_size"]) * context.recipe.view_count
            self.seen_pixels, self.seconds_of_seeing = float(pixels), time.monotonic() - started
        mirrored = ", not mirrored" if look.options.get("mirror") == 0.0 else ""
        self._report(f"frozen features at {options['image_size']} px{mirrored}", look)
        return look

    def trial(self, options: Options, seconds: float) -> Trial:
        """Trains a short schedule on some of the fold's training images; others judge the result."""
        recipe = with_options(self.plan, options).recipe
        rate = self._rate(recipe, recipe.image_size)
        with self._open({**options, **PLAIN}) as context:
            rows = context.training_rows(self.fold)
            learns, judges = inner_split(context, self.fold, rows)
            learned = _sample(rows[learns], max(IMAGES[0], round(seconds * rate)))
            judging = _sample(rows[judges], IMAGES[0])
            whole = estimate_seconds(recipe, len(learned), len(judging), rate)
            epochs = min(max(1, round(recipe.epochs * seconds / whole)), recipe.epochs)
            short = context.with_recipe(replace(context.recipe, epochs=epochs))
            deadline = max(seconds, min(3 * seconds, self.seconds_left))
            found = self._train(replace(short, folds=context.folds.inside(self.fold, learned, judging)), deadline)
        found = found._replace(share=round(epochs * len(learned) / (recipe.epochs * self.training), 4))
        what = {"model": recipe.model, "image_size": recipe.image_size, "epochs": epochs}
        has_diverged = math.isinf(found.loss)
        self.seen.append({**what, **({"diverged": True} if has_diverged else found._asdict())})
        start = "from scratch" if recipe.weights == "none" else "fine-tuned"
        self._report(f"{recipe.model} {start} at {recipe.image_size} px for {plural(epochs, 'epoch')}", found)
        return found

    def _train(self, context: Context, seconds: float) -> Trial:
        facts = {"folds": self.plan.folds.count, "metric": context.competition.metric}
        context.run.begin(asdict(context.recipe), facts)
        try:
            with _quiet():
                train_fold(context, self.fold, deadline=time.monotonic() + seconds)
            predictions = context.run.out_of_fold(self.fold)
        except Diverged:
            return Trial(math.inf, math.nan)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("stopped while looking at the images; nothing has begun") from None
        finally:
            shutil.rmtree(context.run.fold_folder(self.fold), ignore_errors=True)
        return Trial(*_measure((self.task_loss, self.metric), predictions.target, predictions.probs))

    # --- recipes and their time ---

    @property
    def seconds_left(self) -> float:
        return self.end - time.monotonic()

    def seconds_to_see(self, size: ImageSize) -> float:
        """Returns about how long a look at a head takes, as the last one took; a part of that does not grow."""
        grows = area_of(size) / self.seen_pixels if self.seen_pixels else 1.0
        return self.seconds_of_seeing * max(grows, 0.5)

    def options_of_pretrained(self, options: Options) -> Options:
        """Returns the options of a run with the pretrained model; what the user or a level sets stays."""
        level = OPTIONS_OF_LEVEL.get(str(self.given.get("level", "default")), {})
        of_many = AUTO_WITH_MANY if self.training >= AUTO_MANY_IMAGES and not RATE_OPTIONS & self.asked.keys() else {}
        own = {name: value for name, value in {**of_many, **options}.items() if name not in level}
        return {"model": AUTO_PRETRAINED, "weights": "pretrained", **own, **self.given}

    def options_from_scratch(self) -> Options:
        """Returns the options that `--model auto` has without a look."""
        own = {name for name, origin in self.plan.origins.items() if origin == "--model auto"}
        return {**{name: value for name, value in asdict(self.plan.recipe).items() if name in own}, **self.given}

    def recipe_of(self, options: Options) -> Recipe:
        return with_options(self.plan, self.options_of_pretrained(options)).recipe

    def seconds_of(self, recipe: Recipe) -> float:
        """Returns about how long one fold takes."""
        return estimate_seconds(recipe, self.training, self.held_out, self._rate(recipe, recipe.image_size))

    def _rate(self, recipe: Recipe, size: ImageSize) -> float:
        """Returns training images per second, measured once for each model: a ConvNet's time grows with the pixels."""
        if recipe.model not in self.rates:
            rate = measure_training(recipe, self.plan.competition.classes, self.plan.request.machine.device)
            self.rates[recipe.model] = rate * area_of(recipe.image_size)
        return self.rates[recipe.model] / area_of(size)

    def _most_images(self) -> int:
        """Returns how many images a head is fitted to: the same at all sizes, so that these can be compared."""
        recipe = self.recipe_of({"image_size": SMALLEST})
        images = SECONDS_OF_LARGEST * self._rate(recipe, LARGEST) / FORWARD_SHARE / recipe.view_count
        return int(min(max(images, IMAGES[0]), IMAGES[1]))

    # --- details ---

    @contextmanager
    def _open(self, options: Options) -> Iterator[Context]:
        folder = self.plan.run.path / str(len(self.seen))  # of its own: a run has one recipe
        with open_context(with_options(replace(self.plan, run=Run(folder)), options)) as context:
            yield context

    def _judge(self, options: Options, inner: Inner | None) -> Look:
        if inner is None:
            raise PodiumError("--model auto: there are too few images to look at; name a model with --model")
        loss, score = _measure((self.task_loss, self.metric), inner.targets, inner.probs)
        self.seen.append({**options, "loss": loss, "score": score})
        little = inner.leaves_little(self.task_loss, self.training)
        return Look(options, loss, inner.loss_left(self.task_loss), little, score)

    def _report(self, what: str, look: Look | Trial) -> None:
        metric = "" if self.metric == self.task_loss else f"{self.metric} {look.score:z.4f}, "
        say(f"  {what}: {metric}{self.task_loss.replace('_', ' ')} {look.loss:z.4f}")


def _measure(metrics: tuple[str, str], targets: Targets, probs: NDArray[np.floating[Any]]) -> tuple[float, float]:
    """Returns loss and score of calibrated probabilities: smoothed labels make a good model look unsure."""
    if targets.task.sums_to_one:
        exact = probs.astype(np.float64)
        probs = apply_temperature(exact, fit_temperature(exact, targets.values, targets.votes))
    loss, score = (evaluate(name, targets, probs) for name in metrics)
    return loss, score


def _sample(rows: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    return np.random.default_rng(0).permutation(rows)[:most]


@contextmanager
def _quiet() -> Iterator[None]:
    before, terminal.quiet = terminal.quiet, True
    try:
        yield
    finally:
        terminal.quiet = before
