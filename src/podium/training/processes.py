"""Several processes that train together: how they share a batch and the folds, and what they tell each other.

torchrun starts them, one per GPU, on one machine or on several that share the project's folder; `podium train
--processes N` calls torchrun. Without torchrun there is one process, and these functions do nothing.
"""

import logging
import os
import re
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from podium.basics import terminal
from podium.basics.errors import STOPPED, PodiumError
from podium.basics.torchrun import LAUNCHED_BY_PODIUM, launched_by_podium, started_by_torchrun
from podium.models.device import CPU, FOR_SEVERAL_PROCESSES, gpu_names, join_backend, takes_gpu

# Long, because the others wait while the first builds the pixel store. torchrun itself notices processes that die.
TIMEOUT = timedelta(hours=12)
GRACE = "600"  # seconds between a signal and the end, to finish a step and save

Value = TypeVar("Value")


@dataclass(frozen=True)
class Processes:
    """This process among all that train together."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def share(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns this process's part of the rows; the parts of all processes, in order, are the rows."""
        part: NDArray[np.int64] = np.array_split(rows, self.size)[self.rank]
        return part

    def share_of_batch(self, batch_size: int) -> slice:
        """Returns this process's images of every batch: whole pairs, because mixup and cutmix mix pairs."""
        pairs = self.share(np.arange(0, batch_size, 2))
        return slice(pairs[0], pairs[-1] + 2) if len(pairs) else slice(0)

    def gather(self, part: NDArray[np.float32]) -> NDArray[np.float32]:
        """Joins the parts of all processes, in order."""
        if self.size == 1:
            return part
        parts: list[Any] = [None] * self.size
        dist.all_gather_object(parts, part)
        return np.concatenate([part for part in parts if len(part)])

    def broadcast(self, value: Value) -> Value:
        """Returns the first process's value."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, 0)
        return values[0]

    def maximum(self, *numbers: float) -> list[float]:
        """Returns, for each number, the largest that any process has."""
        if self.size == 1:
            return list(numbers)
        largest = torch.tensor(numbers, dtype=torch.float64, device=CPU)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return largest.tolist()

    def mean(self, value: Tensor) -> Tensor:
        """Returns the mean over all processes."""
        if self.size == 1:
            return value
        total = value.clone()
        dist.all_reduce(total)
        return total / self.size

    def values_of_all(self, value: Tensor) -> Tensor:
        """Returns the values of all processes in one tensor; with one process, the value itself."""
        if self.size == 1:
            return value
        values = [torch.empty_like(value) for _ in range(self.size)]
        dist.all_gather(values, value)
        return torch.stack(values)

    def broadcast_statistics(self, model: nn.Module) -> None:
        """Gives all processes the first one's batch statistics; each has seen other images."""
        if self.size > 1:
            for buffer in model.buffers():
                dist.broadcast(buffer, 0)

    def broadcast_weights(self, model: nn.Module) -> None:
        """Gives all processes the first one's weights."""
        if self.size > 1:
            for weight in model.parameters():
                dist.broadcast(weight.data, 0)

    def wait(self) -> None:
        """Waits until all processes are here."""
        if self.size > 1:
            self.maximum(0.0)

    @contextmanager
    def first_then_others(self) -> Iterator[None]:
        """Lets the first process run the block before the others do."""
        if not self.is_first:
            self.wait()
        yield
        if self.is_first:
            self.wait()


# --- joining -----------------------------------------------------------------------------------------


@contextmanager
def join_processes(device: torch.device) -> Iterator[Processes]:
    """Joins the group that torchrun has started this process for."""
    if not started_by_torchrun():
        yield Processes()
        return
    backend = join_backend(device)
    # Podium's handler would not be called while init_process_group waits, and there is nothing to save yet.
    handler = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    dist.init_process_group(backend, timeout=TIMEOUT)
    signal.signal(signal.SIGTERM, handler)
    try:
        yield Processes(dist.get_rank(), dist.get_world_size())
    except PodiumError as error:
        terminal.quiet = terminal.quiet and error.in_all_processes
        ignore_signals()
        raise
    except KeyboardInterrupt:
        ignore_signals()
        raise
    except RuntimeError as error:
        ignore_signals()
        if _lost_a_process(error):
            if launched_by_podium():
                raise SystemExit(1) from None
            raise _explain_lost_process(error) from None
        raise
    dist.destroy_process_group()  # not after an error: it would wait for processes that have ended


def ignore_signals() -> None:
    """torchrun signals the remaining processes when one ends; this one is already ending."""
    if started_by_torchrun():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def _lost_a_process(error: RuntimeError) -> bool:
    """Gloo raises a plain RuntimeError, NCCL a DistBackendError."""
    return isinstance(error, dist.DistError) or re.search("gloo|closed by peer", str(error)) is not None


def _explain_lost_process(error: RuntimeError) -> PodiumError:
    last_line = (str(error).strip().splitlines() or [""])[-1]
    reason = re.sub(r"\[/\S*\] *", "", last_line)  # without paths of torch's sources
    return PodiumError(
        f"another process of this training has ended or does not answer ({reason}); the same command resumes"
    )


# --- starting ----------------------------------------------------------------------------------------


def launch_processes(count: int, device: str, words: Sequence[str]) -> None:
    """Runs the same command in several processes of this machine, through torchrun."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    _refuse_impossible_count(count, device)
    os.environ[LAUNCHED_BY_PODIUM] = "1"
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", GRACE)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    logging.disable(logging.ERROR)  # every process reports its own errors
    try:
        with tempfile.TemporaryDirectory() as logs:  # torchrun leaves an empty folder otherwise
            run(
                parse_args(
                    ["--standalone", f"--nproc-per-node={count}", "--log-dir", logs, "--module", "podium", *words]
                )
            )
    except SignalException:
        raise SystemExit(STOPPED) from None
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()  # torchrun ended the others because of it
        if failure.exitcode < 0:
            raise PodiumError(
                f"signal {-failure.exitcode} killed process {rank} of {count}, and the others ended with it; the same"
                " command resumes"
            ) from None
        raise SystemExit(failure.exitcode) from None


def _refuse_impossible_count(count: int, device: str) -> None:
    if device not in FOR_SEVERAL_PROCESSES:
        raise PodiumError(f"--processes cannot be used with --device {device}; use {', '.join(FOR_SEVERAL_PROCESSES)}")
    highest = 8 * (os.cpu_count() or 1)
    if not 1 <= count <= highest:
        raise PodiumError(f"--processes {count}: use at least 1 and, on this machine, at most {highest}")
    uses_gpus, gpus = takes_gpu(device), len(gpu_names())
    if uses_gpus and count > gpus:
        raise PodiumError(f"--processes {count} needs as many GPUs, but there are {gpus}")
    if not uses_gpus and count > 1:
        terminal.say("podium: warning: several processes on a CPU share its cores, and are seldom faster than one")
