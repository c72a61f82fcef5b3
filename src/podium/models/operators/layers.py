"""Layers of a model that compute the same as torch's or timm's, in another way.

Each has the parameters of the layer that it replaces, under the same names. docs/benchmarks.md compares their times.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from timm.layers.conv2d_same import Conv2dSame
from timm.layers.mlp import Mlp
from timm.layers.padding import pad_same_arg
from timm.models.convnext import ConvNeXtBlock
from timm.models.swin_transformer import WindowAttention
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from podium.models.operators import kernels

Context = Any  # of an autograd function: torch declares no attributes for what a forward pass keeps


def computed_dtype(tensor: Tensor) -> torch.dtype:
    """Returns the type that a product with this tensor is computed in."""
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else tensor.dtype


# --- convolutions as matrix products -----------------------------------------------------------------


class PatchConv(nn.Conv2d):
    """A convolution whose patches do not overlap, such as a ViT's embedding: one matrix product."""

    def forward(self, images: Tensor) -> Tensor:
        count, channels, height, width = images.shape
        down, across = self.kernel_size
        if height % down or width % across:
            return super().forward(images)
        rows, columns = height // down, width // across
        pixels = images.to(computed_dtype(images)).permute(0, 2, 3, 1)
        patches = pixels.reshape(count, rows, down, columns, across, channels).transpose(2, 3)
        weight = self.weight.permute(0, 2, 3, 1).flatten(1)
        return (
            F.linear(patches.reshape(-1, weight.shape[1]), weight, self.bias)
            .view(count, rows, columns, -1)
            .permute(0, 3, 1, 2)
        )


class SmallMapConv(nn.Conv2d):
    """A convolution with small feature maps: few positions, many channels.

    Torch's is slow there. Up to SMALL positions everything is a matrix product, up to MEDIUM the gradient of the
    weights.
    """

    SMALL, MEDIUM = 4, 16

    def forward(self, images: Tensor) -> Tensor:
        geometry = side, stride, padding = self.kernel_size[0], self.stride[0], int(self.padding[0])
        rows, columns = ((length + 2 * padding - side) // stride + 1 for length in images.shape[2:])
        if rows * columns > self.MEDIUM:
            return super().forward(images)
        dtype = computed_dtype(images)
        is_small = rows * columns <= self.SMALL
        with torch.autocast("cpu", enabled=False):
            result: Tensor = _SmallMapConv.apply(images.to(dtype), self.weight.to(dtype), geometry, is_small)
        return result


class _SmallMapConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Context, images: Tensor, weight: Tensor, geometry: tuple[int, int, int], is_small: bool) -> Tensor:
        ctx.geometry, ctx.is_small = geometry, is_small
        ctx.save_for_backward(images, weight)
        if not is_small:
            return F.conv2d(images, weight, stride=geometry[1], padding=geometry[2])
        windows = _windows(images, *geometry)
        return (windows.flatten(3) @ weight.permute(0, 2, 3, 1).flatten(1).t()).permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        images, weight = ctx.saved_tensors
        side, stride, padding = ctx.geometry
        outputs, inputs = weight.shape[:2]
        rows = gradient.permute(0, 2, 3, 1).reshape(-1, outputs)
        windows = _windows(images, *ctx.geometry).reshape(len(rows), -1)
        weight_gradient = (rows.t() @ windows).view(outputs, side, side, inputs).permute(0, 3, 1, 2)
        if not ctx.needs_input_grad[0]:
            return None, weight_gradient, None, None
        if ctx.is_small:
            shares = (rows @ weight.permute(0, 2, 3, 1).flatten(1)).view(
                len(images), *gradient.shape[2:], side, side, inputs
            )
            return _add_windows(shares, images, stride, padding), weight_gradient, None, None
        image_gradient = torch.ops.aten.convolution_backward(
            gradient, images, weight, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, [True, False, False]
        )[0]
        return image_gradient, weight_gradient, None, None


def _windows(images: Tensor, side: int, stride: int, padding: int) -> Tensor:
    """Returns what the kernel sees at each position: [n, rows, columns, side, side, channels]."""
    framed = F.pad(images.permute(0, 2, 3, 1), (0, 0, padding, padding, padding, padding))
    return framed.unfold(1, side, stride).unfold(2, side, stride).permute(0, 1, 2, 4, 5, 3)


