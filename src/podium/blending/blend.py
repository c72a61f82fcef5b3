"""A blend: the steps from the predictions of several runs to the answers of a submission.

Pool the images of an answer, calibrate each run, average the runs or stack them, decide. Each step applies itself,
says in words what it does, and has its part of the lineage. blend_strategies.py fits calibrations and means, stack.py
has the stacks, pool.py the ways to pool, decision.py the decisions, own_decision.py those of the project.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from podium.blending.decision import Decision, sum_to_one
from podium.blending.own_decision import OwnDecision, Undecided, read_decision
from podium.blending.own_stack import OwnStack
from podium.blending.stack import Stack, stack_from_json
from podium.blending.stack_inputs import TableRows
from podium.tasks.pool import MEAN, Pool, pool_from_json
from podium.tasks.ranks import average_ranks
from podium.tasks.task import Targets
from podium.tasks.temperature import MIN_PROB, apply_temperature

Probs = NDArray[np.float64]  # [runs, images, classes] or [images, classes]
Scale = Callable[[Probs], Probs]

SUM_TOLERANCE = 1e-6  # of the weights in a lineage
POWERS = (0.5, 2.0, 4.0)  # whose mean is taken: a small one counts who is against a class, a large one who is for it


class Step(Protocol):
    def describe(self) -> str:
        """Returns what the step does, for people; "" if it changes nothing."""

    def as_json(self) -> dict[str, Any]:
        """Returns the step's part of a lineage."""


@dataclass(frozen=True)
class Calibration:
    """Changes how sure each run is."""

    temperatures: tuple[float, ...]  # one per run; above 1 the run becomes less confident

    def apply(self, run_number: int, probs: Probs) -> Probs:
        return apply_temperature(probs, self.temperatures[run_number])

    def describe(self) -> str:
        texts = [f"{temperature:.2f}" for temperature in self.temperatures]
        return f"temperatures {', '.join(texts)}" if set(texts) != {"1.00"} else ""

    def as_json(self) -> dict[str, Any]:
        return {"temperatures": self.temperatures}


@dataclass(frozen=True)
class Mean:
    """Averages the runs."""

    weights: tuple[float, ...]  # one per run; they sum to 1
    temperature: float = 1.0  # of the mean
    kind: str = "arithmetic"  # or of logarithms (geometric of one label, logit of several), ranks, powers: see MEANS

    def apply(self, tables: Sequence[Probs]) -> Probs:
        """Returns the weighted mean of the runs' tables, at the temperature of the mean."""
        if self.weights == (1.0,) and self.kind == "arithmetic":
            return apply_temperature(tables[0], self.temperature)
        scale, scale_back = MEANS[self.kind]
        weighted = (weight * scale(probs) for weight, probs in zip(self.weights, tables, strict=True))
        mean: Probs = sum(weighted, np.zeros_like(tables[0]))
        if self.kind in OF_LOGS:
            return scale_back(mean / self.temperature)
        return apply_temperature(scale_back(mean), self.temperature)

    def describe(self) -> str:
        kind = {"geometric": "of logarithms", "logit": "of logits"}.get(self.kind, "")
        if self.kind.startswith("power"):
            kind = f"of {self.kind.removesuffix(' of one').replace('power', 'powers')}"
        temperature = f"temperature {self.temperature:.2f} of the mean" if f"{self.temperature:.2f}" != "1.00" else ""
        return ", ".join(filter(None, [kind, temperature]))

    def as_json(self) -> dict[str, Any]:
        kind = {"mean": self.kind} if self.kind != "arithmetic" else {}
        return {"weights": self.weights, "temperature": self.temperature, **kind}


@dataclass(frozen=True)
class Blend:
    strategy: str  # one of ALL_STRATEGIES in strategy_names.py
    calibration: Calibration
    mean: Mean
    stack: Stack | None = None  # takes the place of calibration and mean: a model of the runs' probabilities
    pool: Pool = MEAN
    decision: Decision | OwnDecision | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """Returns the steps in their order."""
        middle: tuple[Step, ...] = (self.stack,) if self.stack else (self.calibration, self.mean)
        return (self.pool, *middle, *((self.decision,) if self.decision else ()))

    @property
    def weights(self) -> tuple[float, ...]:
        return self.mean.weights

    def apply(self, probs: Probs, features: TableRows | None = None, undecided: Undecided | None = None) -> Probs:
        """Returns the answers' probabilities; `probs` are those of all runs, pooled already, `features` the images'."""
        calibrated = [self.calibrate(number, run_probs) for number, run_probs in enumerate(probs)]
        return self.decide(self.average(calibrated, features), undecided)

    def calibrate(self, run_number: int, probs: Probs) -> Probs:
        """Returns calibrated probabilities, or a stack's logits: the fold models of a run are averaged as these."""
        return self.stack.logits(probs) if self.stack else self.calibration.apply(run_number, probs)

    def average(self, calibrated: Sequence[Probs], features: TableRows | None = None) -> Probs:
        """Returns what is blended from the runs' calibrated probabilities."""
        return self.stack.apply(calibrated, features) if self.stack else self.mean.apply(calibrated)

    def decide(self, probs: Probs, undecided: Undecided | None = None) -> Probs:
        """Returns decided probabilities; a decision of the project's own needs to know what is `undecided`."""
        return self.decision.apply(probs, undecided) if self.decision else probs

    def misfit(self, classes: int) -> str:
        """Returns which step has numbers for another number of classes, as an edited lineage may; or nothing."""
        if self.stack and not self.stack.fits(classes):
            return "stack"
        return "decision" if self.decision and not self.decision.fits(classes) else ""

    def without_unused(self) -> tuple["Blend", list[int]]:
        """Returns the blend of the runs that have a weight, and their numbers."""
        kept = [number for number, weight in enumerate(self.weights) if weight]
        temperatures = tuple(self.calibration.temperatures[number] for number in kept)
        weights = tuple(self.weights[number] for number in kept)
        mean = replace(self.mean, weights=weights)
        return replace(self, calibration=Calibration(temperatures), mean=mean), kept

    def describe(self) -> str:
        """Returns the strategy and what its steps do, without the decision."""
        steps = [step.describe() for step in self.steps if step is not self.decision]
        return ", ".join([self.strategy, *filter(None, steps)])

    def as_json(self) -> dict[str, Any]:
        """Returns the blend's part of a lineage, without the decision, which is recorded even if it is not taken."""
        return {
            "strategy": self.strategy,
            "weights": self.weights,
            **self.calibration.as_json(),
            **self.mean.as_json(),
            **(self.pool.as_json() if self.pool != MEAN else {}),
            **({"stack": self.stack.as_json()} if self.stack else {}),
        }


