"""Images whose channels are files of their own: `ab12_red.png`, `ab12_green.png` and `ab12_blue.png` are `ab12.png`.

image_place.py says how such an image is written, and open_container.py reads it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable

from podium.competition.containers.image_place import CHANNELS_KEY, SLICES_KEY, files_of, place_of_channels

COLOURS = ("red", "green", "blue")
CHANNEL = "red|green|blue|yellow|w[1-9]|ch[0-9]"  # what the file of a channel is called, after the image's id


def list_channel_images(images: list[str]) -> list[tuple[str, str]]:
    """Returns the name and the place of each image; none if a file is no channel, or channels differ.

    Red, green and blue are taken, else the first three.
    """
    groups: dict[tuple[str, str], set[str]] = defaultdict(set)
    for image in images:
        match = re.fullmatch(rf"(.+)_({CHANNEL})(\.\w+)", image)
        if match is None:
            return []
        groups[match[1], match[3]].add(match[2])
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
