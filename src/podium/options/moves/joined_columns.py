"""Columns of the tables as an input of the net: an age, a place, a camera beside the image.

Feature-wise affine moves (film): Perez et al., 2018; side by side (concat), as in most solutions of ISIC. On two
made sets neither gained by more than chance (docs/benchmarks.md). options/layers/column_layers.py has the layers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podium.options.knob import knob
from podium.options.moves.move import Move

NONE, CONCAT, FILM = "none", "concat", "film"


@dataclass(frozen=True)
class JoinedColumns(Move):
    tried = {"columns": FILM}

    columns: str = knob(
        "let the net learn from the card's `features`, too: film (they move what it sees), concat (they add to its"
        " answers)",
        off=NONE,
        default=NONE,
        why="a stack of the runs learns from them, too, and sooner",
        choices=(NONE, CONCAT, FILM),
        for_heads=False,
        is_move=True,
        against={"head": "do not go together: columns join a linear head"},
    )

    def of_learning(self) -> str:
        return f"columns by {self.columns}"

    @property
    def joins_columns(self) -> bool:
        return True


def joins_columns(recorded: Mapping[str, Any]) -> bool:
    """Returns whether the models of a run get columns; its recipe may be older than the option."""
    return JoinedColumns.recorded(recorded).is_on


def kind_of_columns(options: Any) -> str:
    """Returns how a model of this recipe, or of this description, gets columns."""
    return str(options.columns)
