"""Weights: from a hub (our own, on this machine), from a file, or none; and what is said when they cannot be had."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from podium import PodiumError
from podium.models.build import build_model, family_and_sizes, rebuild_model
from podium.models.model_file import load_model, save_model
from podium.models.hub import check_model_name, registered_names
from stand_ins.hub import serve
from tiny import Podium, recipe_of, write_competition

HOUSE = "vit_small_patch32_224"
REPOSITORY = "timm/vit_small_patch32_224.augreg_in21k_ft_in1k"


def run(root: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """podium in a process of its own: the hub's client reads its environment when it is imported."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    return subprocess.run(
        [sys.executable, "-m", "podium", "--root", str(root), *words],
        capture_output=True,
        text=True,
        timeout=120,
        env={**clean, "HF_HOME": str(root / "hub-cache"), "HF_HUB_DISABLE_XET": "1", **environment},
    )


@pytest.fixture(scope="module")
def hub_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A house model as the hub holds it: 1,000 classes, and a bias that is recognised."""
    folder = tmp_path_factory.mktemp("hub")
    torch.manual_seed(0)
    model = timm.create_model(HOUSE)
    with torch.no_grad():
        model.patch_embed.proj.bias.fill_(0.125)
    repository = folder / REPOSITORY
    repository.mkdir(parents=True)
    save_file({key: value.contiguous() for key, value in model.state_dict().items()}, repository / "model.safetensors")
    config = {"architecture": HOUSE, "num_classes": 1000, "pretrained_cfg": {"tag": "augreg_in21k_ft_in1k"}}
    (repository / "config.json").write_text(json.dumps(config))
    return folder


def test_a_house_model_is_fine_tuned_from_the_hub_and_later_without_a_network(tmp_path: Path, hub_files: Path) -> None:
    write_competition(tmp_path, each=4, test=2)
    assert run(tmp_path, "folds", "-c", "tiny", "--k", "2").returncode == 0
    # A rate too small to move a weight shows, afterwards, where the weights came from.
    train = ("train", "-c", "tiny", "--model", HOUSE, "--epochs", "1", "--batch-size", "8", "--lr", "1e-9")
    with serve(hub_files) as (address, asked):
        done = run(tmp_path, *train, "--folds", "0", HF_ENDPOINT=address)
    assert done.returncode == 0, done.stderr
    assert f"GET /{REPOSITORY}/resolve/main/model.safetensors" in asked
    folder = tmp_path / "runs" / "tiny" / HOUSE
    recipe = json.loads((folder / "recipe.json").read_text())
    assert recipe["weights_source"] == f"{HOUSE}.augreg_in21k_ft_in1k from {REPOSITORY}"
    assert recipe["image_size"] == 224
    model, spec = load_model(folder / "fold0" / "model.safetensors")
    assert spec.mean == (0.5, 0.5, 0.5)  # the model's own data config, not ImageNet's constants
    state = model.state_dict()
    assert state["patch_embed.proj.bias"].sub(0.125).abs().max() < 1e-4
    assert state["head.weight"].shape == (4, 384)  # the head is fresh: a row for each class

    done = run(tmp_path, *train, "--folds", "1", HF_ENDPOINT="http://127.0.0.1:9")
    assert done.returncode == 0, done.stderr  # the cache serves where nothing answers


def test_without_network_and_weights_the_remedies_are_named_before_anything_heavy_is_loaded(tmp_path: Path) -> None:
    done = run(tmp_path, "train", "--model", HOUSE, HF_ENDPOINT="http://127.0.0.1:9", PYTHONPROFILEIMPORTTIME="1")
    assert done.returncode == 1
    error = done.stderr.splitlines()[-1]
    assert error.startswith(f"podium: error: the pretrained weights of {HOUSE} cannot be had: http://127.0.0.1:9")
    for remedy in ("--weights none", "--weights PATH", "hub cache", str(tmp_path / "hub-cache")):
        assert remedy in error
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "podium.models.hub" in imported
    assert not imported & {"torch", "timm", "numpy", "pandas"}


def test_a_hub_without_these_weights_is_told_from_a_hub_that_does_not_answer(tmp_path: Path) -> None:
    write_competition(tmp_path, each=2, test=1)
    assert run(tmp_path, "folds", "-c", "tiny", "--k", "2").returncode == 0
    (tmp_path / "empty").mkdir()
    with serve(tmp_path / "empty") as (address, _):
        done = run(tmp_path, "train", "-c", "tiny", "--model", "test_vit", HF_ENDPOINT=address)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "does not give the weights of test_vit" in done.stderr.splitlines()[-1]


def test_weights_from_a_file_of_the_hub_and_from_a_fold_of_another_run(tmp_path: Path, hub_files: Path) -> None:
    file = hub_files / REPOSITORY / "model.safetensors"
    model, spec = build_model(recipe_of(HOUSE, str(file), 224), ["a", "b", "c"])
    assert torch.equal(model.state_dict()["patch_embed.proj.bias"], torch.full((384,), 0.125))
    assert spec.source.startswith("model.safetensors sha256:")
    saved = tmp_path / "fold.safetensors"
    save_model(saved, model, spec)
    again, _ = build_model(recipe_of(HOUSE, str(saved), 224), ["x", "y"])
    assert torch.equal(again.state_dict()["blocks.3.mlp.fc1.weight"], model.state_dict()["blocks.3.mlp.fc1.weight"])
    assert again.state_dict()["head.weight"].shape == (2, 384)


def test_position_embeddings_are_resized_for_a_higher_resolution(tmp_path: Path) -> None:
    model, spec = build_model(recipe_of("test_vit", "none", 64), ["a", "b"])
    positions = model.state_dict()["pos_embed"]
    side = 64 // 16
    rows = torch.arange(side).repeat_interleave(side).float()  # each says which row it is
    positions[:, -side * side :] = rows.view(1, -1, 1)
    save_model(tmp_path / "small.safetensors", model, spec)
    larger, _ = build_model(recipe_of("test_vit", str(tmp_path / "small.safetensors"), 128), ["a", "b"])
    found = larger.state_dict()["pos_embed"][0, -4 * side * side :, 0].view(2 * side, 2 * side)
    assert torch.allclose(found[:, 0], found[:, -1], atol=1e-4)
    assert found[:, 0].tolist() == sorted(found[:, 0].tolist())
    assert found[0, 0] == pytest.approx(0, abs=0.2)
    assert found[-1, 0] == pytest.approx(side - 1, abs=0.2)


def test_weights_that_are_no_weights_or_another_models_are_refused_in_one_line(tmp_path: Path, hub_files: Path) -> None:
    page = tmp_path / "page.safetensors"
    page.write_text("<html>")
    for file in (page, hub_files / REPOSITORY / "model.safetensors"):
        with pytest.raises(PodiumError, match="test_convnext for images of 32 pixels cannot be built with these"):
            build_model(recipe_of("test_convnext", str(file), 32), ["a", "b"])


def test_every_name_that_timm_registers_is_known_without_importing_it() -> None:
    assert registered_names() == set(timm.list_models())
    check_model_name("convnext_small.in12k_ft_in1k")
    with pytest.raises(PodiumError, match=rf"among timm's {len(timm.list_models()):,}; did you mean convnext_small"):
        check_model_name("convnxt_small")
    with pytest.raises(PodiumError, match=r"timm.list_models\(\) lists them"):
        check_model_name("zzz")


def test_a_wrong_tag_lists_the_right_ones(tmp_path: Path) -> None:
    with pytest.raises(PodiumError, match=r"there are .*convnext_small.in12k_ft_in1k"):
        build_model(recipe_of("convnext_small.in99k", "pretrained", 224), ["a", "b"])


def test_a_model_is_built_for_the_size_that_is_asked_for_or_says_which_fits() -> None:
    assert family_and_sizes(HOUSE) == ("vision_transformer", 224, 224)
    assert family_and_sizes("convnext_small.in12k_ft_in1k") == ("convnext", 224, 288)
    for name, size in (("test_vit", 64), ("test_convnext", 48), ("resnet10t", 33)):
        model, spec = build_model(recipe_of(name, "none", size), ["a", "b", "c"])
        assert model.eval()(torch.zeros(1, 3, size, size)).shape == (1, 3)
        assert spec.image_size == size
        assert rebuild_model(spec)(torch.zeros(2, 3, size, size)).shape == (2, 3)
    with pytest.raises(PodiumError, match=r"--image-size 160"):
        build_model(recipe_of("test_vit", "none", 50), ["a", "b"])


def test_a_model_without_residual_branches_says_so() -> None:
    with pytest.raises(PodiumError, match="add --drop-path 0"):
        build_model(recipe_of("vgg11", "none", 32, drop_path=0.1), ["a", "b"])


def test_a_file_that_is_no_fold_model_is_refused(tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(2)}, tmp_path / "foreign.safetensors")
    with pytest.raises(PodiumError, match="not saved by podium train"):
        load_model(tmp_path / "foreign.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(b"\x10")
    with pytest.raises(PodiumError, match="cannot be read"):
        load_model(tmp_path / "cut.safetensors")


@pytest.mark.parametrize("weights", ["nowhere.safetensors", "pretraind"])
def test_a_file_of_weights_that_is_not_there_is_told_at_once(podium: Podium, weights: str) -> None:
    status, _, err = podium("train", "--model", "test_vit", "--weights", weights)
    assert status == 1
    assert f"--weights {weights}: no such file" in err
