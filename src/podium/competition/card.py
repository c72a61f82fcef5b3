"""A competition's card, data/competitions/<slug>.toml: the user's settings, which replace what Podium guesses.

`read_card` reads and checks it, and adds what Podium knows of a famous competition (known_competitions.toml).
`Card.advise` returns the advice to write something in it. Writes nothing.
"""

import re
import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from podium.basics.errors import PodiumError
from podium.basics.terminal import did_you_mean, plural
from podium.competition.metric_of_file import announce_metric_of_file, is_metric_of_file
from podium.competition.value_range import ValueRange, value_range_of
from podium.options.extensions.extension_files import load_extensions
from podium.options.recipe import check_card_options
from podium.tasks.metrics import METRICS, WANTS
from podium.tasks.task import TASKS

KEYS = {
    "title": str,
    "url": str,
    "metric": str,  # a name, or "metric.py:score": a function of a file (metric_of_file.py)
    "better": str,  # which of its scores are better, if it is a function of a file: higher or lower
    "task": str,  # what is learned: one label for each image, several, or numbers; see task.py
    "wants": str,  # what a submission holds: a label, probabilities, the most probable labels in order, or numbers
    "train_table": str,  # "" if there is none: the folders are the classes
    "test_table": str,  # lists the test images if there is no sample submission
    "train_images": str,  # a folder
    "test_images": str,  # a folder
    "sample_submission": str,  # "" if there is none
    "pairs": list,  # the two columns of the test table that name images, if its rows are pairs (pairs.py); [] if not
    "pixels": str,  # "137x236": height x width of images that are rows of pixels, if they are not squares
    "range": str | list,  # of the values of images of more than 8 bits: [0, 4095], or "image" (value_range.py)
    "channels": list,  # of an image in several files: ["red", "green", "blue", "yellow"] (composed_images.py)
    "slices": int,  # of a folder that is one image, in a grid (composed_images.py)
    "id_column": str,
    "target_column": str,
    "label_pattern": str,  # a regular expression; its group is the label in an image's file name
    "positive": str,  # with two classes: the one whose probability a single column holds
    "grades": list,  # words that are grades, from the lowest to the highest, for quadratic_kappa (grades.py)
    "group_column": str,  # images of one group (a patient, a scene) must share a fold
    "group_pattern": str,  # a regular expression; its group is the group in an image's id
    "features": list,  # columns of the tables that a stack learns from: an age, a place, a camera
    "also": list,  # columns of the training table that are learned beside the answers: a height, a site
    "extra": list,  # labelled images from elsewhere that join the training images (extra_images.py)
    "unlabelled": list,  # images without labels beside the test images, for --pseudo and podium pretrain
    "folds": str,  # "val": the images for validation are the only fold; "": they join the training images
    "extend": str | list,  # files with the project's own metrics and other parts (docs/extend.md)
    "unknown": str,  # the class of images that show none of the others; training images may lack it (unknown_class.py)
    "unknown_share": float,  # of the test images that are of that class, if training images lack it
    "sums": list,  # of numbers: which column is the sum of others (sums.py)
    "shares": dict,  # of the classes among the test images, if they are known
    "decision": str,  # of the project's own, in a file that `extend` names: what follows a blend (docs/extend.md)
    "cost": dict,  # of mistakes, by true class and answer; a submission then decides by them (blending/cost.py)
    "copies": str,  # which images count as duplicates: "near", or "exact" for identical files only
    "recipe": dict,  # this competition's defaults for the options of a run
}
KINDS = {  # of values; the others are texts
    "pairs": "a list of texts",
    "features": "a list of texts",
    "also": "a list of texts",
    "extra": "a list of tables, [[extra]]",
    "unlabelled": "a list of tables, [[unlabelled]]",
    "grades": "a list of texts",
    "sums": "a list of texts",
    "range": "a list of two numbers, or text",
    "channels": "a list of texts",
    "slices": "a whole number from 1 to 100",
    "cost": "a table of tables",
    "shares": "a table",
    "unknown_share": "a number above 0 and below 1",
    "recipe": "a table",
}
MOST_SLICES = 100
MOST_CHANNELS = 12
CHANNEL = re.compile("[^\\W_]+")
TABLES = ("train_table", "test_table", "sample_submission")  # "" says that there is none
CHOICES: dict[str, Collection[str]] = {
    "metric": METRICS,
    "better": ("higher", "lower"),
    "task": TASKS,
    "wants": WANTS,
    "copies": ("near", "exact"),
    "folds": ("val", ""),
}


