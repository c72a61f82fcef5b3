"""The defaults of a run's options, each with its reason.

An option that is not given takes the first value found in: the competition's card ([recipe]), the level, what suits the
images' shape, the metric and the number of images, the row of the backbone's kind (from scratch: of the model's
family), the row for all models. `fill_in_defaults` does that.
"""

import math
from collections import Counter
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from podium.basics.image_size import ImageSize, shorter_side
from podium.options.knob import OF_THE_ROW
from podium.options.moves.sizes import Sizes
from podium.options.recipe import KINDS, KNOBS, Options, Recipe, check_recipe, fits_only_head, names_pretraining
from podium.options.recipe_options import ARCFACE

# Several options at once, after "How to train your ViT?" (Steiner et al., 2021). A given option overrides them.
OPTIONS_OF_LEVEL: dict[str, dict[str, Any]] = {
    "default": {},
    "none": {"crop": 1.0, "colour": 0.0, "erase": 0.0, "ops": 0, "mix": 0.0, "smoothing": 0.0},
    # For short runs, which see each image only a few times: no augmentation that takes long to learn.
    "light": {"crop": 0.75, "colour": 0.0, "erase": 0.0, "ops": 0, "mix": 0.0},
    # For long runs from scratch (60 epochs and more), and for large models on few images.
    "strong": {"crop": 0.4, "colour": 0.3, "erase": 0.25, "ops": 2, "strength": 0.65, "mix": 0.8},
}


def set_by_level(options: Options) -> Options:
    """Returns what the level that is asked for sets."""
    return OPTIONS_OF_LEVEL.get(str(options.get("level", "default")), {})


REFERENCE_BATCH = 128  # the learning rates below are for batches of so many images


def common_defaults() -> dict[str, Any]:
    """Returns the defaults for every model; rows and rules below overrule them."""
    return {name: knob.default for name, knob in KNOBS.items() if knob.default is not OF_THE_ROW}


# Rows by kind of backbone: models/look_inside.py tells them apart by their modules.
PRETRAINED: dict[str, dict[str, Any]] = {
    "batch norm": {  # ConvNets with batch norm, such as ResNet, EfficientNet, RegNet and MobileNet
        # 5e-4 for batches of 64: on three sets at least as good as 1e-3, and 2e-3 diverges (docs/benchmarks.md).
        "lr": 7e-4,
        "layer_decay": 1.0,  # 0.9 scores the same, 0.8 lower
        "norm": "frozen",  # as good as `train` or better, and a fifth faster; `adapt` loses up to 20 points
        "keep": 0.2,  # between 0.15 and 0.3, which were measured on four sets and parts of them (docs/benchmarks.md)
        "drop_path": 0.0,
        "epochs": 12,
        "warmup": 1.0,
    },
    "convnext": {  # other ConvNets
        "lr": 1e-4,  # published fine-tunings lie between 5e-5 and 2e-4
        "layer_decay": 0.8,  # as its authors fine-tune it
        "drop_path": 0.1,  # a quarter of the value for 300 epochs on ImageNet: the run is short, the data set small
        "epochs": 12,  # 10 to 15 are enough for pretrained weights; an epoch takes at least twice as long as a ViT's
        "warmup": 1.0,  # until AdamW's moments are better than noise
    },
    "vit": {
        "lr": 1e-4,
        "layer_decay": 0.75,  # from BEiT and MAE; the early layers need small changes only
        "drop_path": 0.1,
        "epochs": 20,  # an epoch is cheaper, and it adapts more slowly: patches of 32 px give 50 tokens
        "warmup": 1.0,
    },
    "swin": {  # transformers whose feature maps shrink, and mixtures of convolutions and attention
        "lr": 1e-4,
        "layer_decay": 0.8,
        "norm": "frozen",
        "drop_path": 0.0,  # not all have stochastic depth
        "epochs": 15,
        "warmup": 1.0,
    },
}


class Foundation(NamedTuple):
    """Large models pretrained on hundreds of millions of images and more: what they need besides the row of a ViT."""

    weights: str  # a pattern of timm's names, MODEL.TAG
    row: dict[str, Any]


