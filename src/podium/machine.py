"""What a command computes on, and how. It changes no result, except by rounding."""

import contextlib
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from podium.errors import PodiumError

MOST_WORKERS = 256
STORE = ("on", "off", "gpu", "auto")
COMPILE = ("on", "off", "auto")
TRACKERS = ("tensorboard", "mlflow", "wandb")


@dataclass(frozen=True)
class Machine:
    """What to compute on: the device, the processes that load images, and how several processes share the work."""

    device: str = "auto"  # cpu, cuda, cuda:1, mps; auto: a GPU where there is one
    workers: int | None = None  # processes that load images; None: what suits the device
    store: str = "on"  # of decoded pixels: on, off (a file is decoded each time it is read), gpu (training holds them
    # in the GPU's memory, too, and changes them there), or auto: gpu where trial steps show that it is faster
    save_every: float = 300.0  # seconds between checkpoints
    parallel: str = "auto"  # of several processes: data (they share each fold), folds (each trains its own), or auto
    deterministic: bool = False  # identical results on a GPU too, but slower
    checkpointing: bool = False  # compute activations again in the backward pass: less memory, and slower
    compile: str = "off"  # torch.compile: on, off, or auto: where trial steps show that it pays
    track: str = ""  # programs that follow the epochs, some of TRACKERS joined by +

    def __post_init__(self) -> None:
        if not isinstance(self.device, str) or not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", self.device):
            raise PodiumError(f"device {self.device!r}: choose auto, cpu, cuda, cuda:1 or mps")
        if self.workers is not None and (not isinstance(self.workers, int) or not 0 <= self.workers <= MOST_WORKERS):
            raise PodiumError(f"workers must be a number of processes from 0 to {MOST_WORKERS}, not {self.workers!r}")
        if self.parallel not in ("auto", "data", "folds"):
            raise PodiumError(f"parallel must be auto, data or folds, not {self.parallel!r}")
        if self.store not in STORE:
            raise PodiumError(f"store must be on, off, gpu or auto, not {self.store!r}")
        if self.compile not in COMPILE:
            raise PodiumError(f"compile must be on, off or auto, not {self.compile!r}")
        if not set(self.trackers) <= set(TRACKERS) or len(set(self.trackers)) < len(self.trackers):
            raise PodiumError(f"track must be some of {', '.join(TRACKERS)} joined by +, not {self.track!r}")

    @property
    def keep_pixels(self) -> bool:
        return self.store != "off"

    @property
    def trackers(self) -> tuple[str, ...]:
        return tuple(self.track.split("+")) if self.track else ()

    @property
    def compiled(self) -> bool:
        return self.compile == "on"


def usable_cores() -> int:
    """Returns the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_mb() -> int:
    """Returns the memory of this process without mapped files; its peak if the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        resident, shared = Path("/proc/self/statm").read_text().split()[1:3]
        return round((int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE") / 1e6)
    return peak_memory_mb()


def peak_memory_mb() -> int:
    """Returns the most memory that this process has held, mapped files included."""
    import resource

    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3))
