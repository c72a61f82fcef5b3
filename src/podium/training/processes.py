"""Several processes that train together: who each is, and the little they tell one another.

torchrun starts them, one for each GPU, on one machine or on several that share the project's folder. A process
that was started without it is a group of one, to which all of this is free.
"""

import logging
import os
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from podium import STOPPED, PodiumError, terminal

BY_US = "PODIUM_LAUNCHED"  # in the environment of processes whose end this one tells
GRACE = "600"  # seconds between a signal and the end, for a step to finish and to be saved
PATIENCE = timedelta(hours=12)  # while the first builds what all read; of a process that dies, torchrun ends the rest


@dataclass(frozen=True)
class Processes:
    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """This process's part of the rows; all parts in the order of the processes are the rows."""
        part: NDArray[np.int64] = np.array_split(rows, self.size)[self.rank]
        return part

    def join(self, part: NDArray[np.float32]) -> NDArray[np.float32]:
        """The parts of all processes, in their order."""
        if self.size == 1:
            return part
        parts: list[Any] = [None] * self.size
        dist.all_gather_object(parts, part)
        return np.concatenate([each for each in parts if len(each)])

    def most(self, *numbers: float) -> list[float]:
        """The largest that any process has, of each number."""
        if self.size == 1:
            return list(numbers)
        told = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(told, dist.ReduceOp.MAX)
        return told.tolist()

    def mean(self, value: Tensor) -> Tensor:
        if self.size == 1:
            return value
        dist.all_reduce(value)
        return value / self.size

    def agree(self, model: nn.Module) -> None:
        """Gives all processes the first one's statistics of batches: each has seen other images."""
        if self.size > 1:
            for buffer in model.buffers():
                dist.broadcast(buffer, 0)

    def follow(self, model: nn.Module) -> None:
        """Gives all processes the first one's weights."""
        if self.size > 1:
            for weight in model.parameters():
                dist.broadcast(weight.data, 0)

    def wait(self) -> None:
        if self.size > 1:
            self.most(0.0)

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """The first process goes through the block before the others do."""
        if not self.first:
            self.wait()
        yield
        if self.first:
            self.wait()


@contextmanager
def join_processes(device: torch.device) -> Iterator[Processes]:
    """The group that torchrun has started this process for."""
    if not started_by_torchrun():
        yield Processes()
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # nothing is begun, and waiting in there hears nothing else
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    signal.signal(signal.SIGTERM, before)
    group = Processes(dist.get_rank(), dist.get_world_size())
    try:
        yield group
    except PodiumError as error:
        terminal.quiet = terminal.quiet and error.common
        _hear_no_more()
        raise
    except KeyboardInterrupt:
        _hear_no_more()
        raise
    except RuntimeError as error:  # of gloo, or NCCL's DistBackendError
        _hear_no_more()
        if isinstance(error, dist.DistError) or re.search("gloo|closed by peer", str(error)):
            if BY_US in os.environ:
                raise SystemExit(1) from None
            said = re.sub(r"\[/\S*\] *", "", (str(error).strip().splitlines() or [""])[-1])  # its sources' paths
            raise PodiumError(
                f"another process of this training has ended or does not answer ({said}); the same command goes on"
            ) from None
        raise
    dist.destroy_process_group()  # after an error it would wait for those that have gone


def _hear_no_more() -> None:
    """torchrun signals those that are still there when one goes."""
    if started_by_torchrun():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def started_by_torchrun() -> bool:
    """Whether torchrun has started this process."""
    return "WORLD_SIZE" in os.environ


def world_size() -> int:
    """How many there are, also before they have joined: what all of them refuse, the first then says alone."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def launch_processes(world_size: int, device: str, words: Sequence[str]) -> None:
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    if device not in ("auto", "cpu", "cuda"):
        raise PodiumError(f"--device {device} is one device; --processes goes with auto, cuda or cpu")
    most = 8 * (os.cpu_count() or 1)
    if not 1 <= world_size <= most:
        raise PodiumError(f"--processes {world_size}: at least 1 and, on this machine, at most {most}")
    gpus = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    if gpus and world_size > torch.cuda.device_count():
        raise PodiumError(f"--processes {world_size} needs as many GPUs, and there are {torch.cuda.device_count()}")
    os.environ[BY_US] = "1"
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", GRACE)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // world_size)))
    logging.disable(logging.ERROR)  # what went wrong, each process says itself
    try:
        run(parse_args(["--standalone", f"--nproc-per-node={world_size}", "--module", "podium", *words]))
    except SignalException:
        raise SystemExit(STOPPED) from None
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()  # the others were ended for it
        if failure.exitcode < 0:
            raise PodiumError(
                f"process {rank} of {world_size} was killed by signal {-failure.exitcode}, and the others ended with it;"
                " the same command goes on"
            ) from None
        raise SystemExit(failure.exitcode) from None
