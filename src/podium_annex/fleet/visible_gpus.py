"""The GPUs that a process may use, as CUDA_VISIBLE_DEVICES names them."""

import os
from collections.abc import Mapping, Sequence

VARIABLE = "CUDA_VISIBLE_DEVICES"


def visible_gpus() -> list[str]:
    """Returns those of this process."""
    from podium.models.device import gpu_names  # it imports torch

    given = os.environ.get(VARIABLE)
    if given is None:
        return [str(number) for number in range(len(gpu_names()))]
    return [name for name in given.split(",") if name]


def environment_with(gpus: Sequence[str] | None) -> Mapping[str, str]:
    """Returns the environment of a process that may use these GPUs; None: those that this process may use."""
    return os.environ if gpus is None else {**os.environ, VARIABLE: ",".join(gpus)}
