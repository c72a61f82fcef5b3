"""Writes checkpoints of a fold, and restores the newest sound one.

The files are fold<k>/checkpoint-<step>.safetensors, the newest KEPT of them, each with a hash of its contents. Every
random draw is a function of the step, so a checkpoint holds no generator's state.
"""

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
    from torch import Tensor
    from torch.optim import Optimizer

    from podium.training.learner import Learner

KEPT = 2  # checkpoints of a fold: if the newest is damaged, the one before serves
OPTIMIZER_SLOTS = {frozenset(("step", "exp_avg", "exp_avg_sq")), frozenset(("momentum_buffer",))}  # AdamW, Muon
COUNTERS = ("loss", "skipped", "in_a_row")  # tensors of a learner's progress


def checkpoints(folder: Path) -> list[Path]:
    """Returns a fold's checkpoints, the newest first."""
    return sorted(folder.glob("checkpoint-*.safetensors"), reverse=True)


# --- writing -----------------------------------------------------------------------------------------


class CheckpointWriter:
    """Writes checkpoints in a thread, while training goes on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writing: Future[None] | None = None

    def save(self, step: int, tensors: Mapping[str, "Tensor"], progress: dict[str, Any]) -> None:
        """Copies the tensors now; another thread writes them."""
        self.wait()
        copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
        pool = ThreadPoolExecutor(1)
        self._writing = pool.submit(self._write, step, copies, json.dumps(progress))
        pool.shutdown(wait=False)  # the thread ends when the file is written

    def wait(self) -> None:
        """Waits until the file is on disk; raises if it could not be written."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    @contextmanager
    def finish_writing(self) -> Iterator[None]:
        """However the block ends, its last checkpoint is on disk before another process can start."""
        try:
            yield
        except BaseException:
            with suppress(Exception):  # the first error is the one to report
                self.wait()
            raise
        self.wait()

    def delete_all(self) -> None:
        for path in checkpoints(self.folder):
            path.unlink()

    def _write(self, step: int, tensors: dict[str, "Tensor"], progress: str) -> None:
        path = self.folder / f"checkpoint-{step:09d}.safetensors"
        save_tensors(path, tensors, {"podium": progress, "sha256": tensors_digest(tensors, progress)})
        for outdated in checkpoints(self.folder)[KEPT:]:
            outdated.unlink(missing_ok=True)


def save_learner(writer: CheckpointWriter, learner: "Learner") -> None:
    """Saves enough to resume as if nothing had happened."""
    import torch

    tensors = {
        f"{name}.{key}": value for name, module in learner.modules.items() for key, value in module.state_dict().items()
    }
    for index, slots in learner.optimizer.state_dict()["state"].items():
        # Other slots follow from the options.
        kept = {slot: value for slot, value in slots.items() if isinstance(value, torch.Tensor)}
        tensors |= {f"optimizer.{index}.{slot}": value for slot, value in kept.items()}
    tensors |= {name: getattr(learner.progress, name) for name in COUNTERS}
    progress = {
        "step": learner.progress.step,
        "total": learner.progress.total,
        "seconds": learner.progress.seconds,
        "history": learner.progress.history,
        "scaler": learner.scaler.state_dict(),
    }
    writer.save(learner.progress.step, tensors, progress)


# --- restoring ---------------------------------------------------------------------------------------


def restore_learner(folder: Path, learner: "Learner") -> bool:
    """Restores the newest checkpoint whose hash is right, and deletes damaged ones; False if there is none."""
    for path in checkpoints(folder):
        try:
            tensors, metadata = load_tensors(path)
            if metadata["sha256"] != tensors_digest(tensors, metadata["podium"]):
                raise PodiumError(f"{path}: the contents do not match their hash")
        except (PodiumError, LookupError) as error:
            is_last = path == checkpoints(folder)[-1]
            consequence = "this fold starts again" if is_last else "the checkpoint before it is used"
            say(f"podium: warning: {str(error) or 'it has no hash'}; {consequence}")
            path.unlink()
            continue
        try:
            _restore(learner, tensors, json.loads(metadata["podium"]))
        except Exception as error:  # a sound file of another model or version can raise nearly anything
            raise PodiumError(
                f"{path} is not of this run ({type(error).__name__}: {error}); delete it to start this fold again"
            ) from None
        return True
    return False


def _restore(learner: "Learner", tensors: dict[str, "Tensor"], progress: dict[str, Any]) -> None:
    for name, module in learner.modules.items():
        module.load_state_dict({key: tensors[f"{name}.{key}"] for key in module.state_dict()})
    _restore_optimizer(learner.optimizer, tensors)
    learner.scaler.load_state_dict(progress["scaler"])
    for name in COUNTERS:
        getattr(learner.progress, name).copy_(tensors[name])
    step, total = int(progress["step"]), int(progress["total"])
    if not 0 < step <= total <= learner.progress.total:
        raise ValueError(f"it is at step {step} of {total}, but the run has {learner.progress.total}")
    learner.progress.step, learner.progress.total = step, total
    learner.progress.seconds = float(progress["seconds"])
    learner.progress.history = [dict(record) for record in progress["history"]]


def _restore_optimizer(optimizer: "Optimizer", tensors: dict[str, "Tensor"]) -> None:
    import torch

    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    slots: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("optimizer."):
            _, index, slot = key.split(".")
            parameter = parameters[int(index)]
            if value.shape == parameter.shape:  # the fused kernel needs the moments in the layout of their weights
                value = torch.empty_like(parameter).copy_(value)
            slots.setdefault(int(index), {})[slot] = value
    if any(frozenset(slot) not in OPTIMIZER_SLOTS for slot in slots.values()):
        raise ValueError("the optimiser's state is incomplete")
    optimizer.load_state_dict({"state": slots, "param_groups": optimizer.state_dict()["param_groups"]})
