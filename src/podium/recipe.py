"""Every option of a run in one frozen dataclass. The flags and the checks are made from it.

recipe_defaults.py fills in the options that are not given; the run's recipe.json holds the result.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from podium.disk import NAME_PATTERN
from podium.errors import PodiumError
from podium.image_size import ImageSize, area_of, parse_size, shorter_side, sides_of, size_of, square_side
from podium.option_kinds import (
    AUTO,
    FINISH,
    KINDS_OF_TYPES,
    NAMES,
    SIZE,
    WHOLE_NUMBER_OR_AUTO,
    Kind,
    Limits,
)
from podium.terminal import did_you_mean, plural

Options = Mapping[str, Any]  # name of an option: its value


class View(NamedTuple):
    images: int  # that it makes of one, with the image itself
    function: Callable[..., Any] | None = None  # None: in models/predict.py


FITS = ("crop", "squash", "pad")
# extend.py adds a project's own entries to these three tables.
VIEWS = {"mirror": View(2), "flip": View(2), "turn": View(4), "zoom": View(2)}
LOSSES: dict[str, Callable[..., Any] | None] = {  # None: in training/losses.py
    "cross_entropy": None,
    "focal": None,
    "asymmetric": None,
    "poly": None,
}
AUGMENTATIONS: dict[str, Callable[..., Any]] = {}
CLASS_WEIGHTS = ("none", "balanced", "effective")
CLEANING = ("none", "drop", "soften")
OPTIMIZERS = ("adamw", "muon")
PRECISIONS = ("auto", "float32", "bfloat16", "float16")
OPERATORS = ("fast", "timm")
NORMS = ("train", "frozen", "adapt")
POOLS = ("token", "mean", "both", "gem")
TIMM_POOL = "default"  # as the model pools by itself
LINEAR, ARCFACE = HEADS = ("linear", "arcface")
LEVELS = ("default", "none", "light", "strong")  # recipe_defaults.py says what they set


def option(
    text: str,
    lowest: float = -math.inf,
    highest: float = math.inf,
    choices: Collection[str] | None = None,
    flag: str = "",  # on the command line, if it is not the name with hyphens
    kind: Kind | None = None,  # of its values; none: that of the field's type
) -> Any:
    limits = Limits(lowest, highest, choices)
    return field(metadata={"help": text, "flag": flag, "limits": limits, "kind": kind})


@dataclass(frozen=True)
class Recipe:
    model: str = option("a timm model, e.g. convnext_small, vit_small_patch32_224; auto: what suits the device")
    weights: str = option("pretrained (from the hub), none (from scratch), a file, or the name of a podium pretrain")
    image_size: int | str = option(
        "pixels, or HEIGHTxWIDTH for oblong images; default: the size the model was made for",
        1,
        4096,
        kind=SIZE,
    )
    test_size: int | str = option(
        "the same in prediction; default: the model's own, which may be larger", 1, 4096, kind=SIZE
    )
    epochs: int = option("passes over the training images", 1, 100_000)
    batch_size: int = option("images per step", 1, 65_536)
    accumulate: int | str = option(
        "parts that a batch is computed in, one after the other, if memory does not hold all of it (the steps stay the"
        " same); auto: the fewest that fit, found out before training",
        1,
        65_536,
        kind=WHOLE_NUMBER_OR_AUTO,
    )
    optimizer: str = option(
        "adamw, or muon: orthogonalises the updates of matrices (AdamW for the rest)",
        choices=OPTIMIZERS,
    )
    lr: float = option(
        "peak learning rate; the default is for batches of 128 and grows with the square root of their size", 1e-12, 10
    )
    head_rate: float = option("how many times the backbone's learning rate the head has", 0, 1000)
    layer_decay: float = option("learning rate of a layer relative to the layer above it", 0.01, 1)
    keep: float = option(
        "share that the final weights keep of those that fine-tuning started from, with the fitted head, if the loss on"
        " training images allows it",
        0,
        0.95,
    )
    freeze: float = option("share of the backbone's layers, from the image on, that stay as they are", 0, 1)
    lora: int = option(
        "rank of the updates that the linear layers of attention learn in place of their weights (LoRA); of the rest of"
        " the backbone, only the norms learn; 0: off",
        0,
        1024,
    )
    norm: str = option(
        "statistics of batch norm: train (of each batch), frozen (those of the weights stay) or adapt (computed anew"
        " from the training images at this size, then they stay)",
        choices=NORMS,
    )
    pool: str = option(
        "how features are pooled: default (as timm does), token (the class token), mean, both (class token and mean, or"
        " mean and maximum, side by side) or gem (a mean of powers, whose exponent is learned)",
        choices=(TIMM_POOL, *POOLS),
    )
    head: str = option(
        "linear, or arcface: compares the directions of features and classes, which learn with an angle between them"
        " that is larger for rare classes (Deng et al., 2019); for hundreds of classes and more",
        choices=HEADS,
    )
    weight_decay: float = option("decoupled weight decay, for matrices only", 0, 10)
    warmup: float = option("epochs of warm-up; at most a fifth of the run", 0)
    clip: float = option("largest norm of the gradient; 0: no limit", 0)
    sam: float = option("radius of sharpness-aware minimisation, which doubles the time of a step; 0: off", 0, 10)
    drop_path: float = option("stochastic depth rate, increasing with depth", 0, 0.95)
    loss: str = option(
        "cross_entropy, focal (images that are right already count less), asymmetric (smoothing counts less for classes"
        " that are improbable), poly (images that are wrong count more), or your own (docs/extend.md)",
        choices=LOSSES,
    )
    class_weights: str = option(
        "how much an image of a rare class counts: none, balanced (so that all classes count the same), or effective"
        " (between the two)",
        choices=CLASS_WEIGHTS,
    )
    balance: float = option(
        "how much more often images of rare classes are shown: by the number of images of their class to this power,"
        " from 0 (every image once in an epoch) to 1 (all classes equally often)",
        0,
        1,
    )
    cap: int = option("most images of a class in an epoch, drawn anew in each; 0: all", 0)
    adjust: float = option(
        "logit adjustment: learn as if all classes were equally frequent (1), or partly so (Menon et al., 2021); for"
        " metrics that count classes alike",
        0,
        3,
    )
    smoothing: float = option("label smoothing", 0, 0.95)
    ema: float = option("share of the run that the averaged weights remember; 0: use the last weights", 0, 1)
    swa: float = option(
        "epochs at the end whose weights are averaged equally, step by step, in place of the moving average; 0: off", 0
    )
    mix: float = option("share of the steps with mixup or cutmix, half of each", 0, 1)
    plain: float = option("share of the run, at its end, without mixup and cutmix", 0, 1)
    grow: float = option("share of the run, at its start, with smaller images, which grow from half the size", 0, 1)
    finish: str = option(
        "SIZE:EPOCHS, such as 320:2: the last epochs see images of this size, and prediction does if its own size is"
        " smaller (Touvron et al., 2019)",
        1,
        4096,
        kind=FINISH,
    )
    fit: str = option(
        "how an image gets the shape of --image-size: crop (its centre), squash (all of it) or pad (all of it, with"
        " borders of the mean colour)",
        choices=FITS,
    )
    crop: float = option("smallest share of the image that a random crop keeps; 1: all of it", 0.01, 1)
    mirror: float = option("probability of a left-right flip", 0, 1)
    views: str = option(
        "test-time augmentation: none, or mirror, flip (upside down), turn (by quarters), zoom (the centre), joined by"
        " +; prediction averages these views and the image itself; default: mirror, unless --mirror is 0",
        choices=VIEWS,
        kind=NAMES,
    )
    colour: float = option("strength of the changes of brightness, contrast and saturation", 0, 0.95)
    erase: float = option("probability that a rectangle is erased", 0, 1)
    ops: int = option("random operations per image, as in RandAugment: rotation, shear, shift, tones", 0, 9)
    strength: float = option("strength of these operations", 0, 1)
    augment: str = option(
        "your own augmentations (docs/extend.md), joined by +, or none", choices=AUGMENTATIONS, kind=NAMES
    )
    level: str = option(
        "sets crop, colour, erase, ops, mix and smoothing at once: default, none, light or strong",
        choices=LEVELS,
    )
    linear: bool = option("linear evaluation: freeze the backbone and fit a logistic head on its features")
    head_first: bool = option(
        "start from a head that is fitted to the frozen features; without it, a new head starts from the shares of the"
        " classes"
    )
    skip_bad: bool = option("leave out training images that cannot be read")
    precision: str = option(
        "auto (the fastest that the hardware has), float32, bfloat16 or float16", choices=PRECISIONS
    )
    operators: str = option(
        "fast (parts of the model are computed in faster ways, with the same results up to rounding) or timm (as timm"
        " computes them)",
        choices=OPERATORS,
    )
    seed: int = option("seed of everything random in training", 0, 2**32 - 1)
    start: str = option(
        "a finished run to go on from: each fold starts with the weights of that run's fold, and its options",
        flag="--from",
    )
    teacher: str = option("a finished run to learn from, or several, RUN1+RUN2: the mean of their probabilities")
    distil: float = option("the teacher's share of the loss", 0, 1)
    pseudo: str = option(
        "a finished run, or several, RUN1+RUN2, whose answers for the test images are learned, too (pseudo-labels)"
    )
    sharpen: float = option("the power that pseudo-labels are sharpened by; 0: chosen on held-out images", 0, 100)
    clean: str = option(
        "what to do about labels that are probably wrong, judged by heads that were not fitted to them: none, drop"
        " (leave out their images) or soften (believe the heads in part); how much, inner held-out images decide",
        choices=CLEANING,
    )
    extra_weight: float = option(
        "how often an epoch shows the card's [[extra]] images, times the weight of each; 0: never", 0, 100
    )
    also_weight: float = option("what the card's further columns (also) weigh in the loss, beside the answers", 0, 100)

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
        return "a logistic head on the frozen features", f"no augmentation; views: {recipe.views}"
    learning = [
        f"{plural(recipe.epochs, 'epoch')} in batches of {recipe.batch_size}"
        + (f" (in {recipe.accumulate} parts)" if recipe.accumulate != 1 else ""),
        f"lr {recipe.lr:g} ({recipe.optimizer})",
        *_in_use(
            recipe, "head_rate", "layer_decay", "freeze", "lora", "keep", "weight_decay", "drop_path", "smoothing"
        ),
        *_in_use(recipe, *(["swa"] if recipe.swa else ["ema"]), "sam"),
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
    learning += _in_use(recipe, "balance", "cap", "adjust")
    if recipe.pseudo:
        learning.append(f"pseudo-labels of {recipe.pseudo}")
    if recipe.clean != "none":
        learning.append(f"doubtful labels: {recipe.clean}")
    images = [*_in_use(recipe, "crop", "mirror", "colour", "erase", "ops", "mix", "grow"), f"views {recipe.views}"]
    if recipe.fit != "crop":
        images.insert(0, f"fit {recipe.fit}")
    if recipe.finish:
        size, epochs = parts_of_finish(recipe.finish)
        images.append(f"{size} px in the last {plural(epochs, 'epoch')}")
    if recipe.test_size != recipe.image_size:
        images.append(f"predicted at {recipe.test_size} px")
    if recipe.augment != "none":
        images.append(f"augment {recipe.augment}")
    return ", ".join(learning), ", ".join(images)


def _in_use(recipe: Recipe, *names: str) -> list[str]:
    off = {"head_rate": 1, "layer_decay": 1, "crop": 1}  # of the other options: 0
    values = {name: getattr(recipe, name) for name in names}
    return [f"{name.replace('_', ' ')} {value:g}" for name, value in values.items() if value != off.get(name, 0)]


def count_views(views: str) -> int:
    """Returns how often an image is predicted: views are combined."""
    return math.prod(VIEWS.get(view, View(1)).images for view in views.split("+"))


def parts_of_finish(finish: str) -> tuple[ImageSize, int]:
    size, _, epochs = finish.partition(":")
    return parse_size(size), int(epochs)


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
    return {
        option.name: (option.metadata["kind"] or KINDS_OF_TYPES[types[option.name]], option.metadata["help"])
        for option in fields(Recipe)
    }


def flag_of(name: str) -> str:
    """Returns the option's flag on the command line."""
    return Recipe.__dataclass_fields__[name].metadata["flag"] or f"--{name.replace('_', '-')}"


