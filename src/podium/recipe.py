"""Every option of a run in one frozen dataclass; the flags are made from it, and the tables below hold the defaults.

An option that is not given takes the first value found in: the competition's card ([recipe]), the row of the model's
family, the row for all models. `fill_in_defaults` does that, and the run's recipe.json holds the result.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, NamedTuple, get_type_hints

from podium import PodiumError
from podium.terminal import did_you_mean, plural

Options = Mapping[str, Any]  # name of an option: its value


class View(NamedTuple):
    images: int  # that it makes of one, with the image itself
    function: Callable[..., Any] | None = None  # None: in models/predict.py


FITS = ("crop", "squash")
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
# Several options at once, after "How to train your ViT?" (Steiner et al., 2021). A given option overrides them.
LEVELS: dict[str, dict[str, Any]] = {
    "default": {},
    "none": {"crop": 1.0, "colour": 0.0, "erase": 0.0, "ops": 0, "mix": 0.0, "smoothing": 0.0},
    # For short runs, which see each image only a few times: no augmentation that takes long to learn.
    "light": {"crop": 0.75, "colour": 0.0, "erase": 0.0, "ops": 0, "mix": 0.0},
    # For long runs from scratch (60 epochs and more), and for large models on few images.
    "strong": {"crop": 0.4, "colour": 0.3, "erase": 0.25, "ops": 2, "strength": 0.65, "mix": 0.8},
}


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
    weights: str = option("pretrained (from the hub), none (from scratch), or a file")
    image_size: int = option("pixels; default: the size the model was made for", 1, 4096)
    test_size: int = option("pixels in prediction; default: the model's own, which may be larger", 1, 4096)
    epochs: int = option("passes over the training images", 1, 100_000)
    batch_size: int = option("images per step", 1, 65_536)
    accumulate: int = option(
        "parts that a batch is computed in, one after the other, if memory does not hold all of it; the steps stay the"
        " same",
        1,
        65_536,
    )
    optimizer: str = option(
        "adamw, or muon: orthogonalises the updates of matrices (AdamW for the rest)",
        choices=OPTIMIZERS,
    )
    lr: float = option("peak learning rate; the default grows with the square root of the batch size", 1e-12, 10)
    layer_decay: float = option("learning rate of a layer relative to the layer above it", 0.01, 1)
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
    smoothing: float = option("label smoothing", 0, 0.95)
    ema: float = option("share of the run that the averaged weights remember; 0: use the last weights", 0, 1)
    mix: float = option("share of the steps with mixup or cutmix, half of each", 0, 1)
    plain: float = option("share of the run, at its end, without mixup and cutmix", 0, 1)
    grow: float = option("share of the run, at its start, with smaller images, which grow from half the size", 0, 1)
    fit: str = option("how an oblong image becomes a square: crop (its centre) or squash (all of it)", choices=FITS)
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
        choices=tuple(LEVELS),
    )
    linear: bool = option("linear evaluation: freeze the backbone and fit a logistic head on its features")
    head_first: bool = option("fit the head on frozen features before all weights are trained")
    skip_bad: bool = option("leave out training images that cannot be read")
    precision: str = option(
        "auto (the fastest that the hardware has), float32, bfloat16 or float16", choices=PRECISIONS
    )
    seed: int = option("seed of everything random in training", 0, 2**32 - 1)
    start: str = option(
        "a finished run to go on from: each fold starts with the weights of that run's fold, and its options",
        flag="--from",
    )
    teacher: str = option("a finished run to learn from, or several, RUN1+RUN2: the mean of their probabilities")
    distil: float = option("the teacher's share of the loss", 0, 1)

    def describe(self) -> tuple[str, str]:
        """Returns a line about how the model learns, and one about what is done to the images."""
        if self.linear:
            return "a logistic head on the frozen features", f"no augmentation; views: {self.views}"
        learning = [
            f"{plural(self.epochs, 'epoch')} in batches of {self.batch_size}",
            f"lr {self.lr:g} ({self.optimizer})",
            *self._in_use("layer_decay", "weight_decay", "drop_path", "smoothing", "ema", "sam"),
        ]
        images = [*self._in_use("crop", "mirror", "colour", "erase", "ops", "mix", "grow"), f"views {self.views}"]
        return ", ".join(learning), ", ".join(images)

    def _in_use(self, *names: str) -> list[str]:
        off = {"layer_decay": 1, "crop": 1}  # of the other options: 0
        values = {name: getattr(self, name) for name in names}
        return [f"{name.replace('_', ' ')} {value:g}" for name, value in values.items() if value != off.get(name, 0)]

    @property
    def part_size(self) -> int:
        """How many images are computed at once, in training and in prediction."""
        return math.ceil(self.batch_size / self.accumulate)

    @property
    def view_count(self) -> int:
        """How many views of an image prediction averages."""
        return math.prod(VIEWS.get(view, View(1)).images for view in self.views.split("+"))


# Starting points: the fine-tuning settings of the papers and official recipes, scaled to batches of 128.
REFERENCE_BATCH = 128
COMMON: dict[str, Any] = {
    "batch_size": 64,  # convnext_small takes 8 GB with it
    "accumulate": 1,  # parts take longer than the whole
    "optimizer": "adamw",  # suits weights that were trained with it
    "weight_decay": 0.05,  # as in the AdamW recipes that the rows below come from
    "clip": 1.0,  # cuts off the rare large gradient and leaves the others
    "sam": 0.0,  # whether it beats twice the epochs depends on the competition
    "loss": "cross_entropy",  # its probabilities need no correction, and the recipes of the rows below use it
    "class_weights": "none",  # right for a metric that counts every image alike, such as accuracy
    "smoothing": 0.1,  # some labels are wrong
    "ema": 0.1,  # long enough to average out noise, short enough to forget the first epochs
    "mix": 0.5,  # the other half of the steps sees plain images
    "plain": 0.15,  # the last epochs see images as the test set has them
    "grow": 0.0,  # works only for models that take any size
    "fit": "crop",  # as the weights were trained
    "crop": 0.6,  # milder than ImageNet's 0.08: an object that fills its image must stay recognisable
    "mirror": 0.5,  # most objects keep their class when mirrored; letters and digits do not
    "colour": 0.2,  # imitates another light, not another colour: the colour often depends on the class
    "erase": 0.1,  # sometimes the model has to recognise an object without one of its parts
    "ops": 0,  # whether a rotated image keeps its class depends on the competition
    "strength": 0.5,  # AugReg's medium level: magnitude 15 of 30
    "augment": "none",
    "level": "default",
    "linear": False,  # a first look at a model in minutes; training all weights scores higher
    "head_first": False,  # warm-up and layer decay already protect the backbone from a new head's gradients
    "skip_bad": False,
    "precision": "auto",
    "seed": 0,
    "start": "",
    "teacher": "",
    "distil": 0.5,  # the labels correct the teacher's mistakes, the teacher shows which classes are similar
}
# Rows by family: the timm module that registers the model. Learning rates are for REFERENCE_BATCH.
PRETRAINED: dict[str, dict[str, Any]] = {
    "convnext": {
        "lr": 1e-4,  # published fine-tunings lie between 5e-5 and 2e-4
        "layer_decay": 0.8,  # as its authors fine-tune it
        "drop_path": 0.1,  # a quarter of the value for 300 epochs on ImageNet: the run is short, the data set small
        "epochs": 12,  # 10 to 15 are enough for pretrained weights; an epoch takes at least twice as long as a ViT's
        "warmup": 1.0,  # until AdamW's moments and the new head are better than noise
    },
    "vision_transformer": {
        "lr": 1e-4,
        "layer_decay": 0.75,  # from BEiT and MAE; the early layers need small changes only
        "drop_path": 0.1,
        "epochs": 20,  # an epoch is cheaper, and it adapts more slowly: patches of 32 px give 50 tokens
        "warmup": 1.0,
    },
    "": {
        "lr": 1e-4,
        "layer_decay": 0.8,
        "drop_path": 0.0,
        "epochs": 15,
        "warmup": 1.0,
    },  # not all have stochastic depth
}
SCRATCH: dict[str, dict[str, Any]] = {  # nothing to preserve: one rate for all layers, and time to find features
    "convnext": {
        "lr": 3e-3,  # below its authors' 4e-3 for batches of 4,096, which needs more steps than a small data set has
        "layer_decay": 1.0,
        "drop_path": 0.05,
        "epochs": 40,
        "warmup": 3.0,
        "mix": 0.0,  # mixed images take longer to learn, and 40 epochs are not enough for both
    },
    "vision_transformer": {
        "lr": 1e-3,  # DeiT's for batches of 1,024; attention needs a lower rate than convolutions
        "layer_decay": 1.0,
        "drop_path": 0.05,
        "epochs": 60,  # it first has to learn that neighbouring pixels belong together
        "warmup": 5.0,
        "mix": 0.2,
    },
    "": {"lr": 3e-3, "layer_decay": 1.0, "drop_path": 0.0, "epochs": 40, "warmup": 3.0, "mix": 0.0},
}

# What `--model auto` means: about the best result of 7 to 11 minutes per fold on two cores (docs/benchmarks.md).
SMALL: dict[str, Any] = {
    "model": "resnet10t",  # plain convolutions learn fastest; regnet, csp and convnext of similar cost score lower
    "weights": "none",
    "image_size": 64,  # 80 px allow half the epochs in the same time, and score the same
    "batch_size": 128,  # 25 % faster than 64
    "epochs": 24,
    "level": "light",
    "mix": 0.25,  # lowers the log loss and keeps the accuracy
    "plain": 0.3,
}
AUTO: dict[str, dict[str, Any]] = {  # by kind of device
    "cpu": SMALL,
    # A step with Muon takes 1.5 times as long if the CPU multiplies bfloat16 natively, else several times as long.
    "cpu with bfloat16": {**SMALL, "optimizer": "muon", "lr": 6e-3, "epochs": 16},
    "": {"model": "convnext_small"},
}


def expand_auto(given: Options, device_kind: str) -> Options:
    """Replaces the model `auto` by the model and options that suit a kind of device."""
    if given.get("model") != "auto":
        return given
    level = LEVELS.get(str(given.get("level", "default")), {})
    auto = {name: value for name, value in AUTO.get(device_kind, AUTO[""]).items() if name not in level}
    return {**auto, **{name: value for name, value in given.items() if name != "model"}}


def layers_of(given: Options, card: Options, family: str) -> dict[str, Options]:
    """Returns the options by their origin; of an option with several origins, the last counts."""
    asked = {**card, **given}
    from_scratch = asked.get("weights") == "none"
    rows, level = SCRATCH if from_scratch else PRETRAINED, asked.get("level", "default")
    row = f"family {family}" if family in rows else "other families"
    return {
        "default": {"weights": "pretrained", **COMMON},
        f"{row}, from scratch" if from_scratch else row: rows.get(family, rows[""]),
        f"--level {level}": LEVELS[level],
        "card": card,
        "flag": given,
    }


def fill_in_defaults(given: Options, card: Options, family: str, native_size: int, test_size: int) -> Recipe:
    """Returns the whole recipe. `check_options` and `read_card` come first."""
    chosen: dict[str, Any] = {"image_size": native_size}
    for options in layers_of(given, card, family).values():
        chosen |= options
    # A larger test size belongs to the pretrained weights, at the size they were trained at.
    as_pretrained = chosen["weights"] != "none" and chosen["image_size"] == native_size
    chosen.setdefault("test_size", test_size if as_pretrained else chosen["image_size"])
    chosen.setdefault("views", "mirror" if chosen["mirror"] else "none")
    if "lr" not in card and "lr" not in given:
        chosen["lr"] = float(f"{chosen['lr'] * (chosen['batch_size'] / REFERENCE_BATCH) ** 0.5:.3g}")
    return Recipe(**{name: kind(chosen[name]) for name, (kind, _) in recipe_options().items()})


def origins_of(layers: Mapping[str, Options]) -> dict[str, str]:
    """Returns where each option of a recipe comes from."""
    origins = {"image_size": "model", "test_size": "model", "views": "--mirror"}
    return origins | {name: origin for origin, options in layers.items() for name in options}


# --- images that grow --------------------------------------------------------------------------------

# Pixels. The size grows in steps of 16, one pixel of a deep layer. It starts at 32 at least: with a deep layer of a
# single pixel, torch 2.15 computes a wrong gradient of a bfloat16 convolution.
GROWTH_STEP, SMALLEST_IMAGE = 16, 32


def image_size_at(epoch: int, recipe: Recipe) -> int:
    """Returns the image size of an epoch: with `grow`, from half the size to the whole size."""
    growing_epochs = recipe.grow * recipe.epochs
    if epoch >= growing_epochs:
        return recipe.image_size
    size = int(recipe.image_size * (1 + epoch / growing_epochs) / 2)
    return min(recipe.image_size, max(SMALLEST_IMAGE, size // GROWTH_STEP * GROWTH_STEP))


# --- checks ------------------------------------------------------------------------------------------

KINDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def recipe_options() -> dict[str, tuple[type, str]]:
    """Returns type and help text of every option, for the command line and the card."""
    types = get_type_hints(Recipe)
    return {option.name: (types[option.name], option.metadata["help"]) for option in fields(Recipe)}


def describe_default(name: str) -> str:
    """Returns ` (default: 64)`, ` (default by family: ...)`, or nothing if the help text says it."""
    if name in COMMON:
        value = COMMON[name]
        return "" if value == "" or value is False else f" (default: {value})"
    if name not in PRETRAINED[""]:
        return ""
    pretrained, scratch = (_by_family(rows, name) for rows in (PRETRAINED, SCRATCH))
    return f" (default by family: {pretrained}; from scratch: {scratch})"


def _by_family(rows: Mapping[str, Options], name: str) -> str:
    values = {family or "others": row[name] for family, row in rows.items()}
    if len(set(values.values())) == 1:
        return f"{values['others']}"
    return ", ".join(f"{family} {value}" for family, value in values.items())


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
        problem = _problem_with(value, recipe_options()[name][0], options[name])
        if problem:
            raise PodiumError(f"{flag} must be {problem}")


def _problem_with(value: Any, kind: type, option: Field[Any]) -> str:
    """Returns what the value must be and what it is; nothing if it is right."""
    lowest, highest, choices, parts = (option.metadata[key] for key in ("lowest", "highest", "choices", "parts"))
    accepted = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or isinstance(value, bool) != (kind is bool):
        return f"{KINDS[kind]}, not {value!r}"
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


# What a recipe that was written before an option existed did: the value that changes nothing.
NEUTRAL: dict[str, Any] = {
    "accumulate": 1,
    "optimizer": "adamw",
    "sam": 0.0,
    "loss": "cross_entropy",
    "class_weights": "none",
    "plain": 0.0,
    "grow": 0.0,
    "fit": "crop",
    "ops": 0,
    "strength": 0.5,
    "augment": "none",
    "level": "default",
    "linear": False,
    "head_first": False,
    "skip_bad": False,
    "start": "",
    "teacher": "",
    "distil": 0.5,
}


def recorded_values(recorded: Options, names: Iterable[str]) -> dict[str, Any]:
    """Returns these values of a recipe.json, which may be older than an option."""
    return {name: recorded.get(name, NEUTRAL.get(name)) for name in names}


def differences(old: Options, new: Options) -> list[str]:
    """Lists what changed: `lr was 0.0001 and is 0.0005`, `the folds changed`."""
    return [
        f"the {key.removesuffix('_sha256')} changed"
        if key.endswith("_sha256")
        else f"{key} was {old.get(key)} and is {value}"
        for key, value in new.items()
        if old.get(key) != value
    ]
