"""The place of an image in a container file, written like a path: the file, `#`, and the key of the image in it.

train.csv#12                  row 12 of the table, counted from 1
train.csv#12:137x236          the same; the card says that its pixels are 137 high and 236 wide
train-image.hdf5#ISIC_0015670

An image may also be in several grey files, one for each channel; the place names those for red, green and blue:

train/ab12_red.png#channels=red+green+blue
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

TABLES = (".csv", ".tsv", ".json")  # those with images are told from others by their first lines
SUFFIXES = (".parquet", ".hdf5", ".h5", ".tfrec", ".tfrecord", ".tfrecords")
PLACE = re.compile(
    rf"(.*(?:{'|'.join(map(re.escape, TABLES + SUFFIXES))}))#(.+?)(?::([0-9]+x[0-9]+))?", re.IGNORECASE | re.DOTALL
)
MAX_BYTES = 1_000_000_000  # of an image's file; the largest images take less in any format, also uncompressed
CHANNELS_KEY = "#channels="
CHANNELS = re.compile(rf"(.+_)[^_/]+(\.\w+){CHANNELS_KEY}(\w+\+\w+\+\w+)", re.DOTALL)


class Place(NamedTuple):
    file: str
    key: str
    shape: str  # "137x236", height x width, if the card gives it

    def __str__(self) -> str:
        return f"{self.file}#{self.key}" + (f":{self.shape}" if self.shape else "")


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


def file_of(image: str) -> str:
    """Returns the file that holds an image: its container, or its own file; the first one of several channels."""
    return files_of(image)[0]


def files_of(image: str) -> list[str]:
    """Returns the files of an image's channels, or the file that holds it."""
    match = CHANNELS.fullmatch(image) if "#" in image else None
    if match:
        return [f"{match[1]}{channel}{match[2]}" for channel in channels_of(image)]
    place = place_of(image)
    return [place.file if place else image]
