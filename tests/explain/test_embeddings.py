"""Principal components of patch filters and similarities of positions, of values made by hand."""

import numpy as np
import pytest
import torch
from torch import nn

from explain.small_models import SmallConvNet, zoo_model
from podium.basics.errors import PodiumError
from podium_annex.explain.embeddings import patch_filters, position_similarity


def test_the_components_are_those_that_the_filters_were_made_of() -> None:
    generator = np.random.default_rng(0)
    directions, _ = np.linalg.qr(generator.normal(size=(12, 3)))
    weights, _ = np.linalg.qr(generator.normal(size=(40, 4)) - 0.0)
    weights = weights[:, :3] - weights[:, :3].mean(0)
    weights, _ = np.linalg.qr(weights)  # orthogonal columns, each with mean 0
    filters = (weights * [3, 2, 1]) @ directions.T + generator.normal(size=12)  # a mean that must not matter
    model = SmallConvNet(nn.Conv2d(3, 40, 2, stride=2))
    model.layers[0].weight.data = torch.tensor(filters.reshape(40, 3, 2, 2), dtype=torch.float32)
    components, variance = patch_filters(model)
    assert components.shape == (12, 2, 2, 3)
    np.testing.assert_allclose(variance[:4], [9 / 14, 4 / 14, 1 / 14, 0], atol=1e-5)
    for number in range(3):
        expected = directions[:, number].reshape(3, 2, 2).transpose(1, 2, 0)
        expected = expected * np.sign(expected.ravel()[abs(expected).argmax()])
        np.testing.assert_allclose(components[number], expected, atol=1e-4)


def test_the_components_of_a_vit_are_those_of_numpy() -> None:
    model = zoo_model("teaching_vit_nano")
    filters = model.get_submodule("patch_embed").proj.weight.detach().numpy().reshape(96, 48)  # type: ignore[union-attr, operator]
    values, vectors = np.linalg.eigh(np.cov(filters.astype(np.float64).T))
    components, variance = patch_filters(model, count=3)
    assert components.shape == (3, 4, 4, 3)
    np.testing.assert_allclose(variance, values[::-1][:3] / values.sum(), rtol=1e-4)
    for component, vector in zip(components, vectors.T[::-1], strict=False):
        assert abs(np.vdot(component.transpose(2, 0, 1), vector)) == pytest.approx(1, abs=1e-4)


def test_a_model_without_patches_has_no_patch_filters() -> None:
    with pytest.raises(PodiumError, match=r"resnet10t does not cut .* patches; use a model"):
        patch_filters(zoo_model("resnet10t"))
    assert len(patch_filters(zoo_model("convnext_atto")).components) == 28


def test_orthogonal_positions_are_like_themselves_only() -> None:
    model = zoo_model("teaching_vit_nano")
    positions = torch.zeros(1, 65, 96)
    positions[0, 1:] = torch.eye(96)[:64] * torch.arange(1, 65)[:, None]  # lengths do not matter
    positions[0, 0] = 5  # the class token
    model.pos_embed = nn.Parameter(positions)
    similarity = position_similarity(model)
    np.testing.assert_allclose(similarity, np.eye(64).reshape(8, 8, 8, 8), atol=1e-6)


def test_similar_and_opposite_positions_are_found() -> None:
    model = zoo_model("teaching_vit_nano")
    with torch.no_grad():
        positions = model.get_parameter("pos_embed")
        positions[0, 2] = positions[0, 1] * 2
        positions[0, 9] = -positions[0, 1]
    similarity = position_similarity(model)
    assert similarity[0, 0, 0, 1] == pytest.approx(1)
    assert similarity[0, 0, 1, 0] == pytest.approx(-1)


@pytest.mark.parametrize("name", ["cpvt_nano", "teaching_vit_nano_nopos", "teaching_vit_nano_2d", "test_convnext"])
def test_models_without_a_table_of_positions_are_refused(name: str) -> None:
    with pytest.raises(PodiumError, match=f"{name} has no table of position embeddings.*use a model"):
        position_similarity(zoo_model(name))


def test_the_positions_of_a_pyramid_are_those_of_its_last_stage() -> None:
    assert position_similarity(zoo_model("pvt_nano")).shape == (2, 2, 2, 2)
