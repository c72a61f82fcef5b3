"""Where images lie: every file below a folder, and which of them an id means.

Ids are never joined to a path; they are looked up among the files that were found, so none can lead outside.
"""

import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from podium import PodiumError
from podium.terminal import first_few

if TYPE_CHECKING:
    import pandas as pd

Role = Literal["train", "test"]
ROLES: tuple[Role, ...] = ("train", "test")
IMAGE_SUFFIXES = {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"}
TABLE_SUFFIXES = {".csv", ".tsv"}


@dataclass(frozen=True)
class Files:
    """Images, tables and other files below `folder`: relative names, with `/`, sorted."""

    folder: Path
    images: tuple[str, ...]
    tables: tuple[str, ...]
    others: tuple[str, ...] = ()

    @cached_property
    def by_folder(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for image in self.images:
            found[os.path.dirname(image)].append(image)
        return found

    @cached_property
    def _shared(self) -> int:
        """How many of the outermost folders hold all images, and so say nothing, be one called test-of-skill."""
        return len(_parts(_common(self.by_folder)))

    def role(self, folder: str) -> Role | None:
        """What the name of a folder says its images are for; the outermost that says anything counts."""
        return next(filter(None, map(_role_of, _parts(folder)[self._shared :])), None)

    def only_folder(self) -> str:
        """The folder that all images lie in, if it is called by what they are for: the other may be missing."""
        (folder, *others) = self.by_folder
        return folder if not others and any(map(_role_of, _parts(folder))) else ""

    def within(self, folder: str) -> list[str]:
        return [image for image in self.images if image.startswith(folder + "/")]

    def serving(self, *roles: Role | None) -> list[str]:
        """The images in folders of these roles, None being that of folders whose names do not say."""
        return [image for folder, images in self.by_folder.items() if self.role(folder) in roles for image in images]

    def find(self, names: Iterable[str], role: Role, within: str = "") -> dict[str, list[str]]:
        """The images that each name (an id with or without folders and extension) can mean."""
        wanted = {name: _spelling(name) for name in names}
        found: dict[str, list[str]] = {spelling: [] for spelling in wanted.values()}
        depths = {spelling.count("/") + 1 for spelling in found}
        for image in self.within(within) if within else self.serving(role, None):
            parts = _spelling(image).split("/")
            for depth in depths.intersection(range(1, len(parts) + 1)):
                tail = "/".join(parts[-depth:])
                for spelling in (tail, tail[: tail.rindex(".")]):
                    if spelling in found:
                        found[spelling].append(image)
        return {name: found[spelling] for name, spelling in wanted.items()}

    def locate(self, ids: "pd.Series[str]", table: Path, role: Role, within: str = "") -> list[str]:
        """The one image of every id, by its line in the table; of several that in the folder which serves all."""
        card = f'write {role}_images = "FOLDER" in the competition\'s card'
        found = self.find(ids, role, within)
        missing = ids[[not found[name] for name in ids]]
        if len(missing):
            listed = "delete those rows" if role == "train" else f"name their files in a test.csv, beside '{ids.name}'"
            raise PodiumError(
                f"{table}: {len(missing):,} of {len(ids):,} rows have no image below {self.folder / within}"
                f" (ids {first_few(map(_shown, missing))}), the first on line {missing.index[0]}; download again, {listed},"
                f" or {card}"
            )
        served = Counter(above for name, images in found.items() for above in {_above(name, at) for at in images})
        meant: dict[str, int] = {}
        for line, name in ids.items():
            images = found[name]
            if len(images) > 1:
                images = _to_the_letter(name, images)
            if len(images) > 1:
                images = [image for image in images if served[_above(name, image)] == len(found)] or images
            if len(images) > 1:
                raise PodiumError(
                    f"{table}, line {line}: id '{name}' could be {images[0]} or {images[1]}; delete one of them,"
                    f" or {card}"
                )
            if images[0] in meant:
                first = meant[images[0]]
                raise PodiumError(
                    f"{table}, lines {first} and {line}: '{ids[first]}' and '{name}' both mean {images[0]};"
                    " delete one of them"
                )
            meant[images[0]] = line
        return list(meant)


def find_files(folder: Path) -> Files:
    images: list[str] = []
    tables: list[str] = []
    others: list[str] = []
    seen: set[str] = set()
    for here, folders, names in os.walk(folder, onerror=_refuse, followlinks=True):
        real = os.path.realpath(here)
        if real in seen:  # a link that leads back
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__MACOSX")))
        # An empty folder in an image's place is left to whoever reads the image, as a dangling link is.
        names += [name for name in folders if _is_image(name) and not os.listdir(os.path.join(here, name))]
        below = os.path.relpath(here, folder).replace(os.sep, "/")
        prefix = "" if below == "." else below + "/"
        for name in names:
            if name.startswith("."):
                continue
            if _is_image(name):
                images.append(prefix + name)
            elif os.path.splitext(name)[1].lower() in TABLE_SUFFIXES:
                tables.append(prefix + name)
            else:
                others.append(prefix + name)
    for name in images + tables:
        if re.search("[\ud800-\udfff]", name):  # how Python keeps bytes that are no UTF-8; they cannot be printed
            raise PodiumError(f"{folder}: the file name {os.fsencode(name)!r} is not UTF-8; rename it")
    return Files(folder, tuple(sorted(images)), tuple(sorted(tables)), tuple(sorted(others)))


def class_folders(files: Files, within: str = "") -> tuple[str, list[str]]:
    """The folder that holds one folder per class, and the images in them; ("", []) where there is none."""
    below: dict[str, list[str]] = defaultdict(list)
    for folder in files.by_folder:
        above = os.path.dirname(folder)
        # A folder that is itself called train or test is no class.
        if above == within if within else folder and files.role(folder) == files.role(above) != "test":
            below[above].append(folder)
    bases = [above for above, classes in below.items() if len(classes) > 1]
    bases = [above for above in bases if files.role(above) == "train"] or bases
    if len(bases) > 1:
        raise PodiumError(
            f"{files.folder}: are the classes the folders in {bases[0] or '.'} or those in {bases[1] or '.'}?"
            ' Write train_images = "FOLDER" in the competition\'s card'
        )
    return next(iter(bases), ""), sorted(
        image for above in bases for folder in below[above] for image in files.by_folder[folder]
    )


def common_folder(images: Iterable[str]) -> str:
    """The folder that a person would name for these images."""
    return _common({os.path.dirname(image) for image in images}) or "."


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def _refuse(error: OSError) -> None:
    raise PodiumError(f"{error.filename}: {error.strerror}; mend its rights")


def _common(folders: Iterable[str]) -> str:
    folders = list(folders)
    return os.path.commonpath(folders) if folders else ""


def _parts(folder: str) -> list[str]:
    return folder.split("/") if folder else []


def _role_of(part: str) -> Role | None:
    """What a folder's own name says."""
    for word in re.findall("[A-Z]?[a-z]+|[A-Z]+", part):
        for role in ROLES:
            if word.lower().startswith(role):
                return role
    return None


def _spelling(name: str) -> str:
    """As ids and files are compared: no case, nothing blank around, one form of accents (Macs have another), one kind
    of slash."""
    return unicodedata.normalize("NFC", name).strip().lower().replace("\\", "/").removeprefix("./")


def _to_the_letter(name: str, images: list[str]) -> list[str]:
    """The one that is called so with its extension, or else without; all where that does not decide."""
    for called in (images, [os.path.splitext(image)[0] for image in images]):
        same = [image for image, each in zip(images, called, strict=True) if f"/{each}".endswith(f"/{name}")]
        if len(same) == 1:
            return same
    return images


def _shown(name: str) -> str:
    return name if name == name.strip() else repr(name)


def _above(name: str, image: str) -> str:
    """The folders of an image that the id does not name."""
    return "/".join(image.split("/")[: -_spelling(name).count("/") - 1])
