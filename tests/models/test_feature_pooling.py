"""Other ways to pool: what each computes, that the saved model has it, and which models have none."""

from pathlib import Path

import pytest
import torch

from podium.basics.errors import PodiumError
from podium.models.build import ModelSpec, build_model
from podium.models.model_file import load_model, save_model
from podium.models.timm_file import export_model
from podium.options.layers.heads import classifier_of
from podium.options.layers.pooling import Pooling
from podium.training.frozen_features import features_of
from second_round import first_of
from tiny import recipe_of

WIDTHS = {"test_vit": 64, "test_vit2": 64, "test_vit3": 96, "test_convnext": 64, "test_efficientnet": 256}


def build(name: str, pool: str, image_size: int = 64, start: Path | None = None) -> tuple[torch.nn.Module, ModelSpec]:
    torch.manual_seed(0)
    recipe = recipe_of(name, image_size=image_size, pool=pool, drop_path=0.0)
    model, spec = build_model(recipe, ["a", "b", "c"], start=start)
    return model.eval(), spec


def test_features_are_pooled_as_the_name_says() -> None:
    tokens = torch.randn(2, 5, 3)
    patches = tokens[:, 1:]

    def pooled(*ways: str) -> torch.Tensor:
        result: torch.Tensor = Pooling(ways, skip=1)(tokens)
        return result

    assert torch.equal(pooled("token"), tokens[:, 0])
    assert torch.equal(pooled("mean"), patches.mean(1))
    assert torch.equal(pooled("token", "max"), torch.cat([tokens[:, 0], patches.amax(1)]))
    assert torch.allclose(pooled("gem"), patches.clamp(min=1e-6).pow(3).mean(1).pow(1 / 3))
    image_map = tokens.view(2, 1, 5, 3)
    assert torch.equal(Pooling(("mean",), dims=(2, 3), keepdim=True)(image_map), image_map.mean((2, 3), keepdim=True))


def test_the_exponent_of_gem_is_learned_and_goes_from_the_mean_to_the_maximum() -> None:
    pooling, features = Pooling(("gem",)), torch.rand(2, 7, 3)
    for exponent, expected in ((1.0, features.mean(1)), (200.0, features.amax(1))):
        torch.nn.init.constant_(pooling.exponent, exponent)
        assert torch.allclose(pooling(features), expected, atol=0.02)
    pooling(-features).sum().backward()
    assert pooling.exponent.grad is not None
    assert pooling.exponent.grad.isfinite().all()
    assert pooling(features.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("name", WIDTHS)
@pytest.mark.parametrize("pool", ["mean", "both", "gem"])
def test_a_saved_model_pools_as_the_trained_one(tmp_path: Path, name: str, pool: str) -> None:
    model, spec = build(name, pool)
    save_model(tmp_path / "model.safetensors", model, spec)
    loaded, loaded_spec = load_model(tmp_path / "model.safetensors")
    assert loaded_spec == spec
    assert spec.pool == pool
    images = torch.rand(3, 3, 64, 64)
    assert torch.equal(loaded.eval()(images), model(images))
    features, classifier = features_of(model, images), classifier_of(model)
    assert features.shape == (3, WIDTHS[name] * (2 if pool == "both" else 1))
    assert classifier is not None
    assert torch.allclose(classifier.layer(features), model(images), atol=1e-5)


def test_token_and_mean_are_those_of_timm() -> None:
    images = torch.rand(2, 3, 64, 64)
    for name, pool in (("test_vit", "token"), ("test_resnet", "mean"), ("test_convnext", "mean")):
        assert torch.allclose(build(name, pool)[0](images), build(name, "default")[0](images), atol=1e-6)


def test_a_model_that_pools_as_timm_does_has_the_file_that_it_always_had() -> None:
    assert "pool" not in build("test_vit", "default")[1].as_json()
    assert build("test_vit", "mean")[1].as_json()["pool"] == "mean"


def test_training_goes_on_from_the_whole_model_also_at_another_size(tmp_path: Path) -> None:
    for name, pool in (("test_vit", "both"), ("test_vit3", "mean"), ("test_convnext", "gem")):
        model, spec = build(name, pool)
        torch.nn.init.normal_(model.get_parameter("head.fc.weight" if name == "test_convnext" else "head.weight"))
        if pool == "gem":
            torch.nn.init.constant_(model.get_parameter("head.global_pool.exponent"), 5.0)
        save_model(tmp_path / "model.safetensors", model, spec)
        going_on, _ = build(name, pool, start=tmp_path / "model.safetensors")
        images = torch.rand(2, 3, 64, 64)
        assert torch.equal(going_on(images), model(images))
        larger, _ = build(name, pool, image_size=96, start=tmp_path / "model.safetensors")
        expected, found = model.state_dict(), larger.state_dict()
        assert [key for key in found if not torch.equal(found[key], expected[key])] in ([], ["pos_embed"])


@pytest.mark.parametrize("name", ["test_resnet", "test_vit2", "test_efficientnet"])
def test_a_model_without_a_class_token_names_what_it_can_do(name: str) -> None:
    with pytest.raises(PodiumError, match=rf"{name} cannot use --pool token: .* take one of mean, both, gem"):
        build(name, "token")


@pytest.mark.parametrize(
    "name", [pytest.param("pvt_tiny", marks=pytest.mark.annex), "test_mambaout", "deit_tiny_distilled_patch16_224"]
)
def test_a_model_that_pools_in_a_way_of_its_own_is_refused(name: str) -> None:
    with pytest.raises(PodiumError, match=rf"{name} cannot use --pool mean: .* leave that out"):
        build(name, "mean", 224)


def test_timm_alone_cannot_build_such_a_model_and_podium_says_so(tmp_path: Path) -> None:
    save_model(tmp_path / "model.safetensors", *build("test_vit", "gem"))
    with pytest.raises(PodiumError, match=r"timm cannot build a test_vit with --pool gem; use run.model\(\)"):
        export_model(tmp_path / "model.safetensors", tmp_path / "exported.safetensors")


@pytest.mark.parametrize("pool", first_of(["both"], ["both", "gem"]))
def test_exported_models_take_any_number_of_images(pool: str) -> None:
    model, _ = build("test_vit", pool)
    example, images = torch.rand(2, 3, 64, 64), torch.rand(3, 3, 64, 64)
    program = torch.export.export(model, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    assert torch.allclose(program.module()(images), model(images), atol=1e-5)
