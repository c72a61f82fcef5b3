"""The road from ResNet-50 to ConvNeXt-T (Liu et al., 2022, arXiv 2201.03545), step by step: 13 models.

    podium train -c sample --model road_00_resnet50_nano road_12_convnext_nano --weights none --folds 0 --epochs 20

Each model is the one before it and one change: read `Design`, then the list of designs after it. All are one network of
one block, which has a spatial convolution and two of 1 x 1. A design decides their order, their widths, and which norms
and activations stand between them.

The paper gives the multiply-adds of every step, but no code of the steps between the two ends. This reading fits its
numbers (docs/zoo.md): until the last step, the first block of a stage halves the map, as in ResNet: its spatial
convolution has stride 2, and so has the 1 x 1 convolution on its shortcut.
"""

import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from timm.layers import (
    ClassifierHead,
    DropPath,
    LayerNorm2d,
    LayerScale2d,
    NormMlpClassifierHead,
    calculate_drop_path_rates,
    trunc_normal_,
)
from timm.models import build_model_with_cfg, checkpoint_seq, generate_default_cfgs, register_model
from torch import Tensor, nn

from podium_annex.zoo.config import config
from podium_annex.zoo.intermediates import collect

# --- the road ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Design:
    """All that the models differ in. The defaults are ResNet-50's."""

    depths: tuple[int, ...] = (3, 4, 6, 3)
    """Blocks per stage."""
    patchify: bool = False
    """The stem cuts patches of 4 x 4 px; ResNet's has a 7 x 7 convolution of stride 2, then max pooling."""
    depthwise: bool = False
    """The spatial convolution does not mix channels."""
    width: int = 64
    """Channels of the stem and of the narrow side of blocks in the first stage. Each later stage doubles them."""
    inverted: bool = False
    """Blocks are narrow outside and wide inside; ResNet's are wide outside and narrow inside."""
    spatial_first: bool = False
    """The spatial convolution comes before the two of 1 x 1; ResNet's comes between them."""
    kernel: int = 3
    """Side of the spatial convolution."""
    act: type[nn.Module] = nn.ReLU
    few_acts: bool = False
    """A block has one activation, between its 1 x 1 convolutions. The stem has none."""
    few_norms: bool = False
    """A block has one norm, after its spatial convolution. The stem and the shortcuts keep theirs."""
    norm: type[nn.Module] = nn.BatchNorm2d
    separate: bool = False
    """A norm and a 2 x 2 convolution between two stages halve the map. There is a norm before the classifier."""
    layer_scale: float = 0.0
    """First value of the learned factors, one per channel, on what a block adds to its input. 0: no factors."""

    def sides(self, width: int) -> tuple[int, int]:
        """Returns the channels outside and inside a block."""
        return (width, 4 * width) if self.inverted else (4 * width, width)


RESNET50 = Design()
STAGE_RATIO = replace(RESNET50, depths=(3, 3, 9, 3))
PATCHIFY_STEM = replace(STAGE_RATIO, patchify=True)
DEPTHWISE = replace(PATCHIFY_STEM, depthwise=True)
WIDTH = replace(DEPTHWISE, width=96)
INVERTED = replace(WIDTH, inverted=True)
DEPTHWISE_UP = replace(INVERTED, spatial_first=True)
KERNEL7 = replace(DEPTHWISE_UP, kernel=7)
GELU = replace(KERNEL7, act=nn.GELU)
FEWER_ACTIVATIONS = replace(GELU, few_acts=True)
FEWER_NORMS = replace(FEWER_ACTIVATIONS, few_norms=True)
LAYERNORM = replace(FEWER_NORMS, norm=LayerNorm2d)
CONVNEXT = replace(LAYERNORM, separate=True, layer_scale=1e-6)