# Each learning rate is the published one, times the square root of 128 over the published batch.
FOUNDATIONS: dict[str, Foundation] = {
    "dinov3": Foundation(
        "vit_*_dinov3*.*",
        {
            "lr": 1.8e-4,  # 5e-5 at batches of 10, with the first half of the blocks frozen: CSIRO 2026, 4th place
            "layer_decay": 1.0,  # frozen layers take its place
            "freeze": 0.5,
            "pool": "both",  # as the linear classifier that its authors publish (dinov3/hub/classifiers.py)
            "drop_path": 0.0,  # of half the blocks, there is little to drop; none is published
            "epochs": 12,  # none is published; as for other large models here
        },
    ),
    # Learned from captions, as CLIP did. Nobody has published a fine-tuning of SigLIP 2 or Perception Encoder for
    # classes; these are the values for CLIP's ViT-L (Dong et al., 2022, "CLIP itself is a strong fine-tuner", FT-CLIP's
    # script): 4e-4 at batches of 2,048, decay 0.65, no drop path, no mixing. Its 30 epochs are of ImageNet; here, the
    # epochs are those of other large models. They keep timm's pooling: both were trained with the attention that pools
    # (the models called `gap` with the mean).
    "siglip2": Foundation("vit_*_siglip_*.v2_webli", {"lr": 1e-4, "layer_decay": 0.65, "drop_path": 0.0, "epochs": 12}),
    "pe": Foundation("vit_pe_*.*", {"lr": 1e-4, "layer_decay": 0.65, "drop_path": 0.0, "epochs": 12}),
    # By its authors' scripts (EVA-02/asuka), for weights that have seen ImageNet-21k; their images have 448 px.
    "eva02": Foundation(
        "eva02_*.mim_*",
        {
            "lr": 2.5e-5,  # 5e-5 at batches of 512 for B; 2e-5 for L
            "layer_decay": 0.8,  # for B; 0.85 for L
            "drop_path": 0.1,  # for B; 0.15 for L
            "smoothing": 0.2,
            "epochs": 15,  # for B; 20 for L
            "warmup": 2.0,
        },
    ),
}
# Of all kinds: a fitted head knows the classes, so mixed images only disturb it. BiT (Kolesnikov et al., 2020), too,
# mixes only from 20,000 images on.
# The middle between that start and the end is about as good as the end where there is much to learn, and better where
# the head is hard to beat: so Wortsman et al. (2022), and one ConvNeXt here. The row of batch norm keeps less.
FROM_FITTED_HEAD: dict[str, Any] = {"head_first": True, "mix": 0.0, "keep": 0.5}
# Without a fitted head there is nothing to keep; weights between two with other statistics of batch norm have none that
# fit them.
NOTHING_KEPT: dict[str, Any] = {"keep": 0.0}
# Hu et al. (2021) train the updates of all layers, and at one rate.
FOR_LORA: dict[str, Any] = {"layer_decay": 1.0, "freeze": 0.0}
# A mixed image has no direction of its own class; and no head is fitted that the final weights could keep a share of.
FOR_ARCFACE: dict[str, Any] = {"mix": 0.0, "keep": 0.0}
MANY_IMAGES = 20_000
MIX_OF_MANY = 0.5
LEAST_STEPS = 300  # of fine-tuning: small data sets get more epochs
# Where the metric is a loss of probabilities, these should be neither too timid, as smoothed labels make them (log loss
# on signs 0.11), nor too sure, which mixed images cure: on digits 0.13 without them, 0.04 with them.
FOR_PROBABILITIES: dict[str, Any] = {"smoothing": 0.0, "mix": 0.5}
# Where nearly all images have one oblong shape, a centre crop cuts off the same part of all: of clothes, heads and feet
# (resnet10t from scratch: accuracy 0.914 with crop, 0.927 with squash).
OBLONG = 1.15  # longer side / shorter side
FOR_OBLONG: dict[str, Any] = {"fit": "squash"}
# Rows by family, the timm module that registers the model.
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
# Families that are trained as another one.
TRAINED_AS = dict.fromkeys(("deepvit", "t2t_vit", "cswin", "cpvt", "pvt", "teaching_vit"), "vision_transformer")

