"""A fixed batch norm that is a part of the convolution before it computes what timm's does."""

import copy
from statistics import median
from typing import Any

import pytest
import timm
import torch
from timm.utils import ModelEmaV3
from torch import Tensor, nn

from operators.comparison import error, logits_and_gradients
from podium.models.operators import kernels
from podium.models.operators.exchange import exchange_operators
from podium.models.operators.folded_norm import FoldedConv, PassedNorm, can_fold
from second_round import first_of

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(bool(kernels.problem()), reason=kernels.problem())
# Names and image sizes; the comment says what each one has.
MODELS = {
    "tf_efficientnet_lite0": 64,  # ReLU6, margins of TensorFlow
    "test_efficientnet": 64,  # SiLU
    "mobilenetv3_small_050": 64,  # hard swish, squeeze and excitation
    "mobilenetv4_conv_small_050": 64,  # other blocks
    "resnet10t": 64,  # a deep stem, convolutions with small maps
    "resnet26": 96,  # bottlenecks
    "regnetx_002": 64,  # grouped convolutions
    "test_efficientnet_gn": 64,  # group norm: nothing to fold
}

FIRST = ["tf_efficientnet_lite0", "test_efficientnet", "regnetx_002", "test_efficientnet_gn"]


def build(name: str) -> tuple[nn.Module, Tensor]:
    """Returns a model whose batch norms have statistics and parameters of their own, and are fixed."""
    torch.manual_seed(0)
    model: nn.Module = timm.create_model(name, num_classes=5).to(memory_format=torch.channels_last)
    for norm in norms_of(model):
        norm.running_mean.normal_(0, 0.2)
        norm.running_var.uniform_(0.5, 1.5)
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, 0, 0.2)
    images = torch.randn(4, 3, MODELS[name], MODELS[name]).to(memory_format=torch.channels_last)
    return fixed(model.train()), images


def norms_of(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]


def fixed(model: nn.Module) -> nn.Module:
    for norm in norms_of(model):
        norm.eval()
    return model


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float32], ids=["bfloat16", "float32"])
@pytest.mark.parametrize("name", first_of(FIRST, MODELS))
def test_logits_and_gradients_are_those_of_timm(name: str, precision: torch.dtype) -> None:
    plain, images = build(name)
    fast = copy.deepcopy(plain)
    counts = exchange_operators(fast, CPU, precision, fixed_norms=True)
    assert ("fixed batch norm" in counts) == (bool(norms_of(plain)) and can_fold(precision))
    exact = logits_and_gradients(copy.deepcopy(plain).double(), images.double(), torch.float64)
    of_timm, of_podium = (
        {part: error(found, exact[part]) for part, found in logits_and_gradients(model, images, precision).items()}
        for model in (plain, fast)
    )
    if precision == torch.float32:
        assert median(of_podium.values()) < 1e-4
        assert max(of_podium.values()) < 5e-3  # a number near 0 may be at either side of a ReLU's kink
    assert median(of_podium[part] / max(of_timm[part], 1e-7) for part in exact) < 1.5
    assert of_podium["logits"] < 2 * of_timm["logits"]


@pytest.mark.parametrize("name", first_of(FIRST, MODELS))
def test_parameters_keep_their_names_and_statistics_stay(name: str) -> None:
    plain, images = build(name)
    fast = copy.deepcopy(plain)
    exchange_operators(fast, CPU, torch.float32, fixed_norms=True)
    logits_and_gradients(fast, images, torch.float32)
    before, after = plain.state_dict(), fast.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert [name for name, _ in plain.named_modules()] == [name for name, _ in fast.named_modules()]


def test_a_model_that_is_placed_for_float32_can_be_computed_in_bfloat16() -> None:
    """On a CPU that does not multiply bfloat16, nothing is folded then."""
    plain, images = build("tf_efficientnet_lite0")
    fast = copy.deepcopy(plain)
    exchange_operators(fast, CPU, torch.float32, fixed_norms=True)
    assert can_fold(torch.float32)
    logits = [logits_and_gradients(model, images, torch.bfloat16)["logits"] for model in (plain, fast)]
    assert error(logits[1], logits[0]) < 0.1


def test_a_norm_that_learns_statistics_is_computed_as_before() -> None:
    plain, images = build("tf_efficientnet_lite0")
    exchanged = copy.deepcopy(plain)
    assert exchange_operators(exchanged, CPU, torch.float32, frozenset({"fixed batch norm"}), fixed_norms=True)
    for expected, found in zip(plain.train().modules(), exchanged.train().modules(), strict=True):
        assert expected.training == found.training
    with torch.no_grad():
        assert torch.equal(plain(images), exchanged(images))
    assert torch.equal(plain.state_dict()["bn1.running_mean"], exchanged.state_dict()["bn1.running_mean"])


def test_nothing_is_folded_unless_the_statistics_are_fixed() -> None:
    model, _ = build("tf_efficientnet_lite0")
    assert "fixed batch norm" not in exchange_operators(model, CPU, torch.bfloat16)


def test_a_copy_has_norms_of_its_own() -> None:
    """The averaged weights are a copy of the model, and move away from it."""
    model, images = build("tf_efficientnet_lite0")
    exchange_operators(model, CPU, torch.float32, fixed_norms=True)
    average = ModelEmaV3(model, decay=0.9).module
    folded = [module for module in average.modules() if isinstance(module, FoldedConv)]
    assert folded
    own = set(average.modules())
    assert all(module.norm in own and isinstance(module.norm, PassedNorm) for module in folded)
    with torch.no_grad():
        before = average(images)
        for parameter in model.parameters():
            parameter.mul_(2)
        assert torch.equal(average(images), before)


def test_frozen_layers_get_no_gradient() -> None:
    model, images = build("tf_efficientnet_lite0")
    exchange_operators(model, CPU, torch.float32, fixed_norms=True)
    module: Any = model
    for layer in (module.conv_stem, module.bn1, *module.blocks[:3]):
        layer.requires_grad_(False)
    model(images).sum().backward()
    assert {name.split(".")[0] for name, weight in model.named_parameters() if weight.grad is None} == {
        *("conv_stem", "bn1", "blocks")
    }
    assert module.blocks[2][0].conv_dw.weight.grad is None
    assert module.blocks[3][0].conv_dw.weight.grad is not None
