"""A stack of the project's own: a function of a file that `extend` names, in the place of those of stack_fits.py.

    podium submit --runs A B --blend NAME

It learns from the same inputs as a stack of trees, and gives predictions, not a correction. A lineage holds its name
and the hash of its code: to rebuild a submission, it is fitted again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.terminal import did_you_mean
from podium.blending.stack import Stack
from podium.blending.stack_inputs import Inputs, Probs, TableRows, inputs_of, sources_of
from podium.blending.strategy_names import ALL_STRATEGIES
from podium.options.extensions.extend import OWN_STACKS, file_of
from podium.options.extensions.own_parts import file_and_hash

LEAST = 1e-9  # a probability that a stack gives, so that they can be summed and have a logarithm


@dataclass(frozen=True)
class OwnStack(Stack):
    """A stack with a function in the place of weights and trees."""

    name: str = ""
    file: str = ""  # that has the function, below the project's folder
    sha256: str = ""  # of its code, and of what that needs in the file
    names: tuple[str, ...] = field(default=(), compare=False)  # of the inputs
    predict: Callable[[pd.DataFrame], Any] | None = field(default=None, compare=False)  # None: to be fitted again

    def of_inputs(self, mean: Probs, inputs: Inputs) -> Probs:
        assert self.predict is not None, "it was fitted"
        given = self.predict(pd.DataFrame(inputs[:, : len(self.names)], columns=list(self.names)))
        values, count = np.asarray(given, np.float64), mean.shape[1]
        if count == 1 and values.shape == (len(mean),):
            values = values[:, None]
        classes = getattr(getattr(self.predict, "__self__", None), "classes_", None)
        if classes is not None and values.ndim == 2 and values.shape[1] == len(classes) < count:
            complete = np.zeros((len(values), count))  # a part may lack a class
            complete[:, np.asarray(classes, np.int64)] = values
            values = complete
        if values.shape != mean.shape:
            self._refuse(f"predicted {values.shape} values", f"return {len(mean):,} rows and {count:,} columns")
        if not np.isfinite(values).all():
            self._refuse("predicted something that is not a number", "fill what is missing")
        if self.scale:
            return values
        values = values.clip(LEAST, 1)
        for part in self.parts(count):
            values[:, part] /= values[:, part].sum(1, keepdims=True)
        return values

    def _refuse(self, problem: str, remedy: str) -> NoReturn:
        raise PodiumError(f"{self.file}: the stack {self.name} {problem}; {remedy}")

    def fits(self, classes: int) -> bool:
        return True

    def describe(self) -> str:
        return f"{self.name} of {self.file}"

    def as_json(self) -> dict[str, Any]:
        return {"own": self.name, "file": self.file, "sha256": self.sha256}

    def refuse_if_changed(self, where: str) -> None:
        """Raises if its function is not there, or is other code than when it was fitted."""
        function = OWN_STACKS.get(self.name)
        now = file_and_hash(function) if function else None
        if now is None or now[1] != self.sha256:
            change = f"has changed in {now[0]}" if now else "is not there: nothing that `extend` names has it"
            raise PodiumError(f"{where}: its stack {self.describe()} {change}; restore it as it was")


def fit_own_stack(base: Stack, name: str, probs: Probs, truth: Any, rows: TableRows | None) -> OwnStack:
    """Returns the fitted stack; `base` knows the task, `probs` are those of all runs."""
    function = OWN_STACKS[name]
    found = file_and_hash(function)
    if found is None:
        raise PodiumError(
            f"{file_of(function)}: the stack {name} is not written in a file that `extend` names, so its code cannot be"
            " recorded; move it there"
        )
    runs, _, classes = probs.shape
    inputs = inputs_of(base.logits(probs), rows, has_further=True)
    names = _names(runs, classes, sources_of(runs, classes, rows, has_further=True)[:-1])
    predict = function(pd.DataFrame(inputs[:, : len(names)], columns=names), truth)
    if not callable(predict):
        raise PodiumError(
            f"{file_of(function)}: the stack {name} returned {type(predict).__name__}, not a function; return one from"
            " inputs to predictions, such as model.fit(inputs, truth).predict_proba"
        )
    known = {key: getattr(base, key) for key in ("task", "columns", "center", "scale")}
    facts = {"name": name, "file": found[0], "sha256": found[1], "names": tuple(names), "predict": predict}
    return OwnStack(**known, input_count=inputs.shape[1], has_further=True, **facts)


def _names(runs: int, classes: int, sources: list[str]) -> list[str]:
    """Returns a name for each input: mean 0, run 1 class 0, then the columns of the tables, numbered where several."""
    names = [f"mean class {number}" for number in range(classes)]
    names += [f"run {run + 1} class {number}" for run in range(runs if runs > 1 else 0) for number in range(classes)]
    counts: dict[str, int] = {}
    for source in sources[len(names) :]:
        counts[source] = counts.get(source, 0) + 1
        names.append(source if counts[source] == 1 else f"{source} {counts[source]}")
    return names


def refuse_unknown_strategy(strategy: str | None) -> None:
    if strategy is not None and strategy not in ALL_STRATEGIES and strategy not in OWN_STACKS:
        known = [*ALL_STRATEGIES, *OWN_STACKS]
        hint = did_you_mean(str(strategy), known, otherwise=f"there are {', '.join(known)}")
        raise PodiumError(f"no blending strategy '{strategy}'; {hint}")