def check_card_options(card: Options, where: str) -> None:
    if "model" in card:
        raise PodiumError(f"{where}a card cannot choose the model; remove `model`, the command names it")
    if "start" in card:
        raise PodiumError(f"{where}a run goes on from another by the flag --from; remove `start`")
    check_options(card, where)


def check_options(values: Options, where: str = "") -> None:
    """Refuses unknown names, and values that no run can use."""
    options = {option.name: option for option in fields(Recipe)}
    for name, value in values.items():
        if name not in options:
            hint = did_you_mean(name, options, otherwise=f"there are {', '.join(options)}")
            raise PodiumError(f"{where}no option '{name}'; {hint}")
        flag = f"{where}{name}" if where else flag_of(name)
        problem = recipe_options()[name][0].problem(value, options[name].metadata["limits"])
        if problem:
            raise PodiumError(f"{flag} must be {problem}")


def check_finish(recipe: Recipe) -> None:
    """Refuses a size of prediction below that of the last epochs, whose images would not be stored large enough."""
    if not recipe.finish or recipe.linear:
        return
    size, epochs = parts_of_finish(recipe.finish)
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


# A head on frozen features does without these.
ONLY_IN_TRAINING = (
    *("teacher", "pseudo", "clean", "lora", "head", "swa", "loss", "class_weights", "balance", "cap", "adjust"),
    *("finish", "augment"),
)

