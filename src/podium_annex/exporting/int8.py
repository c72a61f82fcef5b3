"""Turns an ONNX file of float32 into one of int8: a quarter of the size, and faster where the processor has int8.

Weights become int8, and so do activations where they meet weights. ConvNets get fixed ranges of activations, measured
on training images (static). Those of transformers depend more on the image: they get a range in each call (dynamic).
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from podium.models.build import ModelSpec
from podium.models.hub import backbones_in
from podium.models.look_inside import modules_of

TRANSFORMERS = ("vit", "swin")  # kinds of look_inside.py
LAYERS = ("Conv", "MatMul", "Gemm")  # nearly all weights; softmax, say, would lose small probabilities
CUTS = ("Relu", "Clip")  # become part of the layer before them, whose range then ends where they cut it off


def quantise(source: Path, path: Path, spec: ModelSpec, batches: Iterable[Tensor], bits: int) -> None:
    """Writes `path`; the batches of images are those that ranges are measured on, the bits those of the weights."""
    from onnxruntime.quantization import quantize_dynamic, quantize_static  # type: ignore[import-untyped]
    from onnxruntime.quantization.shape_inference import quant_pre_process  # type: ignore[import-untyped]

    # Processors without VNNI add two products of int8 in 16 bits, which overflow with all eight bits.
    how = {"per_channel": True, "reduce_range": bits < 8}
    prepared = path.with_name(f"prepared-{path.name}")
    quant_pre_process(source, prepared, skip_symbolic_shape=True)
    if is_dynamic(spec):
        quantize_dynamic(prepared, path, [name for name in LAYERS if name != "Conv"], **how)
    else:
        quantize_static(prepared, path, _Batches(batches), op_types_to_quantize=[*LAYERS, *CUTS], **how)
    prepared.unlink()


def is_dynamic(spec: ModelSpec) -> bool:
    return any(modules_of(name).kind in TRANSFORMERS for name in backbones_in(spec.architecture))


class _Batches:
    """Batches of images, as onnxruntime asks for them."""

    def __init__(self, batches: Iterable[Tensor]) -> None:
        self.batches: Iterator[Tensor] = iter(batches)

    def get_next(self) -> dict[str, Any] | None:
        batch = next(self.batches, None)
        return None if batch is None else {"images": batch.numpy()}
