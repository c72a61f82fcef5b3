"""Saves a fold's model in one file that is enough to rebuild and feed it, and loads it again."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium import PodiumError
from podium.models.build import ModelSpec, rebuild_model
from podium.models.tensors import load_tensors, save_tensors
from podium.terminal import first_line

if TYPE_CHECKING:
    from torch import nn

SPEC_KEY = "podium"  # in the metadata of the file


def save_model(path: Path, model: "nn.Module", spec: ModelSpec) -> None:
    save_tensors(path, dict(model.state_dict()), {SPEC_KEY: json.dumps(asdict(spec))})


def load_model(path: Path) -> tuple["nn.Module", ModelSpec]:
    """Returns the model as it was saved; it needs nothing but the file."""
    tensors, metadata = load_tensors(path)
    try:
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in json.loads(metadata[SPEC_KEY]).items()
        }
        spec = ModelSpec(**fields)
    except (KeyError, TypeError, ValueError):
        raise PodiumError(f"{path}: these weights were not saved by podium train; train that fold again") from None
    model = rebuild_model(spec)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise PodiumError(f"{path}: these weights do not fit {spec.architecture}: {first_line(error)}") from None
    return model, spec


def classes_of_weights(path: str) -> tuple[str, ...]:
    """Returns the classes that a file's weights were trained on, if Podium has written it."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return tuple(json.loads((file.metadata() or {})[SPEC_KEY])["classes"])
    except (SafetensorError, OSError, LookupError, ValueError, TypeError):
        return ()
