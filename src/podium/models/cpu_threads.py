"""How many threads compute on a CPU: as many as cores are free.

Threads that wait for each other spin, so two of them on cores that other programs use are several times slower than one
(docs/benchmarks.md). Gradients depend on the number to the last bit, so a fold keeps the number that it began with.
Predictions of large batches do not, so these follow the load. OMP_NUM_THREADS, which --threads sets, fixes the number.
"""

import math
import os
import time

import torch

from podium.basics.machine import load_of_others, usable_cores
from podium.basics.terminal import say_once

FIXED = "OMP_NUM_THREADS"
LOOK_EVERY = 5.0  # seconds
CROWDED = 15.0  # seconds for which other programs may be in the way of several threads
BUSY = 0.6  # of a core: then a thread has to wait for other programs
LARGE = 32  # images: of smaller batches, one thread may compute other last bits than several


class Threads:
    """The number of threads of this process, which torch holds."""

    def __init__(self) -> None:
        self.by_torch = torch.get_num_threads()  # its own choice, before anything is changed
        self.own = self.by_torch  # the number that the last bits depend on
        self.follows = False  # whether large batches take as many as are free
        self.next_look = 0.0
        self.crowded_since = math.inf  # on the clock of time.monotonic()

    @property
    def is_fixed(self) -> bool:
        return os.environ.get(FIXED, "").isdecimal()

    @property
    def most(self) -> int:
        return max(1, int(os.environ[FIXED])) if self.is_fixed else self.by_torch

    def settle(self, recorded: int | None = None, follows: bool = False) -> None:
        """Takes the number of a run, if it has one, else as many as are free."""
        if recorded is not None:
            self.own = min(recorded or self.most, self.most)
            if self.own < recorded:
                say_once(f"podium: note: the run has begun with {recorded} threads; {self.own} compute other last bits")
        else:
            self.own = self.most if self.is_fixed else self.free()
        self.follows, self.next_look = follows and not self.is_fixed, time.monotonic() + LOOK_EVERY
        self.crowded_since = math.inf
        torch.set_num_threads(self.own)

    def take_for_batch(self, images: int) -> None:
        """Follows the load before a batch of a prediction."""
        if not self.follows:
            return
        if images < LARGE:
            torch.set_num_threads(self.own)
        elif time.monotonic() >= self.next_look:
            self.next_look = time.monotonic() + LOOK_EVERY
            torch.set_num_threads(self.free())

    def watch(self) -> None:
        """Looks now and then whether other programs are in the way of a fold that keeps its threads; says so once."""
        if self.own == 1 or self.is_fixed or time.monotonic() < self.next_look:
            return
        self.next_look = time.monotonic() + LOOK_EVERY
        busy = load_of_others.look()
        if usable_cores() - busy >= self.own - 1 + (1 - BUSY):
            self.crowded_since = math.inf
            return
        self.crowded_since = min(self.crowded_since, time.monotonic())
        say_once(
            f"podium: note: other programs keep {busy:.1f} of {usable_cores()} CPU cores busy; this fold keeps its"
            f" {self.own} threads, on which its last bits depend, and waits for them"
        )

    @property
    def are_crowded(self) -> bool:
        """Returns whether they have been in the way for some time."""
        return time.monotonic() - self.crowded_since > CROWDED

    def free(self) -> int:
        """Returns how many cores no other program uses now, and says so if these are not all."""
        cores = min(self.most, usable_cores())
        if cores == 1:
            return 1
        busy = load_of_others.look()
        free = max(1, min(cores, int(usable_cores() - busy + 1 - BUSY)))
        if free < cores:
            others = "the other is busy" if cores == 2 else f"other programs keep {busy:.1f} busy"
            say_once(f"podium: on {free} of {cores} CPU cores: {others}; --threads {cores} takes all")
        return free


threads = Threads()
