"""The options of a run, each with all facts about it. `Recipe` (recipe.py) is all of them in one frozen dataclass."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from podium.knob import ALWAYS_RECORDED, knob
from podium.option_kinds import FINISH, HEAD, NAMES, NEIGHBOURS, SIZE, WHOLE_NUMBER_OR_AUTO
from podium.search_values import Between, Factor, OneOf, Searched


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
TWICE = "do the same twice"  # two ways for rare classes
LEVELS = ("default", "none", "light", "strong")  # recipe_defaults.py says what they set


@dataclass(frozen=True)
class ModelOptions:
    """What learns, from which weights, and at which rates."""

    model: str = knob(
        "a timm model, e.g. convnext_small, vit_small_patch32_224; auto: what suits the device",
        off=ALWAYS_RECORDED,
        also_called=("arch", "architecture", "backbone", "model-name", "model-name-or-path", "network"),
    )
    weights: str = knob(
        "pretrained (from the hub), none (from scratch), a file, the name of a podium pretrain, or SLUG/RUN: a run of"
        " another competition",
        off=ALWAYS_RECORDED,
        default="pretrained",
        why="they know more than a competition's images can teach",
        also_called=("pretrained", "checkpoint", "initial-checkpoint", "ckpt", "load"),
    )
    image_size: int | str = knob(
        "pixels, or HEIGHTxWIDTH for oblong images; default: the size the model was made for",
        1,
        4096,
        off=ALWAYS_RECORDED,
        kind=SIZE,
        also_called=("img-size", "input-size", "size", "resolution", "imgsz"),
    )
    test_size: int | str = knob(
        "the same in prediction; default: the model's own, which may be larger",
        1,
        4096,
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
    )
    batch_size: int = knob(
        "images per step",
        1,
        65_536,
        off=ALWAYS_RECORDED,
        default=64,
        why="convnext_small takes 8 GB with it",
        also_called=("bs", "per-device-train-batch-size", "train-batch-size"),
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
        also_called=("grad-accum-steps", "gradient-accumulation-steps", "accumulate-grad-batches", "grad-accum"),
    )
    optimizer: str = knob(
        "adamw, or muon: orthogonalises the updates of matrices (AdamW for the rest)",
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
    )
    layer_decay: float = knob(
        "learning rate of a layer relative to the layer above it",
        0.01,
        1,
        off=ALWAYS_RECORDED,
        also_called=("llrd", "layerwise-lr-decay", "discriminative-lr"),
        searched=Searched(Between(0.6, 1), closed_at=1),
    )
    keep: float = knob(
        "share that the final weights keep of those that fine-tuning started from, with the fitted head, if the loss on"
        " training images allows it",
        0,
        0.95,
        off=0.0,
        default=0.0,
        why="without a fitted head there is nothing to keep; where one is fitted, the kind of model says how much",
        searched=Searched(Between(0, 0.7), closed_at=0),  # without a fitted head, there is nothing to keep
    )
    freeze: float = knob(
        "share of the backbone's layers, from the image on, that stay as they are",
        0,
        1,
        off=0.0,
        default=0.0,
        why="whatever was tried: a quarter faster, and lower scores",
    )
    lora: int = knob(
        "rank of the updates that the linear layers of attention learn in place of their weights (LoRA); of the rest of"
        " the backbone, only the norms learn; 0: off",
        0,
        1024,
        off=0,
        default=0,
        why="all weights of a model of the usual size fit into memory and learn more",
        for_heads=False,
        is_move=True,
        against={"freeze": "hold the same layers: --lora freezes the whole backbone but its norms"},
    )
    norm: str = knob(
        "statistics of batch norm: train (of each batch), frozen (those of the weights stay) or adapt (computed anew"
        " from the training images at this size, then they stay)",
        off="train",
        default="train",
        why="what suits each batch; kinds of models with pretrained statistics have a value of their own",
        choices=NORMS,
    )
    pool: str = knob(
        "how features are pooled: default (as timm does), token (the class token), mean, both (class token and mean, or"
        " mean and maximum, side by side) or gem (a mean of powers, whose exponent is learned)",
        off=TIMM_POOL,
        default=TIMM_POOL,
        why="as the pretrained weights were trained",
        choices=(TIMM_POOL, *POOLS),
        is_move=True,
    )
    head: str = knob(
        "linear; arcface: compares the directions of features and classes, which learn with an angle between them"
        " that is larger for rare classes (Deng et al., 2019); or, with --linear, neighbours or neighbours:K: the K"
        " training images with the most similar features vote; both for hundreds of classes and more",
        off=LINEAR,
        default=LINEAR,
        why="angles pay with more than 1,000 classes of few images each",
        choices=HEADS,
        kind=HEAD,
        for_heads=False,
        is_move=True,
    )


@dataclass(frozen=True)
class LearningOptions(ModelOptions):
    """How it learns."""

    weight_decay: float = knob(
        "decoupled weight decay, for matrices only",
        0,
        10,
        off=ALWAYS_RECORDED,
        default=0.05,
        why="as in the AdamW recipes that the rows by kind of model come from",
        also_called=("wd", "l2"),
    )
    warmup: float = knob(
        "epochs of warm-up; at most a fifth of the run",
        0,
        off=ALWAYS_RECORDED,
        also_called=("warmup-epochs", "warmup-steps", "warmup-ratio"),
    )
    clip: float = knob(
        "largest norm of the gradient; 0: no limit",
        0,
        off=ALWAYS_RECORDED,
        default=1.0,
        why="cuts off the rare large gradient and leaves the others",
        also_called=("clip-grad", "max-grad-norm", "gradient-clip-val", "grad-clip"),
    )
    sam: float = knob(
        "radius of sharpness-aware minimisation, which doubles the time of a step; 0: off",
        0,
        10,
        off=0.0,
        default=0.0,
        why="whether it beats twice the epochs depends on the competition",
        is_move=True,
    )
    drop_path: float = knob(
        "stochastic depth rate, increasing with depth",
        0,
        0.95,
        off=ALWAYS_RECORDED,
        also_called=("drop-path-rate", "stochastic-depth"),
        searched=Searched(Between(0, 0.3), closed_at=0),  # not all models have stochastic depth
    )
    loss: str = knob(
        "cross_entropy, focal (images that are right already count less), asymmetric (smoothing counts less for classes"
        " that are improbable), poly (images that are wrong count more), or your own (docs/extend.md)",
        off="cross_entropy",
        default="cross_entropy",
        why="its probabilities need no correction, and the recipes of the rows by kind of model use it",
        choices=LOSSES,
        also_called=("criterion", "loss-fn", "loss-function"),
        for_heads=False,
    )
    class_weights: str = knob(
        "how much an image of a rare class counts: none, balanced (so that all classes count the same), or effective"
        " (between the two)",
        off="none",
        default="none",
        why="right for a metric that counts every image alike, such as accuracy",
        choices=CLASS_WEIGHTS,
        also_called=("class-weight", "weighted-loss", "balanced"),
        for_heads=False,
        is_move=True,
        against={"balance": TWICE},
    )
    balance: float = knob(
        "how much more often images of rare classes are shown: by the number of images of their class to this power,"
        " from 0 (every image once in an epoch) to 1 (all classes equally often)",
        0,
        1,
        off=0.0,
        default=0.0,
        why="right for a metric that counts every image alike, such as accuracy",
        for_heads=False,
        is_move=True,
    )
    adjust: float = knob(
        "logit adjustment: learn as if all classes were equally frequent (1), or partly so (Menon et al., 2021); for"
        " metrics that count classes alike",
        0,
        3,
        off=0.0,
        default=0.0,
        why="right for a metric that counts every image alike, such as accuracy",
        for_heads=False,
        is_move=True,
        against={
            "balance": TWICE,
            "class_weights": TWICE,
            "teacher": "contradict each other: a teacher says how frequent its classes are",
        },
    )
    smoothing: float = knob(
        "label smoothing",
        0,
        0.95,
        off=ALWAYS_RECORDED,
        default=0.1,
        why="some labels are wrong",
        also_called=("label-smoothing", "ls"),
        searched=Searched(Between(0, 0.2)),
    )
    ema: float = knob(
        "share of the run that the averaged weights remember; 0: use the last weights",
        0,
        1,
        off=ALWAYS_RECORDED,
        default=0.1,
        why="long enough to average out noise, short enough to forget the first epochs",
        also_called=("model-ema", "model-ema-decay", "ema-decay"),
    )


@dataclass(frozen=True)
class ImageOptions(LearningOptions):
    """What is done to images, in training and in prediction."""

    mix: float = knob(
        "share of the steps with mixup or cutmix, half of each",
        0,
        1,
        off=ALWAYS_RECORDED,
        default=0.5,
        why="the other half of the steps sees plain images",
        also_called=("mixup", "cutmix", "mixup-alpha", "cutmix-alpha", "mixup-prob"),
        searched=Searched(Between(0, 0.8)),
    )
    plain: float = knob(
        "share of the run, at its end, without mixup and cutmix",
        0,
        1,
        off=0.0,
        default=0.15,
        why="the last epochs see images as the test set has them",
    )
    grow: float = knob(
        "share of the run, at its start, with smaller images, which grow from half the size",
        0,
        1,
        off=0.0,
        default=0.0,
        why="works only for models that take any size",
        is_move=True,
    )
    finish: str = knob(
        "SIZE:EPOCHS, such as 320:2: the last epochs see images of this size, and prediction does if its own size is"
        " smaller (Touvron et al., 2019)",
        1,
        4096,
        off="",
        default="",
        why="whether the last epochs gain at a larger size depends on the competition",
        is_taken_over=False,
        kind=FINISH,
        for_heads=False,
        is_move=True,
    )
    fit: str = knob(
        "how an image gets the shape of --image-size: crop (its centre), squash (all of it) or pad (all of it, with"
        " borders of the mean colour)",
        off="crop",
        default="crop",
        why="as the weights were trained; oblong images are squashed",
        choices=FITS,
    )
    region: str = knob(
        "what a run sees of each image: a CSV file of boxes, a column of the tables that holds them, attention:RUN"
        " (what the models of an earlier run look at) or border (all but borders of one colour); of several boxes,"
        " training draws one and prediction averages",
        off="",
        default="",
        why="whole images, unless somebody knows where the objects are",
        is_move=True,
        recorded_as="boxes",
    )
    crop: float = knob(
        "smallest share of the image that a random crop keeps; 1: all of it",
        0.01,
        1,
        off=ALWAYS_RECORDED,
        default=0.6,
        why="milder than ImageNet's 0.08: an object that fills its image must stay recognisable",
        also_called=("scale", "random-resized-crop"),
    )
    mirror: float = knob(
        "probability of a left-right flip",
        0,
        1,
        off=ALWAYS_RECORDED,
        default=0.5,
        why="most objects keep their class when mirrored; letters and digits do not",
        also_called=("hflip", "horizontal-flip"),
    )
    views: str = knob(
        "test-time augmentation: none, or mirror, flip (upside down), turn (by quarters), zoom (the centre), joined by"
        " +; prediction averages these views and the image itself; default: mirror, unless --mirror is 0",
        off=ALWAYS_RECORDED,
        choices=VIEWS,
        kind=NAMES,
        also_called=("tta", "test-time-augmentation", "augs"),
    )
    colour: float = knob(
        "strength of the changes of brightness, contrast and saturation",
        0,
        0.95,
        off=ALWAYS_RECORDED,
        default=0.2,
        why="imitates another light, not another colour: the colour often depends on the class",
        also_called=("color", "color-jitter", "jitter"),
    )
    erase: float = knob(
        "probability that a rectangle is erased",
        0,
        1,
        off=ALWAYS_RECORDED,
        default=0.1,
        why="sometimes the model has to recognise an object without one of its parts",
        also_called=("reprob", "random-erasing", "cutout"),
    )
    ops: int = knob(
        "random operations per image, as in RandAugment: rotation, shear, shift, tones",
        0,
        9,
        off=0,
        default=0,
        why="whether a rotated image keeps its class depends on the competition",
    )
    strength: float = knob(
        "strength of these operations", 0, 1, off=0.5, default=0.5, why="AugReg's medium level: magnitude 15 of 30"
    )
    augment: str = knob(
        "your own augmentations (docs/extend.md), joined by +, or none",
        off="none",
        default="none",
        why="none is built in",
        choices=AUGMENTATIONS,
        kind=NAMES,
        for_heads=False,
    )
    level: str = knob(
        "sets crop, colour, erase, ops, mix and smoothing at once: default, none, light or strong",
        off="default",
        default="default",
        why="the single options have defaults of their own",
        choices=LEVELS,
        also_called=("aa", "auto-augment", "augmentation", "augmentations", "randaugment", "aug"),
        searched=Searched(OneOf(("none", "light", "default", "strong"))),
    )