# Its weights are installed with Podium, and at 96 px two cores train on 350 images per second.
AUTO_PRETRAINED = "tf_efficientnet_lite0"
# With many images it gains half a point by a higher rate and by statistics of its own; with few it loses three points:
# measured on one set, the clothes, and on parts of it.
# (Wider ConvNets have smaller weights, so the row of their kind keeps the lower rate.) There, 6 epochs score as 12.
AUTO_MANY_IMAGES = 5_000
AUTO_WITH_MANY: dict[str, Any] = {"norm": "train", "lr": 1e-3, "epochs": 6}  # for batches of 64
# What `--model auto` trains where no pretrained weights are here, or where they do not help: about the best result of
# ten minutes per fold on two cores (docs/benchmarks.md).
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
    # A step with Muon takes 1.25 times as long as one with AdamW, and needs fewer epochs. (Not yet tried in float32.)
    # The strong weight decay keeps the accuracy and lowers the log loss by 7 %.
    "cpu with bfloat16": {**SMALL, "optimizer": "muon", "lr": 6e-3, "weight_decay": 1.5, "epochs": 16},
    "": {"model": "convnext_small"},
}


# --- filling in --------------------------------------------------------------------------------------


def expand_auto(given: Options, device_kind: str) -> Options:
    """Replaces the model `auto` by the model and options that suit a kind of device."""
    if given.get("model") != "auto":
        return given
    level = set_by_level(given)
    auto = {name: value for name, value in AUTO.get(device_kind, AUTO[""]).items() if name not in level}
    return {**auto, **{name: value for name, value in given.items() if name != "model"}}


class Backbone(NamedTuple):
    """What the defaults depend on."""

    family: str  # the timm module that registers the model
    kind: str  # a key of PRETRAINED
    image_size: ImageSize  # that the weights were made for
    test_size: ImageSize
    has_batch_norm: bool = True
    weights: str = ""  # as timm calls them: MODEL.TAG


class Data(NamedTuple):
    """What else they depend on."""

    images: int = MANY_IMAGES  # that a fold trains on
    is_loss_of_probabilities: bool = False  # the metric
    shape: float = 1.0  # width / height of nearly all images; 1: several shapes, or squares
    are_skewed: bool = False  # numbers, all from 0 on, of which a column reaches far to one side

    @property
    def is_oblong(self) -> bool:
        return max(self.shape, 1 / self.shape) > OBLONG


def layers_of(given: Options, card: Options, backbone: Backbone, data: Data) -> dict[str, Options]:
    """Returns the options by their origin; of an option with several origins, the last counts."""
    asked = {**card, **given}
    weights, level = str(asked.get("weights", "pretrained")), asked.get("level", "default")
    from_scratch = learns_anew(weights)
    name, row = row_of(backbone, from_scratch)
    batch_size = asked.get("batch_size", KNOBS["batch_size"].default)
    return {
        "default": common_defaults(),
        f"{name}, from scratch" if from_scratch else name: row,
        "number of images": {} if from_scratch else options_for(data.images, batch_size, row),
        "nothing to keep": {} if keeps_start(asked, backbone, row) else NOTHING_KEPT,
        "--lora": FOR_LORA if asked.get("lora") else {},
        "metric": FOR_PROBABILITIES if data.is_loss_of_probabilities and not from_scratch else {},
        f"--head {ARCFACE}": FOR_ARCFACE if asked.get("head") == ARCFACE else {},
        "shape of the images": FOR_OBLONG if data.is_oblong and not asked.get("region") else {},  # parts have others
        f"--level {level}": OPTIONS_OF_LEVEL[level],
        "card": card,
        "flag": given,
    }


def keeps_start(asked: Options, backbone: Backbone, row: Options) -> bool:
    norm = asked.get("norm", row.get("norm", KNOBS["norm"].default))
    return bool(asked.get("head_first", True)) and not (backbone.has_batch_norm and norm == "train")


