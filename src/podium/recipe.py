"""Every knob of a run in one frozen dataclass; its flags are made from it, its defaults from one table.

A knob that is not given takes the first value found in: the competition's card ([recipe]), the row of the
model's family below, the row for all. `resolve` does that; the whole recipe is written into the run.
"""

import math
from dataclasses import dataclass, field, fields
from typing import Any, get_type_hints

from podium import PodiumError
from podium.terminal import did_you_mean

FITS = ("crop", "squash")
VIEWS = {"mirror": 2, "flip": 2, "turn": 4, "zoom": 2}  # how many each makes of one
OPTIMIZERS = ("adamw", "muon")
PRECISIONS = ("auto", "float32", "bfloat16", "float16")
# All at once, in the order of "How to train your ViT?" (Steiner et al., 2021); a knob that is given counts more.
LEVELS: dict[str, dict[str, Any]] = {
    "default": {},
    "none": {"crop": 1.0, "colour": 0.0, "erase": 0.0, "ops": 0, "mix": 0.0, "smoothing": 0.0},
    # For runs so short that each image is seen a few times: nothing that has to be learned first.
    "light": {"crop": 0.75, "colour": 0.0, "erase": 0.0, "ops": 0, "mix": 0.0},
    # For long runs from scratch, and for large models on few images: 60 epochs and more.
    "strong": {"crop": 0.4, "colour": 0.3, "erase": 0.25, "ops": 2, "strength": 0.65, "mix": 0.8},
}


def knob(
    text: str,
    lowest: float = -math.inf,
    highest: float = math.inf,
    choices: tuple[str, ...] = (),
    parts: tuple[str, ...] = (),  # "none", or of these, joined by +
) -> Any:
    return field(metadata={"help": text, "lowest": lowest, "highest": highest, "choices": choices, "parts": parts})


@dataclass(frozen=True)
class Recipe:
    model: str = knob("a timm model, e.g. convnext_small, vit_small_patch32_224; auto: what suits the device")
    weights: str = knob("pretrained (from the hub), none (from scratch), or a file")
    image_size: int = knob("pixels; default: the size the model was made for", 1, 4096)
    test_size: int = knob("pixels in prediction; default: the model's own, which may be more than in training", 1, 4096)
    epochs: int = knob("passes over the training images", 1, 100_000)
    batch_size: int = knob("images a step", 1, 65_536)
    optimizer: str = knob(
        "adamw, or muon: turns each matrix's step so that it moves all directions alike (AdamW for the rest)",
        choices=OPTIMIZERS,
    )
    lr: float = knob("peak learning rate; its default grows with the square root of the batch size", 1e-12, 10)
    layer_decay: float = knob("learning rate of a layer relative to the one above it", 0.01, 1)
    weight_decay: float = knob("decoupled from the gradient, for matrices only", 0, 10)
    warmup: float = knob("epochs until the peak; at most a fifth of the run", 0)
    clip: float = knob("largest norm of the gradient; 0 for any", 0)
    sam: float = knob("radius of sharpness-aware minimisation, which doubles the time of a step; 0: without", 0, 10)
    drop_path: float = knob("share of residual branches dropped, rising with depth", 0, 0.95)
    smoothing: float = knob("label smoothing", 0, 0.95)
    ema: float = knob("share of the run that the averaged weights remember; 0: the last weights", 0, 1)
    mix: float = knob("share of the steps with mixup or cutmix, half of each", 0, 1)
    plain: float = knob("share of the run, at its end, without mixup and cutmix", 0, 1)
    grow: float = knob("share of the run, at its begin, with smaller images, which grow from half the size", 0, 1)
    fit: str = knob("how an oblong image becomes a square: crop (its centre) or squash (all of it)", choices=FITS)
    crop: float = knob("smallest share of the image that a random crop keeps; 1 for all", 0.01, 1)
    mirror: float = knob("chance of a left-right flip", 0, 1)
    views: str = knob(
        "what prediction averages besides the image as it is: none, or mirror, flip (upside down), turn (by quarters),"
        " zoom (its centre), joined by +; default: mirror, unless --mirror is 0",
        parts=tuple(VIEWS),
    )
    colour: float = knob("strength of the changes of brightness, contrast and saturation", 0, 0.95)
    erase: float = knob("chance that a rectangle is erased", 0, 1)
    ops: int = knob(
        "random operations on each image, of RandAugment's: turned, sheared, shifted, its tones changed", 0, 9
    )
    strength: float = knob("of these operations", 0, 1)
    level: str = knob(
        "crop, colour, erase, ops, mix and smoothing at once: none, light or strong", choices=tuple(LEVELS)
    )
    linear: bool = knob("no training of the backbone: its features once, and a multinomial logistic head on them")
    head_first: bool = knob("fit the head on frozen features before training everything")
    skip_bad: bool = knob("go on without training images that cannot be read")
    precision: str = knob("auto (what the hardware gains by), float32, bfloat16 or float16", choices=PRECISIONS)
    seed: int = knob("of everything random in training", 0, 2**32 - 1)
    teacher: str = knob("a finished run to learn from, or several, RUN1+RUN2: the mean of their probabilities")
    distil: float = knob("share of the loss that is the teacher's", 0, 1)

    @property
    def looks(self) -> int:
        """How many views of an image prediction averages."""
        return math.prod(VIEWS.get(view, 1) for view in self.views.split("+"))