# What a recipe that was written before an option existed did: the value that changes nothing.
NEUTRAL: dict[str, Any] = {
    "accumulate": 1,
    "optimizer": "adamw",
    "head_rate": 1.0,
    "freeze": 0.0,
    "lora": 0,
    "keep": 0.0,
    "norm": "train",
    "pool": TIMM_POOL,
    "head": LINEAR,
    "sam": 0.0,
    "loss": "cross_entropy",
    "class_weights": "none",
    "balance": 0.0,
    "cap": 0,
    "adjust": 0.0,
    "swa": 0.0,
    "plain": 0.0,
    "grow": 0.0,
    "finish": "",
    "fit": "crop",
    "ops": 0,
    "strength": 0.5,
    "augment": "none",
    "level": "default",
    "linear": False,
    "head_first": False,
    "skip_bad": False,
    "operators": "timm",
    "start": "",
    "teacher": "",
    "distil": 0.5,
    "pseudo": "",
    "sharpen": 0.0,
    "clean": "none",
    "extra_weight": 1.0,
    "also_weight": 0.3,
}


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
    for option in fields(Recipe):
        limits = option.metadata["limits"]
        limits = replace(limits, choices=limits.choices if isinstance(limits.choices, tuple) else None)
        if option.name in recorded:
            problem = kinds[option.name][0].problem(recorded[option.name], limits)
            if problem:
                return f"{option.name} must be {problem}"
    return ""


def differences(old: Options, new: Options) -> list[str]:
    """Lists what changed: `lr was 0.0001 and is 0.0005`, `the folds changed`."""
    return [
        f"the {key.removesuffix('_sha256').replace('_', ' ')} changed"
        if key.endswith("_sha256")
        else f"{key} was {'none' if old.get(key) == '' else old.get(key)} and is {'none' if value == '' else value}"
        for key, value in new.items()
        if old.get(key) != value
    ]
