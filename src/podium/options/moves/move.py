"""A move is one file that owns a few options of training, and all that hangs on them.

It is a frozen dataclass whose fields are its options. Where it is on, its methods change the ingredients of a training
once, before they are used: each takes an ingredient and returns it, and a move writes only those that it changes. They
are functions that are composed, not events: a move sees neither the loop nor the other moves.

A recipe holds the values of all options of moves by name, so that recipe.json stays flat; `Recipe.moves` are the moves
that are on. torch is imported inside the methods, because commands that do not train read options, too.
"""

from __future__ import annotations  # torch appears in the types and is imported only where something is trained

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self
from zlib import crc32

from podium.basics.errors import PodiumError
from podium.basics.image_size import ImageSize
from podium.options.knob import Knob
from podium.tasks.task import Targets

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from timm.utils import ModelEmaV3
    from torch import Tensor, nn

    from podium.options.moves.augmenter import Augmenter
    from podium.options.moves.kept_start import KeptStart


class Cost(NamedTuple):
    """What a move adds to a step, for the forecasts of time and memory."""

    passes: int = 0  # forward and backward
    copies: int = 0  # of all weights that are kept beside them
    copies_of_learned: int = 0  # of the weights that learn
    checks: int = 0  # predictions of some training images, at each validation


@dataclass(frozen=True)
class Moment:
    """The step that a batch is for. What is a function of it alone, drawn or decided, resumes to the bit.

    What takes time to find out is found out where a move asks for it.
    """

    seed: int
    fold: int
    step: int
    total_steps: int
    epoch: int  # 0 is the first
    classes: int  # of the columns of the targets, the first ones; others follow where more is learned (`also`)
    find_rows: Callable[[], NDArray[np.int64]]
    find_losses: Callable[[], Sequence[float]]

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The images of the batch: their rows in the training table, and beyond its end those that join."""
        return self.find_rows()

    @cached_property
    def losses(self) -> Sequence[float]:
        """The mean losses in training of the epochs that have ended."""
        return self.find_losses()

    def rng(self, purpose: str) -> np.random.Generator:
        """Returns random numbers of the step, for a purpose of one's own."""
        return self._generator(purpose, self.step)

    def rngs(self, purpose: str) -> Iterator[np.random.Generator]:
        """Yields random numbers of the epoch and each image, which are the same in any batch."""
        return (self._generator(purpose, self.epoch, row) for row in self.rows.tolist())

    def _generator(self, purpose: str, *key: int) -> np.random.Generator:
        from podium.basics.randomness import OWN, generator

        return generator(OWN, crc32(purpose.encode()), self.seed, self.fold, *key)


class Core(Protocol):
    """The options that every move may read."""

    @property
    def model(self) -> str: ...

    @property
    def image_size(self) -> ImageSize: ...

    @property
    def test_size(self) -> ImageSize: ...

    @property
    def epochs(self) -> int: ...

    @property
    def start(self) -> str: ...

    @property
    def head(self) -> str: ...


class Taught(NamedTuple):
    """What a fold's training images teach."""

    targets: Targets
    classes: int
    device: torch.device
    names: Sequence[str] = ()  # of the classes, or of the columns of numbers


