"""Tells by its name whether a file is an image that Podium reads."""

import os
from importlib.util import find_spec

from podium.basics.beside import modules_beside

SUFFIXES = {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"}
HEIC_SUFFIXES = {".heic", ".heif"}  # of the photographs of many telephones
NUMBER_SUFFIXES = {  # of files of numbers, images only where no image file is (find_files.py), and their kinds
    ".npy": "NumPy",
    **dict.fromkeys((".dcm", ".dicom"), "DICOM"),
    **dict.fromkeys((".nii", ".nii.gz"), "NIfTI"),
}
LONGEST_SUFFIX = max(map(len, NUMBER_SUFFIXES))
MODULES = {"HEIC": "pillow_heif", "DICOM": "pydicom", "NIfTI": "nibabel"}  # without which these kinds are not read
KINDS_OF_ANNEX = ("DICOM", "NIfTI")  # whose readers lie beside this package


def further_kinds() -> list[str]:
    """Returns the kinds of images that are read because a package is installed."""
    has_annex = bool(modules_beside("readers"))
    kinds = [kind for kind in MODULES if has_annex or kind not in KINDS_OF_ANNEX]
    return [kind for kind in kinds if find_spec(MODULES[kind]) is not None]


def reads_heic() -> bool:
    return find_spec(MODULES["HEIC"]) is not None


def reads_avif() -> bool:
    """Returns whether this version of Pillow reads AVIF images."""
    return find_spec("PIL._avif") is not None


def is_photo_name(name: str) -> bool:
    suffix = os.path.splitext(name)[1].lower()
    if suffix == ".avif":
        return reads_avif()
    return suffix in SUFFIXES or (suffix in HEIC_SUFFIXES and reads_heic())


def number_suffixes() -> tuple[str, ...]:
    """Returns how the names of files of numbers end, of those kinds that can be read."""
    missing = MODULES.keys() - further_kinds()
    return tuple(suffix for suffix, kind in NUMBER_SUFFIXES.items() if kind not in missing)


def is_image_name(name: str) -> bool:
    if is_photo_name(name):
        return True
    end = name[-LONGEST_SUFFIX:].lower()  # to ask for packages takes long, and most names are cells of a table
    return end.endswith(tuple(NUMBER_SUFFIXES)) and end.endswith(number_suffixes())


def strip_suffix(name: str) -> str:
    """Returns a file's name without its extension, and without the two of .nii.gz."""
    return os.path.splitext(name[:-3] if name[-7:].lower() == ".nii.gz" else name)[0]
