"""What torchrun tells this process. It starts one process per GPU, on one or several machines.

The environment variables are torchrun's own, except LAUNCHED_BY_PODIUM.
"""

import os

LAUNCHED_BY_PODIUM = "PODIUM_LAUNCHED"  # environment variable: the launching process reports how this one ended


def started_by_torchrun() -> bool:
    return "WORLD_SIZE" in os.environ


def launched_by_podium() -> bool:
    return LAUNCHED_BY_PODIUM in os.environ


def world_size() -> int:
    """Returns the number of processes on all machines, also before they have joined."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def process_rank() -> int:
    """Returns this process's number among all processes."""
    return int(os.environ.get("RANK", "0"))


def local_rank() -> int | None:
    """Returns this process's number on its machine; None if torchrun has not started it."""
    return int(os.environ["LOCAL_RANK"]) if "LOCAL_RANK" in os.environ else None


def local_world_size() -> int:
    """Returns the number of processes on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
