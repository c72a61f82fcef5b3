"""Every model of the zoo does what timm's models do, and costs what its paper says."""

import copy
import math

import pytest
import timm
import torch
from timm.optim import create_optimizer_v2
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from podium.models.operators.exchange import exchange_operators
from podium.models.registry import register_zoo, zoo_names
from second_round import first_of

register_zoo()
NAMES = sorted(name for name in zoo_names() if not name.startswith("road_"))
NANO = [name for name in NAMES if "nano" in name]
SOME = ["cswin_nano", "deepvit_nano", "pvt_nano", "t2t_vit_nano"]
# Millions of parameters and 10^9 multiply-adds at 224 px, from the papers' tables of results on ImageNet. The paper of
# CSWin rounds parameters up to whole millions. What DeepViT's and CPVT's papers count otherwise is in docs/zoo.md.
PAPERS = {
    "t2t_vit_7": (4.3, 1.1),
    "t2t_vit_10": (5.9, 1.5),
    "t2t_vit_12": (6.9, 1.8),
    "t2t_vit_14": (21.5, 4.8),
    "t2t_vit_19": (39.2, 8.5),
    "t2t_vit_24": (64.1, 13.8),
    "t2t_vit_t_14": (21.5, 6.1),
    "t2t_vit_t_19": (39.2, 9.8),
    "t2t_vit_t_24": (64.1, 15.0),
    "cswin_tiny": (23, 4.3),
    "cswin_small": (35, 6.9),
    "cswin_base": (78, 15.0),
    "pvt_tiny": (13.2, 1.9),
    "pvt_small": (24.5, 3.8),
    "pvt_medium": (44.2, 6.7),
    "pvt_large": (61.4, 9.8),
    "teaching_vit_small_patch32": (22.9, 1.1),
}


def native_size(model: nn.Module) -> int:
    return int(timm.data.resolve_model_data_config(model)["input_size"][-1])


def images_for(model: nn.Module, count: int = 2) -> Tensor:
    return torch.randn(count, 3, native_size(model), native_size(model))


def create(name: str, **options: object) -> nn.Module:
    model: nn.Module = timm.create_model(name, num_classes=5, **options)
    return model


def without_fused_attention(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = False  # type: ignore[assignment]
    return model


@pytest.mark.parametrize("name", first_of(["t2t_vit_7", "cswin_tiny", "pvt_tiny"], PAPERS))
def test_it_costs_what_its_paper_says(name: str) -> None:
    parameters, multiply_adds = PAPERS[name]
    with torch.device("meta"):  # autocast, which the Performer uses, does not know this device
        model = without_fused_attention(timm.create_model(name)).eval()
    model.to_empty(device="cpu")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(1, 3, 224, 224))
    millions = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    if isinstance(parameters, int):
        assert math.ceil(millions) == parameters
    else:
        assert millions == pytest.approx(parameters, rel=0.01, abs=0.05)
    assert counter.get_total_flops() / 2e9 == pytest.approx(multiply_adds, rel=0.015, abs=0.05)


def test_position_generators_are_as_small_as_the_paper_of_cpvt_says() -> None:
    def count(name: str) -> int:
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in timm.create_model(name).parameters())

    assert count("deit_tiny_patch16_224") - count("cpvt_tiny") == 35_904
    assert count("cpvt_base") - count("cpvt_base_gap") == 768  # the class token


@pytest.mark.parametrize("name", NANO)
def test_a_gradient_reaches_every_parameter(name: str) -> None:
    model = create(name, drop_path_rate=0.0)
    model(images_for(model)).square().sum().backward()
    learned = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    without = [name for name, parameter in learned.items() if parameter.grad is None or not parameter.grad.any()]
    assert not [name for name in without if not name.endswith("reatten_matrix.bias")]  # the norm after it removes it


@pytest.mark.parametrize("name", first_of(SOME, NANO))
def test_it_takes_images_of_another_size(name: str) -> None:
    native = timm.get_pretrained_cfg(name).input_size[-1]
    fixed = timm.get_pretrained_cfg(name).fixed_input_size
    model = create(name, **({"img_size": 2 * native} if fixed else {})).eval()
    assert model(torch.randn(1, 3, 2 * native, 2 * native)).shape == (1, 5)


@pytest.mark.parametrize("name", NANO)
def test_the_maps_of_attention_can_be_seen_and_fused_attention_computes_the_same(name: str) -> None:
    model = create(name).eval()
    images, maps = images_for(model), []
    with torch.no_grad():
        fused = model(images)
        without_fused_attention(model)
        for module_name, module in model.named_modules():
            if module_name.endswith("attn_drop"):
                module.register_forward_hook(lambda _, __, output: maps.append(output))
        assert torch.allclose(model(images), fused, atol=1e-5)
    assert maps
    for found in maps:
        assert torch.allclose(found.sum(-1), torch.ones(found.shape[:-1]), atol=1e-5)


