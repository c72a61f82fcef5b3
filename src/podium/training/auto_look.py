"""What `--model auto` takes on a CPU: a look at the training images decides, in about a minute.

Heads on the frozen features of a small pretrained model say at which size the images tell their classes, and whether a
mirrored image keeps its class. A short fine-tuning shows whether it beats the head; where it does not, the head itself
is the choice. Where the features know little, a short run from scratch competes with them. Everything is judged on an
inner split of the training images of the first fold that is trained: the look sees no label of that fold's held-out
images. recipe.json records what was seen and chosen, and a resumed run does not look again.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from podium import PodiumError, terminal
from podium.image_size import area_of
from podium.metrics import METRICS, evaluate
from podium.models.build import build_model
from podium.models.device import pick_device
from podium.models.hub import check_weights_available
from podium.models.place import place_model
from podium.recipe import Options, Recipe
from podium.recipe_defaults import AUTO_PRETRAINED, OPTIONS_OF_LEVEL
from podium.terminal import duration, say, show, table
from podium.torchrun import world_size
from podium.training.context import LEFT_OUT, Context, open_context
from podium.training.frozen_features import Features
from podium.training.linear_probe import Inner, fit_head, fit_head_of, validating_rows
from podium.training.loop import train_fold
from podium.training.plan import Plan, with_options
from podium.training.quick_measure import estimate_seconds, measure_training
from podium.training.run_folder import Run

SIZES = (96, 128, 160, 224)
MOST_IMAGES = 2_000  # that are looked at
LARGER_PAYS = 0.95  # of the loss at the smaller size
CROP_PAYS = 0.9  # of the loss of whole oblong images: fine-tuning learns their shape, and a crop cuts off a part
MIRROR_COSTS = 1.05  # times the loss without mirrored images
OBLONG = 1.15  # longer side / shorter side
ONE_SHAPE = 0.9  # of the images
SECONDS = (240, 480)  # that a fold may take: few images gain little from long runs
IMAGES_PER_SECOND = 15  # of that time, between the two
KNOWS_LITTLE = 0.3  # of the loss that the frozen head leaves: then a model from scratch may be better
TRIAL_SECONDS = 30.0
# What fine-tuning leaves of the frozen head's errors, on the measured sets (docs/benchmarks.md).
ERRORS_LEFT = (0.05, 0.75)


class Look(NamedTuple):
    """What a frozen head scores with these options."""

    options: Options
    inner: Inner
    loss: float
    left: float  # of the loss of the classes' shares
    score: float  # by the competition's metric

    def shown(self, metric: str) -> str:
        size, fit = self.options["image_size"], self.options.get("fit", "crop")
        mirrored = ", not mirrored" if self.options.get("mirror") == 0.0 else ""
        return f"{size} px, {fit}{mirrored}: frozen head {metric} {self.score:.4f}, loss {self.loss:.4f}"


def will_look(plan: Plan) -> bool:
    """Returns whether training looks at the images before it chooses a model."""
    request = plan.request
    return (
        request.options.get("model") == "auto"
        and plan.recipe.weights == "none"
        and request.options.get("weights") != "none"
        and pick_device(request.machine.device).type == "cpu"
        and world_size() == 1
        and not plan.run.has_begun()
    )


def look_first(plan: Plan) -> Plan:
    """Returns the plan with what a look at the images prefers; without `--model auto`, as it is."""
    if not will_look(plan):
        return plan
    try:
        check_weights_available(AUTO_PRETRAINED, "pretrained")
    except PodiumError:
        say(f"podium: note: no weights of {AUTO_PRETRAINED} are here, so auto trains {plan.recipe.model} from scratch")
        return plan
    started = time.monotonic()
    say(
        f"podium: auto looks at up to {MOST_IMAGES:,} training images of fold {plan.folds_to_train[0]}, and at none of"
        " its held-out images"
    )
    with tempfile.TemporaryDirectory() as folder:
        looks = Looks(replace(plan, run=Run(Path(folder))))
        best, options = looks.choose()
    chosen = with_options(plan, options)
    _show_choice(looks, chosen, best)
    say(f"podium: the look took {duration(time.monotonic() - started)}; --model NAME and single options overrule it")
    recorded = {name: value for name, value in options.items() if plan.request.options.get(name) != value}
    fact = {"options": recorded, "fold": plan.folds_to_train[0], "looks": looks.seen}
    return replace(chosen, facts={"auto": fact})


class Looks:
    """Looks at the images of one plan, whose run is a folder that is deleted afterwards."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.fold = plan, plan.folds_to_train[0]
        self.given = {name: value for name, value in plan.request.options.items() if name != "model"}
        self.asked = {**plan.competition.recipe, **self.given}
        self.task_loss, self.metric = plan.competition.task.loss, plan.competition.metric
        self.held_out = int((plan.fold_of_image == self.fold).sum())
        self.training = len(plan.fold_of_image) - self.held_out
        self.seconds_allowed = self._seconds_allowed()
        self.seen: list[dict[str, Any]] = []  # for recipe.json

    def choose(self) -> tuple[Look, Options]:
        """Returns the best look, and the options of the run: fine-tuning, the frozen head itself, or from scratch."""
        best = self.find_best()
        options = self.options_of_run(best)
        if self.asked.get("linear"):
            return best, options
        better = METRICS[self.metric]().better if self.metric in METRICS else 1
        tuned = self.trial(options, f"fine-tuned at {best.options['image_size']} px")
        if better * (tuned.score - best.score) < 0:
            say("podium: fine-tuning does not beat the frozen head, so auto takes the head, at the size that suits it")
            best = self.find_best(best, for_head=True)
            tuned, options = best, {**self.options_of_model(best.options), "linear": True}
        if best.left > KNOWS_LITTLE:
            scratch = self.trial(self.scratch_options(), f"{self.plan.recipe.model} from scratch")
            if better * (scratch.score - tuned.score) > 0:
                options = self.scratch_options()
        return best, options

    def find_best(self, best: Look | None = None, for_head: bool = False) -> Look:
        """Looks at larger and larger sizes, as long as they pay and there is time to train at them."""
        sizes = [self.asked["image_size"]] if "image_size" in self.asked else list(SIZES)
        if best is None:
            best = self.look({"image_size": sizes[0], **self._shape(sizes[0])}, is_first=True)
        for size in sizes[sizes.index(best.options["image_size"]) + 1 :]:
            options = {**best.options, "image_size": size}
            recipe = replace(self.recipe_of(options), linear=for_head)
            if self.seconds_of(recipe) > self.seconds_allowed:
                break
            larger = self.look(options)
            if larger.loss > LARGER_PAYS * best.loss:
                break
            best = larger
        return best

    def look(self, options: Options, is_first: bool = False) -> Look:
        """Fits a head to frozen features; the first look also finds out whether mirrored images keep their class."""
        fixed = {"test_size": options["image_size"], "linear": True}
        with self._open({**self.options_of_model(options), **fixed}) as context:
            model, spec = build_model(context.recipe, context.competition.classes)
            spec = context.complete_spec(spec, self.fold)
            normalise = place_model(model, spec, context.device, context.precision)
            fitted = fit_head_of(context, self.fold, model, spec, normalise, MOST_IMAGES)
            look = self._judge(options, fitted.inner)
            if is_first and not {"mirror", "views", "level"} & self.asked.keys() and len(fitted.features.values) > 1:
                plain = Features(fitted.features.rows, fitted.features.values[:1])
                without = self._judge({**options, "mirror": 0.0}, fit_head(context, self.fold, plain, spec)[2])
                look = without if look.loss > MIRROR_COSTS * without.loss else look
        say(f"  {look.shown(self.metric)}")
        return look

    def trial(self, options: Options, what: str) -> Look:
        """Trains for a short time on a part of the fold's training images; the rest of them judges the result."""
        recipe = with_options(self.plan, options).recipe
        epochs = max(1, round(recipe.epochs * min(1.0, TRIAL_SECONDS / self.seconds_of(recipe))))
        with self._open({**options, "epochs": epochs}) as context:
            rows = context.training_rows(self.fold)
            inner = np.where(context.fold_of_image == self.fold, LEFT_OUT, context.fold_of_image)
            inner[rows[validating_rows(context, self.fold, rows)]] = self.fold
            context.run.begin(asdict(context.recipe), {"folds": self.plan.fold_count})
            with _quiet():
                deadline = time.monotonic() + 2 * TRIAL_SECONDS
                train_fold(replace(context, fold_of_image=inner), self.fold, deadline=deadline)
            predictions = context.run.out_of_fold(self.fold)
            shutil.rmtree(context.run.fold_folder(self.fold))
        known = Inner(predictions.target, predictions.probs, predictions.probs)
        look = self._judge({"trial": what, "epochs": epochs}, known)
        seconds = f"{terminal.plural(epochs, 'epoch')}: {self.metric} {look.score:.4f}, loss {look.loss:.4f}"
        say(f"  {what}, {seconds}")
        return look

    # --- options ---

    def scratch_options(self) -> Options:
        origins = self.plan.origins
        own = {name for name, origin in origins.items() if origin == "--model auto"}
        return {**{name: value for name, value in asdict(self.plan.recipe).items() if name in own}, **self.given}

    def options_of_model(self, options: Options) -> Options:
        level = OPTIONS_OF_LEVEL.get(str(self.given.get("level", "default")), {})
        own = {name: value for name, value in options.items() if name not in level}
        return {"model": AUTO_PRETRAINED, "weights": "pretrained", **own, **self.given}

    def options_of_run(self, look: Look) -> Options:
        """Returns the options of the run: fewer epochs if the smallest size would take too long."""
        options = self.options_of_model(look.options)
        recipe = with_options(self.plan, options).recipe
        too_long = self.seconds_of(recipe) / self.seconds_allowed
        if too_long > 1 and self.plan.request.budget is None and "epochs" not in self.asked:
            options = {**options, "epochs": max(1, int(recipe.epochs / too_long))}
        return options

    def recipe_of(self, options: Options) -> Recipe:
        return with_options(self.plan, self.options_of_model(options)).recipe

    # --- time ---

    def seconds_of(self, recipe: Recipe) -> float:
        rate = measure_training(recipe, self.plan.competition.classes, self.plan.request.machine.device)
        return estimate_seconds(recipe, self.training, self.held_out, rate)

    def _seconds_allowed(self) -> float:
        request = self.plan.request
        if request.budget is not None:
            left = request.budget - (time.monotonic() - request.started)
            return left / len(self.plan.folds_to_train)
        shortest, longest = SECONDS
        return min(max(self.training / IMAGES_PER_SECOND, shortest), longest)

    # --- details ---

    @contextmanager
    def _open(self, options: Options) -> Iterator[Context]:
        with open_context(with_options(self.plan, options)) as context:
            yield context

    def _judge(self, options: Options, inner: Inner | None) -> Look:
        if inner is None:
            raise PodiumError("--model auto: there are too few images to look at; name a model with --model")
        loss, score = (evaluate(name, inner.targets, inner.probs) for name in (self.task_loss, self.metric))
        self.seen.append({**options, "loss": loss, "score": score})
        return Look(options, inner, loss, inner.loss_left(self.task_loss), score)

    def _shape(self, size: Any) -> Options:
        """Returns how images of one oblong shape become square: whole, unless a crop is clearly better."""
        if "fit" in self.asked or not self._are_oblong(size):
            return {}
        whole, crop = (self.look({"image_size": size, "fit": fit}) for fit in ("squash", "crop"))
        return {"fit": "crop" if crop.loss < CROP_PAYS * whole.loss else "squash"}

    def _are_oblong(self, size: Any) -> bool:
        with self._open(self.options_of_model({"image_size": size})) as context:
            positions = context.store.positions(self.plan.competition.train["image"])
            files = [context.store.files[position] for position in positions]
        ratios = np.array([file.width / file.height for file in files if file.width])
        usual = float(np.median(ratios))
        is_usual = np.abs(np.log(ratios / usual)) < 0.1
        return max(usual, 1 / usual) > OBLONG and float(is_usual.mean()) > ONE_SHAPE