# Starting points: the papers' and the official recipes' fine-tuning settings, scaled to batch 128.
REFERENCE_BATCH = 128
STEP, SMALLEST = 16, 32  # pixels; of a single one, torch 2.15 gets the gradient of a bfloat16 convolution wrong
COMMON = {
    "batch_size": 64,  # of convnext_small that takes 8 GB
    "optimizer": "adamw",  # what weights were trained with suits them
    "weight_decay": 0.05,  # AdamW's in the recipes that the rows below come from
    "clip": 1.0,  # cuts off the rare large gradient, leaves the others
    "sam": 0.0,  # what it gains over twice the epochs has to be seen for each competition
    "smoothing": 0.1,  # some labels are wrong
    "ema": 0.1,  # long enough to average noise out, short enough to forget the beginning
    "mix": 0.5,  # as many steps see images as they are
    "plain": 0.15,  # the last epochs see images as the test set has them
    "grow": 0.0,  # only models that take any size can
    "fit": "crop",  # as the weights were trained
    "crop": 0.6,  # milder than ImageNet's 0.08: an object that fills its picture must stay recognisable
    "mirror": 0.5,  # few things are other things in a mirror; letters and digits are
    "colour": 0.2,  # a light that changes, not a colour: that often tells the class
    "erase": 0.1,  # now and then no single part may decide
    "ops": 0,  # what a turned image is depends on the competition
    "strength": 0.5,  # AugReg's medium levels: magnitude 15 of 30
    "level": "default",
    "linear": False,  # a first look at a model in minutes; training everything scores higher
    "head_first": False,  # warm-up and layer decay already spare the backbone a fresh head's gradients
    "skip_bad": False,
    "precision": "auto",
    "seed": 0,
    "teacher": "",
    "distil": 0.5,  # the labels correct what the teacher has wrong, the teacher says what they leave out
}
# Rows by timm's module, the family a model was registered in; rates are for REFERENCE_BATCH.
PRETRAINED: dict[str, dict[str, Any]] = {
    "convnext": {
        "lr": 1e-4,  # published fine-tunings lie between 5e-5 and 2e-4
        "layer_decay": 0.8,  # as its authors fine-tune it
        "drop_path": 0.1,  # a quarter of what 300 epochs on ImageNet need: the run is short, the set small
        "epochs": 12,  # 10 to 15 are enough for what is already known; they are dear, at twice a ViT's cost and more
        "warmup": 1.0,  # until the moments of AdamW and the fresh head are more than noise
    },
    "vision_transformer": {
        "lr": 1e-4,
        "layer_decay": 0.75,  # BEiT's and MAE's, whose early layers hardly need to move
        "drop_path": 0.1,
        "epochs": 20,  # cheaper and slower to adapt: patches of 32 px leave 50 tokens
        "warmup": 1.0,
    },
    "": {"lr": 1e-4, "layer_decay": 0.8, "drop_path": 0.0, "epochs": 15, "warmup": 1.0},  # not all can drop paths
}
SCRATCH: dict[str, dict[str, Any]] = {  # nothing to preserve: the same rate for all layers, and time to find features
    "convnext": {
        "lr": 3e-3,  # its authors' 4e-3 for batches of 4096 is for more steps than a small set has
        "layer_decay": 1.0,
        "drop_path": 0.05,
        "epochs": 40,
        "warmup": 3.0,
        "mix": 0.0,  # mixtures have to be learned as well, and 40 epochs are not enough for both
    },
    "vision_transformer": {
        "lr": 1e-3,  # DeiT's for batches of 1,024; attention bears less than convolutions
        "layer_decay": 1.0,
        "drop_path": 0.05,
        "epochs": 60,  # it has to learn first that neighbours belong together
        "warmup": 5.0,
        "mix": 0.2,
    },
    "": {"lr": 3e-3, "layer_decay": 1.0, "drop_path": 0.0, "epochs": 40, "warmup": 3.0, "mix": 0.0},
}


