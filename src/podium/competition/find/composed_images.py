"""Images that are several files: folders of slices, and channels.

Ids may name folders of slices, as of a brain's scan, `train/00000/FLAIR/Image-1.dcm`: a few evenly spaced slices become
one picture, in a grid. `ab12_red.png`, `ab12_green.png` and `ab12_blue.png` are the channels of `ab12.png`.
image_place.py says how such an image is written; open_container.py and images/decode.py read it.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from podium.basics.terminal import plural
from podium.competition.card import Card
from podium.competition.containers.grid import shape_of_grid
from podium.competition.containers.image_place import (
    CHANNELS_KEY,
    SLICES_KEY,
    files_of,
    folder_of_slices,
    place_of_channels,
    place_of_slices,
)
from podium.competition.find.find_files import Files

SLICES = 9  # 3 x 3: of a picture of 224 px, each is 75 px high and wide


class SliceFolders:
    """All folders with files below, each of which may be one image of at most `count` slices."""

    def __init__(self, files: Iterable[str], count: int) -> None:
        self._count = count
        self._names: dict[str, list[str]] = defaultdict(list)  # of the files that are in a folder itself
        for file in files:
            folder, _, name = file.rpartition("/")
            self._names[folder].append(name)
        self._holding: dict[str, list[str]] = defaultdict(list)  # the folders with files, by each that is above them
        for folder in self._names:
            for above in _with_those_above(folder):
                self._holding[above].append(folder)
        self.folders = sorted(self._holding)

    def place_of(self, folder: str) -> str:
        """Returns the place of the image; where the folder holds one file, that. The commonest kind of file counts."""
        names = [
            f"{inner}/{name}".removeprefix(f"{folder}/")
            for inner in self._holding[folder]
            for name in self._names[inner]
        ]
        kinds = Counter(os.path.splitext(name)[1].lower() for name in names)
        kind = max(sorted(kinds), key=lambda ending: kinds[ending])
        slices = sorted((name for name in names if name.lower().endswith(kind)), key=natural_order)
        chosen = evenly_spaced(slices, self._count)
        return f"{folder}/{slices[0]}" if len(slices) == 1 else place_of_slices(folder, chosen)


def evenly_spaced(names: list[str], count: int) -> list[str]:
    """Returns the middle one of each of so many equal parts: the outermost slices show little."""
    if len(names) <= count:
        return names
    return [names[(2 * number + 1) * len(names) // (2 * count)] for number in range(count)]


def files_in_folders_of_slices(images: Iterable[str], files: set[str]) -> set[str]:
    """Returns the files that are in folders whose slices are images."""
    folders = {folder for image in images if (folder := folder_of_slices(image))}
    if not folders:
        return set()
    inner = {os.path.dirname(file) for file in files}
    inner = {folder for folder in inner if not folders.isdisjoint(_with_those_above(folder))}
    return {file for file in files if os.path.dirname(file) in inner}


def note_on_slices(card: Card, train: pd.DataFrame, test: pd.DataFrame, files: Files) -> tuple[Card, list[str]]:
    """Returns the card with the number of slices, if images are folders of slices, and a note."""
    counts = [len(files_of(image)) for image in train["image"] if folder_of_slices(image)]
    if not counts:
        unused = f"slices = {card.get('slices')} in {card.path} changes nothing: no image is a folder of slices"
        return card, [unused] if "slices" in card else []
    used = {file for image in (*train["image"], *test["image"]) for file in files_of(image)}
    left = len(files_in_folders_of_slices((*train["image"], *test["image"]), {*files.images, *files.numbers} - used))
    rows, columns = shape_of_grid(max(counts))
    what = f"ids name folders of slices: each becomes one picture, a grid of {rows} x {columns} with"
    what += f" {max(counts)} evenly spaced slices, in the order of their names; {plural(left, 'file')} of these folders"
    what += " are left out"
    if "slices" in card:
        return card, [what]
    guess = card.with_guess("slices", SLICES, "a guess: a grid of 3 x 3")
    advice = card.advise("slices = N")
    return guess, [what, f"that {SLICES} slices of a folder show enough is a guess; for another number, {advice}"]


def _with_those_above(folder: str) -> Iterator[str]:
    """Yields the folder, and each that it is in."""
    while folder:
        yield folder
        folder = os.path.dirname(folder)


def natural_order(path: str) -> list[list[str | int]]:
    """Returns a key that puts Image-2 before Image-10, and all of a folder before the next folder."""
    parts = (re.split(r"(\d+)", part.lower()) for part in path.split("/"))
    return [[int(text) if number % 2 else text for number, text in enumerate(part)] for part in parts]


# --- channels that are files of their own ------------------------------------------------------------

COLOURS = ("red", "green", "blue")
CHANNEL = "red|green|blue|yellow|w[1-9]|ch[0-9]"  # what the file of a channel is called, after the image's id


def list_channel_images(images: list[str], named: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Returns the name and the place of each image; none if a file is no channel, or channels differ.

    Red, green and blue are taken, else the first three; or those that the card has `named`, in this order.
    """
    words = "|".join(named) or CHANNEL
    groups: dict[tuple[str, str], set[str]] = defaultdict(set)
    for image in images:
        match = re.fullmatch(rf"(.+)_({words})(\.\w+)", image)
        if match is None and named:
            continue
        if match is None:
            return []
        groups[match[1], match[3]].add(match[2])
    if named:
        whole = [key for key, found in groups.items() if found == set(named)]
        return [(f"{name}{ending}", place_of_channels(f"{name}_", named, ending)) for name, ending in whole]
    if len({frozenset(channels) for channels in groups.values()}) != 1:
        return []
    channels = sorted(next(iter(groups.values())))
    if len(channels) == 1:
        return []
    chosen = COLOURS if set(COLOURS) <= set(channels) else (channels * 2)[:3]
    return [(f"{name}{ending}", place_of_channels(f"{name}_", chosen, ending)) for name, ending in groups]


def other_channels(used: set[str], unused: set[str]) -> set[str]:
    """Returns the unused files that are channels of the used ones."""
    names = {image.rpartition("_")[0] for image in used}
    return {image for image in unused if image.rpartition("_")[0] in names}


def own_files(images: Iterable[str]) -> set[str]:
    """Returns the files of channels and slices; of an image that is one file, or has a place in a container, that."""
    several = (CHANNELS_KEY, SLICES_KEY)
    return {file for image in images for file in (files_of(image) if any(map(image.count, several)) else (image,))}
