"""Tells by its name whether a file is an image that Podium reads."""

import os
from importlib.util import find_spec

SUFFIXES = {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"}
NUMBER_SUFFIXES = (".npy",)  # of files of numbers, which are images only where no image file is (find_files.py)
HEIC_SUFFIXES = {".heic", ".heif"}  # of the photographs of many telephones
HEIC_REMEDY = "install the package pillow-heif to read HEIC images"


def reads_heic() -> bool:
    """Returns whether the package that reads HEIC images is installed."""
    return find_spec("pillow_heif") is not None


def is_image_name(name: str) -> bool:
    suffix = os.path.splitext(name)[1].lower()
    return suffix in SUFFIXES or (suffix in HEIC_SUFFIXES and reads_heic()) or is_number_name(name)


def is_number_name(name: str) -> bool:
    """Returns whether a file of numbers that can be read has this name."""
    return name.lower().endswith(NUMBER_SUFFIXES)
