"""The recipe: the value of every option of a run, and what follows from these.

recipe_defaults.py fills in the options that are not given; the run's recipe.json holds the result.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from podium.basics.disk import NAME_PATTERN, sha256
from podium.basics.errors import PodiumError
from podium.basics.image_size import ImageSize, area_of, square_side
from podium.basics.terminal import did_you_mean, plural
from podium.options.knob import ALWAYS_RECORDED, Knob
from podium.options.moves import MOVES
from podium.options.moves.move import Cost, Move
from podium.options.option_kinds import AUTO, KINDS_OF_TYPES, NEIGHBOURS, Kind
from podium.options.recipe_options import (
    LINEAR,
    VIEWS,
    RunOptions,
    View,
)
from podium.options.removed_options import why_gone

if TYPE_CHECKING:
    from podium.options.moves.augmenter import Augmenter

Options = Mapping[str, Any]  # name of an option: its value
KNOBS: dict[str, Knob] = {}
KINDS: dict[str, Kind] = {}  # of the values of each
# What a recipe that was written before an option existed did: the value that changes nothing.
NEUTRAL: dict[str, Any] = {}
TOPIC_OF: dict[str, str] = {}  # of each, in the help
TOPICS = {
    "learning": "How a model learns: its weights, the optimizer, rates, averages, and which layers learn.",
    "images": "What it sees: sizes, shapes, augmentations, mixtures, parts of images.",
    "labels": "What an image teaches: the loss, doubtful labels, images from elsewhere that join.",
    "rare classes": "For metrics that count all classes alike; see --class-weights, too.",
}


def add_options(owner: type) -> None:
    """Adds the options that are declared in a move, or in the core of all recipes."""
    types, names = get_type_hints(owner), [own.name for own in fields(owner)]
    if taken := [name for name in names if name in KNOBS]:
        raise PodiumError(f"there is an option '{taken[0]}' already; give yours another name")
    for own in fields(owner):
        knob: Knob = own.metadata["knob"]
        KNOBS[own.name], KINDS[own.name] = knob, knob.kind or KINDS_OF_TYPES[types[own.name]]
        if knob.off is not ALWAYS_RECORDED:
            NEUTRAL[own.name] = knob.off
        TOPIC_OF[own.name] = knob.topic or getattr(owner, "topic", "learning")


def remove_options(owner: type) -> None:
    for own in fields(owner):
        for table in (KNOBS, KINDS, NEUTRAL, TOPIC_OF):
            table.pop(own.name, None)


add_options(RunOptions)
for built_in in MOVES:
    add_options(built_in)


def fits_only_head(options: Options) -> bool:
    """Returns whether a run with these options takes no steps."""
    return bool(options.get("linear"))


def part_size_of(options: Options) -> int:
    """Returns how many images are computed at once."""
    parts, batch_size = parts_of_batch(options), int(options["batch_size"])
    return math.ceil(batch_size / (1 if parts == AUTO else int(parts)))


def start_of(options: Options) -> str:
    """Returns the run that one with these options goes on from; "" for none."""
    return str(options.get("start") or "")


def continued_by(options: Options) -> set[str]:
    """Returns the runs that one with these options goes on from, or whose answers for the test images it learns."""
    return {start_of(options), *str(options.get("pseudo") or "").split("+")} - {""}


def teacher_of(options: Options) -> str:
    return str(options.get("teacher") or "")


def parts_of_batch(options: Options) -> Any:
    """Returns how many parts a batch is computed in, or `auto`."""
    return options.get("accumulate", 1)


def share_features(options: Options) -> bool:
    """Returns whether frozen features serve all folds: not if each has the backbone of an earlier run's fold."""
    return not (fits_only_head(options) and start_of(options))


def learns_from() -> dict[str, str]:
    """Returns the options that name finished runs, and what a new run does with these."""
    return {name: own.learns_from for name, own in KNOBS.items() if own.learns_from}


