"""Every option of a run in one frozen dataclass, and what follows from its values.

recipe_defaults.py fills in the options that are not given; the run's recipe.json holds the result.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from podium.disk import NAME_PATTERN
from podium.errors import PodiumError
from podium.image_size import ImageSize, area_of, parse_size, shorter_side, sides_of, size_of, square_side
from podium.knob import ALWAYS_RECORDED, Knob, knob
from podium.option_kinds import AUTO, KINDS_OF_TYPES, NEIGHBOURS, Kind
from podium.recipe_options import (
    CLEANING,
    FOUND_BY,
    LINEAR,
    OPERATORS,
    PRECISIONS,
    TIMM_POOL,
    VIEWS,
    ImageOptions,
    View,
)
from podium.removed_options import why_gone
from podium.terminal import did_you_mean, plural

Options = Mapping[str, Any]  # name of an option: its value


@dataclass(frozen=True)
class Recipe(ImageOptions):
    linear: bool = knob(
        "linear evaluation: freeze the backbone and fit a logistic head on its features (--model A+B: of both; --from"
        " RUN: of a finished run's models)",
        off=False,
        default=False,
        why="a first look at a model in minutes; training all weights scores higher",
        also_called=("freeze-backbone", "linear-probe", "linear-probing", "probe"),
        is_taken_over=False,
    )
    head_first: bool = knob(
        "start from a head that is fitted to the frozen features; without it, a new head starts from the shares of the"
        " classes",
        off=False,
        default=False,
        why="a model from scratch has no features to fit a head to; pretrained kinds switch it on",
        is_taken_over=False,
    )
    skip_bad: bool = knob(
        "leave out training images that cannot be read",
        off=False,
        default=False,
        why="a file that cannot be read is a mistake to look at",
    )
    precision: str = knob(
        "auto (the fastest that the hardware has), float32, bfloat16 or float16",
        off=ALWAYS_RECORDED,
        default="auto",
        why="16 bits lose nothing that was measured, where the hardware computes faster with them",
        choices=PRECISIONS,
        also_called=("amp", "fp16", "bf16", "half", "mixed-precision", "amp-dtype"),
    )
    operators: str = knob(
        "fast (parts of the model are computed in faster ways, with the same results up to rounding) or timm (as timm"
        " computes them)",
        off="timm",
        default="fast",
        why="up to 1.4 times as many images per second on a CPU; on a GPU the same as timm",
        choices=OPERATORS,
    )
    seed: int = knob(
        "seed of everything random in training", 0, 2**32 - 1, off=ALWAYS_RECORDED, default=0, why="any number does"
    )
    start: str = knob(
        "a finished run to go on from: each fold starts with the weights of that run's fold, and its options",
        off="",
        default="",
        why="it needs a finished run",
        flag="--from",
        learns_from="goes on from",
        is_taken_over=False,
        also_called=("finetune", "continue", "continue-from", "start"),
    )
    teacher: str = knob(
        "a finished run to learn from, or several, RUN1+RUN2: the mean of their probabilities",
        off="",
        default="",
        why="it needs a finished run",
        also_called=("distill", "kd", "teacher-model"),
        learns_from="taught by",
        for_heads=False,
        is_move=True,
    )
    pseudo: str = knob(
        "a finished run, or several, RUN1+RUN2, whose answers for the test images are learned, too (pseudo-labels)",
        off="",
        default="",
        why="it needs a finished run",
        learns_from="learns the test images from",
        for_heads=False,
        is_move=True,
    )
    clean: str = knob(
        "what to do about labels that are probably wrong, judged by heads that were not fitted to them: none, drop"
        " (leave out their images) or soften (believe the heads in part); how much, inner held-out images decide",
        off="none",
        default="none",
        why="whether it gains depends on the labels",
        choices=CLEANING,
        also_called=("clean-labels", "cleanlab", "denoise"),
        for_heads=False,
        is_move=True,
    )
    extra_weight: float = knob(
        "how often an epoch shows the card's [[extra]] images, or what they weigh for a head that is fitted, times the"
        " weight of each; 0: never",
        0,
        100,
        off=1.0,
        default=1.0,
        why="as often as the card says",
    )
    also_weight: float = knob(
        "what the card's further columns (also) weigh in the loss, beside the answers",
        0,
        100,
        off=0.3,
        default=0.3,
        why="a guess: the answers come first",
    )

    @property
    def part_size(self) -> int:
        """How many images are computed at once, in training and in prediction."""
        return math.ceil(self.batch_size / (1 if self.accumulate == AUTO else int(self.accumulate)))

    @property
    def largest_size(self) -> ImageSize:
        """The size of the largest images in training."""
        return max(self.image_size, parts_of_finish(self.finish)[0] if self.finish else 1, key=area_of)

    @property
    def view_count(self) -> int:
        """How many views of an image prediction averages."""
        return count_views(self.views)


def describe(recipe: Recipe) -> tuple[str, str]:
    """Returns a line about how the model learns, and one about what is done to the images."""
    if recipe.linear:
        head = "the most similar training images" if has_neighbours(recipe.head) else "a logistic head"
        return f"{head} on the frozen features", f"no augmentation; views: {recipe.views}"
    learning = [
        f"{plural(recipe.epochs, 'epoch')} in batches of {recipe.batch_size}"
        + (f" (in {recipe.accumulate} parts)" if recipe.accumulate != 1 else ""),
        f"lr {recipe.lr:g} ({recipe.optimizer})",
        *_in_use(recipe, "layer_decay", "freeze", "lora", "keep", "weight_decay", "drop_path", "smoothing"),
        *_in_use(recipe, "ema", "sam"),
    ]
    if recipe.norm != "train":
        learning.append(f"batch norm {recipe.norm}")
    if recipe.pool != TIMM_POOL:
        learning.append(f"pool {recipe.pool}")
    if recipe.head != LINEAR:
        learning.append(f"head {recipe.head}")
    if recipe.head_first:
        learning.append("from a fitted head")
    if (recipe.loss, recipe.class_weights) != ("cross_entropy", "none"):
        learning.append(f"loss {recipe.loss}, class weights {recipe.class_weights}")
    learning += _in_use(recipe, "balance", "adjust")
    if recipe.pseudo:
        learning.append(f"pseudo-labels of {recipe.pseudo}")
    if recipe.clean != "none":
        learning.append(f"doubtful labels: {recipe.clean}")
    images = [*_in_use(recipe, "crop", "mirror", "colour", "erase", "ops", "mix", "grow"), f"views {recipe.views}"]
    if recipe.fit != "crop":
        images.insert(0, f"fit {recipe.fit}")
    if recipe.region:
        images.insert(0, f"region {recipe.region}")
    if recipe.finish:
        size, epochs = parts_of_finish(recipe.finish)
        images.append(f"{size} px in the last {plural(epochs, 'epoch') if epochs > 1 else 'epoch'}")
    if recipe.test_size != recipe.image_size:
        images.append(f"predicted at {recipe.test_size} px")
    if recipe.augment != "none":
        images.append(f"augment {recipe.augment}")
    return ", ".join(learning), ", ".join(images)


def _in_use(recipe: Recipe, *names: str) -> list[str]:
    off = {"layer_decay": 1, "crop": 1}  # of the other options: 0
    values = {name: getattr(recipe, name) for name in names}
    return [f"{name.replace('_', ' ')} {value:g}" for name, value in values.items() if value != off.get(name, 0)]


def describe_options(options: Options) -> str:
    """Returns names and values, as a recipe.json has them."""
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in options.items()
    )


def count_views(views: str) -> int:
    """Returns how often an image is predicted: views are combined."""
    return math.prod(VIEWS.get(view, View(1)).images for view in views.split("+"))


def parts_of_finish(finish: str) -> tuple[ImageSize, int]:
    size, _, epochs = finish.partition(":")
    return parse_size(size), int(epochs)


def has_neighbours(head: str) -> bool:
    """Returns whether the head answers by training images that it keeps."""
    return head.partition(":")[0] == NEIGHBOURS


def voters_of(head: str) -> int:
    """Returns how many training images vote in that head; 0: the head chooses it."""
    return int(head.partition(":")[2] or 0)


# --- images that grow --------------------------------------------------------------------------------

# Pixels. The size grows in steps of 16, one pixel of a deep layer. It starts at 32 at least: with a deep layer of a
# single pixel, torch 2.15 computes a wrong gradient of a bfloat16 convolution.
GROWTH_STEP, SMALLEST_IMAGE = 16, 32


def image_size_at(epoch: int, recipe: Recipe) -> ImageSize:
    """Returns the image size of an epoch: with `grow`, from half the size to the whole size; then that of `finish`."""
    if recipe.finish:
        size, last_epochs = parts_of_finish(recipe.finish)
        if epoch >= recipe.epochs - last_epochs:
            return size
    growing_epochs = recipe.grow * recipe.epochs
    if epoch >= growing_epochs:
        return recipe.image_size
    grown = ((side, int(side * (1 + epoch / growing_epochs) / 2)) for side in sides_of(recipe.image_size))
    return size_of(*(min(side, max(SMALLEST_IMAGE, size // GROWTH_STEP * GROWTH_STEP)) for side, size in grown))


def relative_area(size: ImageSize, recipe: Recipe) -> float:
    """Returns how many pixels such images have, in units of the recipe's."""
    return area_of(size) / area_of(recipe.image_size)


