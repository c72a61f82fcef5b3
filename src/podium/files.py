"""Where images lie: every file below a folder, and which of them an id means.

Ids are never joined to a path; they are looked up among the files that were found, so none can lead outside.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Literal

from podium import PodiumError

Role = Literal["train", "test"]
IMAGE_SUFFIXES = {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"}
TABLE_SUFFIXES = {".csv", ".tsv"}


@dataclass(frozen=True)
class Files:
    """Relative names, with `/`, sorted: images and tables below `folder`."""

    folder: Path
    images: tuple[str, ...]
    tables: tuple[str, ...]

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        """Images by their file name, with and without the extension, case folded."""
        found: dict[str, list[str]] = defaultdict(list)
        for image in self.images:
            path = PurePosixPath(image.lower())
            found[path.name].append(image)
            found[path.stem].append(image)
        return found

    def candidates(self, name: str, role: Role | None = None, within: str = "") -> list[str]:
        """The images that `name` (an id with or without folder and extension) can mean."""
        wanted = name.lower()
        found = []
        for image in self._by_name.get(wanted.rpartition("/")[2], ()):
            whole = image.lower()
            bare = whole[: len(whole) - len(PurePosixPath(whole).suffix)]
            if not any(text == wanted or text.endswith("/" + wanted) for text in (whole, bare)):
                continue
            if within:
                if not image.startswith(within.rstrip("/") + "/"):
                    continue
            elif role and role_of(image) not in (role, None):
                continue
            found.append(image)
        return found

    def locate(self, ids: Sequence[str], role: Role, within: str = "") -> list[str | None]:
        """One image for every id, or None. Of several the one whose folder serves the most ids; else an error."""
        found = {name: self.candidates(name, role, within) for name in ids}
        served = Counter(_base(image, name) for name, images in found.items() for image in images)
        located: list[str | None] = []
        for name in ids:
            images = sorted(found[name], key=lambda image: -served[_base(image, name)])
            if len(images) > 1 and served[_base(images[0], name)] == served[_base(images[1], name)]:
                raise PodiumError(
                    f"id '{name}' could be {images[0]} or {images[1]}; delete one of them,"
                    f' or write {role}_images = "FOLDER" in the competition\'s card'
                )
            located.append(images[0] if images else None)
        return located


def find_files(folder: Path) -> Files:
    images: list[str] = []
    tables: list[str] = []
    seen: set[str] = set()
    for here, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(here)
        if real in seen:  # a link that leads back
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__MACOSX")))
        below = os.path.relpath(here, folder).replace(os.sep, "/")
        prefix = "" if below == "." else below + "/"
        for name in names:
            suffix = os.path.splitext(name)[1].lower()
            if name.startswith("."):
                continue
            if suffix in IMAGE_SUFFIXES:
                images.append(prefix + name)
            elif suffix in TABLE_SUFFIXES:
                tables.append(prefix + name)
    return Files(folder, tuple(sorted(images)), tuple(sorted(tables)))


def role_of(image: str) -> Role | None:
    """What the folders of an image say it is for; the outermost that says anything counts."""
    for part in PurePosixPath(image).parts[:-1]:
        words = re.split(r"[^a-z]+", part.lower())
        if any(word.startswith("train") for word in words):
            return "train"
        if any(word.startswith("test") for word in words):
            return "test"
    return None


def class_folders(files: Files, within: str = "") -> tuple[str, list[str]]:
    """The folder that holds one folder per class, and the images in them; ("", []) where there is none."""
    below: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for image in files.images:
        path = PurePosixPath(image)
        if len(path.parts) > 1 and (within or role_of(image) != "test"):
            below[str(path.parent.parent)][path.parent.name].append(image)
    folders = {
        base: [image for images in classes.values() for image in images]
        for base, classes in below.items()
        if len(classes) > 1 and (not within or base == within.rstrip("/"))
    }
    if not folders:
        return "", []
    best = max(folders, key=lambda base: (role_of(base + "/x") == "train", len(folders[base])))
    return best, sorted(folders[best])


def common_folder(images: Sequence[str]) -> str:
    """The folder that a person would name for these images."""
    if not images:
        return "."
    return os.path.commonpath([os.path.dirname(image) for image in images]) or "."


def _base(image: str, name: str) -> str:
    """What is left of an image's path when the id, with or without the extension, is taken away."""
    whole, wanted = image.lower(), name.lower()
    if not whole.endswith(wanted):
        whole = whole[: len(whole) - len(PurePosixPath(whole).suffix)]
    return image[: len(whole) - len(wanted)]
