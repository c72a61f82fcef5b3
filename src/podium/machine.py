"""What a command computes on, and how. Nothing of it changes a result, except by rounding."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    device: str = "auto"  # cpu, cuda, cuda:1, mps; auto: a GPU where there is one
    workers: int | None = None  # processes that load images; None: what suits the device
    keep_pixels: bool = True  # on disk; else every file is decoded whenever it is read
    save_every: float = 300.0  # seconds of training that a power cut may cost
    parallel: str = "auto"  # what several processes share: a fold (data), or the folds
    deterministic: bool = False  # the same bits again on a GPU too, more slowly
    compiled: bool = False  # by torch.compile
