"""The options of a run, by what they are about. `Recipe` (recipe.py) is all of them in one frozen dataclass.

An option has a help text, limits or choices, and a kind of values. The flags and the checks are made from it.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from podium.option_kinds import FINISH, HEAD, NAMES, NEIGHBOURS, SIZE, WHOLE_NUMBER_OR_AUTO, Kind, Limits


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
LINEAR, ARCFACE = "linear", "arcface"
HEADS = (LINEAR, ARCFACE, NEIGHBOURS)
FOUND_BY = "attention:"  # a run, in --region
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
class LearningOptions:
    """What learns, and how."""

    model: str = option("a timm model, e.g. convnext_small, vit_small_patch32_224; auto: what suits the device")
    weights: str = option(
        "pretrained (from the hub), none (from scratch), a file, the name of a podium pretrain, or SLUG/RUN: a run of"
        " another competition"
    )
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
        "linear; arcface: compares the directions of features and classes, which learn with an angle between them"
        " that is larger for rare classes (Deng et al., 2019); or, with --linear, neighbours or neighbours:K: the K"
        " training images with the most similar features vote; both for hundreds of classes and more",
        choices=HEADS,
        kind=HEAD,
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


@dataclass(frozen=True)
class ImageOptions(LearningOptions):
    """What is done to images, in training and in prediction."""

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
