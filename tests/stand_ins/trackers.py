"""Stand-ins for TensorBoard, MLflow and Weights & Biases, which write down what they are told, one line per call."""

import json
import os
import sys
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any


class Calls:
    """A file of calls, which several processes may write."""

    def __init__(self, path: Path, failing: str = "") -> None:
        self.path, self.failing = path, failing

    def __call__(self, name: str, /, **facts: Any) -> None:
        if name == self.failing:
            raise RuntimeError(f"{name} is out of order\nand more")
        with self.path.open("a") as file:
            file.write(json.dumps({"call": name, **facts}) + "\n")

    def read(self, name: str) -> list[dict[str, Any]]:
        """Returns what was given to each call of this name."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [call for call in map(json.loads, lines) if call["call"] == name]


def stand_ins(calls: Calls) -> dict[str, ModuleType]:
    """Returns the modules by their names."""
    return {
        "tensorboard": _module("tensorboard"),
        "torch.utils.tensorboard": _module("torch.utils.tensorboard", SummaryWriter=partial(Writer, calls)),
        "mlflow": _module("mlflow", MlflowClient=partial(Client, calls)),
        "mlflow.entities": _module("mlflow.entities", Metric=lambda *values: values),
        "wandb": _module("wandb", Settings=dict, init=partial(WandBRun, calls)),
    }


def install(path: Path) -> None:
    """Installs the stand-ins for good, in a process of its own."""
    sys.modules.update(stand_ins(Calls(path)))


def _module(name: str, **members: Any) -> ModuleType:
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    vars(module).update(members)
    return module


class Writer:
    """TensorBoard's."""

    def __init__(self, calls: Calls, folder: str, purge_step: int | None) -> None:
        self.calls, self.folder, self.numbers = calls, folder, dict[str, float]()
        calls("begin", where=folder, id="", purge_step=purge_step, pid=os.getpid())

    def add_text(self, name: str, text: str) -> None:
        options = dict(line.removeprefix("- ").split(": ", 1) for line in text.splitlines())
        self.calls("options", options=options)

    def add_scalar(self, name: str, number: float, step: int) -> None:
        self.numbers[name], self.epoch = number, step

    def flush(self) -> None:
        self.calls("record", where=self.folder, epoch=self.epoch, numbers=self.numbers)

    def close(self) -> None:
        self.calls("end", where=self.folder)


class Client:
    """MLflow's."""

    def __init__(self, calls: Calls, tracking_uri: str) -> None:
        self.calls, self.uri = calls, tracking_uri

    def get_experiment_by_name(self, name: str) -> None:
        return None

    def create_experiment(self, name: str, artifact_location: str | None) -> str:
        self.calls("experiment", name=name, files=artifact_location)
        return "7"

    def create_run(self, experiment: str, run_name: str) -> Any:
        self.calls("begin", where=self.uri, id=run_name, pid=os.getpid())
        return SimpleNamespace(info=SimpleNamespace(run_id=run_name))

    def update_run(self, run_id: str, status: str) -> None:
        self.calls("begin", where=self.uri, id=run_id, pid=os.getpid())

    def log_param(self, run_id: str, name: str, text: str) -> None:
        self.calls("options", options={name: text})

    def log_batch(self, run_id: str, metrics: list[tuple[str, float, int, int]]) -> None:
        numbers = {name: number for name, number, _, _ in metrics}
        self.calls("record", where=run_id, epoch=metrics[0][3], numbers=numbers)

    def set_terminated(self, run_id: str, status: str) -> None:
        self.calls("end", where=run_id, status=status)


class WandBRun:
    """A run of Weights & Biases."""

    def __init__(self, calls: Calls, config: dict[str, Any], id: str, **facts: Any) -> None:
        self.calls, self.id = calls, id
        calls("begin", where=facts["dir"], id=id, pid=os.getpid(), **facts)
        calls("options", options={name: str(value) for name, value in config.items()})

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.calls("record", where=self.id, epoch=step, numbers=numbers)

    def finish(self, exit_code: int) -> None:
        self.calls("end", where=self.id, exit_code=exit_code)
