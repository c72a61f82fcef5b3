"""Every option of a run in one frozen dataclass. The flags and the checks are made from it.

recipe_defaults.py fills in the options that are not given; the run's recipe.json holds the result.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from podium.disk import NAME_PATTERN
from podium.errors import PodiumError
from podium.image_size import ImageSize, area_of, parse_size, shorter_side, sides_of, size_of, square_side
from podium.terminal import did_you_mean, plural

Options = Mapping[str, Any]  # name of an option: its value
Kind = Callable[[Any], Any]


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
OPTIMIZERS = ("adamw", "muon")
PRECISIONS = ("auto", "float32", "bfloat16", "float16")
OPERATORS = ("fast", "timm")
NORMS = ("train", "frozen", "adapt")
AUTO = "auto"
FOUND_BY = "attention:"  # a run, in --region
LEVELS = ("default", "none", "light", "strong")  # recipe_defaults.py says what they set


def option(
    text: str,
    lowest: float = -math.inf,
    highest: float = math.inf,
    choices: Collection[str] = (),
    parts: Collection[str] | None = None,  # allowed: "none", or some of these joined by +
    flag: str = "",  # on the command line, if it is not the name with hyphens
) -> Any:
    limits = {"lowest": lowest, "highest": highest, "choices": choices, "parts": parts}
    return field(metadata={"help": text, "flag": flag, **limits})


@dataclass(frozen=True)
class Recipe:
    model: str = option("a timm model, e.g. convnext_small, vit_small_patch32_224; auto: what suits the device")
    weights: str = option("pretrained (from the hub), none (from scratch), a file, or the name of a podium pretrain")
    image_size: int | str = option(
        "pixels, or HEIGHTxWIDTH for oblong images; default: the size the model was made for", 1, 4096
    )
    test_size: int | str = option("the same in prediction; default: the model's own, which may be larger", 1, 4096)
    epochs: int = option("passes over the training images", 1, 100_000)
    batch_size: int = option("images per step", 1, 65_536)
    accumulate: int | str = option(
        "parts that a batch is computed in, one after the other, if memory does not hold all of it (the steps stay the"
        " same); auto: the fewest that fit, found out before training",
        1,
        65_536,
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
    norm: str = option(
        "statistics of batch norm: train (of each batch), frozen (those of the weights stay) or adapt (computed anew"
        " from the training images at this size, then they stay)",
        choices=NORMS,
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
    mix: float = option("share of the steps with mixup or cutmix, half of each", 0, 1)
    plain: float = option("share of the run, at its end, without mixup and cutmix", 0, 1)
    grow: float = option("share of the run, at its start, with smaller images, which grow from half the size", 0, 1)
    finish: str = option(
        "SIZE:EPOCHS, such as 320:2: the last epochs see images of this size, and prediction does if its own size is"
        " smaller (Touvron et al., 2019)"
    )
    fit: str = option(
        "how an image gets the shape of --image-size: crop (its centre), squash (all of it) or pad (all of it, with"
        " borders of the mean colour)",
        choices=FITS,
    )
    region: str = option(
        "what a run sees of each image: a CSV file of boxes, a column of the tables that holds them, attention:RUN"
        " (what the models of an earlier run look at) or border (all but borders of one colour); of several boxes,"
        " training draws one and prediction averages"
    )
    region_margin: float = option("share of a box's sides that is added on each side", 0, 2)
    region_jitter: float = option("share of its sides by which training moves and scales a box", 0, 0.5)
    crop: float = option("smallest share of the image that a random crop keeps; 1: all of it", 0.01, 1)
    mirror: float = option("probability of a left-right flip", 0, 1)
    views: str = option(
        "test-time augmentation: none, or mirror, flip (upside down), turn (by quarters), zoom (the centre), joined by"
        " +; prediction averages these views and the image itself; default: mirror, unless --mirror is 0",
        parts=VIEWS,
    )
    colour: float = option("strength of the changes of brightness, contrast and saturation", 0, 0.95)
    erase: float = option("probability that a rectangle is erased", 0, 1)
    ops: int = option("random operations per image, as in RandAugment: rotation, shear, shift, tones", 0, 9)
    strength: float = option("strength of these operations", 0, 1)
    augment: str = option("your own augmentations (docs/extend.md), joined by +, or none", parts=AUGMENTATIONS)
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
        *_in_use(recipe, "head_rate", "layer_decay", "freeze", "keep", "weight_decay", "drop_path", "smoothing"),
        *_in_use(recipe, "ema", "sam"),
    ]
    if recipe.norm != "train":
        learning.append(f"batch norm {recipe.norm}")
    if recipe.head_first:
        learning.append("from a fitted head")
    if (recipe.loss, recipe.class_weights) != ("cross_entropy", "none"):
        learning.append(f"loss {recipe.loss}, class weights {recipe.class_weights}")
    learning += _in_use(recipe, "balance", "cap", "adjust")
    images = [*_in_use(recipe, "crop", "mirror", "colour", "erase", "ops", "mix", "grow"), f"views {recipe.views}"]
    if recipe.fit != "crop":
        images.insert(0, f"fit {recipe.fit}")
    if recipe.region:
        images.insert(0, f"region {recipe.region}")
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

NAMES_OF_KINDS: dict[Kind, str] = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def parse_parts(value: Any) -> int | str:
    """Returns the number of parts; raises ValueError if it is neither a whole number nor `auto`."""
    if value == AUTO:
        return AUTO
    if isinstance(value, bool) or not re.fullmatch("[0-9]+", str(value)):
        raise ValueError(f"a whole number or auto, not {value!r}")
    return int(value)


def parse_finish(value: Any) -> str:
    """Returns SIZE:EPOCHS, or nothing for nothing; raises ValueError for anything else."""
    if value == "":
        return ""
    if not isinstance(value, str) or not re.fullmatch("[1-9][0-9]*(x[1-9][0-9]*)?:[1-9][0-9]{0,4}", value):
        raise ValueError(f"SIZE:EPOCHS as in 320:2, not {value!r}")
    return value


def recipe_options() -> dict[str, tuple[Kind, str]]:
    """Returns what makes a value of every option, which is its type or a function, and its help text."""
    types = get_type_hints(Recipe) | dict.fromkeys(("image_size", "test_size"), parse_size)
    types |= {"accumulate": parse_parts, "finish": parse_finish}
    return {option.name: (types[option.name], option.metadata["help"]) for option in fields(Recipe)}


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
        problem = _problem_with(value, recipe_options()[name][0], options[name].metadata)
        if problem:
            raise PodiumError(f"{flag} must be {problem}")


def _problem_with(value: Any, kind: Kind, limits: Mapping[str, Any]) -> str:
    """Returns what the value must be and what it is; nothing if it is right."""
    lowest, highest, choices, parts = (limits[key] for key in ("lowest", "highest", "choices", "parts"))
    if kind is parse_size:
        return _problem_with_size(value, lowest, highest)
    if kind is parse_finish:
        return _problem_with_finish(value)
    if kind is parse_parts:
        if value == AUTO:
            return ""
        kind = int
    accepted: Any = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or isinstance(value, bool) != (kind is bool):
        return f"{NAMES_OF_KINDS[kind]}, not {value!r}"
    if kind in (int, float) and not lowest <= value <= highest:  # NaN fails this comparison as well
        bounds = f"at least {lowest:,}" if highest == math.inf else f"between {lowest:,} and {highest:,}"
        return f"{bounds}, not {value}"
    if choices and value not in choices:
        return f"one of {', '.join(choices)}, not '{value}'"
    names = str(value).split("+")
    if parts is not None and value != "none" and (set(names) - set(parts) or len(set(names)) < len(names)):
        allowed = f"none, or some of {', '.join(parts)} joined by +" if parts else "none (docs/extend.md adds others)"
        return f"{allowed}, not '{value}'"
    return ""


def _problem_with_size(value: Any, lowest: int, highest: int) -> str:
    try:
        sides = sides_of(parse_size(value))
    except ValueError as problem:
        return str(problem)
    is_right = lowest <= min(sides) and max(sides) <= highest
    return "" if is_right else f"between {lowest:,} and {highest:,}, not {value}"


def _problem_with_finish(value: Any) -> str:
    try:
        return _problem_with_size(parts_of_finish(value)[0], 1, 4096) if parse_finish(value) else ""
    except ValueError as problem:
        return str(problem)


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
    *("teacher", "loss", "class_weights", "balance", "cap", "adjust", "finish", "augment"),
    "region_jitter",
)

# What a recipe that was written before an option existed did: the value that changes nothing.
NEUTRAL: dict[str, Any] = {
    "accumulate": 1,
    "optimizer": "adamw",
    "head_rate": 1.0,
    "freeze": 0.0,
    "keep": 0.0,
    "norm": "train",
    "sam": 0.0,
    "loss": "cross_entropy",
    "class_weights": "none",
    "balance": 0.0,
    "cap": 0,
    "adjust": 0.0,
    "plain": 0.0,
    "grow": 0.0,
    "finish": "",
    "fit": "crop",
    "region": "",
    "region_margin": 0.1,
    "region_jitter": 0.0,
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
}


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
    for option in fields(Recipe):
        words = option.metadata["choices"]
        own = {"parts": None, "choices": words if isinstance(words, tuple) else ()}
        limits = {**option.metadata, **own}
        if option.name in recorded:
            problem = _problem_with(recorded[option.name], kinds[option.name][0], limits)
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
