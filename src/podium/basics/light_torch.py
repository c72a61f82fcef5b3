"""Imports torch and timm without the compiler behind torch.compile, which takes as long to import as they do.

Importing timm reaches the compiler in three places: torchvision's RoIAlign asks it what only detectors need to know,
timm marks methods of NaFlexViT as not to be compiled, and its Muon looks for tensors that lie on several machines. Then
torch's optimisers and its modes of dispatch reach it, to say that they are not to be compiled. Here each of these waits
until something else has imported the compiler, as torch.compile does.
"""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from podium.basics.terminal import busy_with, say

COMPILER = "torch._dynamo"
TENSORS_ON_MACHINES = "torch.distributed.tensor"


def start_torch() -> None:
    """Imports torch and timm, and says so first, because it takes seconds; on a busy machine, half a minute."""
    if "timm" in sys.modules:
        return
    say("podium: starting torch and timm")
    import_timm()


@busy_with("starting torch and timm")
def import_timm() -> None:
    if "timm" in sys.modules:
        return
    import_torch()
    if COMPILER in sys.modules:
        import timm.optim
    else:
        with _stand_ins():
            import timm.optim  # noqa: F401


def import_torch() -> None:
    if "torch" in sys.modules:
        return
    import torch

    if not hasattr(torch, "_disable_dynamo"):
        return
    torch._disable_dynamo = functools.partial(_disable, torch._disable_dynamo)
    for method in vars(torch.optim.Optimizer).values():
        plain = getattr(method, "__wrapped__", None)
        if plain is not None:
            setattr(plain, "__dynamo_disable", plain)  # where torch looks before it imports the compiler
    plain_step = getattr(torch.optim.Adam.step, "__wrapped__", None)
    if plain_step is not None:  # what is around it tells the compiler not to follow, and switches gradients off
        torch.optim.Adam.step = torch.no_grad()(plain_step)  # type: ignore[method-assign]


def _disable(original: Callable[..., Any], function: Any = None, *arguments: Any, **options: Any) -> Any:
    """Returns the function as torch's own decorator does, which tells the compiler to leave it alone.

    As long as nobody has imported the compiler, the function is called as it is.
    """
    if function is None:
        return functools.partial(_disable, original, **options)
    disabled = original(function, *arguments, **options)

    @functools.wraps(function)
    def call(*words: Any, **named: Any) -> Any:
        return (disabled if COMPILER in sys.modules else function)(*words, **named)

    return call


@contextmanager
def _stand_ins() -> Iterator[None]:
    """Lets others import, in the compiler's place, what fetches it when it is called."""
    import torch

    package, utils = ModuleType(COMPILER), ModuleType(f"{COMPILER}.utils")
    package.__path__ = []
    package.utils = utils  # type: ignore[attr-defined]
    utils.is_compile_supported = _is_compile_supported  # type: ignore[attr-defined]
    stand_ins: dict[str, Any] = {COMPILER: package, f"{COMPILER}.utils": utils, TENSORS_ON_MACHINES: None}
    disable = torch.compiler.disable
    sys.modules.update(stand_ins)
    torch.compiler.disable = torch._disable_dynamo  # type: ignore[attr-defined, assignment]
    try:
        yield
    finally:
        torch.compiler.disable = disable
        for name in stand_ins:
            del sys.modules[name]


def _is_compile_supported(*arguments: Any) -> Any:
    from torch._dynamo.utils import is_compile_supported

    return is_compile_supported(*arguments)
