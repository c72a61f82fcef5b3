"""What a command computes on, and how. It changes no result, except by rounding."""

import contextlib
import math
import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from podium.basics.errors import PodiumError

MOST_WORKERS = 256
STORE = ("on", "off", "gpu", "auto")
COMPILE = ("on", "off", "auto")
CGROUPS = Path("/sys/fs/cgroup")
FRESH, SHORTEST_LOOK, LONGEST_LOOK = 3.0, 0.5, 60.0  # seconds over which the load of other programs is measured
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
    """Returns the number of CPU cores that this process may use: those of its affinity, or of its container's quota."""
    return max(1, math.ceil(min(len(_own_cores()), _quota())))


def _own_cores() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _quota() -> float:
    """Returns how many cores the time of this container is worth (cgroup v2, or v1); infinite without a limit."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        own = Path("/proc/self/cgroup").read_text().splitlines()[-1].rpartition(":")[2].strip("/")
        for folder in (CGROUPS / own, CGROUPS):  # in a container, its own group may be mounted as the root
            if (folder / "cpu.max").exists():
                most, period = (folder / "cpu.max").read_text().split()
                return math.inf if most == "max" else int(most) / int(period)
    with contextlib.suppress(OSError, ValueError):
        old = [int((CGROUPS / "cpu" / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period")]
        return old[0] / old[1] if old[0] > 0 else math.inf
    return math.inf


class Load:
    """How many cores other programs have kept busy since the last look; programs that give way do not count."""

    def __init__(self) -> None:
        self.seen, self.last = _cpu_seconds(), -1.0

    def look(self) -> float:
        """Returns how many cores, and begins a new count: the last answer, or after a wait, if that was just now."""
        age = time.monotonic() - self.seen.at
        if age < FRESH and self.last >= 0:
            return self.last
        if not SHORTEST_LOOK <= age <= LONGEST_LOOK:
            self.seen = _cpu_seconds()
            time.sleep(SHORTEST_LOOK)
        before, self.seen = self.seen, _cpu_seconds()
        by_others = (self.seen.busy - before.busy) - (self.seen.own - before.own)
        self.last = max(0.0, by_others) / (self.seen.at - before.at)
        return self.last


class CpuSeconds(NamedTuple):
    at: float  # time
    busy: float  # seconds that this process's cores have computed for anyone
    own: float  # and for this process


def _cpu_seconds() -> CpuSeconds:
    busy = 0.0
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/stat").read_text().splitlines():
            name, *ticks = line.split()
            if re.fullmatch(r"cpu\d+", name) and int(name[3:]) in _own_cores():
                user, _, system, _, _, irq, softirq, steal = map(int, ticks[:8])  # without nice and idle
                busy += (user + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    times = os.times()
    return CpuSeconds(time.monotonic(), busy, times.user + times.system)


load_of_others = Load()


def fix_threads(number: int) -> None:
    """Lets computing take so many threads, whatever other programs do; also in processes that are started from now."""
    os.environ["OMP_NUM_THREADS"] = str(number)


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