def _add_windows(windows: Tensor, images: Tensor, stride: int, padding: int) -> Tensor:
    """Adds each window's values to the pixels that it saw: the reverse of `_windows`."""
    count, rows, columns, side, _, channels = windows.shape
    height, width = images.shape[2:]
    framed = windows.new_zeros(count, height + 2 * padding, width + 2 * padding, channels)
    for y in range(side):
        for x in range(side):
            seen = framed[:, y : y + stride * rows : stride, x : x + stride * columns : stride]
            seen += windows[:, :, :, y, x]
    return framed[:, padding : padding + height, padding : padding + width].permute(0, 3, 1, 2)


# --- depthwise convolutions --------------------------------------------------------------------------


class DepthwiseConv(nn.Conv2d):
    """A depthwise convolution whose gradients are computed by kernels.c, where torch's are slow."""

    def forward(self, images: Tensor) -> Tensor:
        if computed_dtype(images) not in (torch.bfloat16, torch.float32):
            return super().forward(images)
        down, across = (int(side) for side in self.padding)
        return _depthwise(self, images, Margins(down, across, down, across))


class DepthwiseConvSame(Conv2dSame):  # type: ignore[misc]  # timm has no types
    """The same with the margins of TensorFlow, which depend on the size of the images."""

    def forward(self, images: Tensor) -> Tensor:
        if computed_dtype(images) not in (torch.bfloat16, torch.float32):
            result: Tensor = super().forward(images)
            return result
        left, right, top, bottom = pad_same_arg(images.shape[2:], self.kernel_size, self.stride, self.dilation)
        return _depthwise(self, images, Margins(top, left, bottom, right))


class Margins(NamedTuple):
    """The zeros around an image; at the bottom and at the right there may be one more."""

    top: int
    left: int
    bottom: int
    right: int


def _depthwise(layer: nn.Conv2d, images: Tensor, margins: Margins) -> Tensor:
    dtype = computed_dtype(images)
    bias = None if layer.bias is None else layer.bias.to(dtype)
    with torch.autocast("cpu", enabled=False):
        result: Tensor = _DepthwiseConv.apply(
            images.to(dtype), layer.weight.to(dtype), bias, int(layer.stride[0]), margins
        )
    return result


class _DepthwiseConv(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Context, images: Tensor, weight: Tensor, bias: Tensor | None, stride: int, margins: Margins
    ) -> Tensor:
        ctx.stride, ctx.margins = stride, margins
        ctx.save_for_backward(images, weight)
        return convolve_depthwise(images, weight, bias, stride, margins)

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        images, weight = ctx.saved_tensors
        needed = ctx.needs_input_grad[:2]
        image_gradient, weight_gradient = depthwise_gradients(gradient, images, weight, ctx.stride, ctx.margins, needed)
        bias_gradient = gradient.sum((0, 2, 3)) if ctx.needs_input_grad[2] else None
        return image_gradient, weight_gradient, bias_gradient, None, None


def convolve_depthwise(images: Tensor, weight: Tensor, bias: Tensor | None, stride: int, margins: Margins) -> Tensor:
    framed, padding = frame_weight(weight, margins)
    return F.conv2d(images, framed, bias, stride, padding, groups=len(weight))


def frame_weight(weight: Tensor, margins: Margins) -> tuple[Tensor, tuple[int, int]]:
    """Returns weights and padding that stand for the margins.

    A larger margin at the bottom or the right becomes a weight of zero at the other side: no copy of the images.
    """
    larger = margins.right - margins.left, margins.bottom - margins.top
    framed = F.pad(weight, (larger[0], 0, larger[1], 0)) if any(larger) else weight
    return framed, (margins.bottom, margins.right)


