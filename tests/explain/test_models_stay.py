"""An explanation leaves the model as it was, and works in bfloat16."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import podium
from explain.small_models import zoo_model
from podium.models.operators.exchange import exchange_operators
from podium_annex import explain

FUNCTIONS: dict[str, tuple[str, Callable[[nn.Module, torch.Tensor], Any]]] = {
    "class_attention": ("teaching_vit_nano", lambda model, images: explain.class_attention(model, images)),
    "attention_rollout": ("teaching_vit_nano", lambda model, images: explain.attention_rollout(model, images)),
    "attention_distance": ("teaching_vit_nano", lambda model, images: explain.attention_distance(model, images)),
    "patch_filters": ("teaching_vit_nano", lambda model, images: explain.patch_filters(model).variance),
    "position_similarity": ("teaching_vit_nano", lambda model, images: explain.position_similarity(model)),
    "grad_cam": ("test_resnet", lambda model, images: explain.grad_cam(model, images)),
    "receptive_field": ("test_convnext", lambda model, images: explain.receptive_field(model, images).shares),
}
SIZES = {"test_resnet": (64, 64)}  # its last map is a single place for 32 pixels


def state_of(model: nn.Module) -> list[Any]:
    modules = [
        (
            module.training,
            getattr(module, "fused_attn", None),
            len(module._forward_hooks),
            len(module._forward_pre_hooks),
        )
        for module in model.modules()
    ]
    parameters = [(parameter.requires_grad, parameter.grad is None) for parameter in model.parameters()]
    return [modules, parameters, {name: value.clone() for name, value in model.state_dict().items()}]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_model_is_afterwards_as_before(name: str) -> None:
    model_name, function = FUNCTIONS[name]
    model = zoo_model(model_name).train()
    first, *_, last = model.modules()
    last.eval()  # each part has its own mode
    next(model.parameters()).requires_grad_(False)
    images = torch.randn(2, 3, *SIZES.get(model_name, (32, 32)))
    copy, (modules, parameters, weights) = images.clone(), state_of(model)
    result = function(model, images)
    assert np.isfinite(result).all()
    modules_after, parameters_after, weights_after = state_of(model)
    assert modules_after == modules
    assert parameters_after == parameters
    assert first.training
    assert all(torch.equal(weights_after[key], value) for key, value in weights.items())
    assert torch.equal(images, copy)
    assert not images.requires_grad


def test_a_model_is_as_before_after_a_mistake() -> None:
    model = zoo_model("teaching_vit_nano").train()
    before = state_of(model)[:2]
    with pytest.raises(ValueError, match="patches"):
        explain.class_attention(model, torch.randn(1, 3, 48, 48))
    assert state_of(model)[:2] == before


@pytest.mark.parametrize("name", FUNCTIONS)
def test_models_in_bfloat16_give_nearly_the_same(name: str) -> None:
    model_name, function = FUNCTIONS[name]
    model, images = zoo_model(model_name).eval(), torch.randn(1, 3, *SIZES.get(model_name, (32, 32)))
    expected = function(model, images)
    result = function(model.to(torch.bfloat16), images)
    assert result.dtype == np.float32
    assert np.linalg.norm(result - expected) < 0.25 * np.linalg.norm(expected)


def test_frozen_models_and_inference_mode_are_no_obstacle() -> None:
    model = zoo_model("test_convnext").eval().requires_grad_(False)
    with torch.inference_mode():
        images = torch.randn(1, 3, 64, 64)
    assert explain.grad_cam(model, images).shape == (1, 64, 64)
    with torch.no_grad():
        assert explain.receptive_field(model, images).shares.shape == (64, 64)


def test_layers_that_are_exchanged_for_faster_ones_show_the_same_attention() -> None:
    model, images = zoo_model("test_vit", img_size=64).eval(), torch.randn(1, 3, 64, 64)
    expected = explain.class_attention(model, images)
    assert exchange_operators(model, torch.device("cpu"), torch.bfloat16)["attention"]
    np.testing.assert_allclose(explain.class_attention(model, images), expected, rtol=1e-5)


def test_every_name_of_the_room_can_be_imported() -> None:
    for name in explain.__all__:
        assert callable(getattr(explain, name))
    with pytest.raises(AttributeError, match="nothing"):
        explain.nothing  # noqa: B018


def test_the_name_of_earlier_versions_is_the_same_module() -> None:
    assert podium.explain is explain
