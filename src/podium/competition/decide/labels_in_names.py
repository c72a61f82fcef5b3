r"""Reads the labels of training images from their file names, such as cat.0.jpg or 001_dog.png.

    label_pattern = '(\w+)\.\d+'          in the card: fits the whole name without its extension; its group is the label

Reads the list of files and the card. Writes nothing.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few
from podium.competition.find.facts import Facts
from podium.competition.find.find_files import common_folder

MAX_CLASSES, MIN_IMAGES = 1000, 2  # of a class: with more classes or fewer images, a name is more likely just a name
MAX_PARTS = 4  # words in a name
WORD, BETWEEN, NUMBER = r"[^\W\d_]+", r"[ _.-]+", r"\(?\d+\)?"


class Reading(NamedTuple):
    """One way to read labels from names."""

    pattern: str
    labels: tuple[str, ...]  # of each image

    @property
    def is_likely(self) -> bool:
        counts = Counter(self.labels)
        return 2 <= len(counts) <= MAX_CLASSES and min(counts.values()) >= MIN_IMAGES

    @property
    def partition(self) -> tuple[int, ...]:
        """Returns which images share a label, whatever the labels are called."""
        return tuple(pd.factorize(pd.Series(self.labels))[0])


class GuessedPattern(NamedTuple):
    pattern: str
    note: str


def read_labels_in_names(facts: Facts, pattern: str) -> pd.DataFrame:
    """Returns the training rows (id, target, image); the labels are what the pattern finds in the names of images."""
    images = _train_images(facts)
    compiled, labels = re.compile(pattern), []
    for image in images:
        match = compiled.fullmatch(_stem(image))
        if match is None or not (match[1] or "").strip():
            raise PodiumError(
                f"{facts.card.path}: label_pattern = '{pattern}' finds no label in"
                f" {facts.files.folder / image}; it must fit each whole name without its extension; correct it"
            )
        labels.append(match[1])
    folder = common_folder(images)
    ids = [image.removeprefix(f"{folder}/") for image in images]
    return pd.DataFrame({"id": ids, "target": labels, "image": images}, dtype=object)


def _train_images(facts: Facts) -> list[str]:
    pool, files = facts.images("train"), facts.files
    images = pool.images if pool.folder else files.images_with_role("train") or files.images_with_role(None)
    return sorted(images)


def guess_label_pattern(facts: Facts) -> GuessedPattern | None:
    """Returns the pattern, if there is only one way to read labels from the names of all images."""
    images = _train_images(facts)
    readings = [reading for pattern in _patterns() if (reading := _read(pattern, images))]
    has_fixed_part = any(len(set(reading.labels)) == 1 for reading in readings)  # such as img in img_cat_1
    by_partition: dict[tuple[int, ...], list[Reading]] = {}
    for reading in filter(lambda reading: reading.is_likely, readings):
        by_partition.setdefault(reading.partition, []).append(reading)
    chosen = [same[1] if has_fixed_part and len(same) > 1 else same[0] for same in by_partition.values()]
    if not chosen:
        return None
    lines = [f"label_pattern = '{reading.pattern}'" for reading in chosen]
    if len(chosen) > 1:
        ways = " or ".join(f"'{reading.labels[0]}'" for reading in chosen)
        raise PodiumError(
            f"{facts.files.folder}: the label of {images[0]} could be {ways}; {facts.card.advise(*lines)}"
        )
    counts = first_few(f"{label} {count:,}" for label, count in sorted(Counter(chosen[0].labels).items()))
    return GuessedPattern(
        chosen[0].pattern,
        f"labels are read from the file names ({PurePosixPath(images[0]).name} is '{chosen[0].labels[0]}'): {counts};"
        f" if that is wrong, {facts.card.advise('another ' + lines[0])}",
    )


def _patterns() -> Iterator[str]:
    """Yields the patterns of words and a number: first those whose label is all words, then one word of several."""
    for number_first in (False, True):
        yield _with_number(f"({WORD}(?:{BETWEEN}{WORD})*)", number_first)
        for count in range(2, MAX_PARTS + 1):
            for place in range(count):
                words = BETWEEN.join(f"({WORD})" if i == place else WORD for i in range(count))
                yield _with_number(words, number_first)


def _with_number(words: str, number_first: bool) -> str:
    return f"{NUMBER}[ _.-]*{words}" if number_first else f"{words}[ _.-]*{NUMBER}"


def _read(pattern: str, images: list[str]) -> Reading | None:
    """Returns the labels that the pattern finds; None if it does not fit every name."""
    labels = []
    for image in images:
        match = re.fullmatch(pattern, _stem(image))
        if match is None:
            return None
        labels.append(match[1])
    return Reading(pattern, tuple(labels))


def _stem(image: str) -> str:
    return PurePosixPath(image).stem
