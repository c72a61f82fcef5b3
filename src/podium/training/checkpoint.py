"""Tensors on disk, and where training stands: safetensors, with what describes them in its metadata; never a pickle."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium import PodiumError
from podium.models.tensors import load_tensors, save_tensors, tensors_digest
from podium.terminal import say

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

KEPT = 2  # checkpoints of a fold: should the newest be damaged, the one before serves
SLOTS = {frozenset(("step", "exp_avg", "exp_avg_sq")), frozenset(("momentum_buffer",))}  # AdamW's, Muon's
COUNTERS = ("loss", "skipped", "in_a_row")


class State:
    """Where training stands after a step: enough to go on as if nothing had happened.

    Every random draw is a function of the step, so there is no generator's state among it. It is kept in
    checkpoint-<step>.safetensors, of which the newest KEPT stay, each with a hash of its contents.
    """

    def __init__(
        self, folder: Path, modules: Mapping[str, "nn.Module"], optimizer: "Optimizer", scaler: Any, total: int
    ) -> None:
        import torch

        self.folder, self.modules, self.optimizer, self.scaler = folder, modules, optimizer, scaler
        self.step, self.total = 0, total  # steps
        device = next(iter(modules["model"].parameters())).device
        # Kept on the device, since to look at them makes it wait: of the epoch so far, and the steps without an
        # update because their gradients were not numbers: all, and those up to the last step.
        self.loss, self.skipped, self.in_a_row = (torch.zeros((), device=device) for _ in range(3))
        self.seconds = 0.0  # spent on the epoch so far
        self.history: list[dict[str, Any]] = []  # one entry for each finished epoch, as in metrics.jsonl
        self._writing: Future[None] | None = None

    def save(self) -> None:
        """Copies where training stands; another thread writes it, while training goes on."""
        import torch

        self.wait()
        tensors = {
            f"{name}.{key}": value
            for name, module in self.modules.items()
            for key, value in module.state_dict().items()
        }
        for index, slots in self.optimizer.state_dict()["state"].items():
            kept = {slot: value for slot, value in slots.items() if isinstance(value, torch.Tensor)}  # the rest follows
            tensors |= {f"optimizer.{index}.{slot}": value for slot, value in kept.items()}
        tensors |= {name: getattr(self, name) for name in COUNTERS}
        progress = {
            "step": self.step,
            "total": self.total,
            "seconds": self.seconds,
            "history": self.history,
            "scaler": self.scaler.state_dict(),
        }
        copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
        writer = ThreadPoolExecutor(1)
        self._writing = writer.submit(self._write, self.step, copies, json.dumps(progress))
        writer.shutdown(wait=False)  # its thread ends when all is written

    def wait(self) -> None:
        """Until what was saved is on disk; raises where it could not be."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    @contextmanager
    def all_written(self) -> Iterator[None]:
        """However the block ends, what was saved in it is on disk then: nobody else may begin before."""
        try:
            yield
        except BaseException:
            with suppress(Exception):  # what went wrong first is told
                self.wait()
            raise
        self.wait()

    def _write(self, step: int, tensors: dict[str, "Tensor"], progress: str) -> None:
        path = self.folder / f"checkpoint-{step:09d}.safetensors"
        save_tensors(path, tensors, {"podium": progress, "sha256": tensors_digest(tensors, progress)})
        for old in checkpoints(self.folder)[KEPT:]:
            old.unlink(missing_ok=True)

    def load(self) -> bool:
        """Goes on from the newest checkpoint that is what was saved; False where there is none."""
        for path in checkpoints(self.folder):
            try:
                tensors, metadata = load_tensors(path)
                if metadata["sha256"] != tensors_digest(tensors, metadata["podium"]):
                    raise PodiumError(f"{path}: its contents are not what was saved")
            except (PodiumError, LookupError) as error:
                older = "the one before is used" if path != checkpoints(self.folder)[-1] else "this fold begins anew"
                say(f"podium: warning: {str(error) or 'it has no hash'}; {older}")
                path.unlink()
                continue
            try:
                self._take(tensors, json.loads(metadata["podium"]))
            except Exception as error:  # whole, and yet of something else: nobody has written down what that raises
                raise PodiumError(
                    f"{path} is not of this run ({type(error).__name__}: {error}); delete it to begin this fold anew"
                ) from None
            return True
        return False

    def _take(self, tensors: dict[str, "Tensor"], progress: dict[str, Any]) -> None:
        import torch

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
        if any(frozenset(slot) not in SLOTS for slot in slots.values()):
            raise ValueError("the optimiser's state is incomplete")
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": slots, "param_groups": groups})
        self.scaler.load_state_dict(progress["scaler"])
        for name in COUNTERS:
            getattr(self, name).copy_(tensors[name])
        step, total = int(progress["step"]), int(progress["total"])
        if not 0 < step <= total <= self.total:
            raise ValueError(f"it stands at step {step} of {total}, which are {self.total}")
        self.step, self.total, self.seconds = step, total, float(progress["seconds"])
        self.history = [dict(entry) for entry in progress["history"]]


def checkpoints(folder: Path) -> list[Path]:
    """The newest first."""
    return sorted(folder.glob("checkpoint-*.safetensors"), reverse=True)
