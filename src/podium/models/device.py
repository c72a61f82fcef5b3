"""Which processor computes, and in which precision."""

import contextlib
import os
import re
import resource
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from podium import PodiumError, terminal

LOADER_DIED = "a loader process died, most likely for want of memory; run the same command again with --workers 0"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def pick_device(name: str) -> torch.device:
    """`auto` takes a GPU that works; one that is there and does not work is an error, never a silent CPU. Of several
    processes on a machine each takes another."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    try:
        device = torch.device(name)
        (torch.ones(2, device=device) * 2).sum().item()  # is_available() is true for cards this torch cannot drive
    except (RuntimeError, AssertionError, ImportError, AttributeError) as error:
        reason = (str(error).strip().splitlines() or ["it does not answer"])[0]
        terminal.quiet = False  # of several processes, the one that has this GPU
        raise PodiumError(f"--device {name} does not work here ({reason}); use --device cpu") from None
    return device


def prepare_device(device: torch.device, deterministic: bool) -> None:
    """The fastest kernels of a GPU, or those that give the same bits every time; a CPU's are both."""
    if device.type != "cuda":
        return
    torch.set_float32_matmul_precision("high")  # TF32, where float32 is asked for
    torch.backends.cudnn.benchmark = not deterministic
    torch.use_deterministic_algorithms(deterministic)
    if deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # read when the first product is computed


@contextlib.contextmanager
def full_float32() -> Iterator[None]:
    """Products in whole float32, for what looks for a least to more digits than TF32 has."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


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


def micro_batch_limit(device: torch.device, image_size: int) -> int:
    """How many images go through the model together. A CPU gains nothing by more than 32 (and loses 8 % by 16): a
    batch in parts, whose gradients add up to the whole batch's, halves the 8 GB that convnext_small's 64 would take."""
    return max(1, 32 * 224**2 // image_size**2) if device.type == "cpu" else sys.maxsize


def device_kind(device: torch.device) -> str:
    """What decides about the model `auto`."""
    return "cpu with bfloat16" if device.type == "cpu" and _cpu_multiplies_bfloat16() else device.type


def precision_name(precision: torch.dtype) -> str:
    """`bfloat16` of torch.bfloat16."""
    return str(precision).removeprefix("torch.")


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return terminal.plural(torch.get_num_threads(), "CPU core") if device.type == "cpu" else device.type


def memory_mb() -> int:
    """What this process holds in memory now, without the files it has mapped; its most so far where that is all the
    system tells."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        resident, shared = Path("/proc/self/statm").read_text().split()[1:3]
        return round((int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE") / 1e6)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3))


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
def explain_hardware_errors(
    batch_size: int | None = None, attempt: Callable[[int], None] | None = None
) -> Iterator[None]:
    """Errors of the hardware and of the loader's processes, with what helps. Where the memory does not hold a batch,
    smaller ones are attempted, if somebody says how: what is advised then does fit."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if _out_of_memory(error):
            _let_go(error)
            raise PodiumError(_smaller(batch_size, attempt)) from None
        if type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            reason = (str(error).strip().splitlines() or ["no reason given"])[0]
            raise PodiumError(f"torch.compile does not work here ({reason}); leave out --compile") from None
        if "deterministic implementation" in str(error):
            remedy = "leave out --deterministic, or take another model"
            raise PodiumError(f"this model has an operation that no GPU computes in one order only; {remedy}") from None
        if re.search("DataLoader worker|Pin memory thread exited", str(error)):
            raise PodiumError(LOADER_DIED) from None
        if "more than 1 value per channel" in str(error):
            raise PodiumError("this model cannot learn from a batch of one image; use a larger --batch-size") from None
        raise


def _smaller(batch_size: int | None, attempt: Callable[[int], None] | None) -> str:
    if batch_size is None:
        return "the GPU's memory does not hold a batch; use --device cpu"
    what = f"the GPU's memory does not hold a batch of {batch_size}"
    if attempt is None:
        return f"{what}; try --batch-size {max(2, batch_size // 2)}"
    images = batch_size
    while (images := images // 2) >= 2:
        try:
            attempt(images)
        except RuntimeError as error:
            if not _out_of_memory(error):
                raise
            _let_go(error)
        else:
            return f"{what}, and does hold one of {images}; use --batch-size {images} under another --name"
    return f"{what}, nor one of 2; take a smaller model, a smaller --image-size, or --device cpu"


def _out_of_memory(error: Exception) -> bool:
    """The GPU's; also where not torch but one of CUDA's libraries was refused it."""
    refused = re.search("CUDA error: out of memory|ALLOC_FAILED", str(error))
    return isinstance(error, torch.OutOfMemoryError) or refused is not None


def _let_go(error: Exception) -> None:
    """Of what the calls that failed still hold, which would be in the way of a smaller batch."""
    traceback.clear_frames(error.__traceback__)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