def nano(design: Design) -> Design:
    """A quarter of the channels, for images of 32 px on a CPU; not in the paper.

    The strides stay. They suit the sample: its digits are enlarged from 8 x 8 px, so a patch of 4 x 4 is one of these.
    """
    return replace(design, width=design.width // 4)


# --- the network -------------------------------------------------------------------------------------


def conv_and_norm(conv: partial[nn.Conv2d], norm: type[nn.Module]) -> tuple[nn.Module, nn.Module]:
    """Creates both. Batch norm subtracts the mean, so a bias before it would do nothing."""
    layer = conv(bias=norm is not nn.BatchNorm2d)
    return layer, norm(layer.out_channels)


class Block(nn.Module):
    """Adds to its input what three convolutions make of it."""

    def __init__(self, design: Design, dim_in: int, width: int, stride: int, drop_path: float) -> None:
        super().__init__()
        outside, inside = design.sides(width)
        dim = dim_in if design.spatial_first else inside
        groups = dim if design.depthwise else 1
        spatial = partial(nn.Conv2d, dim, dim, design.kernel, stride, design.kernel // 2, groups=groups)
        enter, leave = partial(nn.Conv2d, dim_in, inside, 1), partial(nn.Conv2d, inside, outside, 1)
        convs = (spatial, enter, leave) if design.spatial_first else (enter, spatial, leave)
        none, norm, act = nn.Identity, design.norm, design.act
        norms = (norm, none, none) if design.few_norms else (norm, norm, norm)
        acts = (none, act, none) if design.few_acts else (act, act, act)

        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for number in range(3):
            layers[f"conv{number + 1}"], layers[f"norm{number + 1}"] = conv_and_norm(convs[number], norms[number])
            layers[f"act{number + 1}"] = acts[number]()
        self.act = layers.pop("act3")  # it follows the sum
        layers["scale"] = LayerScale2d(outside, design.layer_scale) if design.layer_scale else nn.Identity()
        layers["drop_path"] = DropPath(drop_path)
        self.branch = nn.Sequential(layers)
        self.shortcut: nn.Module = nn.Identity()
        if dim_in != outside or stride > 1:
            self.shortcut = nn.Sequential(*conv_and_norm(partial(nn.Conv2d, dim_in, outside, 1, stride), norm))

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.branch(x) + self.shortcut(x))


def make_stem(design: Design, in_chans: int) -> nn.Sequential:
    overlapping, patches = (7, 2, 3), (4, 4)  # kernel, stride and padding
    conv = partial(nn.Conv2d, in_chans, design.width, *(patches if design.patchify else overlapping))
    stem: OrderedDict[str, nn.Module] = OrderedDict()
    stem["conv"], stem["norm"] = conv_and_norm(conv, design.norm)
    stem["act"] = nn.Identity() if design.few_acts else design.act()
    stem["pool"] = nn.Identity() if design.patchify else nn.MaxPool2d(3, 2, 1)
    return nn.Sequential(stem)


def make_stage(design: Design, dim_in: int, width: int, stride: int, drop_paths: list[float]) -> nn.Sequential:
    """Creates a block per rate in `drop_paths`, and what halves the map before them if that is separate."""
    downsample = nn.Sequential()
    if design.separate and stride > 1:
        downsample = nn.Sequential(design.norm(dim_in), nn.Conv2d(dim_in, width, stride, stride))
        dim_in, stride = width, 1
    outside, _ = design.sides(width)
    blocks = nn.Sequential(Block(design, dim_in, width, stride, drop_paths[0]))
    blocks.extend(Block(design, outside, width, 1, drop_path) for drop_path in drop_paths[1:])
    return nn.Sequential(OrderedDict(downsample=downsample, blocks=blocks))


class RoadNet(nn.Module):
    def __init__(
        self,
        design: Design,
        num_classes: int = 1000,
        in_chans: int = 3,
        global_pool: str = "avg",
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_classes, self.in_chans, self.drop_rate = num_classes, in_chans, drop_rate
        self.grad_checkpointing = False
        self.stem = make_stem(design, in_chans)
        self.stages = nn.Sequential()
        self.feature_info = []
        dim, width, reduction = design.width, design.width, 4
        for number, drop_paths in enumerate(calculate_drop_path_rates(drop_path_rate, design.depths, stagewise=True)):
            stride = 2 if number else 1
            width, reduction = width * stride, reduction * stride
            self.stages.append(make_stage(design, dim, width, stride, drop_paths))
            dim, _ = design.sides(width)
            self.feature_info.append({"num_chs": dim, "reduction": reduction, "module": f"stages.{number}"})
        head = NormMlpClassifierHead if design.separate else ClassifierHead
        self.head = head(dim, num_classes, pool_type=global_pool, drop_rate=drop_rate)
        self.num_features, self.head_hidden_size = dim, self.head.num_features
        self.apply(initialise)

    def outputs(self, x: Tensor) -> Iterator[Tensor]:
        """Yields the map after every stage."""
        x = self.stem(x)
        for stage in self.stages:
            x = checkpoint_seq(stage, x, flatten=True) if self.grad_checkpointing else stage(x)
            yield x

    def forward_features(self, x: Tensor) -> Tensor:
        *_, x = self.outputs(x)
        return x

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        return self.head(x, pre_logits=pre_logits)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> Any:
        if output_fmt != "NCHW":
            raise ValueError(f"output_fmt is {output_fmt}, but convolutions make maps: NCHW")
        last, kept = collect(self.outputs(x), len(self.stages), indices, stop_early)
        return kept if intermediates_only else (last, kept)

    def get_classifier(self, name_only: bool = False) -> Any:
        return "head.fc" if name_only else self.head.fc

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        self.num_classes = num_classes
        self.head.reset(num_classes, global_pool)
        self.head_hidden_size = self.head.num_features

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.grad_checkpointing = enable

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        in_stages = [(r"^stages\.(\d+)\.downsample", (0,)), (r"^stages\.(\d+)\.blocks\.(\d+)", None)]
        return {"stem": r"^stem", "blocks": r"^stages\.(\d+)" if coarse else in_stages}


def initialise(module: nn.Module) -> None:
    """Draws the weights as ConvNeXt does, for all models, so that steps differ by their designs alone."""
    if isinstance(module, nn.Conv2d | nn.Linear):
        trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


# --- weights of the two ends -------------------------------------------------------------------------

NAMES = {  # patterns of timm's names, and the names here
    # ResNet
    r"^conv1\.": "stem.conv.",
    r"^bn1\.": "stem.norm.",
    **{rf"^layer{number + 1}\.": f"stages.{number}.blocks." for number in range(4)},
    r"(blocks\.\d+)\.conv(\d)\.": r"\1.branch.conv\2.",
    r"(blocks\.\d+)\.bn(\d)\.": r"\1.branch.norm\2.",
    r"(blocks\.\d+)\.downsample\.": r"\1.shortcut.",
    r"^fc\.": "head.fc.",
    # ConvNeXt
    r"^stem\.0\.": "stem.conv.",
    r"^stem\.1\.": "stem.norm.",
    r"(blocks\.\d+)\.conv_dw\.": r"\1.branch.conv1.",
    r"(blocks\.\d+)\.norm\.": r"\1.branch.norm1.",
    r"(blocks\.\d+)\.mlp\.fc1\.": r"\1.branch.conv2.",
    r"(blocks\.\d+)\.mlp\.fc2\.": r"\1.branch.conv3.",
    r"(blocks\.\d+)\.gamma$": r"\1.branch.scale.gamma",
}


def checkpoint_filter_fn(state_dict: dict[str, Tensor], model: RoadNet) -> dict[str, Tensor]:
    """Renames the weights of timm's resnet50 for the first model, and those of its convnext_tiny for the last."""
    renamed = {}
    for name, weight in state_dict.items():
        for pattern, replacement in NAMES.items():
            name = re.sub(pattern, replacement, name)
        is_linear = weight.ndim == 2 and ".branch." in name
        renamed[name] = weight[:, :, None, None] if is_linear else weight  # here it is a 1 x 1 convolution
    return renamed


# --- the models --------------------------------------------------------------------------------------

default_cfgs = generate_default_cfgs(
    {
        name: config(input_size=(3, size, size), crop_pct=0.875, first_conv="stem.conv", classifier="head.fc")
        for step in (
            "00_resnet50",
            "01_stage_ratio",
            "02_patchify_stem",
            "03_depthwise",
            "04_width",
            "05_inverted",
            "06_depthwise_up",
            "07_kernel7",
            "08_gelu",
            "09_fewer_activations",
            "10_fewer_norms",
            "11_layernorm",
            "12_convnext",
        )
        for name, size in ((f"road_{step}", 224), (f"road_{step}_nano", 32))
    }
)


def _create(name: str, design: Design, pretrained: bool, **options: Any) -> RoadNet:
    return build_model_with_cfg(
        RoadNet,
        name,
        pretrained,
        pretrained_filter_fn=checkpoint_filter_fn,
        feature_cfg={"out_indices": (0, 1, 2, 3), "feature_cls": "getter"},
        design=nano(design) if name.endswith("_nano") else design,
        **options,
    )


@register_model
def road_00_resnet50(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_00_resnet50", RESNET50, pretrained, **options)


@register_model
def road_01_stage_ratio(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_01_stage_ratio", STAGE_RATIO, pretrained, **options)


@register_model
def road_02_patchify_stem(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_02_patchify_stem", PATCHIFY_STEM, pretrained, **options)


@register_model
def road_03_depthwise(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_03_depthwise", DEPTHWISE, pretrained, **options)


@register_model
def road_04_width(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_04_width", WIDTH, pretrained, **options)


@register_model
def road_05_inverted(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_05_inverted", INVERTED, pretrained, **options)


@register_model
def road_06_depthwise_up(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_06_depthwise_up", DEPTHWISE_UP, pretrained, **options)


@register_model
def road_07_kernel7(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_07_kernel7", KERNEL7, pretrained, **options)


@register_model
def road_08_gelu(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_08_gelu", GELU, pretrained, **options)


@register_model
def road_09_fewer_activations(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_09_fewer_activations", FEWER_ACTIVATIONS, pretrained, **options)


@register_model
def road_10_fewer_norms(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_10_fewer_norms", FEWER_NORMS, pretrained, **options)


@register_model
def road_11_layernorm(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_11_layernorm", LAYERNORM, pretrained, **options)


@register_model
def road_12_convnext(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_12_convnext", CONVNEXT, pretrained, **options)


@register_model
def road_00_resnet50_nano(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_00_resnet50_nano", RESNET50, pretrained, **options)


@register_model
def road_01_stage_ratio_nano(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_01_stage_ratio_nano", STAGE_RATIO, pretrained, **options)


@register_model
def road_02_patchify_stem_nano(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_02_patchify_stem_nano", PATCHIFY_STEM, pretrained, **options)


@register_model
def road_03_depthwise_nano(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_03_depthwise_nano", DEPTHWISE, pretrained, **options)


@register_model
def road_04_width_nano(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_04_width_nano", WIDTH, pretrained, **options)


@register_model
def road_05_inverted_nano(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_05_inverted_nano", INVERTED, pretrained, **options)


@register_model
def road_06_depthwise_up_nano(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_06_depthwise_up_nano", DEPTHWISE_UP, pretrained, **options)


@register_model
def road_07_kernel7_nano(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_07_kernel7_nano", KERNEL7, pretrained, **options)


@register_model
def road_08_gelu_nano(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_08_gelu_nano", GELU, pretrained, **options)


@register_model
def road_09_fewer_activations_nano(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_09_fewer_activations_nano", FEWER_ACTIVATIONS, pretrained, **options)


@register_model
def road_10_fewer_norms_nano(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_10_fewer_norms_nano", FEWER_NORMS, pretrained, **options)


@register_model
def road_11_layernorm_nano(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_11_layernorm_nano", LAYERNORM, pretrained, **options)


@register_model
def road_12_convnext_nano(pretrained: bool = False, **options: Any) -> RoadNet:
    return _create("road_12_convnext_nano", CONVNEXT, pretrained, **options)