# --- checks ------------------------------------------------------------------------------------------


def recipe_options() -> dict[str, tuple[Kind, str]]:
    """Returns the kind of value of every option, and its help text."""
    types = get_type_hints(Recipe)
    return {name: (own.kind or KINDS_OF_TYPES[types[name]], own.text) for name, own in KNOBS.items()}


def flag_of(name: str) -> str:
    """Returns the option's flag on the command line."""
    return KNOBS[name].flag or f"--{name.replace('_', '-')}"


def check_card_options(card: Options, where: str) -> None:
    if "model" in card:
        raise PodiumError(f"{where}a card cannot choose the model; remove `model`, the command names it")
    if "start" in card:
        raise PodiumError(f"{where}a run goes on from another by the flag --from; remove `start`")
    check_options(card, where)


def check_options(values: Options, where: str = "") -> None:
    """Refuses unknown names, and values that no run can use."""
    for name, value in values.items():
        if name not in KNOBS:
            hint = why_gone(name) or did_you_mean(name, KNOBS, otherwise=f"there are {', '.join(KNOBS)}")
            raise PodiumError(f"{where}no option '{name}'; {hint}")
        flag = f"{where}{name}" if where else flag_of(name)
        problem = recipe_options()[name][0].problem(value, KNOBS[name].limits)
        if problem:
            raise PodiumError(f"{flag} must be {problem}")


