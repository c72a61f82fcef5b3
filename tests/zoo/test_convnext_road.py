"""The road costs at every step what the paper says, and its two ends are timm's ResNet-50 and ConvNeXt-T."""

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from timm.optim import create_optimizer_v2
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from podium.models.registry import register_zoo, zoo_names
from second_round import first_of

register_zoo()
# 10^9 multiply-adds at 224 px, from table 10 of arXiv 2201.03545; docs/zoo.md says why layernorm is not 4.46.
PAPER = {
    "road_00_resnet50": 4.09,
    "road_01_stage_ratio": 4.53,
    "road_02_patchify_stem": 4.42,
    "road_03_depthwise": 2.35,
    "road_04_width": 5.27,
    "road_05_inverted": 4.64,
    "road_06_depthwise_up": 4.07,
    "road_07_kernel7": 4.15,
    "road_08_gelu": 4.15,
    "road_09_fewer_activations": 4.15,
    "road_10_fewer_norms": 4.15,
    "road_11_layernorm": 4.15,
    "road_12_convnext": 4.49,
}
NANO = [f"{name}_nano" for name in PAPER]
SOME = [NANO[0], NANO[6], NANO[-1]]
ENDS = {"road_00_resnet50": "resnet50", "road_12_convnext": "convnext_tiny"}


def create(name: str, **options: Any) -> Any:
    return timm.create_model(name, **{"num_classes": 5, **options})


def randomise(model: nn.Module) -> None:
    """Gives every weight and statistic a value of its own, also those that a new model has at 0 and 1."""
    for name, value in model.state_dict().items():
        if value.ndim > 1:
            nn.init.kaiming_normal_(value)
        elif value.is_floating_point():
            is_shift = name.endswith(("bias", "running_mean"))
            value.uniform_(-0.2, 0.2) if is_shift else value.uniform_(0.6, 1.4)


def images_of(side: int, count: int = 2) -> Tensor:
    return torch.randn(count, 3, side, side)


def test_every_step_has_a_large_and_a_small_model() -> None:
    assert {name for name in zoo_names() if name.startswith("road_")} == {*PAPER, *NANO}
    for name in (*PAPER, *NANO):
        assert timm.get_pretrained_cfg(name).input_size == (3, 32, 32) if name in NANO else (3, 224, 224)


@pytest.mark.parametrize("name", first_of(ENDS, PAPER))
def test_it_costs_what_the_paper_says(name: str) -> None:
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        model = timm.create_model(name).eval()
        assert model(torch.empty(1, 3, 224, 224)).shape == (1, 1000)
        multiply_adds = counter.get_total_flops() / 2e9
        assert model(torch.empty(1, 3, 192, 192)).shape == (1, 1000)
    assert multiply_adds == pytest.approx(PAPER[name], abs=0.006, rel=0.01 if name == "road_12_convnext" else 0)


@pytest.mark.parametrize("name", ENDS)
def test_the_ends_are_timms_models(name: str, tmp_path: Path) -> None:
    theirs = timm.create_model(ENDS[name], num_classes=1000).eval()
    randomise(theirs)
    torch.save(theirs.state_dict(), tmp_path / "weights.pt")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        expected = theirs(images := images_of(96))
    cost = counter.get_total_flops()
    ours = create(name, num_classes=1000, pretrained=True, pretrained_cfg_overlay={"file": tmp_path / "weights.pt"})
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        logits = ours.eval()(images)
    assert expected.std() > 0.1
    assert torch.allclose(logits, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))
    assert counter.get_total_flops() == cost
    assert sum(weight.numel() for weight in ours.parameters()) == sum(weight.numel() for weight in theirs.parameters())


@pytest.mark.parametrize("name", first_of(NANO[-1:], [NANO[0], NANO[-1]]))
def test_it_loads_its_own_weights_and_those_of_another_number_of_channels_and_classes(
    name: str, tmp_path: Path
) -> None:
    saved = create(name).eval()
    randomise(saved)
    torch.save(saved.state_dict(), tmp_path / "weights.pt")
    overlay = {"file": tmp_path / "weights.pt", "num_classes": 5}
    loaded = create(name, pretrained=True, pretrained_cfg_overlay=overlay).eval()
    images = images_of(32)
    assert torch.equal(loaded(images), saved(images))
    grey = create(name, num_classes=3, in_chans=1, pretrained=True, pretrained_cfg_overlay=overlay).eval()
    assert torch.allclose(grey.stem.conv.weight, saved.stem.conv.weight.sum(1, keepdim=True))
    assert grey(images[:, :1]).shape == (2, 3)