@contextmanager
def _quiet() -> Iterator[None]:
    before, terminal.quiet = terminal.quiet, True
    try:
        yield
    finally:
        terminal.quiet = before


def _show_choice(looks: Looks, chosen: Plan, best: Look) -> None:
    """Prints the choice beside a faster and a better one: their time for a fold, and the score to expect."""
    recipe, metric = chosen.recipe, looks.metric
    known = METRICS.get(metric)
    low = high = "not below the frozen head"
    if known and known().better > 0 and known().limit == 1.0:
        high, low = (f"{1 - (1 - best.score) * left:.3f}" for left in ERRORS_LEFT)
    expected = f"{low} to {high}" if low != high else low
    if recipe.linear:
        expected = f"{best.score:.3f}"
    rows = [["good (chosen)", _described(recipe), duration(looks.seconds_of(recipe)), expected]]
    if recipe.weights == "pretrained" and not recipe.linear:
        quick = replace(recipe, linear=True)
        rows.insert(0, ["quick", "--model auto --linear", duration(looks.seconds_of(quick)), f"{best.score:.3f}"])
        larger = [size for size in SIZES if size**2 > area_of(recipe.image_size)]
        if larger:
            options = {**best.options, "image_size": larger[0]}
            words = f"--model auto --image-size {larger[0]}"
            rows.append(["best", words, duration(looks.seconds_of(looks.recipe_of(options))), "a little above"])
    show(table(["choice", "what", "a fold", metric], rows, text_columns=4))


def _described(recipe: Recipe) -> str:
    start = "from scratch" if recipe.weights == "none" else "pretrained"
    return f"{recipe.model}, {start}, {recipe.image_size} px, {terminal.plural(recipe.epochs, 'epoch')}"