class Card(dict[str, Any]):
    """The settings of a competition: those in the user's card or command, and those that Podium knows."""

    def __init__(
        self,
        path: Path,
        settings: Mapping[str, Any],
        known: Collection[str] = (),
        typed: Collection[str] = (),
        guessed: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(settings)
        self.path = path  # of the user's card, which need not exist
        self.known = frozenset(known)  # the settings that the user did not write
        self.typed = frozenset(typed)  # those of the command line
        self.guessed = guessed or {}  # why, of those that stand for a card's silence

    def with_typed(self, settings: Mapping[str, Any]) -> "Card":
        """Returns the card with settings of the command line in place of its own."""
        return Card(self.path, {**self, **settings}, self.known - settings.keys(), settings)

    def with_guess(self, key: str, value: object, reason: str) -> "Card":
        return Card(self.path, {**self, key: value}, self.known, self.typed, {**self.guessed, key: reason})

    def without(self, *keys: str) -> "Card":
        kept = {key: value for key, value in self.items() if key not in keys}
        return Card(self.path, kept, self.known, self.typed, self.guessed)

    def drop(self, key: str, note: str, refusal: str) -> str:
        """Returns `note` if a setting that does not fit these files is known or guessed; raises if the user wrote it.

        What Podium knows of a competition need not be true of every copy of it, so it is dropped.
        """
        if key not in self.known and key not in self.guessed:
            raise PodiumError(refusal)
        return note

    def origin_of(self, key: str, reason: str = "") -> str:
        """Returns where a setting comes from, for people; the card's silence has this `reason` for a guess."""
        if key not in self:
            return reason
        if key in self.guessed:
            return self.guessed[key]
        if key in self.known:
            return "known for this competition"
        return "set on the command line" if key in self.typed else f"set in {self.path}"

    def advise(self, *settings: str) -> str:
        """Returns advice for an error message: `write target_column = "NAME" in data/competitions/it.toml`."""
        return f"write {' or '.join(settings)} in {self.path}"

    def pattern(self, key: str, what: str) -> "re.Pattern[str]":
        """Returns the setting as a regular expression; raises if it has not one group, which is to hold `what`."""
        text = self[key]
        try:
            pattern = re.compile(text)
        except re.error as error:
            raise PodiumError(f"{self.path}: {key} = '{text}' is no regular expression ({error}); correct it") from None
        if pattern.groups != 1:
            raise PodiumError(
                f"{self.path}: {key} = '{text}' has {plural(pattern.groups, 'group')}; put the {what} in one ( )"
            )
        return pattern

    @property
    def value_range(self) -> ValueRange | None:
        return value_range_of(self, str(self.path))

    def origin_of_metric(self) -> str:
        """Returns where the metric comes from, for people."""
        if "metric" not in self:
            return "a guess: " + self.advise('metric = "NAME"') + " if it is another one"
        return self.origin_of("metric")


def card_path(slug: str, root: Path) -> Path:
    return root / "data" / "competitions" / f"{slug}.toml"


def read_card(slug: str, root: Path) -> Card:
    """Returns the competition's card, checked, with what Podium knows of the competition.

    Also loads the extensions that the card and podium.toml name: every command that takes a competition comes here.
    """
    path = card_path(slug, root)
    own = _read_toml(path) if path.exists() else {}
    check_keys(own, str(path))
    extend, metric = own.get("extend", ()), own.get("metric", "")
    if is_metric_of_file(metric):
        extend = [*([extend] if isinstance(extend, str) else extend), metric.partition(":")[0]]
    load_extensions(root, extend, path)
    if is_metric_of_file(metric):
        announce_metric_of_file(metric, own)
    check_values(own, str(path))
    known = known_cards().get(slug, {})
    merged = {key: value for key, value in (known | own).items() if not _is_withdrawn(key, own, known)}
    if "recipe" in merged:
        merged["recipe"] = known.get("recipe", {}) | own.get("recipe", {})
    return Card(path, merged, known.keys() - own.keys())


def _is_withdrawn(key: str, own: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Whether the user's card turns a known setting off: `title = ""`. A table or groups of this name are none."""
    return key in known and own.get(key) == "" and key not in (*TABLES, "group_column")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PodiumError(f"{path}: {error.strerror}; delete it, or fix its permissions") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PodiumError(f"{path}: {error}; correct it or delete it") from None


def check_keys(settings: Mapping[str, Any], place: str) -> None:
    """Raises if a setting or its kind is unknown; `place` says where it stands."""
    for key, value in settings.items():
        if key not in KEYS:
            hint = did_you_mean(key, KEYS, otherwise=f"the settings are {', '.join(KEYS)}")
            raise PodiumError(f"{place}: no setting '{key}'; {hint}")
        of_texts = KINDS.get(key) == "a list of texts" and key != "grades"
        is_of_texts = isinstance(value, list) and all(isinstance(name, str) for name in value)
        if not isinstance(value, KEYS[key]) or (of_texts and not is_of_texts):
            raise PodiumError(f"{place}: {key} must be {KINDS.get(key, 'text')}, not {value!r}")


def check_values(settings: Mapping[str, Any], place: str) -> None:
    """Raises if the value of a setting or of an option is not one of its choices; extensions may add some."""
    for key, value in settings.items():
        if value not in CHOICES.get(key, (value,)):
            raise PodiumError(f"{place}: {key} must be one of {', '.join(filter(None, CHOICES[key]))}, not '{value}'")
    for name, share in settings.get("shares", {}).items():
        if not isinstance(share, int | float) or not 0 < share <= 1:
            raise PodiumError(f"{place}: shares: '{name}' must be a number above 0 and at most 1, not {share!r}")
    if not 0 < (share := settings.get("unknown_share", 0.5)) < 1:
        raise PodiumError(f"{place}: unknown_share must be {KINDS['unknown_share']}, not {share!r}")
    if not re.fullmatch("([1-9][0-9]*x[1-9][0-9]*)?", settings.get("pixels", "")):
        raise PodiumError(f"{place}: pixels must be height x width, as in 137x236, not '{settings['pixels']}'")
    if (slices := settings.get("slices", 1)) is True or not 1 <= slices <= MOST_SLICES:
        raise PodiumError(f"{place}: slices must be {KINDS['slices']}, not {slices!r}")
    if len(pairs := settings.get("pairs", [])) not in (0, 2) or len(set(pairs)) != len(pairs):
        raise PodiumError(f"{place}: pairs must be two columns of the test table, or [], not {pairs!r}")
    channels = settings.get("channels", ["1", "2", "3"])
    if not 3 <= len(set(channels)) == len(channels) <= MOST_CHANNELS or not all(map(CHANNEL.fullmatch, channels)):
        raise PodiumError(
            f"{place}: channels must be 3 to {MOST_CHANNELS} different words, as in ab12_red.png, not {channels!r}"
        )
    value_range_of(settings, place)
    check_card_options(settings.get("recipe", {}), f"{place}: [recipe]: ")


FILE = Path(__file__).parent / "known_competitions.toml"


@cache
def known_cards() -> dict[str, dict[str, Any]]:
    """Returns the settings of each competition that Podium knows."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))
