"""Picks the processor that computes, and its precision."""

import contextlib
import functools
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import torch

from podium.basics import terminal
from podium.basics.errors import PodiumError
from podium.basics.image_size import ImageSize, area_of
from podium.basics.torchrun import local_rank
from podium.models.cpu_threads import threads
from podium.models.operators.memory import keep_freed_memory

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# A CPU gains nothing from more images at 224 px (and loses 8 % with 16). Half of convnext_small's batch of 64 also
# needs half of its 8 GB.
CPU_MICRO_BATCH = 32
Batch = tuple[torch.Tensor, torch.Tensor]  # uint8 images [n, height, width, 3], targets [n]
CPU = torch.device("cpu")  # of tensors that stay there, or are moved as a whole later
FOR_SEVERAL_PROCESSES = ("auto", "cuda", "cpu")  # the devices whose processes can talk to each other


def pick_device(name: str) -> torch.device:
    """Returns the device; `auto` takes a GPU that works, and each of several processes takes its own.

    A GPU that is there and does not work is an error: training must not fall back to the CPU silently.
    """
    if name == "auto":
        name = "cuda" if has_gpu() else "mps" if torch.backends.mps.is_available() else "cpu"
    if name == "cuda" and local_rank() is not None:
        name = f"cuda:{local_rank()}"
    try:
        device = torch.device(name)
        (
            torch.ones(2, device=device) * 2
        ).sum().item()  # is_available() is also true for GPUs that this build of torch cannot use
    except (RuntimeError, AssertionError, ImportError, AttributeError) as error:
        terminal.quiet = False  # only the process with this GPU knows of it
        raise PodiumError(
            f"--device {name} does not work here ({terminal.first_line(error)}); use --device cpu"
        ) from None
    return device


def has_gpu() -> bool:
    """Returns whether there is a GPU of NVIDIA's kind that this build of torch can use."""
    return torch.cuda.is_available()


def has_any_gpu() -> bool:
    return has_gpu() or torch.backends.mps.is_available()


def is_any_gpu(device: str) -> bool:
    """Returns whether any GPU will do: the name of a device says no number."""
    return device in ("auto", "cuda")


def gpu_names() -> list[str]:
    """Returns what `--device` calls the GPUs of this machine."""
    return [f"cuda:{number}" for number in range(torch.cuda.device_count())]


def takes_gpu(name: str) -> bool:
    """Returns whether `--device NAME` takes a GPU that several processes can share out."""
    return name == "cuda" or (name == "auto" and has_gpu())


def is_gpu(device: torch.device) -> bool:
    return device.type == "cuda"


def is_cpu(device: torch.device) -> bool:
    return device.type == "cpu"


def wait_for(device: torch.device) -> None:
    """Waits until the device has done all that it was told to."""
    if is_gpu(device):
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def join_backend(device: torch.device) -> str:
    """Makes the GPU that of this process, and returns how several processes talk to each other."""
    if not is_gpu(device):
        return "gloo"
    torch.cuda.set_device(device)
    return "cpu:gloo,cuda:nccl"


def device_kind(device: torch.device) -> str:
    """Returns the key of recipe_defaults.AUTO."""
    return "cpu with bfloat16" if is_cpu(device) and cpu_multiplies_bfloat16() else device.type


def device_name(device: torch.device) -> str:
    if is_gpu(device):
        return torch.cuda.get_device_name(device)
    return terminal.plural(torch.get_num_threads(), "CPU core") if is_cpu(device) else device.type


def prepare_device(
    device: torch.device, deterministic: bool, recorded_threads: int | None = None, follows_load: bool = False
) -> None:
    """Chooses a GPU's fastest kernels, or those that give the same bits every time; on a CPU, how many threads compute.

    On any device, memory that a step frees is kept for the next step.
    """
    keep_freed_memory()
    if is_cpu(device):
        threads.settle(recorded_threads, follows_load)
    if not is_gpu(device):
        return
    if device.index is not None:
        torch.cuda.set_device(device)  # events and streams without a device are then of this one
    # torch reads it once, before the first product; without it, no later run of this process can be deterministic.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_float32_matmul_precision("high")  # TF32 for products of float32
    torch.backends.cudnn.benchmark = not deterministic
    torch.use_deterministic_algorithms(deterministic)
    forget_peak(device)  # a process may train several runs


