"""The forms of exported files: how each is written from a whole model, and how it is opened to ask it."""

import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from podium.basics.image_size import sides_of
from podium.models.build import ModelSpec
from podium.models.device import CPU
from podium.models.timm_file import data_config
from podium.options.moves.augmenter import border_colour
from podium_annex.exporting.whole_model import WholeModel

Answer = Callable[[Tensor], Tensor]  # from images to probabilities


def example(spec: ModelSpec, count: int) -> Tensor:
    """Returns images of noise."""
    rng = torch.Generator().manual_seed(count)
    shape = count, *sides_of(spec.test_size), 3
    return torch.randint(256, shape, dtype=torch.uint8, generator=rng, device=CPU)


def write_torch(whole: WholeModel, spec: ModelSpec, path: Path) -> None:
    batch = torch.export.Dim("batch")
    program = torch.export.export(whole, (example(spec, 2),), dynamic_shapes={"images": {0: batch}})
    torch.export.save(program, path, extra_files={"podium.json": json.dumps(facts_of(spec))})


def write_onnx(whole: WholeModel, spec: ModelSpec, path: Path) -> None:
    import onnx

    torch.onnx.export(
        whole,
        (example(spec, 2),),
        path,
        dynamo=True,
        input_names=["images"],
        output_names=["answers"],
        dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
        external_data=False,
        verbose=False,
    )
    model = onnx.load(path)
    for name, value in facts_of(spec).items():
        model.metadata_props.add(key=name, value=value if isinstance(value, str) else json.dumps(value))
    onnx.save(model, path)


def facts_of(spec: ModelSpec) -> dict[str, Any]:
    """Returns what a program needs to know: the names of the outputs, and how images get their size."""
    transform = {name: value for name, value in data_config(spec).items() if name not in ("mean", "std")}
    about = {"classes": spec.classes, "task": spec.task, "transform": transform, "border": border_colour(spec)}
    seen = {"range": str(spec.value_range) if spec.value_range else "", "part": spec.part}
    return {**about, **{name: value for name, value in seen.items() if value}}


@contextmanager
def quiet_exporters() -> Iterator[None]:
    """Silences the exporters, which warn of their own code."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"), torch.no_grad():
            yield
    finally:
        logging.disable(before)


def open_torch(path: Path) -> Answer:
    model: Answer = torch.export.load(path).module()
    return model


def open_onnx(path: Path) -> Answer:
    import onnxruntime  # type: ignore[import-untyped]

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


class Form(NamedTuple):
    ending: str
    write: Callable[[WholeModel, ModelSpec, Path], object]
    open: Callable[[Path], Answer]


FORMS = {"onnx": Form(".onnx", write_onnx, open_onnx), "torch": Form(".pt2", write_torch, open_torch)}
