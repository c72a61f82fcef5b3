"""The exchanged operators compute what timm's do, up to rounding, with the same parameters."""

import copy
from collections.abc import Iterator

import pytest
import timm
import torch
import torch.nn.functional as F
from timm.layers.conv2d_same import Conv2dSame
from timm.models.convnext import ConvNeXt
from timm.models.mlp_mixer import MlpMixer
from timm.models.swin_transformer import SwinTransformer
from torch import Tensor, nn

from operators.comparison import error, logits_and_gradients
from podium.models.operators import kernels
from podium.models.operators.exchange import MOST_TOKENS, exchange_operators
from podium.models.operators.layers import (
    DepthwiseConv,
    DepthwiseConvSame,
    FastMlp,
    FastWindowAttention,
    PatchConv,
    SmallMapConv,
)
from second_round import first_of

CPU = torch.device("cpu")
needs_kernels = pytest.mark.skipif(bool(kernels.problem()), reason=kernels.problem())


@pytest.fixture(autouse=True)
def restore_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def small_swin() -> nn.Module:
    """Two stages of windows of 4 x 4, every second one shifted."""
    sizes = {"img_size": 32, "patch_size": 4, "window_size": 4, "embed_dim": 24}
    model: nn.Module = SwinTransformer(**sizes, depths=(2, 2), num_heads=(2, 3), num_classes=5, drop_path_rate=0.0)
    return model


def small_convnext() -> nn.Module:
    model: nn.Module = ConvNeXt(num_classes=5, depths=(1, 1, 2, 1), dims=(16, 24, 40, 48), ls_init_value=0.5)
    return model


MODELS = {
    "vit": (lambda: timm.create_model("vit_tiny_patch16_224", img_size=48, depth=2, num_classes=5), 48),
    "convnext": (small_convnext, 64),
    "convnext of 1 x 1 convolutions": (lambda: timm.create_model("test_convnext", num_classes=5), 64),
    "resnet": (lambda: timm.create_model("resnet10t", num_classes=5), 64),
    "swin": (small_swin, 32),
    "mixer": (lambda: MlpMixer(num_classes=5, patch_size=32, num_blocks=2), 224),
    "depthwise 5 x 5": (lambda: timm.create_model("test_efficientnet", num_classes=5), 64),
    "margins of tensorflow": (lambda: timm.create_model("tf_efficientnet_lite0", num_classes=5), 64),
}
KINDS = {
    "vit": {"attention", "patches", "linear and gelu"},
    "convnext": {"depthwise", "layer scale", "linear and gelu"},
    "resnet": {"small maps"},
    "swin": {"linear and gelu", "window attention"},
    "mixer": {"patches", "linear and gelu"},
}


def build(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    make, size = MODELS[name]
    images = torch.randn(4, 3, size, size).to(memory_format=torch.channels_last)
    return make().to(memory_format=torch.channels_last).train(), images


@needs_kernels
@pytest.mark.parametrize("name", MODELS)
def test_in_float64_the_exchanged_model_gives_the_same_logits_and_gradients(name: str) -> None:
    plain, images = build(name)
    plain, images = plain.double(), images.double()
    fast = copy.deepcopy(plain)
    counts = exchange_operators(fast, CPU, torch.bfloat16)
    assert set(counts) >= KINDS.get(name, set())
    assert counts
    exact = logits_and_gradients(plain, images, torch.float64)
    for part, tensor in logits_and_gradients(fast, images, torch.float64).items():
        assert error(tensor, exact[part]) < 1e-9, part


@needs_kernels
@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float32], ids=["bfloat16", "float32"])
@pytest.mark.parametrize("name", first_of(["vit", "convnext", "swin", "depthwise 5 x 5"], MODELS))
def test_the_exchanged_model_rounds_no_more_than_timms(name: str, precision: torch.dtype) -> None:
    plain, images = build(name)
    fast = copy.deepcopy(plain)
    exchange_operators(fast, CPU, precision)
    exact = logits_and_gradients(copy.deepcopy(plain).double(), images.double(), torch.float64)
    of_timm = logits_and_gradients(plain, images, precision)
    unit = 2**-8 if precision == torch.bfloat16 else 2**-20  # where timm happens to round little
    for part, tensor in logits_and_gradients(fast, images, precision).items():
        assert error(tensor, exact[part]) < 1.5 * error(of_timm[part], exact[part]) + 2 * unit, part


@pytest.mark.parametrize("name", MODELS)
def test_the_parameters_keep_their_names_and_values(name: str) -> None:
    plain, _ = build(name)
    fast = copy.deepcopy(plain)
    exchange_operators(fast, CPU, torch.bfloat16)
    before, after = plain.state_dict(), fast.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[key], after[key]) for key in before)
    fast.load_state_dict(before)