def copied_ahead(batches: Generator[Batch], device: torch.device) -> Generator[Batch]:
    """Yields the batches; those for a GPU are copied there, each while the GPU still computes the one before it."""
    with contextlib.closing(batches):
        if not is_gpu(device):
            yield from batches
            return
        stream, ready = _copy_stream(device), None
        try:
            for images, targets in batches:
                with torch.cuda.stream(stream):
                    copies = images.to(device, non_blocking=True), targets.to(device, non_blocking=True)
                    copied = stream.record_event()
                if ready is not None:
                    yield _wait_for_copies(*ready)
                ready = copies, copied
            if ready is not None:
                yield _wait_for_copies(*ready)
        finally:
            stream.synchronize()  # the loader's memory is then free for others


@functools.cache  # memory that was freed on a stream is used again on that stream only
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def _wait_for_copies(copies: Batch, copied: torch.cuda.Event) -> Batch:
    """Makes the GPU, not Python, wait until it has the copies; their memory is free when it has used them."""
    stream = torch.cuda.current_stream(copies[0].device)
    stream.wait_event(copied)
    for copy in copies:
        copy.record_stream(stream)
    return copies


# --- memory ------------------------------------------------------------------------------------------


def forget_peak(device: torch.device) -> None:
    if is_gpu(device):
        torch.cuda.reset_peak_memory_stats(device)


def free_cached_memory() -> None:
    """Gives back the memory that torch keeps for later tensors on a GPU."""
    if has_gpu():
        torch.cuda.empty_cache()


def gpu_memory_gb(device: torch.device) -> float | None:
    """Returns the memory of a GPU; None on a CPU."""
    return torch.cuda.get_device_properties(device).total_memory / 1e9 if is_gpu(device) else None


def free_gpu_memory(device: torch.device) -> int:
    """Returns how many bytes tensors may still take."""
    return torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def lock_memory(memory: torch.Tensor) -> None:
    """Locks shared memory for the GPU; if this fails, the GPU waits for each copy, and all else is the same."""
    if has_gpu():
        torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), memory.numel(), 0)


def unlock_memory(memory: torch.Tensor) -> None:
    if memory.is_pinned():
        torch.cuda.cudart().cudaHostUnregister(memory.data_ptr())


def gpu_peak_mb(device: torch.device) -> int | None:
    """Returns the most memory that tensors have held on a GPU; None on a CPU."""
    return round(torch.cuda.max_memory_allocated(device) / 1e6) if is_gpu(device) else None


def micro_batch_limit(device: torch.device, image_size: ImageSize) -> int:
    """Returns how many images go through the model together; the gradients of micro-batches are added up."""
    return max(1, CPU_MICRO_BATCH * 224**2 // area_of(image_size)) if is_cpu(device) else sys.maxsize


# --- precision ---------------------------------------------------------------------------------------


def pick_precision(name: str, device: torch.device) -> torch.dtype:
    """`auto` is the fastest that trains well: float32 unless the hardware multiplies shorter numbers natively."""
    if name != "auto":
        if name == "float16" and is_cpu(device):
            raise PodiumError("--precision float16 needs a GPU; use bfloat16 or float32 on the CPU")
        return DTYPES[name]
    if is_gpu(device):
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    if is_cpu(device) and cpu_multiplies_bfloat16():
        return torch.bfloat16
    return torch.float32


def precision_name(precision: torch.dtype) -> str:
    """Returns `bfloat16` for torch.bfloat16."""
    return str(precision).removeprefix("torch.")


def autocast(device: torch.device, precision: torch.dtype) -> contextlib.AbstractContextManager[object]:
    if precision == torch.float32:
        return contextlib.nullcontext()
    return torch.autocast(device.type, precision)


@contextlib.contextmanager
def full_float32() -> Iterator[None]:
    """Switches TF32 off for matrix products: it is too coarse for the L-BFGS fit."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def cpu_multiplies_bfloat16() -> bool:
    """AVX512-BF16 or AMX. Other CPUs emulate bfloat16, and are slower with it than with float32."""
    with contextlib.suppress(OSError):
        flags = Path("/proc/cpuinfo").read_text().split()
        return "avx512_bf16" in flags or "amx_bf16" in flags
    return False
