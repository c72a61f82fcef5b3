"""What a search tries: the options whose knobs have values to try, around the defaults that these vary.

An option that the user or the card gives is not searched, nor one that the row of the model's kind closes: a layer
decay of 1, a drop path of 0 and a `keep` of 0 are there because the model has no use for another value.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from podium.options.recipe import KNOBS, Options, Recipe
from podium.options.recipe_options import ARCFACE
from podium.options.search_values import OneOf, Searched, Values

if TYPE_CHECKING:
    from optuna.trial import Trial


def searched_options() -> dict[str, Searched]:
    return {name: knob.searched for name, knob in KNOBS.items() if knob.searched}


MODEL, SIZE = "model", "image_size"


class Space:
    """What is searched for one model: its open options, around its defaults."""

    def __init__(self, defaults: Recipe, fixed: Collection[str], sizes: tuple[Any, ...] = ()) -> None:
        """`fixed` are the options that the user and the card give; `sizes` are those of images to choose from."""
        self.defaults = defaults
        self.rows: dict[str, Values] = {
            name: row.values
            for name, row in searched_options().items()
            if name not in fixed and (row.closed_at is None or getattr(defaults, name) != row.closed_at)
        }
        if defaults.head == ARCFACE:  # a mixed image has no direction of its own class, and a level may mix
            self.rows = {name: row for name, row in self.rows.items() if name not in ("mix", "level")}
        if len(sizes) > 1:
            self.rows[SIZE] = OneOf(sizes)

    def draw(self, trial: "Trial") -> Options:
        """Returns the options of a trial."""
        return {name: row.value(row.draw(trial, name), getattr(self.defaults, name)) for name, row in self.rows.items()}

    def drawn_for_defaults(self) -> dict[str, Any]:
        """Returns what a trial of the defaults has drawn, so that the search learns from it, too."""
        return {name: row.drawn_for(getattr(self.defaults, name)) for name, row in self.rows.items()}
