"""Recognises files of images in formats that Podium does not read, or not without a package; and films."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from podium.basics.beside import modules_beside
from podium.basics.extras import remedy_of_extra
from podium.basics.terminal import first_few
from podium.competition.find.find_files import Files
from podium.competition.find.image_names import HEIC_SUFFIXES, KINDS_OF_ANNEX

FILM = "film"
FILMS = (".mp4", ".avi", ".mov", ".mkv", ".webm")
FORMATS = {  # by the end of the name
    **dict.fromkeys(sorted(HEIC_SUFFIXES), "HEIC"),
    **{".avif": "AVIF", ".jp2": "JPEG 2000", ".jxl": "JPEG XL", ".svg": "SVG"},
    **dict.fromkeys((".cr2", ".cr3", ".nef", ".arw", ".dng"), "raw photographs"),
    **{".dcm": "DICOM", ".dicom": "DICOM"},
    **{".svs": "whole slides", ".mrxs": "whole slides", ".ndpi": "whole slides"},
    **{".nii": "NIfTI", ".nii.gz": "NIfTI"},
    ".npz": "NumPy",
    **dict.fromkeys(FILMS, FILM),
}
PACKAGES = {"HEIC": ("pillow-heif", "formats"), "DICOM": ("pydicom", "medical"), "NIfTI": ("nibabel", "medical")}
FRAMES = "ffmpeg -i NAME.mp4 -vf fps=1 NAME_%03d.jpg"


class Unread(NamedTuple):
    """Files of images that Podium cannot read."""

    kinds: Counter[str]  # how many files of each ending
    names: str  # of some

    @property
    def counts(self) -> str:
        """Returns `2 .heic (HEIC), 1 .dcm (DICOM)`."""
        return ", ".join(f"{count:,} {ending} ({FORMATS[ending]})" for ending, count in self.kinds.most_common())

    def remedy(self, where: str = "") -> str:
        """Returns what to do about them; `where` says where converted files would go."""
        kinds = {FORMATS[ending] for ending in self.kinds}
        remedies = [remedy_of_extra([package], extra) for kind, (package, extra) in PACKAGES.items() if kind in kinds]
        if kinds & set(KINDS_OF_ANNEX) and not modules_beside("readers"):
            remedies.append("install podium_annex, which reads them")
        if FILM in kinds:
            remedies.append(f"extract the frames of each film, which are images then: {FRAMES}")
        if kinds != {FILM}:
            remedies.append(f"convert {'the others' if FILM in kinds else 'them'} to PNG or JPEG{where}")
        return ", or ".join(remedies)


def unread_images(files: Files) -> str:
    """Returns which files of images Podium cannot read, and what to do, in words; "" if there are none."""
    unread = find_unread(files.others)
    where = " files with the same names in the folders train_images/ and test_images/"
    return f"Podium does not read its files {unread.counts}; {unread.remedy(where)}" if unread else ""


def find_unread(others: Sequence[str]) -> Unread | None:
    """Returns the files of images that Podium cannot read; None if there are none."""
    endings = {name: [ending for ending in FORMATS if name.lower().endswith(ending)][-1:] for name in others}
    kinds = Counter(ending for found in endings.values() for ending in found)
    return Unread(kinds, first_few(name for name, found in endings.items() if found)) if kinds else None
