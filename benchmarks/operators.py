"""Times the layers that Podium exchanges, compared with those of torch and timm.

    python docs/measure_operators.py [float32]

Prints a table: milliseconds of forward and backward, medians of nine, in turn. In bfloat16 unless float32 is given.
"""

import copy
import statistics
import sys
import time
from collections.abc import Callable

import timm
import torch
from torch import Tensor, nn

from podium.models.operators.exchange import exchange_operators
from podium.models.operators.memory import keep_freed_memory

CPU, WINDOWS = torch.device("cpu"), 9


def depthwise(channels: int, side: int) -> nn.Module:
    return nn.Conv2d(channels, channels, side, padding=side // 2, groups=channels)


def attention() -> nn.Module:
    layer: nn.Module = timm.layers.Attention(384, num_heads=6, qkv_bias=True)
    return layer


# What it is, the layer, the shape of its input. The first layer of a model needs no gradient of the images.
LAYERS: list[tuple[str, Callable[[], nn.Module], tuple[int, ...]]] = [
    ("attention with its linear layers, 50 tokens", attention, (32, 50, 384)),
    ("attention with its linear layers, 197 tokens", attention, (32, 197, 384)),
    ("linear layers with a GELU, 1,600 tokens", lambda: timm.layers.Mlp(384, 1536), (32, 50, 384)),
    ("linear layers with a GELU, 50,176 pixels", lambda: timm.layers.Mlp(96, 384), (16, 56, 56, 96)),
    ("patches of 32 x 32", lambda: nn.Conv2d(3, 384, 32, 32), (32, 3, 224, 224)),
    ("patches of 2 x 2, 384 channels", lambda: nn.Conv2d(384, 768, 2, 2), (16, 384, 14, 14)),
    ("depthwise 7 x 7, 96 channels, 56 x 56", lambda: depthwise(96, 7), (16, 96, 56, 56)),
    ("depthwise 7 x 7, 384 channels, 14 x 14", lambda: depthwise(384, 7), (16, 384, 14, 14)),
    ("depthwise 5 x 5, 480 channels, 14 x 14", lambda: depthwise(480, 5), (16, 480, 14, 14)),
    ("3 x 3, 512 channels, 2 x 2", lambda: nn.Conv2d(512, 512, 3, 1, 1, bias=False), (128, 512, 2, 2)),
    ("3 x 3, 256 channels, 4 x 4", lambda: nn.Conv2d(256, 256, 3, 1, 1, bias=False), (128, 256, 4, 4)),
]


def main(precision: torch.dtype) -> None:
    keep_freed_memory()
    print(f"| layer, {precision} | torch, ms | podium, ms |\n| --- | --- | --- |")
    for text, make, shape in LAYERS:
        plain = make()
        if len(shape) == 4 and isinstance(plain, nn.Conv2d):
            plain.to(memory_format=torch.channels_last)
        faster = copy.deepcopy(plain)
        exchanged = exchange_operators(faster, CPU, precision)
        times = measure([plain, faster], make_input(shape, plain, precision), precision)
        print(f"| {text} | {times[0]:.2f} | {f'{times[1]:.2f}' if exchanged else 'not exchanged'} |")


def make_input(shape: tuple[int, ...], layer: nn.Module, precision: torch.dtype) -> Tensor:
    if shape[1] == 3:
        return torch.randn(shape).to(memory_format=torch.channels_last)
    values = torch.randn(shape).to(precision)
    if isinstance(layer, nn.Conv2d):
        values = values.to(memory_format=torch.channels_last)
    return values.requires_grad_()


def measure(layers: list[nn.Module], values: Tensor, precision: torch.dtype) -> list[float]:
    """Returns the median milliseconds of each layer."""
    times: list[list[float]] = [[] for _ in layers]
    for window in range(WINDOWS + 1):
        for layer, taken in zip(layers, times, strict=True):
            started = time.perf_counter()
            with torch.autocast("cpu", precision, enabled=precision != torch.float32):
                output = layer(values)
            output.backward(output.detach())
            if window:  # the first is a warm-up
                taken.append(1000 * (time.perf_counter() - started))
    return [statistics.median(taken) for taken in times]


if __name__ == "__main__":
    main(torch.float32 if "float32" in sys.argv[1:] else torch.bfloat16)