class DrawnImages(Protocol):
    """Images that an epoch shows in other numbers than once each."""

    def __len__(self) -> int:
        """Returns how many an epoch shows."""

    def draw(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Returns those of an epoch, in random order."""


Shown = int | DrawnImages  # a number: so many images, each once
Loss = Callable[["Tensor", "Tensor"], "Tensor"]
Change = Callable[["Tensor", "Tensor", Moment], "tuple[Tensor, Tensor]"]  # of a batch: its images and its targets
Backward = Callable[["Tensor", "Tensor"], "Tensor"]  # computes the gradients of a batch; returns its loss


@dataclass(frozen=True)
class Move:
    with_head: ClassVar[bool] = False  # whether it acts where only a head is fitted
    topic: ClassVar[str] = "learning"  # of those in the help (recipe.py)
    # Options that switch it on, for tests/moves/test_every_move.py; of one that is a file, its text.
    tried: ClassVar[Mapping[str, Any]] = {}
    neutral: ClassVar[Mapping[str, Any]] = {}  # those with which it changes nothing, where `off` does not say it

    @classmethod
    def of(cls, recipe: Any) -> Self:
        """Returns the move with the values that its options have in a recipe."""
        return cls(**{own.name: getattr(recipe, own.name) for own in fields(cls)})

    @classmethod
    def recorded(cls, options: Mapping[str, Any]) -> Self:
        """Returns the move that options ask for, or that a run has recorded; what they do not say is off."""
        knobs: dict[str, Knob] = {own.name: own.metadata["knob"] for own in fields(cls)}
        return cls(**{name: options.get(name, knob.off) for name, knob in knobs.items()})

    @property
    def is_on(self) -> bool:
        """Whether it changes anything: its first option has another value than without the move."""
        first = fields(self)[0]
        knob: Knob = first.metadata["knob"]
        return bool(getattr(self, first.name) != knob.off)

    @property
    def cost(self) -> Cost:
        return Cost()

    @property
    def size_remedy(self) -> str:
        """What to do about sizes that a model does not take; nothing where the move has none of its own."""
        return ""

    def check(self, core: Core) -> None:
        """Refuses values that do not go with those that every recipe has."""

    def settled(self, core: Core) -> Mapping[str, Any]:
        """Other values of its options, where the rest of the recipe leaves it nothing to do."""
        return {}

    def why_settled(self, core: Core) -> str:
        """Why the user cannot have what is settled so."""
        return ""

    def of_learning(self) -> str:
        """The move in a few words, for the line about how a model learns; nothing if it belongs to the images."""
        return ""

    def of_images(self) -> str:
        """The same, for the line about what is done to the images."""
        return ""

    @property
    def can_be_drawn(self) -> bool:
        """Whether what it does to an image, if anything, is what Podium's own augmenter draws (`--store gpu`)."""
        return True

    def augmenter(self, made: Augmenter | None) -> Augmenter | None:
        """What training does to each image: called with image, random numbers, size and the model's framing."""
        return made

    def check_targets(self, targets: Targets, without_labels: int) -> None:
        """Refuses what does not go with the answers of this competition."""

    def check_classes(self, classes: Sequence[str]) -> None:
        """Refuses what does not go with the names of the classes, in the order of the model's outputs."""

    @property
    def joins_test_images(self) -> bool:
        """Whether test images, with the answers of earlier runs, join the training images."""
        return False

    @property
    def weight_of_extra(self) -> float:
        """How often an epoch shows the images from elsewhere, times their own weight."""
        return 0.0

    @property
    def joins_columns(self) -> bool:
        """Whether the model gets the card's `features` of an image beside the image."""
        return False

    @property
    def has_own_unit(self) -> bool:
        """Whether the loss is no longer in the unit that guessing is counted in."""
        return False

    @property
    def shares_left_out(self) -> float:
        """Which part of the classes' frequencies the head need not know, because the loss adds it."""
        return 0.0

    def shown(self, own: Shown, classes: NDArray[np.int64]) -> Shown:
        """Which images an epoch shows: a number means each once. `classes` are those of the training images."""
        return own

    def label_loss(self, loss: Loss, taught: Taught) -> Loss:
        """The mean loss of a batch: a function of logits and targets."""
        return loss

    def spec(self) -> Mapping[str, Any]:
        """What a saved model records of the move, because prediction needs it: fields of ModelSpec."""
        return {}

    def learns(self, model: nn.Module, name: str, key: tuple[int, ...]) -> None:
        """Sets which weights of a model learn, whose name is for messages; `key` is that of random draws."""

    @property
    def fits_head(self) -> bool:
        """Whether training starts from a head that is fitted to the frozen features."""
        return False

    def kept_start(self, model: nn.Module) -> KeptStart | None:
        """The weights of the start, of which the final ones keep a share."""
        return None

    def model_options(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """What timm is told when it builds the model."""
        return options

    def rate(self, rate: float, step: int, total_steps: int, per_epoch: int) -> float:
        """The learning rate of a step."""
        return rate

    def optimizer_options(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """What timm is told when it makes the optimizer."""
        return options

    def rates(self, optimizer: torch.optim.Optimizer, model: nn.Module, name: str) -> None:
        """Sets the `lr_scale` of groups of weights, with which each step multiplies their learning rate."""

    def set_training(self, model: nn.Module) -> None:
        """Keeps parts of a model as in evaluation, after all of it was set to training."""

    @property
    def gathers_statistics(self) -> bool:
        """Whether batches change statistics of the model."""
        return False

    @property
    def adapts_statistics(self) -> bool:
        """Whether these are computed anew before the first step."""
        return False

    def size(self, size: ImageSize, epoch: int, epochs: int) -> ImageSize:
        """The size of the images of an epoch."""
        return size

    def batch(self, change: Change) -> Change:
        """What is done to a batch on the device, before the model sees it."""
        return change

    def gradient(self, backward: Backward, model: nn.Module, statistics: Sequence[Tensor]) -> Backward:
        """How the gradients of a batch are computed; `statistics` are those that batch norm gathers on the way."""
        return backward

    def average(self, average: ModelEmaV3 | None, model: nn.Module, steps: int) -> ModelEmaV3 | None:
        """The average of the weights that predicts in their place."""
        return average


def set_training(model: nn.Module, moves: Sequence[Move]) -> None:
    """Sets the model to training, as the moves want it."""
    model.train()
    for move in moves:
        move.set_training(model)


def refuse_unless_one_class(flag: str, targets: Targets) -> None:
    if not targets.task.are_labels or not targets.task.sums_to_one or targets.columns:
        raise PodiumError(f"{flag} needs images of one class each; leave it out")