def test_only_patches_are_exchanged_on_a_gpu_and_only_kernels_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in MODELS:
        model, _ = build(name)
        assert exchange_operators(model, torch.device("cuda"), torch.float32) == {}
        assert set(exchange_operators(model, torch.device("cuda"), torch.bfloat16)) <= {"patches"}
        model, _ = build(name)
        assert set(exchange_operators(model, CPU, torch.float32)) <= {"depthwise"}
    monkeypatch.setattr(kernels, "_library", lambda: (None, "there is no C compiler (cc)"))
    model, _ = build("convnext")
    assert exchange_operators(model, CPU, torch.float32) == {}
    assert set(exchange_operators(model, CPU, torch.bfloat16)) <= {"patches", "layer scale"}


def test_the_kinds_can_be_chosen() -> None:
    model, _ = build("vit")
    assert exchange_operators(model, CPU, torch.bfloat16, frozenset({"patches"})) == {"patches": 1}


def test_a_subclass_is_left_alone_because_it_computes_something_else() -> None:
    class Standardised(nn.Conv2d):
        pass

    model = nn.Sequential(Standardised(768, 8, 2, 2), nn.Conv2d(768, 8, 2, 2), nn.Conv2d(8, 8, 2, 2))
    assert exchange_operators(model, CPU, torch.bfloat16) == {"patches": 1}
    assert [type(layer) for layer in model] == [Standardised, PatchConv, nn.Conv2d]


@pytest.mark.parametrize(("tokens", "fused"), [(MOST_TOKENS, False), (MOST_TOKENS + 1, True)])
def test_attention_over_many_tokens_stays_as_timm_computes_it(tokens: int, fused: bool) -> None:
    attention = timm.layers.Attention(32, num_heads=2)
    exchange_operators(attention, CPU, torch.bfloat16)
    attention(torch.zeros(1, tokens, 32))
    assert attention.fused_attn is fused


def test_attention_that_is_called_by_keyword_stays_as_timm_computes_it() -> None:
    attention = timm.layers.Attention(32, num_heads=2)
    exchange_operators(attention, CPU, torch.bfloat16)
    attention(x=torch.zeros(1, 4, 32))
    assert attention.fused_attn is True


