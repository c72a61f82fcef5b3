"""The file of a fold's model: it is enough to rebuild the model, and other files are refused."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from podium.basics.errors import PodiumError
from podium.models.build import build_model
from podium.models.model_file import SPEC_KEY, classes_of_weights, load_model, save_model
from podium.models.tensors import load_tensors, save_tensors
from tiny import recipe_of


def test_a_saved_model_is_loaded_as_it_was(tmp_path: Path) -> None:
    model, spec = build_model(recipe_of("test_resnet", test_size=96), ["cat", "dog"])
    save_model(tmp_path / "model.safetensors", model, spec)
    loaded, loaded_spec = load_model(tmp_path / "model.safetensors")
    assert loaded_spec == spec
    assert classes_of_weights(str(tmp_path / "model.safetensors")) == ("cat", "dog")
    images = torch.rand(2, 3, 64, 64)
    assert torch.equal(loaded.eval()(images), model.eval()(images))


def test_a_file_from_before_there_were_faster_operators_is_computed_as_then(tmp_path: Path) -> None:
    model, spec = build_model(recipe_of("test_resnet"), ["a", "b"])
    assert spec.operators == "fast"
    older = {key: value for key, value in asdict(spec).items() if key != "operators"}
    save_tensors(tmp_path / "older.safetensors", dict(model.state_dict()), {SPEC_KEY: json.dumps(older)})
    assert load_model(tmp_path / "older.safetensors")[1].operators == "timm"


def test_tied_weights_become_two_tensors(tmp_path: Path) -> None:
    weight = torch.rand(2, 3)
    save_tensors(tmp_path / "tied.safetensors", {"first": weight, "second": weight}, {"key": "value"})
    tensors, metadata = load_tensors(tmp_path / "tied.safetensors")
    assert torch.equal(tensors["first"], tensors["second"])
    assert metadata == {"key": "value"}


def test_a_file_that_podium_did_not_write_is_refused(tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(2)}, tmp_path / "foreign.safetensors")
    with pytest.raises(PodiumError, match=r"foreign.safetensors: these weights were not saved by podium train"):
        load_model(tmp_path / "foreign.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(b"\x10")
    with pytest.raises(PodiumError, match=r"cut.safetensors: cannot be read .*; restore it"):
        load_model(tmp_path / "cut.safetensors")
    assert classes_of_weights(str(tmp_path / "foreign.safetensors")) == ()
    assert classes_of_weights(str(tmp_path / "cut.safetensors")) == ()


def test_a_file_with_the_weights_of_another_model_is_refused(tmp_path: Path) -> None:
    model, _ = build_model(recipe_of("test_vit"), ["a", "b"])
    _, spec = build_model(recipe_of("test_resnet"), ["a", "b"])
    save_model(tmp_path / "mixed.safetensors", model, spec)
    with pytest.raises(PodiumError, match=r"mixed.safetensors: these weights do not fit test_resnet"):
        load_model(tmp_path / "mixed.safetensors")
