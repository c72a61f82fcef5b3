"""Explains errors of the hardware, of torch.compile and of loader processes, each in one sentence with a remedy."""

import contextlib
import re
import traceback
from collections.abc import Callable, Iterator

import torch

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_line
from podium.models.device import free_cached_memory

SMALLER = "use a smaller model, a smaller --image-size, or --device cpu"
LOADER_DIED = "a loader process died, most likely for lack of memory; run the same command again with --workers 0"


class OutOfMemory(PodiumError):
    """The memory of the device does not hold a batch."""


class CompilerFails(PodiumError):
    """torch.compile does not work on this machine, or not with this model."""


@contextlib.contextmanager
def explain_hardware_errors(
    batch_size: int | None = None, try_batch: Callable[[int], None] | None = None
) -> Iterator[None]:
    """Replaces errors of the hardware by a sentence with a remedy.

    If a batch does not fit into memory, `try_batch` tries smaller ones, so that the sentence names a size that fits.
    """
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if is_out_of_memory(error):
            free_frames(error)
            raise OutOfMemory(_advise_smaller_batch(batch_size, try_batch)) from None
        if type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            problem = f"torch.compile does not work here ({first_line(error)}); leave out --compile"
            raise CompilerFails(problem) from None
        explanation = _explain(error)
        if explanation:
            raise PodiumError(explanation) from None
        raise


def _explain(error: Exception) -> str:
    if "not deterministic because it uses CuBLAS" in str(error):
        return "--deterministic needs CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment from the start; set it"
    if "deterministic implementation" in str(error):
        return (
            "this model has an operation that has no deterministic version on a GPU; leave out --deterministic, or"
            " take another model"
        )
    if re.search("DataLoader worker|Pin memory thread exited", str(error)):
        return LOADER_DIED
    if "more than 1 value per channel" in str(error):
        return "this model cannot learn from a batch of one image; use a larger --batch-size"
    return ""


def _advise_smaller_batch(batch_size: int | None, try_batch: Callable[[int], None] | None) -> str:
    if batch_size is None:
        return "the GPU's memory does not hold a batch; use --device cpu"
    problem = f"the GPU's memory does not hold a batch of {batch_size}"
    if try_batch is None:
        return f"{problem}; try --batch-size {max(2, batch_size // 2)}"
    smaller = batch_size
    while (smaller := smaller // 2) >= 2:
        try:
            try_batch(smaller)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            free_frames(error)
        else:
            parts = -(-batch_size // smaller)
            return (
                f"{problem}, but holds one of {smaller}; use --accumulate {parts}, which takes the same steps, or"
                f" --batch-size {smaller}, under another --name"
            )
    return f"{problem}, nor one of 2; {SMALLER}"


def is_out_of_memory(error: Exception) -> bool:
    """Returns true also if one of CUDA's libraries, not torch, ran out of memory."""
    refused = re.search("CUDA error: out of memory|ALLOC_FAILED|unable to find an engine", str(error))
    return isinstance(error, torch.OutOfMemoryError) or refused is not None


def free_frames(error: Exception) -> None:
    """Frees the memory that the failed calls still hold, for a smaller batch."""
    traceback.clear_frames(error.__traceback__)
    free_cached_memory()