# About the most that nine minutes a fold buy on two cores, from scratch; what else was tried: docs/benchmarks.md.
SMALL: dict[str, Any] = {
    "model": "resnet10t",  # plain convolutions learn soonest: regnets, csp and convnext nets of its cost trail it
    "weights": "none",
    "image_size": 64,  # in the same time 80 px see half as many epochs, and score the same
    "batch_size": 128,  # a quarter faster than 64
    "epochs": 24,
    "level": "light",
    "mix": 0.25,  # lowers the log loss, and leaves the accuracy as it is
    "plain": 0.3,
}
AUTO: dict[str, dict[str, Any]] = {  # what the model `auto` is on each kind of device
    "cpu": SMALL,
    # Muon's steps cost half as much again where products of bfloat16 are fast, and several times that elsewhere.
    "cpu with bfloat16": {**SMALL, "optimizer": "muon", "lr": 6e-3, "epochs": 16},
    "": {"model": "convnext_small"},
}


def expand_auto(given: dict[str, Any], device: str) -> dict[str, Any]:
    """The knobs that were given, and those that the model `auto` stands for on a kind of device."""
    if given.get("model") != "auto":
        return given
    chosen = {name: value for name, value in given.items() if name != "model"}
    level = LEVELS.get(str(chosen.get("level", "default")), {})
    auto = {name: value for name, value in AUTO.get(device, AUTO[""]).items() if name not in level}
    return {**auto, **chosen}


def image_size_at(epoch: int, recipe: Recipe) -> int:
    """Pixels of the images that training sees: from half the size to all of it, in steps of a deep layer's pixel."""
    growing = recipe.grow * recipe.epochs
    if epoch >= growing:
        return recipe.image_size
    side = int(recipe.image_size * (1 + epoch / growing) / 2)
    return min(recipe.image_size, max(SMALLEST, side // STEP * STEP))


def knobs() -> dict[str, tuple[type, str]]:
    """Name, type and help of every knob, for the command line and the card."""
    types = get_type_hints(Recipe)
    return {each.name: (types[each.name], each.metadata["help"]) for each in fields(Recipe)}


def resolve(given: dict[str, Any], card: dict[str, Any], family: str, native_size: int, test_size: int) -> Recipe:
    """The whole recipe: what was given, and the defaults for the rest."""
    if "model" in card:
        raise PodiumError("the card's [recipe]: a card cannot choose the model, the command does")
    check_knobs(card, "the card's [recipe]: ")
    check_knobs(given)
    rows = SCRATCH if {**card, **given}.get("weights") == "none" else PRETRAINED
    chosen = {
        "weights": "pretrained",
        "image_size": native_size,
        **COMMON,
        **rows.get(family, rows[""]),
        **LEVELS[{**card, **given}.get("level", "default")],
        **card,
        **given,
    }
    # The larger size that weights are tested at belongs to them, and to the size they were trained at.
    own = chosen["weights"] != "none" and chosen["image_size"] == native_size
    chosen.setdefault("test_size", test_size if own else chosen["image_size"])
    chosen.setdefault("views", "mirror" if chosen["mirror"] else "none")
    if "lr" not in card and "lr" not in given:
        chosen["lr"] = float(f"{chosen['lr'] * (chosen['batch_size'] / REFERENCE_BATCH) ** 0.5:.3g}")
    return Recipe(**{name: kind(chosen[name]) for name, (kind, _) in knobs().items()})


def check_knobs(values: dict[str, Any], where: str = "") -> None:
    """Refuses names that are no knobs, and values that no run can use."""
    known = {each.name: each for each in fields(Recipe)}
    for name, value in values.items():
        if name not in known:
            hint = did_you_mean(name, known, otherwise=f"there are {', '.join(known)}")
            raise PodiumError(f"{where}no knob '{name}'; {hint}")
        lowest, highest, choices = (known[name].metadata[key] for key in ("lowest", "highest", "choices"))
        kind, flag = knobs()[name][0], f"{where}{name}" if where else f"--{name.replace('_', '-')}"
        fits = isinstance(value, (int, float) if kind is float else kind) and isinstance(value, bool) == (kind is bool)
        if not fits:
            raise PodiumError(f"{flag} must be {kind.__name__}, not {value!r}")
        if kind in (int, float) and not lowest <= value <= highest:  # NaN is not either
            bounds = f"at least {lowest:,}" if highest == math.inf else f"between {lowest:,} and {highest:,}"
            raise PodiumError(f"{flag} must be {bounds}, not {value}")
        if choices and value not in choices:
            raise PodiumError(f"{flag} must be one of {', '.join(choices)}, not '{value}'")
        parts = known[name].metadata["parts"]
        named = str(value).split("+")
        if parts and value != "none" and (set(named) - set(parts) or len(set(named)) < len(named)):
            raise PodiumError(f"{flag} must be none, or of {', '.join(parts)} some joined by +, not '{value}'")


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What changed: `lr was 0.0001 and is 0.0005`, `the folds are others`."""
    return [
        f"the {key.removesuffix('_sha256')} are others"
        if key.endswith("_sha256")
        else f"{key} was {old.get(key)} and is {value}"
        for key, value in new.items()
        if old.get(key) != value
    ]