@pytest.mark.parametrize("name", first_of(SOME, NANO))
def test_bfloat16_changes_little(name: str) -> None:
    model = create(name).eval()
    images = images_for(model, 4)
    with torch.no_grad():
        expected = model(images)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = model(images).float()
    assert rounded.dtype == torch.float32
    assert (rounded - expected).norm() < 0.05 * expected.norm()


@pytest.mark.parametrize("name", first_of(SOME, NANO))
def test_exchanged_operators_compute_the_same(name: str) -> None:
    model = create(name).eval()
    exchanged = copy.deepcopy(model)
    assert exchange_operators(exchanged, torch.device("cpu"), torch.bfloat16)
    images = images_for(model)
    with torch.no_grad():
        assert torch.allclose(exchanged(images), model(images), atol=1e-5)


@pytest.mark.parametrize("name", first_of(["cswin_nano"], NANO))
def test_it_compiles_into_one_graph(name: str) -> None:
    model = create(name).eval()
    images = images_for(model)
    with torch.no_grad():
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        assert torch.allclose(compiled(images), model(images), atol=1e-5)


@pytest.mark.parametrize("name", first_of(SOME, NANO))
def test_checkpointing_gives_the_same_gradients(name: str) -> None:
    model = create(name, drop_path_rate=0.0).eval()
    images = images_for(model)

    def gradients() -> list[Tensor]:
        model.zero_grad()
        model(images).square().sum().backward()
        return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]

    plain = gradients()
    model.set_grad_checkpointing()  # type: ignore[operator]
    for checkpointed, expected in zip(gradients(), plain, strict=True):
        assert torch.allclose(checkpointed, expected, atol=1e-5)


@pytest.mark.parametrize("name", first_of(SOME, NANO))
def test_the_head_is_reset_as_timm_does_it(name: str) -> None:
    model = create(name).eval()
    images = images_for(model)
    features = model.forward_features(images)  # type: ignore[operator]
    assert torch.equal(model.forward_head(features), model(images))  # type: ignore[operator]
    assert model.forward_head(features, pre_logits=True).shape == (2, model.head_hidden_size)  # type: ignore[operator]
    model.reset_classifier(7)  # type: ignore[operator]
    assert model(images).shape == (2, 7)
    assert model.get_classifier().out_features == 7  # type: ignore[operator]
    model.reset_classifier(0)  # type: ignore[operator]
    assert model(images).shape == (2, model.num_features)


@pytest.mark.parametrize("name", first_of(SOME, NANO))
def test_intermediate_maps(name: str) -> None:
    model = create(name).eval()
    images = images_for(model)
    last, maps = model.forward_intermediates(images)  # type: ignore[operator]
    assert torch.equal(last, model.forward_features(images))  # type: ignore[operator]
    for found, facts in zip(maps, model.feature_info, strict=True):  # type: ignore[arg-type]
        side = native_size(model) // facts["reduction"]
        assert found.shape == (2, facts["num_chs"], side, side)
    only = model.forward_intermediates(images, indices=[1], stop_early=True, intermediates_only=True)  # type: ignore[operator]
    assert torch.equal(only[0], maps[1])
    features = timm.create_model(name, features_only=True, out_indices=(0, 2)).eval()
    assert [found.shape[1] for found in features(images)] == features.feature_info.channels()


@pytest.mark.parametrize("name", NANO)
def test_layer_decay_grows_from_the_stem_to_the_head(name: str) -> None:
    model = create(name)
    optimizer = create_optimizer_v2(model, "adamw", lr=1.0, weight_decay=0.05, layer_decay=0.5)
    scale = {id(weight): group["lr_scale"] for group in optimizer.param_groups for weight in group["params"]}
    weights = {name: scale[id(weight)] for name, weight in model.named_parameters() if weight.requires_grad}
    assert weights["head.weight"] == 1
    decayed = {id(weight) for group in optimizer.param_groups if group["weight_decay"] for weight in group["params"]}
    positions = [weight for name, weight in model.named_parameters() if name.endswith(("_embed", "cls_token"))]
    assert not [weight for weight in positions if weight.requires_grad and id(weight) in decayed]


def test_timm_finds_every_model() -> None:
    assert set(NAMES) <= set(timm.list_models())
    assert all(timm.models.model_entrypoint(name).__module__.startswith("podium_annex.zoo.") for name in NAMES)
