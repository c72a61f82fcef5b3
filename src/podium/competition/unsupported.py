"""Recognises files of images in formats that Podium does not read."""

from collections import Counter
from collections.abc import Sequence

from podium.competition.find_files import Files
from podium.competition.image_names import HEIC_REMEDY, HEIC_SUFFIXES
from podium.terminal import first_few

FORMATS = {  # by the end of the name
    **dict.fromkeys(sorted(HEIC_SUFFIXES), "HEIC"),
    **{".avif": "AVIF", ".jp2": "JPEG 2000", ".jxl": "JPEG XL", ".svg": "SVG"},
    **dict.fromkeys((".cr2", ".cr3", ".nef", ".arw", ".dng"), "raw photographs"),
    **{".dcm": "DICOM", ".dicom": "DICOM"},
    **{".svs": "whole slides", ".mrxs": "whole slides", ".ndpi": "whole slides"},
    **{".nii": "NIfTI", ".nii.gz": "NIfTI"},
    ".npz": "NumPy",
}


def unread_images(files: Files) -> str:
    """Returns which files of images Podium cannot read, and what to do, in words; "" if there are none."""
    counts, _ = count_unread(files.others)
    if not counts:
        return ""
    remedy = "convert them to PNG or JPEG files with the same names in the folders train_images/ and test_images/"
    if "DICOM" in counts or "NIfTI" in counts:
        remedy += ' (16 bits may need the card\'s range = "image")'
    if "HEIC" in counts:
        remedy = f"{HEIC_REMEDY}, or {remedy}"
    return f"Podium does not read its files {counts}; {remedy}"


def count_unread(others: Sequence[str]) -> tuple[str, str]:
    """Counts the files of images that Podium cannot read, and names some: `2 .heic (HEIC)`, `a.heic, b.heic`."""
    endings = {name: [ending for ending in FORMATS if name.lower().endswith(ending)][-1:] for name in others}
    counts = Counter(ending for found in endings.values() for ending in found)
    names = first_few(name for name, found in endings.items() if found)
    return ", ".join(f"{count:,} {ending} ({FORMATS[ending]})" for ending, count in counts.most_common()), names
