"""A cluster of Ray on this machine: a head that runs nothing, and nodes of one CPU each, which tests may kill."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

ON_LOOPBACK: dict[str, Any] = {
    "node_ip_address": "127.0.0.1",
    "object_store_memory": 80 << 20,
    "include_log_monitor": False,
}
SOON = {"health_check_period_ms": 1000, "health_check_failure_threshold": 5}  # a node that is gone is known as dead


class RayCluster:
    def __init__(self) -> None:
        from podium_annex.fleet.ray_tasks import LOOPBACK, SETTINGS

        os.environ.update(SETTINGS | LOOPBACK)
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
        from ray.cluster_utils import Cluster

        head = {**ON_LOOPBACK, "num_cpus": 0, "include_dashboard": False, "no_monitor": True, "_system_config": SOON}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.nodes = [self.add_node(), self.add_node()]

    @property
    def place(self) -> str:
        """What --on says."""
        return f"ray:{self.cluster.address}"

    def add_node(self) -> Any:
        return self.cluster.add_node(num_cpus=1, **ON_LOOPBACK)

    def raylet(self, node: Any) -> int:
        return int(node.all_processes["raylet"][0].process.pid)

    def lose(self, node: Any, whole: bool) -> None:
        """Kills a node: with all its processes, as when a machine is gone, or so that they outlive it for a moment."""
        victims = [self.raylet(node), *(descendants(self.raylet(node)) if whole else [])]
        for process in victims:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.cluster.remove_node(node, allow_graceful=False)
        self.nodes.remove(node)


def descendants(process: int) -> list[int]:
    """Returns the processes below this one, whose groups may be others."""
    parents = dict[int, int]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [process]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    cluster = RayCluster()
    yield cluster
    cluster.cluster.shutdown()
