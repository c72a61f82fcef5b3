"""A decision of the project's own: a function of a file that `extend` names, in the place of those of decision.py.

    podium submit --decision NAME        or decision = "NAME" in the card

It gets `Undecided` answers, and gives probabilities or names of classes, which are checked here. Nothing of it is
fitted, so it needs no nested cross-validation; choose_decision.py says what it gains.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.basics.terminal import did_you_mean, first_few
from podium.blending.decision import ONE_HOT_SHARE, Decision, Probs, decision_from_json, sum_to_one
from podium.blending.strategy_names import DECISIONS
from podium.options.extensions.extend import OWN_DECISIONS, file_of
from podium.options.extensions.own_parts import file_and_hash
from podium.tasks.task import ONE_LABEL, Task

if TYPE_CHECKING:
    from podium.competition.load import Competition

OWN = "own"  # its kind in a lineage
MOST_ABOVE = 1e-6  # that a probability may be above 1, by rounding


@dataclass(frozen=True, eq=False)
class Undecided:
    """What a decision of the project's own knows of answers, in their order, beside the probabilities."""

    table: pd.DataFrame  # of text: the columns that both tables have; the index holds the ids
    about_table: str  # in words
    task: Task
    classes: tuple[str, ...]
    may_be_names: bool  # of classes: the submission has a single label for each row, or ranks them

    def of(self, rows: NDArray[np.int64]) -> "Undecided":
        """Returns some of the answers."""
        return replace(self, table=self.table.iloc[rows])


@dataclass(frozen=True)
class OwnDecision:
    name: str
    file: str  # that has the function, below the project's folder
    sha256: str  # of its code, and of what that needs in the file

    def apply(self, probs: Probs, undecided: Undecided | None = None) -> Probs:
        """Returns adjusted probabilities, of which those of the given answers are the largest."""
        assert undecided is not None, "it needs the ids and the table"
        table, function = undecided.table, OWN_DECISIONS[self.name]
        given = pd.DataFrame(probs, index=table.index, columns=list(undecided.classes))
        try:
            decided = function(table.index.tolist(), given.copy(), table.copy())
        except PodiumError as error:
            hint = f" ({undecided.about_table})" if isinstance(error.__cause__, KeyError) else ""
            raise PodiumError(f"{error}{hint}") from error
        return Decided(f"{file_of(function)}: the decision {self.name}", given, undecided).read(decided)

    def describe(self) -> str:
        return f"{self.name} of {self.file}"

    def fits(self, classes: int) -> bool:
        return True

    def as_json(self) -> dict[str, Any]:
        return {"kind": OWN, "name": self.name, "file": self.file, "sha256": self.sha256}

    def refuse_if_changed(self, where: str) -> None:
        """Raises if its function is not there, or is other code than when it decided."""
        function = OWN_DECISIONS.get(self.name)
        now = file_and_hash(function) if function else None
        if now is None or now[1] != self.sha256:
            change = f"has changed in {now[0]}" if now else "is not there: nothing that `extend` names has it"
            raise PodiumError(f"{where}: its decision {self.describe()} {change}; restore it as it was")


