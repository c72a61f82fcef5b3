"""A model of one's own around a backbone of timm: the backbone has its pretrained weights, the rest is new."""

import json
import re
import signal
from pathlib import Path

import pytest
import torch

from extension_file import write_extension
from podium.basics.errors import PodiumError
from podium.models.build import backbone_of, build_model, resolve_recipe
from podium.models.inner_weights import recorded_sources
from podium.models.look_inside import inner_backbones
from podium.models.model_file import load_model
from podium.models.weight_packages import PACKAGES
from podium.options.extensions.extension_files import load_extensions
from tiny import FAST, Podium, assert_same_fold, done, one_line, recipe_of, run_of, stop_in_step

LITE0 = PACKAGES[0]
AROUND = """
import timm
from timm.models import register_model
from torch import nn

class TwoLayers(nn.Module):
    def __init__(self, backbone, num_classes):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Sequential(nn.Linear(backbone.num_features, 16), nn.GELU(), nn.Linear(16, num_classes))

    def forward(self, images):
        return self.head(self.backbone(images))

@register_model
def my_lite(pretrained=False, num_classes=1000, **options):
    return TwoLayers(timm.create_model("tf_efficientnet_lite0", pretrained=pretrained, num_classes=0), num_classes)

@register_model
def my_lite_with_own_classes(pretrained=False, num_classes=1000, **options):
    return nn.Sequential(timm.create_model("tf_efficientnet_lite0", pretrained=pretrained, num_classes=num_classes))

@register_model
def my_deaf_lite(pretrained=False, num_classes=1000, **options):
    return TwoLayers(timm.create_model("tf_efficientnet_lite0", num_classes=0), num_classes)

@register_model
def my_vit(pretrained=False, num_classes=1000, **options):
    return TwoLayers(timm.create_model("test_vit", pretrained=pretrained, num_classes=0), num_classes)
"""
pytestmark = pytest.mark.usefixtures("timm_registry")
PRETRAINED = ["pretrained" if word == "none" else word for word in FAST]


@pytest.fixture
def around(tmp_path: Path, timm_registry: None) -> None:
    write_extension(tmp_path, AROUND)
    load_extensions(tmp_path)


@pytest.mark.usefixtures("around")
def test_the_backbone_gets_the_installed_weights_and_the_record_says_what_is_new() -> None:
    model, spec = build_model(recipe_of("my_lite", "pretrained", 64), ["a", "b", "c"])
    state = model.state_dict()
    whole = LITE0.tensors(build_model(recipe_of(LITE0.model, "none", 64), ["a"] * 1000)[0].state_dict())
    kept = {name: tensor for name, tensor in whole.items() if "classifier" not in name}
    assert len(kept) > 100
    assert all(torch.equal(state[f"backbone.{name}"], tensor) for name, tensor in kept.items())
    assert spec.source == f"{LITE0.source}, in backbone; new: head"
    assert recorded_sources(spec.source, 1) == [LITE0.source]
    assert (spec.mean, spec.std) == ((0.5,) * 3, (0.5,) * 3)  # as the weights of the backbone expect their images


@pytest.mark.usefixtures("around")
def test_a_classifier_with_other_classes_is_new() -> None:
    _, spec = build_model(recipe_of("my_lite_with_own_classes", "pretrained", 64), ["a", "b", "c"])
    assert spec.source.endswith("; new: 0.classifier")
    assert "0.conv_stem, " in spec.source


@pytest.mark.usefixtures("around")
def test_it_is_fine_tuned_as_its_backbone_is() -> None:
    assert inner_backbones("my_lite") == ("tf_efficientnet_lite0.in1k",)
    assert inner_backbones("my_deaf_lite") == inner_backbones("test_vit") == ()
    own, backbone = backbone_of("my_vit"), backbone_of("test_vit")
    assert (own.kind, own.image_size) == (backbone.kind, backbone.image_size) == ("vit", 160)
    assert backbone_of("my_vit", from_scratch=True).image_size == 224  # as it was before there were weights for it
    assert resolve_recipe({"model": "my_vit"}, {}).lr == resolve_recipe({"model": "test_vit"}, {}).lr


@pytest.mark.usefixtures("around")
def test_weights_that_cannot_be_given_are_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(PodiumError, match=r"my_deaf_lite .*hand `pretrained` .*timm\.create_model.*--weights none"):
        build_model(recipe_of("my_deaf_lite", "pretrained", 64), ["a", "b"])
    file = tmp_path / "weights.pth"
    torch.save({}, file)
    with pytest.raises(PodiumError, match=r"my_lite takes no file.*--weights pretrained"):
        build_model(recipe_of("my_lite", str(file), 64), ["a", "b"])


@pytest.mark.annex
@pytest.mark.slow
def test_it_is_trained_resumed_gone_on_from_and_submitted(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_extension(tiny, AROUND)
    train = ("train", *PRETRAINED, "--model", "my_lite", "--epochs", "2", "--folds", "0")
    _, err = done(podium(*train, "--name", "one"))
    assert f"podium: weights: {LITE0.source}, in backbone; new: head" in err
    recipe = run_of(tiny, "one").recipe
    assert recipe["weights_source"] == f"{LITE0.source}, in backbone; new: head"
    assert recipe["weights_licence"] == LITE0.licence
    stop_in_step(podium, 0, *train, "--name", "two", number=signal.SIGINT)
    done(podium(*train, "--name", "two"))
    assert_same_fold(run_of(tiny, "one"), run_of(tiny, "two"))
    done(podium("train", "-c", "tiny", "--workers", "0", "--epochs", "1", "--from", "one"))
    assert load_model(run_of(tiny, "one-more").weights_path(0))[1].mean == (0.5,) * 3
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    out, _ = done(podium("submit", "-c", "tiny", "--runs", "one", "--anyway"))
    csv = out.split()[-1]
    assert LITE0.source in Path(csv).with_suffix(".json").read_text()
    assert LITE0.distribution in podium("doctor", "-c", "tiny", "--model", "my_lite")[1]


@pytest.mark.annex
def test_the_list_of_models_knows_the_weights_inside(tiny: Path, podium: Podium) -> None:
    write_extension(tiny, AROUND)
    _, out, err = podium("models", "my_lite", "-c", "tiny")
    assert "of tf_efficientnet_lite0.in1k" in out
    assert re.search(r"apache-2.0 .* package ", out)
    assert "--weights none" not in err
    (record,) = json.loads(podium("models", "my_vit", "-c", "tiny", "--json")[1])
    assert (record["image_size"], record["from"], record["package"]) == (160, "project", None)


def test_a_backbone_whose_weights_are_nowhere_is_named(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HUB_CACHE", str(tiny / "cache"))
    write_extension(tiny, AROUND)
    one_line(
        podium("train", *PRETRAINED, "--model", "my_vit"),
        "the pretrained weights of test_vit",
        f"--model {LITE0.model}",
        "--weights none",
    )