def files_of(options: Options) -> dict[str, Path]:
    """Returns the files that these options name, by option; refuses those that are not there."""
    files = {name: Path(options[name]) for name in file_hashes().values() if options.get(name)}
    for name, path in files.items():
        if not path.is_file():
            raise PodiumError(f"{flag_of(name)} {path}: there is no such file; correct its name, or leave it out")
    return files


def file_hashes() -> dict[str, str]:
    """Returns the keys in recipe.json of the hashes of files, and the options that name these."""
    return {f"{name}_sha256": name for name, own in KNOBS.items() if own.is_file}


def hashes_of_files(options: Options) -> dict[str, str]:
    """Returns the hashes of the files that these options name, by their keys in recipe.json."""
    return {f"{name}_sha256": sha256(path) for name, path in files_of(options).items()}


def is_same(name: str, old: Any, new: Any) -> bool:
    """Returns whether two values of an option mean the same: of a file counts its hash, not where it is."""
    return bool(old == new or (old and new and name in KNOBS and KNOBS[name].is_file))


def only_in_training() -> list[str]:
    """Returns the options that a head on frozen features does without."""
    return [name for name, own in KNOBS.items() if not own.for_heads]


@dataclass(frozen=True)
class Recipe(RunOptions):
    """The options that the loop itself reads are fields; those of moves are values by name, and read like fields."""

    of_moves: Options = field(default_factory=dict)

    @classmethod
    def of(cls, values: Options) -> "Recipe":
        """Returns the recipe with these values, one for each option."""
        core = {own.name for own in fields(RunOptions)}
        moves = {name: value for name, value in values.items() if name not in core}
        return cls(**{name: values[name] for name in core}, of_moves=moves)

    def __getattr__(self, name: str) -> Any:
        try:
            return vars(self)["of_moves"][name]
        except KeyError:
            raise AttributeError(f"no option '{name}'") from None

    def __getstate__(self) -> dict[str, Any]:
        """Leaves the moves to be made anew: a loader process has none of a project's own ones before it has started."""
        return {name: value for name, value in vars(self).items() if name not in ("moves", "sizes")}

    def values(self) -> dict[str, Any]:
        """Returns the value of every option, as recipe.json has it."""
        return {own.name: getattr(self, own.name) for own in fields(RunOptions)} | dict(self.of_moves)

    def but(self, **changes: Any) -> "Recipe":
        """Returns the same recipe with other values."""
        return Recipe.of({**self.values(), **changes})

    @property
    def takes_steps(self) -> bool:
        """Whether weights learn step by step; else a head is fitted to the features of a frozen backbone."""
        return not self.linear

    @property
    def part_size(self) -> int:
        """How many images are computed at once, in training and in prediction."""
        return part_size_of(vars(self))  # each step asks for it

    @property
    def parts_are_open(self) -> bool:
        """Whether it is found out before training how many parts a batch needs."""
        return self.accumulate == AUTO

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        """The moves that are on, in the order in which they act."""
        # A project's own move may have been added since the recipe was made.
        known = (move for move in MOVES if {own.name for own in fields(move)} <= self.of_moves.keys())
        return tuple(own for move in known if (own := move.of(self)).is_on and (move.with_head or not self.linear))

    @property
    def added_cost(self) -> Cost:
        """What the moves add to a step."""
        costs = [move.cost for move in self.moves]
        return Cost(*map(sum, zip(*costs, strict=True))) if costs else Cost()

    @property
    def shares_left_out(self) -> float:
        """Which part of the classes' frequencies the head need not know, because the loss adds it."""
        return sum(move.shares_left_out for move in self.moves)

    @property
    def joins_test_images(self) -> bool:
        """Whether test images, with the answers of earlier runs, join the training images."""
        return any(move.joins_test_images for move in self.moves)

    @property
    def weight_of_extra(self) -> float:
        """How often an epoch shows the images from elsewhere, times their own weight."""
        return sum(move.weight_of_extra for move in self.moves)

    @property
    def joins_columns(self) -> bool:
        """Whether the model gets the card's `features` of an image beside the image."""
        return any(move.joins_columns for move in self.moves)

    @property
    def fits_head(self) -> bool:
        """Whether training starts from a head that is fitted to the frozen features."""
        return any(move.fits_head for move in self.moves)

    @property
    def shares_features(self) -> bool:
        """Whether frozen features serve all folds."""
        return share_features(vars(self))

    def rate_at(self, step: int, total_steps: int, per_epoch: int) -> float:
        """Returns the learning rate of a step: a pure function of it."""
        rate = self.lr
        for move in self.moves:
            rate = move.rate(rate, step, total_steps, per_epoch)
        return rate

    @property
    def gathers_statistics(self) -> bool:
        """Whether batches change statistics of the model."""
        return any(move.gathers_statistics for move in self.moves)

    @property
    def adapts_statistics(self) -> bool:
        """Whether these are computed anew before the first step."""
        return any(move.adapts_statistics for move in self.moves)

    def model_options(self) -> Options:
        """Returns what timm is told when it builds the model."""
        options: Options = {"drop_path_rate": None}
        for move in self.moves:
            options = move.model_options(options)
        return options

    def augmenter(self) -> "Augmenter":
        """Returns what training does to each image."""
        made: Augmenter | None = None
        for move in self.moves:
            made = move.augmenter(made)
        assert made is not None  # Augmentations makes one
        return made

    def size_at(self, epoch: int) -> ImageSize:
        """Returns the size of the images of an epoch."""
        size = self.image_size
        for move in self.moves:
            size = move.size(size, epoch, self.epochs)
        return size

    @cached_property
    def sizes(self) -> frozenset[ImageSize]:
        """Those of the images in training."""
        return frozenset(self.size_at(epoch) for epoch in range(self.epochs))

    @property
    def largest_size(self) -> ImageSize:
        """The size of the largest images in training."""
        return max(self.image_size, *self.sizes, key=area_of)

    @property
    def size_remedy(self) -> str:
        """What to do about sizes in training that a model does not take besides its own."""
        return next((move.size_remedy for move in self.moves if move.size_remedy), "")

    @property
    def test_size_remedy(self) -> str:
        """The same about that of prediction."""
        own = f"use --test-size {self.image_size}"
        is_of_training = self.test_size == self.size_at(self.epochs - 1) != self.image_size
        return self.size_remedy if is_of_training else own

    @property
    def view_count(self) -> int:
        """How many views of an image prediction averages."""
        return count_views(self.views)


