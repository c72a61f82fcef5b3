"""Which processor computes, and in which precision."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from podium import PodiumError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def pick_device(name: str) -> torch.device:
    """`auto` takes a GPU that works; one that is there and does not work is an error, never a silent CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        (torch.ones(2, device=device) * 2).sum().item()  # is_available() is true for cards this torch cannot drive
    except (RuntimeError, AssertionError, ImportError, AttributeError) as error:
        reason = (str(error).strip().splitlines() or ["it does not answer"])[0]
        raise PodiumError(f"--device {name} does not work here ({reason}); use --device cpu") from None
    return device


def pick_precision(name: str, device: torch.device) -> torch.dtype:
    """`auto` is the fastest that trains well: float32 unless the hardware multiplies shorter numbers natively."""
    if name != "auto":
        if name == "float16" and device.type == "cpu":
            raise PodiumError("--precision float16 needs a GPU; use bfloat16 or float32 on the CPU")
        return DTYPES[name]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    if device.type == "cpu" and _cpu_multiplies_bfloat16():
        return torch.bfloat16
    return torch.float32


def at_once(device: torch.device, image_size: int) -> int:
    """How many images go through the model together. A CPU gains nothing by more than 32 (and loses 8 % by 16): a
    batch in parts, whose gradients add up to the whole batch's, halves the 8 GB that convnext_small's 64 would take."""
    return max(1, 32 * 224**2 // image_size**2) if device.type == "cpu" else sys.maxsize


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{torch.get_num_threads()} CPU cores" if device.type == "cpu" else device.type


def autocast(device: torch.device, precision: torch.dtype) -> contextlib.AbstractContextManager[object]:
    if precision == torch.float32:
        return contextlib.nullcontext()
    return torch.autocast(device.type, precision)


def _cpu_multiplies_bfloat16() -> bool:
    """AVX512-BF16 or AMX; on other CPUs bfloat16 is emulated, and slower than float32."""
    with contextlib.suppress(OSError):
        flags = Path("/proc/cpuinfo").read_text().split()
        return "avx512_bf16" in flags or "amx_bf16" in flags
    return False


@contextlib.contextmanager
def hints(batch_size: int | None = None) -> Iterator[None]:
    """Errors of the hardware and of the loader's processes, with what helps."""
    try:
        yield
    except torch.OutOfMemoryError:
        remedy = f"try --batch-size {max(1, batch_size // 2)}" if batch_size else "use --device cpu"
        raise PodiumError(f"the GPU's memory does not hold a batch; {remedy}") from None
    except (RuntimeError, ValueError) as error:
        if "DataLoader worker" in str(error):
            remedy = "run the same command again with --workers 0"
            raise PodiumError(f"a loader process died, most likely for want of memory; {remedy}") from None
        if "more than 1 value per channel" in str(error):
            raise PodiumError("this model cannot learn from a batch of one image; use a larger --batch-size") from None
        raise
