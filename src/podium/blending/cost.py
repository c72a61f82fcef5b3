"""What each mistake costs: a matrix of the user's, by which a submission decides (`--cost FILE.csv`, or `[cost]`).

    true,cat,dog,fox          [cost]
    cat,0,1,1                 dog = { cat = 5, fox = 2 }     # a dog that is answered as a cat costs 5
    dog,5,0,2
    fox,1,1,0

A row holds the costs of the answers for images of one class. In the card, a mistake that is not listed costs 1.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.basics.terminal import did_you_mean, first_few
from podium.competition.find.csv_files import read_table
from podium.competition.load import Competition
from podium.tasks.task import ONE_LABEL, Targets


@dataclass(frozen=True)
class Costs:
    source: str  # the file, or the card
    matrix: NDArray[np.float64]  # [true class, answer]

    def mean_of(self, targets: Targets, probs: NDArray[np.float64]) -> float:
        """Returns the mean cost of answering each image with its most probable class."""
        return float(self.matrix[targets.values, probs.argmax(1)].mean())


def find_costs(competition: Competition, file: Path | None) -> Costs | None:
    """Returns the costs of the file, else those of the card; None if there are none."""
    if file is None and "cost" not in competition.card:
        return None
    source = str(file or competition.card.path)
    wants = competition.submission_format.wants
    if competition.task is not ONE_LABEL or wants != "labels":
        what = competition.task.words if competition.task is not ONE_LABEL else f"its submission holds {wants}"
        raise PodiumError(
            f"{source}: costs decide which single label is answered, but {competition.slug} has {what}; leave them out"
        )
    classes = competition.classes
    rows = _of_file(file) if file else _of_card(competition)
    _refuse_unknown(source, list(rows), classes)
    if missing := [name for name in classes if name not in rows]:
        raise PodiumError(f"{source}: no row for {first_few(missing)}; add one for each of {first_few(classes)}")
    return Costs(source, np.array([[_number(source, rows, true, answer) for answer in classes] for true in classes]))


def _of_file(file: Path) -> dict[str, dict[str, Any]]:
    table = read_table(file, "write it again")
    names = table.iloc[:, 0].str.strip()
    if names.duplicated().any():
        line = names.index[names.duplicated()][0]
        raise PodiumError(f"{file}, line {line}: a second row for '{names[line]}'; delete one of them")
    cells = table.iloc[:, 1:]
    return {name: dict(zip(cells.columns, row, strict=True)) for name, row in zip(names, cells.to_numpy(), strict=True)}


def _of_card(competition: Competition) -> dict[str, dict[str, Any]]:
    classes, written = competition.classes, competition.card["cost"]
    place = f"{competition.card.path}: [cost]"
    for true, answers in written.items():
        if not isinstance(answers, Mapping):
            raise PodiumError(
                f'{place}: {true} must be a table of answers and costs, {true} = {{ "{classes[0]}" = 5 }}'
            )
        _refuse_unknown(place, [true, *answers], classes)
    return {
        true: {answer: written.get(true, {}).get(answer, float(true != answer)) for answer in classes}
        for true in classes
    }


def _refuse_unknown(source: str, names: Sequence[str], classes: Sequence[str]) -> None:
    unknown = next((name for name in names if name not in classes), None)
    if unknown is not None:
        hint = did_you_mean(unknown, classes, otherwise=f"the classes are {first_few(classes)}")
        raise PodiumError(f"{source}: there is no class '{unknown}'; {hint}")


def _number(source: str, rows: Mapping[str, Mapping[str, Any]], true: str, answer: str) -> float:
    if answer not in rows[true]:
        raise PodiumError(f"{source}: no column '{answer}'; add one for each class")
    try:
        cost = float(rows[true][answer])
    except (TypeError, ValueError):
        cost = math.nan
    if not math.isfinite(cost) or cost < 0:
        what = "which is right" if true == answer else "which is a mistake"
        raise PodiumError(
            f"{source}: answering '{true}' as '{answer}', {what}, must cost a number of at least 0, not"
            f" {rows[true][answer]!r}"
        )
    return cost
