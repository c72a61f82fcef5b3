"""The place of an image in a container file, written like a path: the file, `#`, and the key of the image in it.

train.csv#12                  row 12 of the table, counted from 1
train.csv#12:137x236          the same; the card says that its pixels are 137 high and 236 wide
train-image.hdf5#ISIC_0015670

An image may also be in several grey files, one for each channel; the place names those for red, green and blue,
or all that the card names:

train/ab12_red.png#channels=red+green+blue

or be several pictures of one thing, slices in a folder; the place names the folder and those that are taken:

train/00000#slices=FLAIR/Image-3.dcm|FLAIR/Image-8.dcm

The place of a part of any of these images ends with the part: a box of the upright image, in pixels, with what is kept
around it on each side, or all but its borders.

train/1.jpg#cut=10,20,100,80          100 wide and 80 high, 10 from the left and 20 from the top
train/1.jpg#cut=10,20,100,80+15,12    the same, with 15 pixels on its left and right and 12 above and below
train/1.jpg#cut=border
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from podium.basics.image_size import BORDER, Box

TABLES = (".csv", ".tsv", ".json")  # those with images are told from others by their first lines
SUFFIXES = (".parquet", ".hdf5", ".h5", ".tfrec", ".tfrecord", ".tfrecords", ".bson")
PLACE = re.compile(
    rf"(.*(?:{'|'.join(map(re.escape, TABLES + SUFFIXES))}))#(.+?)(?::([0-9]+x[0-9]+))?", re.IGNORECASE | re.DOTALL
)
MAX_BYTES = 1_000_000_000  # of an image's file; the largest images take less in any format, also uncompressed
MAX_PIXELS = 100_000_000  # of an image
CHANNELS_KEY = "#channels="
SLICES_KEY, BETWEEN_SLICES = "#slices=", "|"
CUT_KEY = "#cut="
CUT = re.compile(rf"(.+){CUT_KEY}({BORDER}|[0-9]+,[0-9]+,[0-9]+,[0-9]+(?:\+[0-9]+,[0-9]+)?)", re.DOTALL)
CHANNELS = re.compile(rf"(.+_)[^_/]+(\.\w+){CHANNELS_KEY}(\w+(?:\+\w+)+)", re.DOTALL)


class Place(NamedTuple):
    file: str
    key: str
    shape: str  # "137x236", height x width, if the card gives it

    def __str__(self) -> str:
        return f"{self.file}#{self.key}" + (f":{self.shape}" if self.shape else "")


def place_of_part(image: str, part: object) -> str:
    """Returns the place of a part of an image: a `Box`, BORDER for all but its borders, or "" for all of it."""
    text = str(part)
    return f"{image}{CUT_KEY}{text}" if text else image


def split_part(image: str) -> tuple[str, str]:
    """Returns the place of the whole image, and the part of it; "" for all of it."""
    match = CUT.fullmatch(image) if CUT_KEY in image else None
    return (match[1], match[2]) if match else (image, "")


def parse_box(part: str) -> Box:
    return Box(*map(int, part.split(",")))


def place_of(image: str) -> Place | None:
    """Returns the place that an image's path means; None if the path is that of a file."""
    match = PLACE.fullmatch(image) if "#" in image else None
    return Place(match[1], match[2], match[3] or "") if match else None


def place_of_channels(start: str, channels: Sequence[str], ending: str) -> str:
    """Returns the place of an image in several files, each called `start`, a channel and `ending`."""
    return f"{start}{channels[0]}{ending}{CHANNELS_KEY}{'+'.join(channels)}"


def channels_of(image: str) -> list[str]:
    """Returns the names of the channels of an image in several files; none of other images."""
    match = CHANNELS.fullmatch(image) if "#" in image else None
    return match[3].split("+") if match else []


def place_of_slices(folder: str, names: Sequence[str]) -> str:
    """Returns the place of an image of several files, whose names are relative to a folder."""
    return f"{folder}{SLICES_KEY}{BETWEEN_SLICES.join(names)}"


def folder_of_slices(image: str) -> str:
    """Returns the folder that holds the slices of an image; "" of other images."""
    folder, key, _ = image.partition(SLICES_KEY)
    return folder if key else ""


def file_of(image: str) -> str:
    """Returns the file that holds an image: its container, or its own file; the first one of several."""
    return files_of(image)[0]


def files_of(image: str) -> list[str]:
    """Returns the files of an image's channels or slices, or the file that holds it."""
    folder, is_of_slices, names = image.partition(SLICES_KEY)
    if is_of_slices:
        return [f"{folder}/{name}" for name in names.split(BETWEEN_SLICES)]
    match = CHANNELS.fullmatch(image) if "#" in image else None
    if match:
        return [f"{match[1]}{channel}{match[2]}" for channel in channels_of(image)]
    place = place_of(image)
    return [place.file if place else image]