def equal_blend(count: int) -> Blend:
    """Returns the plain mean of so many runs."""
    return Blend("equal", Calibration((1.0,) * count), Mean((1 / count,) * count))


def blend_from_json(content: Mapping[str, Any], run_count: int, decision: Mapping[str, Any] | None = None) -> Blend:
    """Returns the blend of a lineage, with the decision that was taken; raises an error of any kind if it has none."""
    weights, temperatures = (tuple(map(float, content[key])) for key in ("weights", "temperatures"))
    temperature, kind = float(content["temperature"]), str(content.get("mean", "arithmetic"))
    is_valid = len(weights) == len(temperatures) == run_count and kind in MEANS
    is_valid = is_valid and all(0 <= weight <= 1 for weight in weights) and abs(sum(weights) - 1) < SUM_TOLERANCE
    if not is_valid or not all(0 < number < math.inf for number in (*temperatures, temperature)):
        raise ValueError("its blend")
    return Blend(
        strategy=content["strategy"] if "strategy" in content else content["way"],  # "way": the key in older lineages
        calibration=Calibration(temperatures),
        mean=Mean(weights, temperature, kind),
        stack=_read_stack(content["stack"]) if "stack" in content else None,
        pool=pool_from_json(content),
        decision=read_decision(decision) if decision and decision["is_taken"] else None,
    )


def _read_stack(content: Mapping[str, Any]) -> Stack:
    """Returns the stack of a lineage; one of the project's own is still to be fitted."""
    if "own" not in content:
        return stack_from_json(content)
    facts = [content[key] for key in ("own", "file", "sha256")]
    if not all(isinstance(fact, str) for fact in facts):
        raise ValueError("its stack")
    return OwnStack("", has_further=True, name=facts[0], file=facts[1], sha256=facts[2])


def _same(probs: Probs) -> Probs:
    return probs


def _log(probs: Probs) -> Probs:
    return np.asarray(np.log(probs.clip(MIN_PROB)))


def _softmax(logs: Probs) -> Probs:
    powers: Probs = np.exp(logs - logs.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def _logit(probs: Probs) -> Probs:
    return np.asarray(_log(probs) - _log(1 - probs))


def _sigmoid(logits: Probs) -> Probs:
    return np.asarray(1 / (1 + np.exp(-logits)))


def _power(exponent: float, finish: Scale) -> tuple[Scale, Scale]:
    return lambda probs: np.asarray(probs**exponent), lambda mean: finish(np.asarray(mean ** (1 / exponent)))


def _ranks(probs: Probs) -> Probs:
    """Returns the share of the images with a lower probability of the class; equal ones share their mean."""
    return np.asarray((average_ranks(probs) - 0.5) / len(probs))


# What is averaged, and how the mean becomes probabilities again.
MEANS: dict[str, tuple[Scale, Scale]] = {
    "arithmetic": (_same, _same),
    "geometric": (_log, _softmax),  # of one label: sums to 1
    "rank_of_one": (_ranks, sum_to_one),
    "rank": (_ranks, _same),
    "logit": (_logit, _sigmoid),  # of several labels: the geometric mean of yes and of no
    **{f"power {exponent:g}": _power(exponent, _same) for exponent in POWERS},
    **{f"power {exponent:g} of one": _power(exponent, sum_to_one) for exponent in POWERS},
}


OF_LOGS = ("geometric", "logit")


def probs_of_truth(probs: Probs, targets: Targets) -> Probs:
    """Returns [runs, answers]: the probability of the true class (in each column), or of the truth about each class.

    Where experts voted, all classes are answers, which count by their shares.
    """
    if targets.votes is not None:
        return probs.reshape(len(probs), -1)
    if targets.task.sums_to_one:
        return probs[:, np.arange(len(targets)), targets.values]
    is_true = targets.values > 0
    if targets.columns:
        return probs[:, is_true]
    truth: Probs = np.where(is_true, probs, 1 - probs).reshape(len(probs), -1)
    return truth


def scaled_errors(numbers: Probs, targets: Targets) -> Probs:
    """Returns [runs, answers]: the errors of numbers in units of each column's deviation; 0 where nothing is known."""
    deviations = np.nanstd(targets.values, 0)
    errors: Probs = (numbers - targets.values) / np.where(deviations > 0, deviations, 1.0)
    return np.nan_to_num(errors.reshape(len(numbers), -1))
