"""What a search may try of an option. What is drawn need not be the value itself: a factor is common to all models."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from optuna.trial import Trial


class Values(Protocol):
    """The values of an option."""

    def draw(self, trial: "Trial", name: str) -> Any:
        """Returns what the trial draws."""

    def drawn_for(self, default: Any) -> Any:
        """Returns what a trial of the defaults has drawn."""

    def value(self, drawn: Any, default: Any) -> Any:
        """Returns the value of the option."""

    def describe(self) -> str:
        """Returns which values these are."""


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

    def describe(self) -> str:
        return f"{self.low:g} to {self.high:g} times the default"


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

    def describe(self) -> str:
        return f"{self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class OneOf:
    values: tuple[Any, ...]

    def draw(self, trial: "Trial", name: str) -> Any:
        return trial.suggest_categorical(name, self.values)

    def drawn_for(self, default: Any) -> Any:
        return default if default in self.values else self.values[0]

    def value(self, drawn: Any, default: Any) -> Any:
        return drawn

    def describe(self) -> str:
        return ", ".join(map(str, self.values))


class Searched(NamedTuple):
    values: Values
    closed_at: Any = None  # the default that says that the model has no use for another value