def describe(recipe: Recipe) -> tuple[str, str]:
    """Returns a line about how the model learns, and one about what is done to the images."""
    if not recipe.takes_steps:
        head = "the most similar training images" if has_neighbours(recipe.head) else "a logistic head"
        return f"{head} on the frozen features", f"no augmentation; views: {recipe.views}"
    learning = [
        f"{plural(recipe.epochs, 'epoch')} in batches of {recipe.batch_size}"
        + (f" (in {recipe.accumulate} parts)" if recipe.accumulate != 1 else ""),
        f"lr {recipe.lr:g} ({recipe.optimizer})",
        *(words for move in recipe.moves if (words := move.of_learning())),
    ]
    if recipe.head != LINEAR:
        learning.append(f"head {recipe.head}")
    images = [*(words for move in recipe.moves if (words := move.of_images())), f"views {recipe.views}"]
    if recipe.test_size != recipe.image_size:
        images.append(f"predicted at {recipe.test_size} px")
    return ", ".join(learning), ", ".join(images)


def needing_end(options: Options) -> list[str]:
    """Returns the options that need the end of a run, which a budget may cut off."""
    return [name for name, own in KNOBS.items() if own.needs_end and options[name] != own.off]


def describe_options(options: Options) -> str:
    """Returns names and values, as a recipe.json has them."""
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in options.items()
    )


def count_views(views: str) -> int:
    """Returns how often an image is predicted: views are combined."""
    return math.prod(VIEWS.get(view, View(1)).images for view in views.split("+"))


def has_neighbours(head: str) -> bool:
    """Returns whether the head answers by training images that it keeps."""
    return head.partition(":")[0] == NEIGHBOURS


