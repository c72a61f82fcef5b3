"""Starts the same command in several processes of this machine, through torchrun."""

import logging
import os
from collections.abc import Sequence

from podium import STOPPED, PodiumError

BY_US = "PODIUM_LAUNCHED"  # in the environment of processes whose end this one tells
GRACE = "600"  # seconds between a signal and the end, for a step to finish and to be saved


def launch(processes: int, device: str, words: Sequence[str]) -> None:
    import torch
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    if device not in ("auto", "cpu", "cuda"):
        raise PodiumError(f"--device {device} is one device; --processes goes with auto, cuda or cpu")
    most = 8 * (os.cpu_count() or 1)
    if not 1 <= processes <= most:
        raise PodiumError(f"--processes {processes}: at least 1 and, on this machine, at most {most}")
    gpus = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    if gpus and processes > torch.cuda.device_count():
        raise PodiumError(f"--processes {processes} needs as many GPUs, and there are {torch.cuda.device_count()}")
    os.environ[BY_US] = "1"
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", GRACE)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    logging.disable(logging.ERROR)  # what went wrong, each process says itself
    try:
        run(parse_args(["--standalone", f"--nproc-per-node={processes}", "--module", "podium", *words]))
    except SignalException:
        raise SystemExit(STOPPED) from None
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()  # the others were ended for it
        if failure.exitcode < 0:
            raise PodiumError(
                f"process {rank} of {processes} was killed by signal {-failure.exitcode}, and the others ended with it;"
                " the same command goes on"
            ) from None
        raise SystemExit(failure.exitcode) from None
