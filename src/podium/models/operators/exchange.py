"""Exchanges parts of a timm model for those of layers.py, where they are faster on this device.

The model keeps its parameters and their names; its outputs and gradients stay the same up to rounding. On a GPU only
patches are exchanged: torch's other parts are fast there.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from timm.layers import activations
from timm.layers.conv2d_same import Conv2dSame
from timm.layers.mlp import Mlp
from timm.models.convnext import ConvNeXtBlock
from timm.models.swin_transformer import WindowAttention
from torch import Tensor, nn

from podium.models.operators import kernels
from podium.models.operators.folded_norm import can_fold, fold_norms
from podium.models.operators.layers import (
    DepthwiseConv,
    DepthwiseConvSame,
    FastMlp,
    FastWindowAttention,
    PatchConv,
    ScaledBlock,
    SmallMapConv,
)

# Attention as two products keeps a number per pair of tokens, torch's own does not. 577 tokens are 384 px in patches
# of 16: their pairs take 1.5 GB in a ViT-S with 32 images, and a step still takes less than half the time.
MOST_TOKENS = 640
# Numbers in a patch. Smaller patches make matrices too narrow to be fast. A 1 x 1 convolution's patches are its pixels.
SMALLEST_PATCH = 768

Exchange = Callable[[nn.Module], bool]  # returns whether it has exchanged the module


def exchange_operators(
    model: nn.Module,
    device: torch.device,
    precision: torch.dtype,
    only: frozenset[str] | None = None,
    fixed_norms: bool = False,
) -> dict[str, int]:
    """Returns how many parts were exchanged, by kind; `only` names the kinds that may be.

    `fixed_norms`: the statistics of batch norm stay as they are, in training too.
    """
    counts: dict[str, int] = {}
    for kind, exchange in _kinds_for(device, precision, fixed_norms).items():
        if only is None or kind in only:
            count = sum(exchange(module) for module in list(model.modules()))
            if count:
                counts[kind] = count
    return counts


def _kinds_for(device: torch.device, precision: torch.dtype, fixed_norms: bool) -> dict[str, Exchange]:
    """In float32, torch's convolutions and attention are as fast as the products that would replace them."""
    if device.type != "cpu":
        return {"patches": _exchange_patches} if device.type == "cuda" and precision != torch.float32 else {}
    in_bfloat16 = precision == torch.bfloat16
    kinds: dict[str, Exchange] = {}
    if in_bfloat16:
        kinds["attention"] = _exchange_attention
        kinds["patches"] = _exchange_patches
        kinds["small maps"] = _exchange_small_maps
        kinds["layer scale"] = _exchange_scaled_block
    if not kernels.problem():
        kinds["depthwise"] = partial(_exchange_depthwise, precision)
    if fixed_norms and can_fold(precision):
        kinds["fixed batch norm"] = fold_norms
    if in_bfloat16 and not kernels.problem():
        kinds["linear and gelu"] = _exchange_mlp
        kinds["window attention"] = _exchange_window_attention
    return kinds


# Only a module of exactly the expected class is exchanged: a subclass computes something else.


def _exchange_attention(module: nn.Module) -> bool:
    if not getattr(module, "fused_attn", False):
        return False
    module.register_forward_pre_hook(_choose_attention)
    return True


def _choose_attention(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    queries = inputs[0].shape[1:-1].numel() if inputs else MOST_TOKENS + 1
    keys = queries // getattr(module, "reduction", 1) ** 2  # the zoo's PVT takes them from a smaller map
    module.fused_attn = queries * keys > MOST_TOKENS**2  # type: ignore[assignment]  # timm's switch


def _exchange_patches(module: nn.Module) -> bool:
    fits = (
        type(module) is nn.Conv2d
        and module.kernel_size == module.stride
        and (module.padding, module.dilation, module.groups) == ((0, 0), (1, 1), 1)
        and module.weight[0].numel() >= SMALLEST_PATCH
    )
    return fits and _become(module, PatchConv)


def _exchange_small_maps(module: nn.Module) -> bool:
    fits = (
        type(module) is nn.Conv2d
        and module.kernel_size in ((3, 3), (5, 5))
        and module.stride in ((1, 1), (2, 2))
        and module.padding == (module.kernel_size[0] // 2,) * 2
        and (module.padding_mode, module.dilation, module.groups, module.bias) == ("zeros", (1, 1), 1, None)
    )
    return fits and _become(module, SmallMapConv)


def _exchange_depthwise(precision: torch.dtype, module: Any) -> bool:
    """Torch is fast with sides of 3, unless in bfloat16 with a stride: then its gradient takes 20 times as long."""
    fits = (
        type(module) in (nn.Conv2d, Conv2dSame)
        and module.groups == module.in_channels == module.out_channels
        and module.kernel_size in [(side, side) for side in kernels.DEPTHWISE_SIDES]
        and module.stride in ((1, 1), (2, 2))
        and (module.kernel_size[0] > 3 or (module.stride == (2, 2) and precision == torch.bfloat16))
        and (type(module) is Conv2dSame or module.padding == (module.kernel_size[0] // 2,) * 2)
        and (module.padding_mode, module.dilation) == ("zeros", (1, 1))
    )
    return fits and _become(module, DepthwiseConvSame if type(module) is Conv2dSame else DepthwiseConv)


def _exchange_mlp(module: nn.Module) -> bool:
    return type(module) is Mlp and _is_plain_mlp(module) and _become(module, FastMlp)


def _exchange_scaled_block(module: nn.Module) -> bool:
    fits = (
        type(module) is ConvNeXtBlock
        and module.gamma is not None
        and not module.use_conv_mlp
        and _is_plain_mlp(module.mlp)
    )
    return fits and _become(module, ScaledBlock)


def _exchange_window_attention(module: nn.Module) -> bool:
    return type(module) is WindowAttention and _become(module, FastWindowAttention)


def _is_plain_mlp(module: Any) -> bool:
    """Two linear layers with a GELU, and nothing between."""
    if type(module) not in (Mlp, FastMlp) or type(module.fc1) is not nn.Linear or module.fc1.bias is None:
        return False
    exact = type(module.act) is activations.GELU or (type(module.act) is nn.GELU and module.act.approximate == "none")
    return exact and type(module.norm) is nn.Identity and not (module.drop1.p or module.drop2.p)


def _become(module: nn.Module, faster: type[nn.Module]) -> bool:
    """Changes the class, and with it the functions; parameters, hooks and names stay."""
    module.__class__ = faster
    return True