def voters_of(head: str) -> int:
    """Returns how many training images vote in that head; 0: the head chooses it."""
    return int(head.partition(":")[2] or 0)


def relative_area(size: ImageSize, recipe: Recipe) -> float:
    """Returns how many pixels such images have, in units of the recipe's."""
    return area_of(size) / area_of(recipe.image_size)


# --- checks ------------------------------------------------------------------------------------------


def recipe_options() -> dict[str, tuple[Kind, str]]:
    """Returns the kind of value of every option, and its help text."""
    return {name: (KINDS[name], own.text) for name, own in KNOBS.items()}


def flag_of(name: str) -> str:
    """Returns the option's flag on the command line."""
    return KNOBS[name].flag or f"--{name.replace('_', '-')}"


def check_card_options(card: Options, where: str) -> None:
    if "model" in card:
        raise PodiumError(f"{where}a card cannot choose the model; remove `model`, the command names it")
    if "start" in card:
        raise PodiumError(f"{where}a run goes on from another by the flag --from; remove `start`")
    check_options(card, where)


def check_options(values: Options, where: str = "") -> None:
    """Refuses unknown names, and values that no run can use."""
    for name, value in values.items():
        if name not in KNOBS:
            hint = why_gone(name) or did_you_mean(name, KNOBS, otherwise=f"there are {', '.join(KNOBS)}")
            raise PodiumError(f"{where}no option '{name}'; {hint}")
        flag = f"{where}{name}" if where else flag_of(name)
        problem = recipe_options()[name][0].problem(value, KNOBS[name].limits)
        if problem:
            raise PodiumError(f"{flag} must be {problem}")


def check_recipe(recipe: Recipe) -> None:
    """Refuses values that do not go with each other."""
    for move in recipe.moves:
        move.check(recipe)
    if "turn" in recipe.views.split("+"):
        square_side(recipe.test_size, "--views turn")


def names_pretraining(weights: str) -> bool:
    """Returns whether --weights is the name of a pretraining: neither a word of its own nor a file."""
    is_name = re.fullmatch(NAME_PATTERN, weights) and weights not in ("pretrained", "none")
    return bool(is_name) and not Path(weights).is_file()


def recorded_values(recorded: Options, names: Iterable[str]) -> dict[str, Any]:
    """Returns these values of a recipe.json, which may be older than an option."""
    return {name: recorded.get(name, NEUTRAL.get(name)) for name in names}


def problem_in(recorded: Options) -> str:
    """Returns which option of a recipe.json has a value that no run can have, and why; nothing if all are right.

    Names that a project's own parts add to the built-in ones are not checked: their files may not be loaded.
    """
    kinds = recipe_options()
    for name, own in KNOBS.items():
        limits = replace(own.limits, choices=own.limits.choices if isinstance(own.limits.choices, tuple) else None)
        if name in recorded and (problem := kinds[name][0].problem(recorded[name], limits)):
            return f"{name} must be {problem}"
    return ""


# What a recipe.json records by a hash whose name does not say it.
RECORDED = {
    "also_sha256": "further columns of the card",
    "columns_sha256": "columns of the tables",
    "extra_sha256": "images from elsewhere",
    "unlabelled_sha256": "images without labels",
    "own_parts_sha256": "code of own parts",
}


def what_is_recorded(key: str) -> str:
    """Returns what a hash in a recipe.json is of."""
    name = key.removesuffix("_sha256")
    own = KNOBS[name].recorded_as if name in KNOBS else ""
    return own or RECORDED.get(key, name.replace("_", " "))


def differences(old: Options, new: Options) -> list[str]:
    """Lists what changed: `lr was 0.0001 and is 0.0005`, `the folds changed`."""
    return [
        f"the {what_is_recorded(key)} changed"
        if key.endswith("_sha256")
        else f"{key} was {'none' if old.get(key) == '' else old.get(key)} and is {'none' if value == '' else value}"
        for key, value in new.items()
        if not is_same(key, old.get(key), value)
    ]
