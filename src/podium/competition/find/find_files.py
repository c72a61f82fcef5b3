"""Lists the files of a competition, and finds out from the names of folders what their images are for."""

import os
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from podium.basics.disk import check_utf8
from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few, plural, printable
from podium.competition.card import Card
from podium.competition.containers.image_place import SUFFIXES
from podium.competition.containers.pixel_table import layout_of
from podium.competition.containers.radar_bands import has_bands
from podium.competition.find.coco_tables import MOST_FILES, is_coco
from podium.competition.find.image_names import is_photo_name, number_suffixes

Role = Literal["train", "test"]  # what images are for
ROLES: tuple[Role, ...] = ("train", "test")
TABLE_SUFFIXES = {".csv", ".tsv"}
STRAYS, MANY = 3, 10  # so few pictures beside so many times as many files of numbers are not what is learned
VALIDATION = r"val(id(ation)?)?([\W_].*)?"  # the name of a folder for validation, in small letters


class Links:
    """Decides which links to folders are followed, and keeps those that leave the folder that is searched.

    A link that the user made there may lead to a folder on another disk. It is not followed if that folder holds the
    searched folder or the user's home, as / does: then most of the disk would be searched. Nor does a link lead on from
    a folder elsewhere: whoever made it did not mean these files.
    """

    def __init__(self, folder: Path) -> None:
        self.own = os.path.realpath(folder)
        self.areas = [self.own]  # real paths of the folders that are searched
        self.followed: list[str] = []
        self.ignored: list[str] = []

    def follows(self, parent: str, name: str) -> bool:
        """Returns whether a folder in a folder is to be searched; it always is if it is no link."""
        path = os.path.join(parent, name)
        if not os.path.islink(path):
            return True
        target = os.path.realpath(path)
        shown = printable(f"{path} -> {target}")  # pages have it, too
        if any(_holds(area, target) for area in self.areas):
            return True
        is_own = _holds(self.own, os.path.realpath(parent))
        if not is_own or _holds(target, self.own) or _holds(target, os.path.realpath(os.path.expanduser("~"))):
            self.ignored.append(shown)
            return False
        self.areas.append(target)
        self.followed.append(shown)
        return True

    def describe(self) -> list[str]:
        """Returns a line for the links that are followed, and one for the others."""
        lines = [f"{plural(len(self.followed), 'link')} to a folder elsewhere: {first_few(self.followed)}"]
        lines += [
            f"{plural(len(self.ignored), 'link')} not followed, because it would lead to much more than these files:"
            f" {first_few(self.ignored)}; link the folder of the images instead"
        ]
        return [line for line, links in zip(lines, (self.followed, self.ignored), strict=True) if links]


def _holds(folder: str, path: str) -> bool:
    return os.path.commonpath([folder, path]) == folder


@dataclass(frozen=True)
class Files:
    """Images, tables and other files below `folder`: relative paths with `/`, sorted.

    Files of numbers are images where there are no other images, or a stray one or two; else each counts where no image
    has its name.
    """

    folder: Path
    images: tuple[str, ...]
    tables: tuple[str, ...]
    others: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()  # those of the tables and others that may hold images
    numbers: tuple[str, ...] = ()  # files of numbers beside images, or beside containers
    notes: tuple[str, ...] = ()  # about links

    @cached_property
    def images_by_folder(self) -> dict[str, list[str]]:
        images_by_folder: dict[str, list[str]] = defaultdict(list)
        for image in self.images:
            images_by_folder[os.path.dirname(image)].append(image)
        return images_by_folder

    @cached_property
    def _shared_depth(self) -> int:
        """How many outer folders all images share. Their names do not show a role: one may be called test-of-skill."""
        return len(_parts(_common_path(self.images_by_folder)))

    def role_of(self, folder: str) -> Role | None:
        """Returns what the images of a folder are for; the outermost folder whose name contains a role decides."""
        return role_in_path("/".join(_parts(folder)[self._shared_depth :]))

    def only_folder_with_role(self) -> str:
        """Returns the folder that holds all images if its path contains a role, else an empty string.

        If there is such a folder, the one of the other role may be missing.
        """
        if not self.images:
            return ""
        folder, *others = self.images_by_folder
        return folder if not others and any(map(_role_in, _parts(folder))) else ""

    def images_below(self, folder: str) -> list[str]:
        return [image for image in self.images if image.startswith(folder + "/")]

    def images_with_role(self, *roles: Role | None) -> list[str]:
        """Returns the images in folders of these roles; None stands for folders whose names contain no role."""
        return [
            image
            for folder, images in self.images_by_folder.items()
            if self.role_of(folder) in roles
            for image in images
        ]


