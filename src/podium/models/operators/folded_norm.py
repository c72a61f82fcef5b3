"""Convolutions with the fixed batch norm behind them, and its ReLU, in one pass over the numbers.

A batch norm with fixed statistics multiplies each channel by a number and adds one, so it can be a part of the
convolution's weights and bias. Its own parameters stay, are learned, and keep their names.
"""

import math
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from timm.layers.conv2d_same import Conv2dSame
from timm.layers.conv_bn_act import ConvNormAct
from timm.layers.norm_act import BatchNormAct2d
from timm.layers.padding import pad_same_arg
from timm.models._efficientnet_blocks import ConvBnAct, DepthwiseSeparableConv, EdgeResidual, InvertedResidual
from timm.models.efficientnet import EfficientNet
from timm.models.mobilenetv3 import MobileNetV3
from timm.models.resnet import BasicBlock, Bottleneck, ResNet
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from podium.models.operators import kernels
from podium.models.operators.layers import (
    Context,
    DepthwiseConv,
    DepthwiseConvSame,
    Margins,
    computed_dtype,
    depthwise_gradients,
    frame_weight,
)

# What follows what in the blocks of timm's models: names of a convolution and of the batch norm behind it.
PAIRS: dict[type[nn.Module], tuple[tuple[str, str], ...]] = {
    ConvNormAct: (("conv", "bn"),),
    ConvBnAct: (("conv", "bn1"),),
    DepthwiseSeparableConv: (("conv_dw", "bn1"), ("conv_pw", "bn2")),
    InvertedResidual: (("conv_pw", "bn1"), ("conv_dw", "bn2"), ("conv_pwl", "bn3")),
    EdgeResidual: (("conv_exp", "bn1"), ("conv_pwl", "bn2")),
    EfficientNet: (("conv_stem", "bn1"), ("conv_head", "bn2")),
    MobileNetV3: (("conv_stem", "bn1"),),
    BasicBlock: (("conv1", "bn1"), ("conv2", "bn2")),
    Bottleneck: (("conv1", "bn1"), ("conv2", "bn2"), ("conv3", "bn3")),
    ResNet: (("conv1", "bn1"),),
}
CONVOLUTIONS = (nn.Conv2d, Conv2dSame, DepthwiseConv, DepthwiseConvSame)


class Activation(NamedTuple):
    operation: tuple[str, list[float]]  # oneDNN's name and numbers
    highest: float  # numbers between zero and this one pass


PLAIN = Activation(("none", []), math.inf)
ACTIVATIONS: dict[type[nn.Module], Activation] = {  # others are computed behind the convolution
    nn.Identity: PLAIN,
    nn.ReLU: Activation(("relu", []), math.inf),
    nn.ReLU6: Activation(("hardtanh", [0.0, 6.0]), 6.0),
}


def fold_norms(module: nn.Module) -> bool:
    """Folds the fixed batch norms of one block into its convolutions; returns whether there was one."""
    pairs = [pair for pair in _pairs_of(module) if _fits(*pair)]
    for convolution, norm in pairs:
        convolution.__class__ = _kind_of(convolution, FoldedConv)
        object.__setattr__(convolution, "norm", norm)  # no submodule: its parameters have their names already
        norm.__class__ = _kind_of(norm, PassedNorm)
    return bool(pairs)


def _kind_of(module: nn.Module, changed: type[nn.Module]) -> Any:
    """Returns a class that is both: what the module was before, and what changes it."""
    plain = type(module)
    if (changed, plain) not in _KINDS:
        _KINDS[changed, plain] = type(f"{changed.__name__}Of{plain.__name__}", (changed, plain), {})
    return _KINDS[changed, plain]


_KINDS: dict[tuple[type, type], type] = {}


def _pairs_of(module: nn.Module) -> Iterator[tuple[Any, Any]]:
    if type(module) is nn.Sequential:
        yield from pairwise(module)
    for first, second in PAIRS.get(type(module), ()):
        convolution = getattr(module, first)
        yield convolution[-1] if isinstance(convolution, nn.Sequential) else convolution, getattr(module, second)


