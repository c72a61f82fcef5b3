"""Gives cells to Ray: as tasks of a cluster on this machine, which ends with the command, or of one that is there.

    podium train | search | submit | compete ... --on ray[:10.0.0.5:6379] [--at-once 2] [--job num_cpus=4]

Ray decides where a cell runs, and runs it again elsewhere if its machine is gone.
"""

import argparse
import os
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from podium.basics.errors import PodiumError
from podium.basics.extras import MissingPackage, import_package
from podium.basics.terminal import first_line, say
from podium_annex.fleet.cell_command import LOOK, TIME_TO_SAVE, CellCommand, Stopped, job_options

# Environment variables of Ray: it would report to its makers, send the project to machines that share its folder, and
# give up on a machine that is busy.
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "RAY_raylet_start_wait_time_s": "300"}
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # binds the processes of one machine to 127.0.0.1
OBJECTS = 80 << 20  # bytes of Ray's store, the least that it takes: a cell returns a sentence


class RayTasks:
    def __init__(self, args: argparse.Namespace, commands: Sequence[CellCommand]) -> None:
        for command in commands:
            command.log.unlink(missing_ok=True)  # of an earlier call
        self.ray = connect(args)
        options = {"max_retries": -1, "retry_exceptions": [Stopped], **resources(args)}
        try:
            task = self.ray.remote(run_cell).options(**options)
        except (ValueError, TypeError) as error:
            raise PodiumError(f"--job: {first_line(error)}; the names are those of Ray, such as num_cpus") from None
        self.left = {task.remote(command, time.time()): command.cell for command in commands}

    def ended(self) -> dict[str, str]:
        done, _ = self.ray.wait(list(self.left), num_returns=len(self.left), timeout=LOOK)
        return {self.left.pop(one): self._problem(one) for one in done}

    def _problem(self, one: Any) -> str:
        try:
            return str(self.ray.get(one))
        except Exception as error:
            problem = first_line(getattr(error, "cause", None) or error)
            return f"Ray could not run it: {problem}; each machine needs Podium and the project's folder"

    def stop(self) -> None:
        """Ends the tasks, after their cells have saved."""
        for one in self.left:
            self.ray.cancel(one)
        self.ray.wait(list(self.left), num_returns=len(self.left), timeout=TIME_TO_SAVE)


def run_cell(command: CellCommand, begun: float) -> str:
    """Runs as a task; what has passed since the command began is gone from a search's budget."""
    return replace(command, spent=max(0.0, time.time() - begun)).run()


def check_ray(args: argparse.Namespace) -> None:
    if find_spec("ray") is None:
        raise MissingPackage(f"--on {args.on}", ["ray"], "ray")
    if ":" in args.device:
        raise PodiumError(f"--device {args.device}: Ray gives each cell a GPU of its own; leave it out, or --on")


def connect(args: argparse.Namespace) -> Any:
    """Returns ray, connected to the cluster of --on; without an address, it starts one on this machine."""
    host, _, port = (address := args.on.partition(":")[2]).partition(":")
    for name, value in {**SETTINGS, **(LOOPBACK if host in ("", "127.0.0.1", "localhost") else {})}.items():
        os.environ.setdefault(name, value)
    ray = import_package("ray", "ray", f"--on {args.on}")
    if not ray.is_initialized():
        say(f"podium: asking Ray at {address}" if address else "podium: starting Ray")
        own: dict[str, Any] = {} if address else {"include_dashboard": False, "object_store_memory": OBJECTS}
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            if port:  # Ray itself would try for ever
                socket.create_connection((host, int(port)), timeout=10).close()
            ray.init(address or "local", log_to_driver=False, logging_level="ERROR", **own)
        except Exception as error:  # it has many kinds, and a bare one for a node that is too slow
            remedy = "start it there with ray start --head, or leave out the address" if address else "try again"
            raise PodiumError(f"--on {args.on}: Ray does not answer ({first_line(error)}); {remedy}") from None
        for number, handler in handlers.items():  # Ray's own would show a trace at SIGTERM, and end without a word
            signal.signal(number, handler)
    return ray


def resources(args: argparse.Namespace) -> dict[str, Any]:
    """Returns what Ray gives a cell: its share of the GPUs, and of the cores, as many of which it computes with."""
    nodes, count = nodes_of(args), at_once(args)
    cores, gpus = [node["CPU"] for node in nodes], sum(node["GPU"] for node in nodes)
    own: dict[str, Any] = {"num_cpus": args.threads or max(1, int(min(max(cores, default=1), sum(cores) // count)))}
    return {**own, **({"num_gpus": min(1, gpus / count)} if gpus else {}), **job_options(args)}


def at_once(args: argparse.Namespace) -> int:
    """Returns how many cells run at a time: as --at-once says, or one for each GPU, or for each machine without any."""
    return int(args.at_once or sum(node["GPU"] for node in nodes_of(args)) or len(nodes_of(args)) or 1)


def nodes_of(args: argparse.Namespace) -> list[dict[str, float]]:
    """Returns what the command may use of each machine; the head of a cluster may run no cells."""
    from podium.models.device import is_any_gpu  # it imports torch

    given = [node["Resources"] for node in connect(args).nodes() if node["Alive"]]
    takes_gpu = is_any_gpu(args.device)
    return [{"CPU": one["CPU"], "GPU": one.get("GPU", 0) * takes_gpu} for one in given if one.get("CPU")]
