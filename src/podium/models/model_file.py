"""Saves a fold's model in one file that is enough to rebuild and feed it, and loads it again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_line
from podium.models.build import ModelSpec, rebuild_model
from podium.models.tensors import load_tensors, save_tensors
from podium.models.weights_file import load_exactly

if TYPE_CHECKING:
    from torch import nn

SPEC_KEY = "podium"  # in the metadata of the file


def save_model(path: Path, model: "nn.Module", spec: ModelSpec) -> None:
    save_tensors(path, dict(model.state_dict()), {SPEC_KEY: json.dumps(spec.as_json())})


def load_model(path: Path) -> tuple["nn.Module", ModelSpec]:
    """Returns the model as it was saved; it needs nothing but the file."""
    try:
        tensors, metadata = load_tensors(path)
    except PodiumError as problem:
        raise PodiumError(f"{problem}; restore it, or train that fold again") from None
    spec = _spec_of(path, metadata)
    model = rebuild_model(spec)
    load_exactly(model, tensors, path, spec.architecture)
    return model, spec


def read_spec(path: Path) -> ModelSpec:
    """Returns the description of a saved model, without its weights."""
    return _spec_of(path, _read_metadata(path))


def _spec_of(path: Path, metadata: Mapping[str, str]) -> ModelSpec:
    try:
        fields: dict[str, Any] = {name: _as_tuple(value) for name, value in json.loads(metadata[SPEC_KEY]).items()}
        return ModelSpec(**fields)
    except (KeyError, TypeError, ValueError):
        raise PodiumError(f"{path}: these weights were not saved by podium train; train that fold again") from None


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value


def classes_of_weights(path: str) -> tuple[str, ...]:
    """Returns the classes that a file's weights were trained on, if Podium has written it."""
    try:
        return read_spec(Path(path)).classes
    except PodiumError:
        return ()


def _read_metadata(path: Path) -> dict[str, str]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            return file.metadata() or {}
    except (SafetensorError, OSError) as error:
        reason = first_line(error)
        raise PodiumError(f"{path}: cannot be read ({reason}); restore it, or train that fold again") from None