@pytest.mark.parametrize("name", first_of(SOME, NANO))
def test_a_gradient_reaches_every_parameter(name: str) -> None:
    model = create(name, drop_path_rate=0.1, drop_rate=0.1)
    model(images_of(64, 4)).square().sum().backward()
    assert not [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]


@pytest.mark.parametrize("name", first_of(SOME, NANO))
def test_checkpointing_gives_the_same_gradients(name: str) -> None:
    model = create(name).eval()
    randomise(model)
    images = images_of(64)

    def gradients() -> list[Tensor]:
        model.zero_grad()
        model(images).square().sum().backward()
        return [weight.grad.clone() for weight in model.parameters()]

    plain = gradients()
    model.set_grad_checkpointing()
    for checkpointed, expected in zip(gradients(), plain, strict=True):
        assert torch.allclose(checkpointed, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("name", first_of(SOME, NANO))
def test_the_layout_and_bfloat16_change_only_the_rounding(name: str) -> None:
    model = create(name).eval()
    randomise(model)
    images = images_of(64)
    with torch.no_grad():
        expected = model(images)
        model.to(memory_format=torch.channels_last)
        in_another_layout = model(images.to(memory_format=torch.channels_last))
        assert torch.allclose(in_another_layout, expected, atol=1e-5 * float(expected.abs().max()))
        with torch.autocast("cpu", torch.bfloat16):
            assert (model(images).float() - expected).norm() < 0.1 * expected.norm()


@pytest.mark.all
@pytest.mark.parametrize("name", ENDS)
def test_it_compiles_into_one_graph(name: str) -> None:
    model = create(f"{name}_nano").eval()
    images = images_of(64)
    with torch.no_grad():
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        assert torch.allclose(compiled(images), model(images), atol=1e-5)


@pytest.mark.parametrize("name", first_of(SOME, NANO))
def test_heads_and_intermediate_maps_are_as_in_timm(name: str) -> None:
    model = create(name).eval()
    images = images_of(64)
    features = model.forward_features(images)
    assert torch.equal(model.forward_head(features), model(images))
    assert model.forward_head(features, pre_logits=True).shape == (2, model.head_hidden_size)
    last, maps = model.forward_intermediates(images)
    assert torch.equal(last, features)
    for found, facts in zip(maps, model.feature_info, strict=True):
        assert found.shape == (2, facts["num_chs"], 64 // facts["reduction"], 64 // facts["reduction"])
    only = model.forward_intermediates(images, indices=[1], stop_early=True, intermediates_only=True)
    assert torch.equal(only[0], maps[1])
    pyramid = timm.create_model(name, features_only=True, out_indices=(0, 2)).eval()
    assert [found.shape[1] for found in pyramid(images)] == pyramid.feature_info.channels()

    model.reset_classifier(7)
    assert model(images).shape == (2, 7)
    assert model.get_classifier() is model.get_submodule(model.get_classifier(name_only=True))
    assert model.get_submodule(model.pretrained_cfg["classifier"]).out_features == 7
    assert model.get_submodule(model.pretrained_cfg["first_conv"]).in_channels == 3
    model.reset_classifier(0)
    assert model(images).shape == (2, model.num_features)
    model.reset_classifier(0, "")
    assert model(images).shape == features.shape


@pytest.mark.parametrize("name", first_of(SOME, NANO))
def test_layer_decay_grows_from_the_stem_to_the_head(name: str) -> None:
    model = create(name)
    optimizer = create_optimizer_v2(model, "adamw", lr=1.0, weight_decay=0.05, layer_decay=0.5)
    scale = {id(weight): group["lr_scale"] for group in optimizer.param_groups for weight in group["params"]}
    weights = {name: scale[id(weight)] for name, weight in model.named_parameters()}
    path = ["stem.conv", *(f"stages.{stage}.blocks.{block}.branch.conv1" for stage in range(4) for block in range(3))]
    rates = [weights[f"{module}.weight"] for module in [*path, "head.fc"]]
    assert rates == sorted(set(rates))
    assert rates[-1] == 1
