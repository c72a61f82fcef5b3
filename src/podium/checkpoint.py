"""Tensors on disk, and where training stands: safetensors, with what describes them in its metadata; never a pickle."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium import PodiumError
from podium.disk import atomic

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer


def save_tensors(path: Path, tensors: Mapping[str, "Tensor"], metadata: dict[str, str]) -> None:
    from safetensors.torch import save_file

    whole: dict[str, Tensor] = {}
    places: set[int] = set()
    for name, tensor in tensors.items():
        copy = tensor.detach().cpu().contiguous()
        # Two names of one tensor (tied weights) are two tensors in the file.
        whole[name] = copy.clone() if copy.data_ptr() in places and copy.numel() else copy
        places.add(copy.data_ptr())
    with atomic(path) as temporary:
        save_file(whole, temporary, metadata)


def load_tensors(path: Path) -> tuple[dict[str, "Tensor"], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise PodiumError(f"{path}: cannot be read ({error})") from None


class State:
    """Where training stands after a step: enough to go on as if nothing had happened.

    Every random draw is a function of the step, so there is no generator's state among it.
    """

    def __init__(
        self, path: Path, modules: Mapping[str, "nn.Module"], optimizer: "Optimizer", scaler: Any, last: int
    ) -> None:
        import torch

        self.last = last  # step
        self.path, self.modules, self.optimizer, self.scaler = path, modules, optimizer, scaler
        self.step = 0
        device = next(iter(modules["model"].parameters())).device
        self.loss = torch.zeros((), device=device)  # summed over the epoch so far
        self.seconds = 0.0  # spent on the epoch so far
        self.history: list[dict[str, Any]] = []  # one entry for each finished epoch, as in metrics.jsonl

    def save(self) -> None:
        tensors = {
            f"{name}.{key}": value
            for name, module in self.modules.items()
            for key, value in module.state_dict().items()
        }
        for index, slots in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{slot}": value for slot, value in slots.items()}
        tensors["loss"] = self.loss
        progress = {
            "step": self.step,
            "seconds": self.seconds,
            "history": self.history,
            "scaler": self.scaler.state_dict(),
        }
        save_tensors(self.path, tensors, {"podium": json.dumps(progress)})

    def load(self) -> bool:
        """Goes on from the last checkpoint; False when there is none."""
        if not self.path.exists():
            return False
        try:
            self._take(*load_tensors(self.path))
        except Exception as error:  # a file from elsewhere can be wrong in any way
            raise PodiumError(
                f"{self.path} is damaged ({type(error).__name__}: {error}); delete it to begin this fold anew"
            ) from None
        return True

    def _take(self, tensors: dict[str, "Tensor"], metadata: dict[str, str]) -> None:
        import torch

        progress = json.loads(metadata["podium"])
        for name, module in self.modules.items():
            module.load_state_dict({key: tensors[f"{name}.{key}"] for key in module.state_dict()})
        parameters = [each for group in self.optimizer.param_groups for each in group["params"]]
        slots: dict[int, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            if key.startswith("optimizer."):
                _, index, slot = key.split(".")
                like = parameters[int(index)]
                if value.shape == like.shape:  # the fused kernel pairs memory, so a moment is laid out as its weight
                    value = torch.empty_like(like).copy_(value)
                slots.setdefault(int(index), {})[slot] = value
        if len({frozenset(slot) for slot in slots.values()}) != 1:
            raise ValueError("the optimiser's state is incomplete")
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": slots, "param_groups": groups})
        self.scaler.load_state_dict(progress["scaler"])
        self.loss.copy_(tensors["loss"])
        self.step, self.seconds = int(progress["step"]), float(progress["seconds"])
        self.history = [dict(entry) for entry in progress["history"]]
        if not 0 < self.step <= self.last:
            raise ValueError(f"it stands at step {self.step} of {self.last}")
