"""What a search tries: one table of options with their bounds, beside the defaults that they vary.

An option that the user or the card gives is not searched, nor one that the row of the model's kind closes: a layer
decay of 1, a drop path of 0 and a `keep` of 0 are there because the model has no use for another value.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from podium.recipe import Options, Recipe
from podium.recipe_options import ARCFACE

if TYPE_CHECKING:
    from optuna.trial import Trial


class Values(Protocol):
    """The values of an option. What is drawn need not be the value itself: a factor is common to all models."""

    def draw(self, trial: "Trial", name: str) -> Any:
        """Returns what the trial draws."""

    def drawn_for(self, default: Any) -> Any:
        """Returns what a trial of the defaults has drawn."""

    def value(self, drawn: Any, default: Any) -> Any:
        """Returns the value of the option."""


@dataclass(frozen=True)
class Factor:
    """The default times a number; its logarithm is uniform."""

    low: float
    high: float

    def draw(self, trial: "Trial", name: str) -> float:
        return trial.suggest_float(name, self.low, self.high, log=True)

    def drawn_for(self, default: float) -> float:
        return 1.0

    def value(self, drawn: float, default: float) -> float:
        if isinstance(default, int):
            return max(1, round(drawn * default))
        return float(f"{drawn * default:.3g}")


@dataclass(frozen=True)
class Between:
    low: float
    high: float

    def draw(self, trial: "Trial", name: str) -> float:
        return trial.suggest_float(name, self.low, self.high)

    def drawn_for(self, default: float) -> float:
        return min(max(default, self.low), self.high)

    def value(self, drawn: float, default: float) -> float:
        return round(drawn, 3)


@dataclass(frozen=True)
class OneOf:
    values: tuple[Any, ...]

    def draw(self, trial: "Trial", name: str) -> Any:
        return trial.suggest_categorical(name, self.values)

    def drawn_for(self, default: Any) -> Any:
        return default if default in self.values else self.values[0]

    def value(self, drawn: Any, default: Any) -> Any:
        return drawn


class Searched(NamedTuple):
    values: Values
    closed_at: Any = None  # the default that says that the model has no use for another value


SEARCHED: dict[str, Searched] = {
    "lr": Searched(Factor(0.25, 4)),  # published fine-tunings of one kind of model lie this far apart
    "head_rate": Searched(Factor(0.5, 10)),  # from a fitted head, which has less to learn, to a new one
    "epochs": Searched(Factor(0.5, 2)),  # twice as long is what a user would still wait for
    "layer_decay": Searched(Between(0.6, 1), closed_at=1),
    "keep": Searched(Between(0, 0.7), closed_at=0),  # without a fitted head, there is nothing to keep
    "drop_path": Searched(Between(0, 0.3), closed_at=0),  # not all models have stochastic depth
    "smoothing": Searched(Between(0, 0.2)),
    "mix": Searched(Between(0, 0.8)),
    "level": Searched(OneOf(("none", "light", "default", "strong"))),
}
MODEL, SIZE = "model", "image_size"


class Space:
    """What is searched for one model: its open options, around its defaults."""

    def __init__(self, defaults: Recipe, fixed: Collection[str], sizes: tuple[Any, ...] = ()) -> None:
        """`fixed` are the options that the user and the card give; `sizes` are those of images to choose from."""
        self.defaults = defaults
        self.rows: dict[str, Values] = {
            name: row.values
            for name, row in SEARCHED.items()
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
