"""Models from weights in a file, or from scratch, for the image size that the user asks for."""

from pathlib import Path

import pytest
import torch

from podium.basics.errors import PodiumError
from podium.models.build import backbone_of, build_model, rebuild_model
from podium.models.catalogue import licence_of
from podium.models.model_file import save_model
from tiny import recipe_of

VIT = "vit_small_patch32_224.augreg_in21k_ft_in1k"


def save_new_model(path: Path, name: str, classes: int, image_size: int = 64) -> Path:
    """Saves a model from scratch as a fold does."""
    torch.manual_seed(classes)
    save_model(path, *build_model(recipe_of(name, "none", image_size), [str(number) for number in range(classes)]))
    return path


def test_weights_of_a_fold_of_another_run_start_a_model_with_a_fresh_head(tmp_path: Path) -> None:
    path = save_new_model(tmp_path / "fold.safetensors", "test_vit", classes=3)
    model, spec = build_model(recipe_of("test_vit", str(path)), ["x", "y"])
    original, _ = build_model(recipe_of("test_vit", str(path)), ["x", "y", "z"])
    assert spec.source.startswith("fold.safetensors sha256:")
    weights, expected = model.state_dict(), original.state_dict()
    backbone = [name for name in weights if not name.startswith("head.")]
    assert all(torch.equal(weights[name], expected[name]) for name in backbone)
    assert weights["head.weight"].shape == (2, expected["head.weight"].shape[1])


def test_weights_with_other_classes_keep_only_their_backbone(tmp_path: Path) -> None:
    import timm
    from safetensors.torch import save_file

    torch.manual_seed(0)
    downloaded = timm.create_model("test_vit")  # with 1,000 classes
    save_file(downloaded.state_dict(), tmp_path / "model.safetensors")
    model, spec = build_model(recipe_of("test_vit", str(tmp_path / "model.safetensors"), 160), ["a", "b", "c"])
    assert spec.source.startswith("model.safetensors sha256:")
    weights, expected = model.state_dict(), downloaded.state_dict()
    assert torch.equal(weights["blocks.3.mlp.fc1.weight"], expected["blocks.3.mlp.fc1.weight"])
    assert weights["head.weight"].shape[0] == 3


def test_position_embeddings_are_resized_for_larger_images(tmp_path: Path) -> None:
    model, spec = build_model(recipe_of("test_vit", "none", 64), ["a", "b"])
    positions = model.state_dict()["pos_embed"]
    side = 64 // 16
    rows = torch.arange(side).repeat_interleave(side).float()  # each position holds the number of its row
    positions[:, -side * side :] = rows.view(1, -1, 1)
    save_model(tmp_path / "small.safetensors", model, spec)
    larger, _ = build_model(recipe_of("test_vit", str(tmp_path / "small.safetensors"), 128), ["a", "b"])
    resized = larger.state_dict()["pos_embed"][0, -4 * side * side :, 0].view(2 * side, 2 * side)
    assert torch.allclose(resized[:, 0], resized[:, -1], atol=1e-4)
    assert resized[:, 0].tolist() == sorted(resized[:, 0].tolist())
    assert resized[0, 0] == pytest.approx(0, abs=0.2)
    assert resized[-1, 0] == pytest.approx(side - 1, abs=0.2)


def test_a_file_that_holds_no_weights_or_another_models_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.safetensors"
    page.write_text("<html>")
    with pytest.raises(PodiumError, match=r"cannot be built with the weights .*page.safetensors"):
        build_model(recipe_of("test_convnext", str(page), 32), ["a", "b"])
    vit = save_new_model(tmp_path / "vit.safetensors", "test_vit", classes=2)
    for model in ("test_convnext", "test_resnet", "test_vit2"):  # the last one differs from test_vit by a few layers
        with pytest.raises(PodiumError, match=rf"vit.safetensors does not hold the weights of {model}: it lacks"):
            build_model(recipe_of(model, str(vit), 160), ["a", "b", "c"])


def test_a_model_is_built_for_the_given_image_size_or_the_right_size_is_named() -> None:
    assert backbone_of("vit_small_patch32_224") == ("vision_transformer", "vit", 224, 224, False, VIT)
    assert backbone_of("convnext_small.in12k_ft_in1k")[:5] == ("convnext", "convnext", 224, 288, False)
    for name, size in (("test_vit", 64), ("test_convnext", 48), ("resnet10t", 33)):
        model, spec = build_model(recipe_of(name, "none", size), ["a", "b", "c"])
        assert model.eval()(torch.zeros(1, 3, size, size)).shape == (1, 3)
        assert spec.image_size == size
        assert rebuild_model(spec)(torch.zeros(2, 3, size, size)).shape == (2, 3)
    with pytest.raises(PodiumError, match=r"test_vit cannot take images of 50 pixels .*; try --image-size 48"):
        build_model(recipe_of("test_vit", "none", 50), ["a", "b"])
    with pytest.raises(PodiumError, match=r"test_vit cannot take images of 30 pixels .*; try --image-size 32"):
        build_model(recipe_of("test_vit", "none", 30), ["a", "b"])


def test_a_test_size_that_the_model_cannot_take_is_refused() -> None:
    with pytest.raises(PodiumError, match=r"test_vit cannot take images of 50 pixels .*; use --test-size 64"):
        build_model(recipe_of("test_vit", "none", 64, test_size=50), ["a", "b"])


def test_at_its_own_test_size_a_model_crops_less() -> None:
    crops = {}
    for size in (224, 288):
        _, spec = build_model(recipe_of("convnext_atto", "none", 224, test_size=size), ["a", "b"])
        crops[spec.test_size] = spec.crop
    assert crops == {224: 0.875, 288: 0.95}  # as timm documents these weights


def test_a_model_without_stochastic_depth_is_answered_with_the_flag_to_add() -> None:
    with pytest.raises(PodiumError, match="vgg11 has no stochastic depth; add --drop-path 0"):
        build_model(recipe_of("vgg11", "none", 32, drop_path=0.1), ["a", "b"])


def test_the_licence_of_weights_is_known() -> None:
    assert licence_of("vit_small_patch32_224") == "apache-2.0"
    assert str(licence_of("convnextv2_tiny")).startswith("cc-by-nc")