# --- layers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(2, 2), (3, 4), (5, 8), (9, 7)])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("side", [3, 5])
def test_a_convolution_with_small_maps(size: tuple[int, int], stride: int, side: int) -> None:
    torch.manual_seed(0)
    plain = nn.Conv2d(6, 10, side, stride, side // 2, bias=False).double()
    fast = copy.deepcopy(plain)
    assert exchange_operators(fast, CPU, torch.bfloat16, frozenset({"small maps"})) == {"small maps": 1}
    assert type(fast) is SmallMapConv
    assert_same(plain, fast, torch.randn(3, 6, *size, dtype=torch.float64), 1e-12)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("size", [(8, 12), (9, 12)], ids=["whole patches", "cut patches"])
def test_a_convolution_of_patches(size: tuple[int, int], bias: bool) -> None:
    torch.manual_seed(0)
    plain = nn.Conv2d(3, 16, (4, 6), (4, 6), bias=bias).double()
    fast = copy.deepcopy(plain)
    fast.__class__ = PatchConv
    assert_same(plain, fast, torch.randn(2, 3, *size, dtype=torch.float64), 1e-12)


@needs_kernels
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("side", kernels.DEPTHWISE_SIDES)
@pytest.mark.parametrize(("channels", "size"), [(16, (7, 7)), (1, (1, 1)), (37, (2, 11)), (40, (14, 5))])
@pytest.mark.parametrize("kind", ["torch's margins", "tensorflow's margins"])
def test_a_depthwise_convolution(
    kind: str, channels: int, size: tuple[int, int], side: int, stride: int, bias: bool
) -> None:
    torch.manual_seed(0)
    make, padding = (nn.Conv2d, side // 2) if kind == "torch's margins" else (Conv2dSame, 0)
    plain = make(channels, channels, side, stride, padding, groups=channels, bias=bias)
    fast = copy.deepcopy(plain)
    exchange_operators(fast, CPU, torch.bfloat16)  # in float32, torch's are fast enough with some of these shapes
    fast.__class__ = DepthwiseConv if make is nn.Conv2d else DepthwiseConvSame
    images = torch.randn(3, channels, *size)
    for layout in (torch.contiguous_format, torch.channels_last):
        assert_same(plain, fast, images.to(memory_format=layout), 1e-5)


@needs_kernels
def test_only_what_needs_a_gradient_gets_one() -> None:
    layer = nn.Conv2d(16, 16, 7, padding=3, groups=16)
    exchange_operators(layer, CPU, torch.float32)
    layer.weight.requires_grad_(False)
    layer(torch.randn(2, 16, 7, 7)).sum().backward()
    assert layer.weight.grad is None
    assert layer.bias is not None
    assert layer.bias.grad is not None


def assert_same(plain: nn.Module, fast: nn.Module, images: Tensor, tolerance: float) -> None:
    results = []
    for layer in (plain, fast):
        layer.zero_grad()
        inputs = images.detach().clone(memory_format=torch.preserve_format).requires_grad_()
        output = layer(inputs)
        (output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum().backward()
        results.append([output, inputs.grad, *(parameter.grad for parameter in layer.parameters())])
    for expected, found in zip(*results, strict=True):
        assert expected.shape == found.shape
        assert torch.allclose(expected, found, rtol=tolerance, atol=tolerance * expected.abs().max().item())


# --- kernels -----------------------------------------------------------------------------------------


@needs_kernels
@pytest.mark.parametrize("shape", [(1, 1), (3, 17), (200, 48)])
def test_the_gelu_and_its_gradient_are_those_of_torch(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    inputs, bias = (3 * torch.randn(shape)).bfloat16(), torch.randn(shape[1])
    gradient = torch.randn(shape).bfloat16()
    exact = (inputs.double() + bias.double()).requires_grad_()
    values = F.gelu(exact)
    assert torch.allclose(kernels.gelu_with_bias(inputs, bias).double(), values, rtol=2**-8, atol=1e-5)
    (slopes,) = torch.autograd.grad(values, exact, gradient.double())
    input_gradient, bias_gradient = kernels.gelu_gradient(inputs, bias, gradient)
    assert torch.allclose(input_gradient.double(), slopes, rtol=2**-8, atol=1e-5)
    assert torch.allclose(bias_gradient.double(), slopes.sum(0), rtol=1e-4, atol=1e-4)


@needs_kernels
def test_the_gelu_is_right_at_every_bfloat16_number() -> None:
    numbers = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.bfloat16)
    numbers = numbers[numbers.isfinite()].view(1, -1)
    bias, ones = torch.zeros(numbers.shape[1]), torch.ones_like(numbers)
    values, slopes = kernels.gelu_with_bias(numbers, bias), kernels.gelu_gradient(numbers, bias, ones)[0]
    expected = F.gelu(numbers.double())
    assert torch.allclose(values.double(), expected, rtol=2**-8, atol=1e-5)
    exact = torch.ops.aten.gelu_backward(ones.double(), numbers.double())
    assert torch.allclose(slopes.double(), exact, rtol=2**-8, atol=1e-5)


@needs_kernels
def test_what_is_not_a_number_stays_so() -> None:
    row = torch.tensor([[float("nan"), 1.0]]).bfloat16()
    assert kernels.gelu_with_bias(row, torch.zeros(2))[0].isnan().tolist() == [True, False]
    assert kernels.gelu_gradient(torch.zeros_like(row), torch.zeros(2), row)[0].isnan().tolist() == [[True, False]]


@needs_kernels
@pytest.mark.parametrize("masks", [0, 2])
@pytest.mark.parametrize("tokens", [1, 4, 49, kernels.MOST_TOKENS])
def test_the_softmax_with_bias(tokens: int, masks: int) -> None:
    torch.manual_seed(0)
    scores = (5 * torch.randn(4, 3, tokens, tokens)).bfloat16()
    bias = torch.randn(3, tokens, tokens)
    mask = torch.where(torch.rand(masks, tokens, tokens) < 0.3, -100.0, 0.0) if masks else None
    exact = scores.double() + bias.double()
    if mask is not None:
        exact = exact + mask.double().repeat(2, 1, 1)[:, None]
    probs = scores.clone()
    kernels.softmax_with_bias(probs, bias, mask)
    assert torch.allclose(probs.double(), exact.softmax(-1), rtol=2**-8, atol=1e-5)


@needs_kernels
def test_the_number_of_threads_does_not_change_the_bits() -> None:
    torch.manual_seed(0)
    images, gradient = torch.randn(2, 3, 40, 9, 9).bfloat16().unbind(0)
    images, gradient = (tensor.contiguous(memory_format=torch.channels_last) for tensor in (images, gradient))
    rows, bias, weight = torch.randn(130, 33).bfloat16(), torch.randn(33), torch.randn(40, 1, 7, 7).bfloat16()
    results: list[list[Tensor]] = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        by_channels, _ = kernels.depthwise_gradients(images, gradient, weight, 1, (3, 3), for_images=False)
        by_images, image_gradient = kernels.depthwise_gradients(images, gradient, weight, 1, (3, 3), for_images=True)
        assert image_gradient is not None
        results.append(
            [
                *(by_channels, by_images, image_gradient),
                *kernels.gelu_gradient(rows, bias, rows),
                *kernels.clamp_gradient(gradient, images, 6.0),
            ]
        )
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


@needs_kernels
def test_very_small_numbers_are_still_computed() -> None:
    """A library linked with -ffast-math would round them to 0 in the whole process."""
    kernels.gelu_with_bias(torch.ones(1, 1).bfloat16(), torch.zeros(1))
    assert float(torch.tensor(1e-30).double() * 1e-290) > 0
    assert 5e-324 / 1.0 > 0


def test_faster_layers_are_the_layers_that_they_replace() -> None:
    """isinstance checks, of timm and of a project's own code, go on to hold."""
    assert issubclass(FastMlp, timm.layers.Mlp)
    assert issubclass(PatchConv, nn.Conv2d)
    assert issubclass(FastWindowAttention, timm.models.swin_transformer.WindowAttention)