def depthwise_gradients(
    gradient: Tensor, images: Tensor, weight: Tensor, stride: int, margins: Margins, needed: tuple[bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Returns the gradients of images and weights."""
    images, gradient = (tensor.contiguous(memory_format=torch.channels_last) for tensor in (images, gradient))
    for_images, for_weights = needed
    image_gradient, weight_gradient = None, None
    if for_images and stride == 1:  # the gradient goes back through the kernel turned by half, which torch does fast
        image_gradient = convolve_depthwise(gradient, weight.flip(2, 3), None, 1, margins)
    if for_weights or (for_images and stride > 1):
        weight_gradient, strided = kernels.depthwise_gradients(
            images, gradient, weight, stride, margins[:2], for_images and stride > 1
        )
        image_gradient = image_gradient if strided is None else strided
    return image_gradient, weight_gradient.to(weight.dtype) if weight_gradient is not None else None


# --- a linear layer with a GELU ----------------------------------------------------------------------


class FastMlp(Mlp):  # type: ignore[misc]  # timm has no types
    """A multilayer perceptron that adds the first bias and computes the GELU in one pass over the numbers."""

    def forward(self, features: Tensor) -> Tensor:
        result: Tensor = self.fc2(self.hidden(features))
        return result

    def hidden(self, features: Tensor) -> Tensor:
        first = self.fc1
        if computed_dtype(features) != torch.bfloat16:
            return F.gelu(first(features))
        with torch.autocast("cpu", enabled=False):
            rows = features.bfloat16().reshape(-1, first.in_features)
            result: Tensor = _LinearGelu.apply(rows, first.weight.bfloat16(), first.bias.float())
        return result.view(*features.shape[:-1], -1)


class _LinearGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Context, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        inputs = rows @ weight.t()
        ctx.save_for_backward(rows, weight, bias, inputs)
        return kernels.gelu_with_bias(inputs, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, bias, inputs = ctx.saved_tensors
        gradient, bias_gradient = kernels.gelu_gradient(inputs, bias, gradient.contiguous())
        row_gradient = gradient @ weight if ctx.needs_input_grad[0] else None
        return row_gradient, gradient.t() @ rows, bias_gradient


# --- blocks of one family ----------------------------------------------------------------------------


class ScaledBlock(ConvNeXtBlock):  # type: ignore[misc]  # timm has no types
    """A ConvNeXt block whose layer scale is multiplied into the weights of its last layer.

    That layer's outputs are many times as many numbers as its weights.
    """

    def forward(self, images: Tensor) -> Tensor:
        features, last = self.norm(self.conv_dw(images).permute(0, 2, 3, 1)), self.mlp.fc2
        fused = isinstance(self.mlp, FastMlp)
        hidden = self.mlp.hidden(features) if fused else self.mlp.act(self.mlp.fc1(features))
        result = F.linear(hidden, last.weight * self.gamma[:, None], last.bias * self.gamma)
        # timm's layer scale makes the sum of the blocks float32
        output: Tensor = self.drop_path(result.permute(0, 3, 1, 2)) + self.shortcut(images).to(self.gamma.dtype)
        return output


class FastWindowAttention(WindowAttention):  # type: ignore[misc]  # timm has no types
    """Swin's attention, which adds bias and mask and takes the softmax in one pass over the scores."""

    def forward(self, windows: Tensor, mask: Tensor | None = None) -> Tensor:
        if computed_dtype(windows) != torch.bfloat16 or self.window_area > kernels.MOST_TOKENS:
            result: Tensor = super().forward(windows, mask)
            return result
        count, tokens, width = windows.shape
        heads = self.qkv(windows).view(count, tokens, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        scores = (query * self.scale) @ key.transpose(-2, -1)
        bias = self._get_rel_pos_bias()[0].float()
        mask = None if mask is None else mask.float()
        probs = self.attn_drop(_SoftmaxWithBias.apply(scores, bias, mask))
        output: Tensor = self.proj_drop(self.proj((probs @ value).transpose(1, 2).reshape(count, tokens, width)))
        return output


class _SoftmaxWithBias(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Context, scores: Tensor, bias: Tensor, mask: Tensor | None) -> Tensor:
        kernels.softmax_with_bias(scores, bias, mask)
        ctx.mark_dirty(scores)
        ctx.save_for_backward(scores)
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (probs,) = ctx.saved_tensors
        score_gradient = torch.ops.aten._softmax_backward_data(gradient, probs, -1, probs.dtype)
        return score_gradient, score_gradient.sum(0, dtype=torch.float32), None
