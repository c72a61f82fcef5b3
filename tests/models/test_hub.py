"""Weights from a hub: our own, on this machine. What happens if they, or the hub, are not there."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import huggingface_hub.constants
import pytest
import timm
import torch
from safetensors.torch import save_file

from extension_file import write_extension
from podium.basics.errors import PodiumError
from podium.models.build import build_model
from podium.models.hub import check_model_name, check_weights_available, expand_pattern, registered_names
from podium.models.model_file import load_model
from podium.models.registry import register_zoo, zoo_names
from podium.options.extensions.extension_files import load_extensions
from stand_ins.hub import UNREACHABLE, serve
from tiny import Podium, assert_says, one_line, recipe_of, run_of

HOUSE_MODEL = "vit_small_patch32_224"
REPOSITORY = "timm/vit_small_patch32_224.augreg_in21k_ft_in1k"


@pytest.fixture(scope="module")
def hub_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A house model as the hub holds it: with 1,000 classes, and a bias that tests recognise."""
    folder = tmp_path_factory.mktemp("hub")
    torch.manual_seed(0)
    model = timm.create_model(HOUSE_MODEL)
    with torch.no_grad():
        model.patch_embed.proj.bias.fill_(0.125)
    repository = folder / REPOSITORY
    repository.mkdir(parents=True)
    save_file({key: value.contiguous() for key, value in model.state_dict().items()}, repository / "model.safetensors")
    config = {"architecture": HOUSE_MODEL, "num_classes": 1000, "pretrained_cfg": {"tag": "augreg_in21k_ft_in1k"}}
    (repository / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.slow
def test_a_house_model_is_fine_tuned_from_the_hub_and_later_from_the_cache(
    tiny: Path, podium: Podium, hub_files: Path, use_hub: Callable[[str], None]
) -> None:
    # After training at a rate too small to move a weight, the weights show where they came from.
    train = (
        *("train", "-c", "tiny", "--model", HOUSE_MODEL, "--epochs", "1", "--batch-size", "8", "--lr", "1e-9"),
        *("--keep", "0", "--views", "none"),
    )
    with serve(hub_files) as (address, requests):
        use_hub(address)
        status, _, err = podium(*train, "--folds", "0")
    assert status == 0, err
    assert f"GET /{REPOSITORY}/resolve/main/model.safetensors" in requests
    run = run_of(tiny, HOUSE_MODEL)
    assert run.recipe["weights_source"] == f"{HOUSE_MODEL}.augreg_in21k_ft_in1k from {REPOSITORY}"
    assert run.recipe["image_size"] == 224
    model, spec = load_model(run.weights_path(0))
    assert spec.mean == (0.5, 0.5, 0.5)  # of the model's own data config, unlike ImageNet's
    state = model.state_dict()
    assert state["patch_embed.proj.bias"].sub(0.125).abs().max() < 1e-4
    assert state["head.weight"].shape == (4, 384)  # a fresh head, with a row per class

    use_hub(UNREACHABLE)
    check_weights_available(HOUSE_MODEL, "pretrained")
    model, _ = build_model(recipe_of(HOUSE_MODEL, "pretrained", 224), ["a", "b"])
    assert (model.state_dict()["patch_embed.proj.bias"] == 0.125).all()


@pytest.mark.usefixtures("timm_registry")
def test_a_backbone_inside_a_model_of_ones_own_has_the_weights_of_the_hub_and_later_of_the_cache(
    tmp_path: Path, hub_files: Path, use_hub: Callable[[str], None]
) -> None:
    source = f"""
import timm
from timm.models import register_model
from torch import nn

@register_model
def my_house_model(pretrained=False, num_classes=1000, **options):
    backbone = timm.create_model("{HOUSE_MODEL}", pretrained=pretrained, num_classes=0)
    return nn.Sequential(backbone, nn.ReLU(), nn.Linear(384, num_classes))
"""
    write_extension(tmp_path, source)
    load_extensions(tmp_path)
    with serve(hub_files) as (address, _):
        use_hub(address)
        check_weights_available("my_house_model", "pretrained")
        model, spec = build_model(recipe_of("my_house_model", "pretrained", 224), ["a", "b"])
    assert spec.source == f"{HOUSE_MODEL}.augreg_in21k_ft_in1k from {REPOSITORY}, in 0; new: 2"
    assert spec.mean == (0.5, 0.5, 0.5)
    use_hub(UNREACHABLE)
    check_weights_available("my_house_model", "pretrained")
    again, _ = build_model(recipe_of("my_house_model", "pretrained", 224), ["a", "b"], recorded_source=spec.source)
    for built in (model, again):
        assert (built.state_dict()["0.patch_embed.proj.bias"] == 0.125).all()


def test_a_hub_without_these_weights_is_not_confused_with_one_that_does_not_answer(
    tiny: Path, podium: Podium, use_hub: Callable[[str], None]
) -> None:
    (tiny / "empty").mkdir()
    with serve(tiny / "empty") as (address, _):
        use_hub(address)
        message = one_line(podium("train", "-c", "tiny", "--model", "test_vit"))
    assert_says(message, "the hub does not give the weights of test_vit", "--weights none")


def test_without_a_hub_the_client_reads_its_cache_which_must_hold_these_weights(
    use_hub: Callable[[str], None], tmp_path: Path
) -> None:
    use_hub(UNREACHABLE)
    cache = tmp_path / "hub-cache" / "hub"
    (cache / "models--timm--convnext_small.in12k_ft_in1k").mkdir(parents=True)
    with pytest.raises(PodiumError, match=f"the pretrained weights of {HOUSE_MODEL} are not available"):
        check_weights_available(HOUSE_MODEL, "pretrained")
    assert os.environ["HF_HUB_OFFLINE"] == "1"  # else the client would try for most of a minute
    assert huggingface_hub.constants.HF_HUB_OFFLINE
    check_weights_available(HOUSE_MODEL, "none")
    (cache / f"models--{REPOSITORY.replace('/', '--')}").mkdir()
    check_weights_available(HOUSE_MODEL, "pretrained")


@pytest.mark.annex
def test_models_without_weights_on_the_hub_are_not_looked_for_there(use_hub: Callable[[str], None]) -> None:
    use_hub(UNREACHABLE)
    with pytest.raises(PodiumError, match="t2t_vit_7 has no pretrained weights on the hub; train from scratch with"):
        check_weights_available("t2t_vit_7", "pretrained")
    check_weights_available("t2t_vit_7", "none")


@pytest.mark.slow
def test_without_a_network_the_remedies_are_named_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    environment = {"HF_ENDPOINT": UNREACHABLE, "HF_HOME": str(tmp_path / "hub-cache"), "PYTHONPROFILEIMPORTTIME": "1"}
    command = [sys.executable, "-m", "podium", "--root", str(tmp_path), "train", "--model", HOUSE_MODEL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**clean, **environment})
    assert done.returncode == 1
    message = done.stderr.splitlines()[-1]
    assert message.startswith(
        f"podium: error: the pretrained weights of {HOUSE_MODEL} are not available: {UNREACHABLE}"
    )
    for remedy in ("--weights none", "--weights PATH", "hub cache", str(tmp_path / "hub-cache")):
        assert remedy in message
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "podium.models.hub" in imported
    assert not imported & {"torch", "timm", "numpy", "pandas"}


