"""The options that no move owns, fields of every recipe (recipe.py), each with all facts about it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from podium.options.knob import ALWAYS_RECORDED, knob
from podium.options.option_kinds import HEAD, NAMES, NEIGHBOURS, SIZE, WHOLE_NUMBER_OR_AUTO
from podium.options.search_values import Factor, OneOf, Searched


class View(NamedTuple):
    images: int  # that it makes of one, with the image itself
    function: Callable[..., Any] | None = None  # None: in models/predict.py


# extend.py adds a project's own entries to these tables.
VIEWS = {"mirror": View(2), "flip": View(2), "turn": View(4), "zoom": View(2)}
AUGMENTATIONS: dict[str, Callable[..., Any]] = {}
OPTIMIZERS: dict[str, Callable[..., Any] | None] = {"adamw": None, "muon": None}  # None: in training/optimizer.py
PRECISIONS = ("auto", "float32", "bfloat16", "float16")
TIMM_POOL = "default"  # as the model pools by itself
BUILT_IN_POOLS = ("token", "mean", "both", "gem")
POOLS: dict[str, Callable[..., Any] | None] = dict.fromkeys((TIMM_POOL, *BUILT_IN_POOLS))  # None: layers/pooling.py
LINEAR, DROPOUTS, MLP, ARCFACE = "linear", "dropouts", "mlp", "arcface"
# None: in options/layers/heads.py, or for frozen features
HEADS: dict[str, Callable[..., Any] | None] = dict.fromkeys((LINEAR, DROPOUTS, MLP, ARCFACE, NEIGHBOURS))
FITTED_HEADS = (LINEAR, DROPOUTS)  # to frozen features, exactly: in prediction they are one layer
LEVELS = ("default", "none", "light", "strong")  # recipe_defaults.py says what they set


@dataclass(frozen=True)
class ModelOptions:
    """What learns, from which weights, and at which rates."""

    model: str = knob(
        "a timm model, e.g. convnext_small, hf-hub:OWNER/NAME, local-dir:FOLDER, or auto: what suits the device",
        off=ALWAYS_RECORDED,
        also_called=("arch", "architecture", "backbone", "model-name", "model-name-or-path", "network"),
        is_usual=True,
    )
    weights: str = knob(
        "pretrained (from the hub), none (from scratch), a file, the name of a podium pretrain, or SLUG/RUN: a run of"
        " another competition",
        off=ALWAYS_RECORDED,
        default="pretrained",
        why="they know more than a competition's images can teach",
        also_called=("pretrained", "checkpoint", "initial-checkpoint", "ckpt", "load"),
        may_be_file=True,
    )
    image_size: int | str = knob(
        "pixels, or HEIGHTxWIDTH for oblong images; default: the size the model was made for",
        1,
        4096,
        off=ALWAYS_RECORDED,
        kind=SIZE,
        also_called=("img-size", "input-size", "size", "resolution", "imgsz"),
        is_usual=True,
    )
    test_size: int | str = knob(
        "the same in prediction; default: the model's own, which may be larger",
        1,
        4096,
        topic="images",
        off=ALWAYS_RECORDED,
        kind=SIZE,
    )
    epochs: int = knob(
        "passes over the training images",
        1,
        100_000,
        off=ALWAYS_RECORDED,
        also_called=("num-epochs", "num-train-epochs", "max-epochs", "n-epochs"),
        searched=Searched(Factor(0.5, 2)),  # twice as long is what a user would still wait for
        is_usual=True,
    )
    batch_size: int = knob(
        "images per step",
        1,
        65_536,
        off=ALWAYS_RECORDED,
        default=64,
        why="convnext_small takes 8 GB with it",
        also_called=("bs", "per-device-train-batch-size", "train-batch-size"),
        is_usual=True,
    )
    accumulate: int | str = knob(
        "parts that a batch is computed in, one after the other, if memory does not hold all of it (the steps stay the"
        " same); auto: the fewest that fit, found out before training",
        1,
        65_536,
        off=1,
        default=1,
        why="parts take longer than the whole",
        kind=WHOLE_NUMBER_OR_AUTO,
        topic="this machine",
        also_called=("grad-accum-steps", "gradient-accumulation-steps", "accumulate-grad-batches", "grad-accum"),
    )
    optimizer: str = knob(
        "adamw, muon: orthogonalises the updates of matrices (AdamW for the rest), or your own (docs/extend.md)",
        off="adamw",
        default="adamw",
        why="suits weights that were trained with it",
        choices=OPTIMIZERS,
        also_called=("opt", "optim"),
    )
    lr: float = knob(
        "peak learning rate; the default is for batches of 128 and grows with the square root of their size",
        1e-12,
        10,
        off=ALWAYS_RECORDED,
        also_called=("learning-rate", "base-lr", "max-lr", "eta"),
        searched=Searched(Factor(0.25, 4)),  # published fine-tunings of one kind of model lie this far apart
        is_usual=True,
    )
    head: str = knob(
        "linear, dropouts (the mean over five dropouts), mlp (a hidden layer), your own (docs/extend.md), arcface"
        " (compares the directions of features and classes, which learn with an angle between them that is larger for"
        " rare classes: Deng et al., 2019) or, with --linear, neighbours:K (the K training images with the most similar"
        " features vote); the last two are for hundreds of classes and more",
        off=LINEAR,
        default=LINEAR,
        why="angles pay with more than 1,000 classes of few images each",
        choices=HEADS,
        kind=HEAD,
        for_heads=False,
        is_move=True,
    )


@dataclass(frozen=True)
class ImageOptions(ModelOptions):
    """What is done to images, in training and in prediction."""

    views: str = knob(
        "test-time augmentation: none, or mirror, flip (upside down), turn (by quarters), zoom (the centre), joined by"
        " +; prediction averages these views and the image itself; default: mirror, unless --mirror is 0",
        off=ALWAYS_RECORDED,
        choices=VIEWS,
        kind=NAMES,
        also_called=("tta", "test-time-augmentation", "augs"),
        topic="images",
    )
    level: str = knob(
        "sets crop, colour, erase, ops, mix and smoothing at once: default, none, light or strong",
        off="default",
        default="default",
        why="the single options have defaults of their own",
        choices=LEVELS,
        also_called=("aa", "auto-augment", "augmentation", "augmentations", "randaugment", "aug"),
        searched=Searched(OneOf(("none", "light", "default", "strong"))),
        topic="images",
    )


@dataclass(frozen=True)
class RunOptions(ImageOptions):
    """What a run starts from and learns from, and what computes it."""

    linear: bool = knob(
        "linear evaluation: freeze the backbone and fit a logistic head on its features (--model A+B: of both; --from"
        " RUN: of a finished run's models)",
        off=False,
        default=False,
        why="a first look at a model in minutes; training all weights scores higher",
        also_called=("freeze-backbone", "linear-probe", "linear-probing", "probe"),
        is_taken_over=False,
        is_usual=True,
    )
    precision: str = knob(
        "auto (the fastest that the hardware has), float32, bfloat16 or float16",
        off=ALWAYS_RECORDED,
        default="auto",
        why="16 bits lose nothing that was measured, where the hardware computes faster with them",
        choices=PRECISIONS,
        topic="this machine",
        also_called=("amp", "fp16", "bf16", "half", "mixed-precision", "amp-dtype"),
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
        is_usual=True,
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
