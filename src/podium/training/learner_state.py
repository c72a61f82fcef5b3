"""What a checkpoint holds of a learner: enough to continue as if nothing had happened.

Every random draw is a function of the step (randomness.py), so there is no generator's state.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from podium.basics.terminal import first_few
from podium.saved_runs.epoch_record import EpochRecord
from podium.training.learner import Learner

OPTIMIZER_SLOTS = {frozenset(("step", "exp_avg", "exp_avg_sq")), frozenset(("momentum_buffer",))}  # AdamW, Muon
COUNTERS = {"skipped": "skipped", "in_a_row": "skipped_in_a_row"}  # in the file: in Progress; equal in all processes


def learner_state(learner: Learner) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Returns the tensors, and the other values as JSON. Call it in all processes: it collects a value of each."""
    progress = learner.progress
    tensors = {
        f"{name}.{key}": value
        for name, module in _modules(learner).items()
        for key, value in module.state_dict().items()
    }
    tensors |= optimizer_tensors(learner.optimizer)
    tensors |= {key: getattr(progress, name) for key, name in COUNTERS.items()}
    tensors["loss"] = learner.context.processes.values_of_all(progress.loss_sum)
    return tensors, {
        "classes": list(learner.spec.classes),
        "step": progress.step,
        "total": progress.total_steps,
        "seconds": progress.seconds,
        "rate_share": progress.rate_share,
        "history": [record.to_json() for record in progress.history],
        "scaler": learner.scaler.state_dict(),
    }


def restore_learner(learner: Learner, tensors: Mapping[str, Tensor], values: dict[str, Any]) -> None:
    """Puts a saved state into the learner; raises if it is of another model, recipe or version."""
    classes = list(learner.spec.classes)
    if values.get("classes", classes) != classes:  # older checkpoints do not say them
        raise ValueError(f"its outputs are {first_few(values['classes'])}, not {first_few(classes)}")
    for name, module in _modules(learner).items():
        module.load_state_dict({key: tensors[f"{name}.{key}"] for key in module.state_dict()})
    restore_optimizer(learner.optimizer, tensors)
    learner.scaler.load_state_dict(values["scaler"])
    progress = learner.progress
    for key, name in COUNTERS.items():
        getattr(progress, name).copy_(tensors[key])
    _restore_loss(learner, tensors["loss"])
    step, total_steps = int(values["step"]), int(values["total"])
    if not 0 < step <= total_steps <= progress.total_steps:
        raise ValueError(f"it is at step {step} of {total_steps}, but the run has {progress.total_steps}")
    progress.step, progress.total_steps = step, total_steps
    progress.seconds = float(values["seconds"])
    progress.history = [EpochRecord.from_json(line) for line in values["history"]]
    progress.rate_share = float(values["rate_share"]) if "rate_share" in values else _share_in_record(learner)


def _share_in_record(learner: Learner) -> float:
    """Returns what older checkpoints do not say: the share of the learning rate that the record of the start has."""
    start = learner.progress.start_record
    return start.lr / learner.recipe.lr if start else 1.0


def _modules(learner: Learner) -> dict[str, nn.Module]:
    modules = {"model": learner.model}
    if learner.average:
        modules["ema"] = learner.average.module
    if learner.kept:
        modules["start"] = learner.kept.weights
    return modules


def _restore_loss(learner: Learner, loss_sums: Tensor) -> None:
    """Gives each process its own sum, or the mean if their number has changed."""
    processes = learner.context.processes
    is_same_number = loss_sums.shape == (processes.size,)
    learner.progress.loss_sum.copy_(loss_sums[processes.rank] if is_same_number else loss_sums.mean())


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Returns the moments of every parameter; what else an optimiser holds follows from the options."""
    return {
        f"optimizer.{index}.{slot}": value
        for index, slots in optimizer.state_dict()["state"].items()
        for slot, value in slots.items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
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