@dataclass(frozen=True)
class Decided:
    """Reads what a decision of the project's own returns, with reasons for what cannot be an answer."""

    who: str  # file and name
    given: pd.DataFrame  # the probabilities
    undecided: Undecided

    def refuse(self, problem: str, remedy: str) -> NoReturn:
        raise PodiumError(f"{self.who} {problem}; {remedy}")

    def read(self, decided: Any) -> Probs:
        if isinstance(decided, pd.DataFrame | pd.Series):
            decided = self._in_order(decided)
        try:
            values = np.asarray(decided)
        except ValueError:  # rows of different lengths
            values = np.empty(())
        count, classes = self.given.shape
        if self.undecided.may_be_names and values.shape == (count,):
            return self._of_names(values.tolist())
        if classes == 1 and values.shape == (count,):
            values = values[:, None]
        if values.shape != (count, classes):
            shape = "x".join(map(str, values.shape))
            names = ", or the name of a class for each row" if self.undecided.may_be_names else ""
            self.refuse(
                f"returned {f'{shape} values' if shape else f'a {type(decided).__name__}'}",
                f"return {count:,} rows and {classes:,} columns, as the probabilities have{names}",
            )
        try:
            return self._of_numbers(values.astype(np.float64))
        except (TypeError, ValueError):
            self.refuse("returned a table with cells that are no numbers", "return probabilities as they were given")

    def _in_order(self, decided: pd.DataFrame | pd.Series) -> pd.DataFrame | pd.Series:
        """Returns rows and columns in the order of those that were given; their names say which they are."""
        axes = list(zip(("rows", "columns"), decided.axes, self.given.axes, strict=False))
        for what, own, expected in axes:
            if len(own) != len(expected) or set(own) != set(expected):
                others = first_few(map(repr, [*expected.difference(own), *own.difference(expected)]))
                self.refuse(
                    f"returned {len(own):,} {what}, where the probabilities have {len(expected):,}"
                    + (f"; these are in one of them only: {others}" if others else ""),
                    f"keep the {what} of the probabilities",
                )
        decided = decided.loc[self.given.index]
        return decided[self.given.columns] if isinstance(decided, pd.DataFrame) else decided

    def _of_names(self, names: list[Any]) -> Probs:
        """Returns the probabilities with those of these classes above a half."""
        classes = self.undecided.classes
        number_of = {name: number for number, name in enumerate(classes)}
        for row, name in enumerate(names):
            if not isinstance(name, str) or name not in number_of:
                hint = did_you_mean(str(name), classes) if isinstance(name, str) else ""
                hint = hint or f"the classes are the texts {first_few(map(repr, classes))}"
                self.refuse(f"answers {name!r} for the id '{self.given.index[row]}', which is no class", hint)
        answers = np.eye(len(classes))[[number_of[name] for name in names]]
        return np.asarray(ONE_HOT_SHARE * answers + (1 - ONE_HOT_SHARE) * sum_to_one(self.given.to_numpy()))

    def _of_numbers(self, numbers: Probs) -> Probs:
        """Returns numbers, or probabilities that sum to 1 where those of the task do."""
        task, classes = self.undecided.task, self.undecided.classes
        parts = task.parts(len(classes), task.columns_of(classes))
        wrong = ~np.isfinite(numbers)
        if task.are_labels:
            wrong |= (numbers < 0) | (numbers > (np.inf if parts else 1 + MOST_ABOVE))
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            what = "probability" if task.are_labels else "number"
            place = f"for '{classes[column]}' of the id '{self.given.index[row]}'"
            self.refuse(f"returned {numbers[row, column]:g} {place}, which is no {what}", "correct it")
        for part in parts:
            sums = numbers[:, part].sum(1)
            if not sums.all():
                self.refuse(f"returned only zeros for the id '{self.given.index[sums.argmin()]}'", "keep one above 0")
            numbers[:, part] = sum_to_one(numbers[:, part])
        return numbers.clip(0, 1) if task.are_labels else numbers


def find_own_decision(name: str, where: str) -> OwnDecision:
    """Returns the decision of this name; raises if there is none, or none whose code can be kept.

    `where` says who names it.
    """
    if name not in OWN_DECISIONS:
        known = [*DECISIONS, *OWN_DECISIONS]
        more = "" if OWN_DECISIONS else "; docs/extend.md shows how to write one"
        hint = did_you_mean(str(name), known, otherwise=f"there are {', '.join(known)}{more}")
        raise PodiumError(f"{where}: no decision '{name}'; {hint}")
    function = OWN_DECISIONS[name]
    found = file_and_hash(function)
    if found is None:
        raise PodiumError(
            f"{file_of(function)}: the decision {name} is not written in a file that `extend` names, so its code cannot"
            " be recorded; move it there"
        )
    return OwnDecision(name, *found)


def read_decision(content: Mapping[str, Any]) -> Decision | OwnDecision:
    """Returns the decision of a lineage; raises an error of any kind if it cannot be applied."""
    if content["kind"] != OWN:
        return decision_from_json(content)
    facts = [content[key] for key in ("name", "file", "sha256")]
    if not all(isinstance(fact, str) for fact in facts):
        raise ValueError("its decision")
    return OwnDecision(*facts)


def undecided_answers(
    competition: "Competition", decision: Decision | OwnDecision | None, ids: Sequence[str] | None = None
) -> Undecided | None:
    """Returns held-out answers of these ids, or those of the test; None if the decision needs no such thing."""
    if not isinstance(decision, OwnDecision):
        return None
    shared, wants = competition.shared_columns, competition.submission_format.wants
    table = shared.test if ids is None else shared.train.reindex(list(ids))
    may_be_names = competition.task is ONE_LABEL and wants in ("labels", "ranking")
    return Undecided(table, shared.describe(), competition.task, competition.classes, may_be_names)