def test_a_wrong_tag_is_answered_with_the_right_ones() -> None:
    with pytest.raises(PodiumError, match=r"no weights '.*in99k'; there are .*convnext_small.in12k_ft_in1k"):
        build_model(recipe_of("convnext_small.in99k", "pretrained", 224), ["a", "b"])


def test_every_name_that_timm_registers_is_known_without_importing_it() -> None:
    register_zoo()
    houses = {name: timm.models.model_entrypoint(name).__module__.split(".")[0] for name in timm.list_models()}
    known = {
        name for name, house in houses.items() if house in ("timm", "podium_annex")
    }  # other tests register their own
    assert registered_names() == known
    check_model_name("convnext_small.in12k_ft_in1k")
    with pytest.raises(PodiumError, match=rf"among the {len(known):,} of .*; did you mean convnext_small"):
        check_model_name("convnxt_small")
    with pytest.raises(PodiumError, match=r"podium.* models shows a choice"):
        check_model_name("zzz")


def test_without_the_annex_a_model_of_the_zoo_is_missed_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    timms = registered_names() - zoo_names()
    monkeypatch.setattr("podium.models.hub.registered_names", lambda: timms)
    monkeypatch.setattr("podium.models.hub.zoo_names", frozenset)
    for name, refuse in (("cswin_tiny", check_model_name), ("road_*_nano", expand_pattern)):
        with pytest.raises(PodiumError, match=r"podium_annex.* not installed") as caught:
            refuse(name)
        assert name in str(caught.value)