def _fits(convolution: Any, norm: Any) -> bool:
    return (
        type(convolution) in CONVOLUTIONS
        and (convolution.padding_mode, convolution.dilation, convolution.bias) == ("zeros", (1, 1), None)
        and not isinstance(convolution.padding, str)
        and (type(norm) is nn.BatchNorm2d or (type(norm) is BatchNormAct2d and type(norm.drop) is nn.Identity))
        and norm.affine
        and norm.track_running_stats
    )


@cache
def can_fold(precision: torch.dtype) -> bool:
    """Returns whether oneDNN computes convolution and norm in one: in bfloat16, only on CPUs with AVX512 or newer."""
    if kernels.problem() or not torch.backends.mkldnn.is_available():
        return False
    with_bfloat16 = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return precision == torch.float32 or (precision == torch.bfloat16 and with_bfloat16)


def _is_folded(norm: Any, features: Tensor) -> bool:
    """Convolution and norm ask the same, so both compute or neither does."""
    return not norm.training and can_fold(computed_dtype(features))


class FoldedConv(nn.Conv2d):
    """A convolution that also computes the fixed batch norm behind it and, if it is a ReLU, the activation."""

    norm: Any

    def forward(self, images: Tensor) -> Tensor:
        norm = self.norm
        if not _is_folded(norm, images):
            return super().forward(images)
        dtype = computed_dtype(images)
        with torch.autocast("cpu", enabled=False):
            scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
            weight = (self.weight * scale.view(-1, 1, 1, 1)).to(dtype)
            bias = norm.bias - norm.running_mean * scale
            activation = ACTIVATIONS.get(_activation_of(norm), PLAIN)
            result: Tensor = _FoldedConv.apply(images.to(dtype), weight, bias, self._geometry(images), activation)
        return result

    def _geometry(self, images: Tensor) -> "Geometry":
        margins = Margins(*self.padding, *self.padding)
        if isinstance(self, Conv2dSame):
            left, right, top, bottom = pad_same_arg(images.shape[2:], self.kernel_size, self.stride, self.dilation)
            margins = Margins(top, left, bottom, right)
        return Geometry(margins, self.stride, self.groups, isinstance(self, DepthwiseConv | DepthwiseConvSame))


class PassedNorm(nn.BatchNorm2d):
    """A batch norm that the convolution before it has computed already."""

    act: Any

    def forward(self, features: Tensor) -> Tensor:
        if not _is_folded(self, features):
            return super().forward(features)
        result: Tensor = features if _activation_of(self) in ACTIVATIONS else self.act(features)
        return result


def _activation_of(norm: Any) -> type[nn.Module]:
    """Returns the class of what timm computes together with the norm."""
    return type(norm.act) if isinstance(norm, BatchNormAct2d) else nn.Identity


class Geometry(NamedTuple):
    margins: Margins
    stride: tuple[int, ...]
    groups: int
    by_kernels: bool  # its gradients are those of kernels.c


class _FoldedConv(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Context, images: Tensor, weight: Tensor, bias: Tensor, geometry: Geometry, activation: Activation
    ) -> Tensor:
        ctx.geometry, ctx.activation = geometry, activation
        framed, padding = frame_weight(weight, geometry.margins)
        outputs: Tensor = torch.ops.mkldnn._convolution_pointwise(
            images, framed, bias, padding, geometry.stride, (1, 1), geometry.groups, *activation.operation, ""
        )
        ctx.save_for_backward(images, weight, outputs if activation is not PLAIN else None)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        images, weight, outputs = ctx.saved_tensors
        geometry: Geometry = ctx.geometry
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        gradient, bias_gradient = kernels.clamp_gradient(gradient, outputs, ctx.activation.highest)
        needed = ctx.needs_input_grad[:2]
        if geometry.by_kernels:
            stride, margins = geometry.stride[0], geometry.margins
            gradients = depthwise_gradients(gradient, images, weight, stride, margins, needed)
        else:
            framed, padding = frame_weight(weight, geometry.margins)
            gradients = torch.ops.aten.convolution_backward(
                *(gradient, images, framed, None, geometry.stride, padding, (1, 1), False, (0, 0), geometry.groups),
                (*needed, False),
            )[:2]
            if needed[1] and framed.shape != weight.shape:
                down, across = (large - small for large, small in zip(framed.shape[2:], weight.shape[2:], strict=True))
                gradients = gradients[0], gradients[1][:, :, down:, across:]
        return (*gradients, bias_gradient, None, None)