def check_ends(recipe: Recipe) -> None:
    """Refuses last epochs that a run does not have, or whose images would be smaller than before or than stored."""
    if recipe.linear or not recipe.finish:
        return
    size, epochs = parts_of_finish(recipe.finish)
    if shorter_side(size) < shorter_side(recipe.image_size):
        raise PodiumError(
            f"--finish {recipe.finish} is smaller than --image-size {recipe.image_size}; the last epochs need larger"
            " images, or leave it out"
        )
    if epochs >= recipe.epochs:
        raise PodiumError(
            f"--finish {recipe.finish} leaves no epoch of {recipe.epochs} at {recipe.image_size} px; use fewer, or"
            f" --image-size {size}"
        )
    if shorter_side(recipe.test_size) < shorter_side(size):
        raise PodiumError(
            f"--test-size {recipe.test_size} is smaller than --finish {recipe.finish}; use --test-size {size}, or leave"
            " it out"
        )


def check_views(recipe: Recipe) -> None:
    """Refuses a view that would change the shape of the images."""
    if "turn" in recipe.views.split("+"):
        square_side(recipe.test_size, "--views turn")


KNOBS: dict[str, Knob] = {own.name: own.metadata["knob"] for own in fields(Recipe)}
LEARNS_FROM = {name: own.learns_from for name, own in KNOBS.items() if own.learns_from}  # those that name runs
# A head on frozen features does without these.
ONLY_IN_TRAINING = tuple(name for name, own in KNOBS.items() if not own.for_heads)
# What a recipe that was written before an option existed did: the value that changes nothing.
NEUTRAL: dict[str, Any] = {name: own.off for name, own in KNOBS.items() if own.off is not ALWAYS_RECORDED}


def run_of_region(region: str) -> str:
    """Returns the run whose models have found the boxes of --region; "" for boxes from elsewhere."""
    return region.removeprefix(FOUND_BY) if region.startswith(FOUND_BY) else ""


def file_of_region(region: str) -> Path | None:
    """Returns the file of boxes that --region names; None for a column or a word."""
    return Path(region) if region.lower().endswith(".csv") or "/" in region else None


def names_pretraining(weights: str) -> bool:
    """Returns whether --weights is the name of a pretraining: neither a word of its own nor a file."""
    is_name = re.fullmatch(NAME_PATTERN, weights) and weights not in ("pretrained", "none")
    return bool(is_name) and not Path(weights).is_file()


def recorded_values(recorded: Options, names: Iterable[str]) -> dict[str, Any]:
    """Returns these values of a recipe.json, which may be older than an option."""
    return {name: recorded.get(name, NEUTRAL.get(name)) for name in names}


def problem_in(recorded: Options) -> str:
    """Returns which option of a recipe.json has a value that no run can have, and why; nothing if all are right.

    Names that a project's own parts add to the built-in ones are not checked: their files may not be loaded.
    """
    kinds = recipe_options()
    for name, own in KNOBS.items():
        limits = replace(own.limits, choices=own.limits.choices if isinstance(own.limits.choices, tuple) else None)
        if name in recorded and (problem := kinds[name][0].problem(recorded[name], limits)):
            return f"{name} must be {problem}"
    return ""


# What a recipe.json records by a hash whose name does not say it.
RECORDED = {
    "also_sha256": "further columns of the card",
    "extra_sha256": "images from elsewhere",
    "own_parts_sha256": "code of own parts",
    **{f"{name}_sha256": own.recorded_as for name, own in KNOBS.items() if own.recorded_as},
}


def what_is_recorded(key: str) -> str:
    """Returns what a hash in a recipe.json is of."""
    return RECORDED.get(key, key.removesuffix("_sha256").replace("_", " "))


def differences(old: Options, new: Options) -> list[str]:
    """Lists what changed: `lr was 0.0001 and is 0.0005`, `the folds changed`."""
    return [
        f"the {what_is_recorded(key)} changed"
        if key.endswith("_sha256")
        else f"{key} was {'none' if old.get(key) == '' else old.get(key)} and is {'none' if value == '' else value}"
        for key, value in new.items()
        if old.get(key) != value
    ]