def find_files(folder: Path) -> Files:
    """Lists all files below a folder; follows links as `Links` says, and leaves out hidden files and folders."""
    images: list[str] = []
    tables: list[str] = []
    others: list[str] = []
    numbers: list[str] = []
    visited: set[str] = set()
    links, suffixes = Links(folder), number_suffixes()
    for path, subfolders, names in os.walk(folder, onerror=_refuse_unreadable, followlinks=True):
        real_path = os.path.realpath(path)
        if real_path in visited:  # a link that leads back
            subfolders.clear()
            continue
        visited.add(real_path)
        shown = sorted(name for name in subfolders if not name.startswith((".", "__MACOSX")))
        subfolders[:] = [name for name in shown if links.follows(path, name)]
        # An empty folder with an image's name counts as an image, like a dangling link: reading it gives an error.
        names += [name for name in subfolders if is_photo_name(name) and not os.listdir(os.path.join(path, name))]
        relative = os.path.relpath(path, folder).replace(os.sep, "/")
        prefix = "" if relative == "." else relative + "/"
        for name in names:
            if name.startswith("."):
                continue
            if name.lower().endswith(suffixes):
                numbers.append(prefix + name)
            elif is_photo_name(name):
                images.append(prefix + name)
            elif os.path.splitext(name)[1].lower() in TABLE_SUFFIXES:
                tables.append(prefix + name)
            else:
                others.append(prefix + name)
    tables += (coco := _find_coco(folder, others))
    others = [name for name in others if name not in coco]
    for name in images + numbers + tables:
        check_utf8(name, f"{folder}: the file name")
    containers = _find_containers(folder, images, tables, others)
    if not containers and len(images) <= min(STRAYS, len(numbers) // MANY):
        others += images
        images, numbers = numbers, []
    files = Files(folder, *(tuple(sorted(names)) for names in (images, tables, others, containers, numbers)))
    return replace(files, notes=tuple(links.describe()))


def _find_coco(folder: Path, others: list[str]) -> list[str]:
    """Returns the JSON files that list images and their labels."""
    names = [name for name in others if name.lower().endswith(".json")]
    return [name for name in names if is_coco(folder / name)] if len(names) <= MOST_FILES else []


def _find_containers(folder: Path, images: list[str], tables: list[str], others: list[str]) -> list[str]:
    """Returns the files that may hold images. Tables count only where there are no image files."""
    containers = [name for name in others if name.lower().endswith(SUFFIXES)]
    if not images:  # a column that is called by a number alone is more often one of a class
        containers += [name for name in others if name.lower().endswith(".json") and has_bands(folder / name)]
        texts = [name for name in tables if not name.lower().endswith(".json")]
        containers += [name for name in texts if layout_of(folder / name, numbers=not containers)]
    return containers


def find_class_folders(files: Files, card: Card, parent: str = "") -> tuple[str, list[str]]:
    """Returns the folder that holds one folder per class, and the images in them; ("", []) if there is none.

    `parent` names that folder if the card does.
    """
    class_folders: dict[str, list[str]] = defaultdict(list)  # by the folder that holds them
    for folder in files.images_by_folder:
        above = os.path.dirname(folder)
        is_class = above == parent if parent else _may_be_class(files, folder)
        if is_class:
            class_folders[above].append(folder)
    parents = [above for above, folders in class_folders.items() if len(folders) > 1]
    parents = [above for above in parents if files.role_of(above) == "train"] or parents
    if not parents:
        return "", []
    if len(parents) > 1:
        raise PodiumError(
            f"{files.folder}: both {parents[0] or '.'} and {parents[1] or '.'} hold a folder for each of several"
            " classes; " + card.advise('train_images = "FOLDER"')
        )
    images = [image for folder in class_folders[parents[0]] for image in files.images_by_folder[folder]]
    return parents[0], sorted(images)


def find_validation_folders(files: Files, card: Card, parent: str) -> tuple[str, list[str]]:
    """Returns the folder beside `parent`, train/, that holds the same classes for validation, and its images.

    ("", []) if there is none; raises if it has other classes.
    """
    if files.role_of(parent) != "train":
        return "", []
    images_by_class: dict[str, dict[str, list[str]]] = defaultdict(dict)  # by the folder that holds the classes
    for folder, images in files.images_by_folder.items():
        above, name = os.path.split(folder)
        images_by_class[above][name] = images
    names = [
        above
        for above in images_by_class
        if os.path.dirname(above) == os.path.dirname(parent)
        and re.fullmatch(VALIDATION, os.path.basename(above).lower())
    ]
    if not names:
        return "", []
    unknown = sorted(set(images_by_class[names[0]]) - set(images_by_class[parent]))
    if unknown or len(names) > 1:
        problem = (
            f"the folder '{unknown[0]}', which {parent} lacks"
            if unknown
            else f"images for validation, and so does {names[1]}"
        )
        advice = card.advise(f'train_images = "{parent}"')
        raise PodiumError(f"{files.folder}: {names[0]} holds {problem}; to leave it out, {advice}")
    return names[0], sorted(image for images in images_by_class[names[0]].values() for image in images)


def is_for_validation(path: str) -> bool:
    """Returns whether a file, or an image in a container, is in a folder for validation."""
    return any(re.fullmatch(VALIDATION, part.lower()) for part in path.split("/")[:-1])


def _may_be_class(files: Files, folder: str) -> bool:
    """Returns whether a folder is below another and adds no role: one that is itself called train is not a class."""
    role = files.role_of(folder)
    return folder != "" and role != "test" and role == files.role_of(os.path.dirname(folder))


def common_folder(images: Iterable[str]) -> str:
    """Returns the innermost folder that holds all these images."""
    return _common_path({os.path.dirname(image) for image in images}) or "."


def role_in_path(path: str) -> Role | None:
    """Returns the role in the outermost part of this path that contains one."""
    return next(filter(None, map(_role_in, _parts(path))), None)


def _refuse_unreadable(error: OSError) -> None:
    raise PodiumError(f"{error.filename}: {error.strerror}; fix its permissions")


def _common_path(folders: Iterable[str]) -> str:
    folders = list(folders)
    return os.path.commonpath(folders) if folders else ""


def _parts(folder: str) -> list[str]:
    return folder.split("/") if folder else []


def _role_in(name: str) -> Role | None:
    """Returns the role whose name starts a word of this folder name (TrainImages, imagesTrain, test_image)."""
    for word in re.findall("[A-Z]?[a-z]+|[A-Z]+", name):
        for role in ROLES:
            if word.lower().startswith(role):
                return role
    return None