def options_for(images: int, batch_size: int, row: Options) -> Options:
    """Returns what depends on the number of images in fine-tuning: enough steps, and mixing only with many images."""
    if images >= MANY_IMAGES:
        return {"mix": MIX_OF_MANY}
    steps_per_epoch = max(1, images // batch_size)
    epochs = math.ceil(LEAST_STEPS / steps_per_epoch)
    return {"epochs": epochs} if epochs > row["epochs"] else {}


def learns_anew(weights: str) -> bool:
    """Returns whether the weights change so much that the options are those for a start from nothing.

    A pretraining on a few thousand images leaves more to learn than the hub's weights do.
    """
    return weights == "none" or names_pretraining(weights)


def row_of(backbone: Backbone, from_scratch: bool) -> tuple[str, Options]:
    """Returns the row of the model, and its name."""
    if not from_scratch:
        name = next((name for name, known in FOUNDATIONS.items() if fnmatchcase(backbone.weights, known.weights)), "")
        row = {**FROM_FITTED_HEAD, **PRETRAINED[backbone.kind]}
        return (f"weights {name}", {**row, **FOUNDATIONS[name].row}) if name else (f"kind {backbone.kind}", row)
    family = TRAINED_AS.get(backbone.family, backbone.family)
    return (f"family {family}", SCRATCH[family]) if family in SCRATCH else ("other families", SCRATCH[""])


def fill_in_defaults(given: Options, card: Options, backbone: Backbone, data: Data | None = None) -> Recipe:
    """Returns the whole recipe. `check_options` and `read_card` come first."""
    native_size = backbone.image_size
    chosen: dict[str, Any] = {"image_size": native_size}
    for options in layers_of(given, card, backbone, data or Data()).values():
        chosen |= options
    # A larger test size belongs to the pretrained weights, at the size they were trained at.
    as_pretrained = chosen["weights"] != "none" and chosen["image_size"] == native_size
    default = backbone.test_size if as_pretrained else chosen["image_size"]
    if not fits_only_head(chosen):
        default = max(default, Sizes.recorded(chosen).last_size, key=shorter_side)
    chosen.setdefault("test_size", default)
    chosen.setdefault("views", "mirror" if chosen["mirror"] else "none")
    if "lr" not in card and "lr" not in given:
        chosen["lr"] = float(f"{chosen['lr'] * (chosen['batch_size'] / REFERENCE_BATCH) ** 0.5:.3g}")
    recipe = Recipe.of({name: kind.read(chosen[name]) for name, kind in KINDS.items()})
    check_recipe(recipe)
    return recipe


def origins_of(layers: Mapping[str, Options]) -> dict[str, str]:
    """Returns where each option of a recipe comes from."""
    origins = {"image_size": "model", "test_size": "model", "views": "--mirror"}
    return origins | {name: origin for origin, options in layers.items() for name in options}


def describe_default(name: str) -> str:
    """Returns ` (default: 64)`, with the kinds of models that have another one; nothing if the help text says it."""
    common = common_defaults()
    own = {weights: {**PRETRAINED["vit"], **known.row} for weights, known in FOUNDATIONS.items()}
    rows = {kind: {**common, **FROM_FITTED_HEAD, **row} for kind, row in (PRETRAINED | own).items()}
    scratch = {family: {**common, **row} for family, row in SCRATCH.items()}
    if any(name in row for row in (FROM_FITTED_HEAD, *PRETRAINED.values(), *own.values(), *SCRATCH.values())):
        pretrained, anew = _by_row(rows, name), _by_row(scratch, name)
        return f" (default: {pretrained})" if pretrained == anew else f" (default: {pretrained}; from scratch {anew})"
    value = common.get(name, "")
    return "" if value == "" or value is False else f" (default: {value})"


def _by_row(rows: Mapping[str, Options], name: str) -> str:
    """Returns the value of most rows, then the rows that have another one."""
    found = {key: row.get(name) for key, row in rows.items()}
    values = {key: ("off", "on")[value] if isinstance(value, bool) else str(value) for key, value in found.items()}
    usual = values.get("", Counter(values.values()).most_common(1)[0][0])
    others = ", ".join(f"{key} {value}" for key, value in values.items() if value != usual)
    return f"{usual}; {others}" if others else usual
