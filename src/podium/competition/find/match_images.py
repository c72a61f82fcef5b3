"""Finds the image of each id.

Ids are never joined to a path. They are looked up in the list of files, so no id can lead outside the folder.
"""

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from podium.basics.errors import MissingFiles, PodiumError
from podium.basics.terminal import first_few
from podium.competition.card import Card
from podium.competition.containers.image_place import folder_of_slices
from podium.competition.find.composed_images import SLICES, SliceFolders, list_channel_images
from podium.competition.find.contained_images import list_contained, missing_packages
from podium.competition.find.find_files import Files, Role, role_in_path
from podium.competition.find.image_names import strip_suffix
from podium.competition.find.unsupported import unread_images

if TYPE_CHECKING:
    import pandas as pd

FIRST_ROWS = 200  # enough to tell whether a column names images


class ImageIndex:
    """Finds images by what tables call them: the last parts of their paths, with or without the extension.

    `names` are the paths by which they are called. The index for names of so many parts is built at first use.
    """

    def __init__(self, images: Sequence[str], names: Sequence[str] | None = None, have_suffix: bool = True) -> None:
        self._have_suffix = have_suffix
        self._images, self._names = images, images if names is None else names
        self._by_depth: dict[int, dict[str, str | list[str]]] = {}

    def find(self, name: str) -> list[str]:
        """Returns the images that a comparable name can mean."""
        depth = name.count("/") + 1
        if depth not in self._by_depth:
            self._by_depth[depth] = self._index(depth)
        found = self._by_depth[depth].get(name, [])
        return [found] if isinstance(found, str) else found

    def _index(self, depth: int) -> dict[str, str | list[str]]:
        index: dict[str, str | list[str]] = {}  # a list only where there are several: there may be millions of names
        for image, name in zip(self._images, self._names, strict=True):
            path = _comparable(name)
            parts = path.rsplit("/", depth)
            if len(parts) < depth:
                continue
            tail = path if len(parts) == depth else path[len(parts[0]) + 1 :]
            for key in {tail, strip_suffix(tail) if self._have_suffix else tail}:
                before = index.setdefault(key, image)
                if isinstance(before, list):
                    before.append(image)
                elif before is not image:
                    index[key] = [before, image]
        return index


@dataclass(frozen=True)
class ImagePool:
    """The images that the ids of one role can mean.

    They are those below the card's `folder`, else those in folders whose names do not contain the other role.
    """

    files: Files
    card: Card
    role: Role
    folder: str = ""

    @property
    def path(self) -> Path:
        return self.files.folder / self.folder

    @cached_property
    def images(self) -> list[str]:
        if self.folder:
            return self.files.images_below(self.folder)
        return self.files.images_with_role(self.role, None)

    def find_candidates(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Returns, for each name (an id with or without folders and extension), the images that it can mean.

        Folders of slices count where they have more of these names than files have, or as many, and one of them for
        each: each of the folders 1, 2 and 3 may hold the files 1, 2 and 3.
        """
        matches = self.find_files(names)
        if all(len(images) == 1 for images in matches.values()):
            return matches
        return max(matches, self._find_folders(matches), key=_how_many_are_found)

    def find_files(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Returns, for each name, the images that it can mean, without folders of slices.

        Only where no image file has such a name, files of numbers and images in containers count; where no name is
        found at all, names without what they all end with, then the files of channels.
        """
        comparable_names = {name: _comparable(name) for name in names}
        matches = {name: self._image_files.find(name) for name in comparable_names.values()}
        missing = [name for name, images in matches.items() if not images]
        if missing and (self.files.numbers or self.files.containers):
            matches |= {name: self._further.find(name) for name in missing}
        if not any(matches.values()):
            matches = {name: self._without_ending.find(name) for name in matches}
        if not any(matches.values()):
            matches = {name: self._channels.find(name) for name in matches}
        return {name: matches[comparable] for name, comparable in comparable_names.items()}

    @cached_property
    def _image_files(self) -> ImageIndex:
        return ImageIndex(self.images)

    @cached_property
    def _further(self) -> ImageIndex:
        names, places = _unzip(self._list_further())
        return ImageIndex(places, names)

    def _list_further(self) -> Iterator[tuple[str, str]]:
        """Yields the name and the place of what counts where no image file answers."""
        yield from ((name, name) for name in self._numbers())
        yield from list_contained(self.files, self.card, self.role, self.folder)

    def _numbers(self) -> Iterator[str]:
        """Yields the files of numbers beside images."""
        for name in self.files.numbers:
            if name.startswith(f"{self.folder}/") if self.folder else role_in_path(name) in (self.role, None):
                yield name

    @cached_property
    def _without_ending(self) -> ImageIndex:
        ending = _shared_ending(self.images)
        pattern = re.compile(rf"{ending}(\.\w+)?$")
        images = self.images if ending else []
        return ImageIndex(images, [pattern.sub(r"\1", image) for image in images])

    @cached_property
    def _channels(self) -> ImageIndex:
        names, places = _unzip(list_channel_images(self.images, self.card.get("channels", ())))
        return ImageIndex(places, names)

    def _find_folders(self, names: Iterable[str]) -> dict[str, list[str]]:
        return {
            name: [self._slices.place_of(folder) for folder in self._folders.find(_comparable(name))] for name in names
        }

    @cached_property
    def _slices(self) -> SliceFolders:
        return SliceFolders([*self.images, *self._numbers()], self.card.get("slices", SLICES))

    @cached_property
    def _folders(self) -> ImageIndex:
        return ImageIndex(self._slices.folders, have_suffix=False)

    def has_images(self) -> bool:
        return bool(self.images) or any(self._list_further())

    def find_column(self, rows: "pd.DataFrame", preferred: object = None, with_folders: bool = False) -> str | None:
        """Returns the column whose first cells name the most images, None if no cell does; `preferred` wins a tie.

        Names of folders of slices count only if wanted, as folders may be called after classes.
        """
        first_rows = rows.head(FIRST_ROWS).to_numpy(object)
        find = self.find_candidates if with_folders else self.find_files
        candidates = find(set(first_rows.flat))
        match_counts = {
            str(column): sum(bool(candidates[cell]) for cell in set(cells))
            for column, cells in zip(rows.columns, first_rows.T, strict=True)
        }
        best = max(match_counts, key=lambda column: (match_counts[column], column == preferred))
        return best if match_counts[best] else None

    def match(self, names: "pd.Series[str]", table_path: Path) -> list[str]:
        """Returns the one image of every name; the index of `names` holds their lines in the table."""
        advice = self.card.advise(f'{self.role}_images = "FOLDER"')
        candidates = self.find_candidates(names)
        _refuse_missing(self, names, candidates, table_path, advice)
        name_counts = Counter(
            folder
            for name, images in candidates.items()
            for folder in {_unnamed_folder(name, image) for image in images}
        )
        complete_folders = {folder for folder, count in name_counts.items() if count == len(candidates)}
        lines: dict[str, int] = {}  # by image
        for line, name in names.items():
            images = candidates[name]
            if len(images) > 1:
                images = _likeliest(name, images, complete_folders)
            if len(images) > 1:
                first_image, other = map(_path_of, images[:2])
                is_elsewhere = os.path.dirname(first_image) != os.path.dirname(other)
                raise PodiumError(
                    f"{table_path}, line {line}: id '{name}' could be {first_image} or {other}; delete one of them"
                    + (f", or {advice}" if is_elsewhere else ", or write the ids with their extension")
                )
            if images[0] in lines:
                first = lines[images[0]]
                raise PodiumError(
                    f"{table_path}, lines {first} and {line}: '{names[first]}' and '{name}' both mean"
                    f" {_path_of(images[0])};"
                    " delete one of these lines"
                )
            lines[images[0]] = line
        return list(lines)


def _refuse_missing(
    pool: ImagePool, names: "pd.Series[str]", candidates: dict[str, list[str]], table_path: Path, advice: str
) -> None:
    missing = names[[not candidates[name] for name in names]]
    if not len(missing):
        return
    remedy = "delete those rows"
    if pool.role == "test":  # every row of a submission is needed
        remedy = f"name their files in a test.csv, beside '{names.name}'"
    decimals = _explain_decimals(pool, missing)
    unread = unread_images(pool.files) or missing_packages(pool.files, pool.card)
    quoted = (name if name == name.strip() else repr(name) for name in missing)  # blanks would not be seen
    raise MissingFiles(
        f"{table_path}: {len(missing):,} of {len(names):,} rows have no image below {pool.path}"
        f" (ids {first_few(quoted)}), the first on line {missing.index[0]}; download again, {remedy}, or {advice}"
        + (f"; {decimals}" if decimals else "")
        + (f"; {unread}" if unread else "")
    )


def _explain_decimals(pool: ImagePool, missing: "pd.Series[str]") -> str:
    """Returns what has happened to ids such as 7.0 if there is an image 7; else nothing."""
    whole = [name.partition(".")[0] for name in missing if re.fullmatch(r"\s*-?\d+\.0+\s*", name)]
    if not whole or not any(pool.find_candidates(whole).values()):
        return ""
    return (
        f"these ids look like decimals, where the images have whole numbers ({whole[0].strip()}): whatever wrote"
        f" the table, such as pandas, took '{missing.name}' for a number; write it again with whole numbers"
        f" (read_csv(..., dtype={{'{missing.name}': str}}), or .astype(int))"
    )


def _how_many_are_found(candidates: dict[str, list[str]]) -> tuple[int, int]:
    """Returns how many names have an image, and how many have just one."""
    counts = [len(images) for images in candidates.values()]
    return sum(map(bool, counts)), counts.count(1)


def _unzip(pairs: Iterable[tuple[str, str]]) -> tuple[Sequence[str], Sequence[str]]:
    first, second = zip(*pairs, strict=True) if (pairs := list(pairs)) else ((), ())
    return first, second


def _shared_ending(images: list[str]) -> str:
    """Returns the word at the end of all names, such as `_thumbnail`; "" if there is none."""
    match = re.search("[_-][A-Za-z]+$", os.path.splitext(images[0])[0]) if images else None
    if match is None:
        return ""
    return match[0] if all(os.path.splitext(image)[0].endswith(match[0]) for image in images) else ""


def _comparable(name: str) -> str:
    """Returns an id or a file name in the form in which they are compared.

    Upper case, blanks around it, the form of accents (Macs use another one) and the kind of slash make no difference.
    """
    return unicodedata.normalize("NFC", name).strip().lower().replace("\\", "/").removeprefix("./").removeprefix("/")


def _likeliest(name: str, images: list[str], complete_folders: set[str]) -> list[str]:
    """Narrows several images that a name can mean down to one, or returns more than one if that is not possible.

    The image that has exactly this name wins; then those in folders that have an image for every name.
    """
    exact = _exact_match(name, images)
    if exact:
        return [exact]
    return [image for image in images if _unnamed_folder(name, image) in complete_folders] or images


def _exact_match(name: str, images: list[str]) -> str | None:
    """Returns the only image that has exactly this name with its extension, or else without."""
    own = [_path_of(image) for image in images]
    for paths in (own, [strip_suffix(path) for path in own]):
        matches = [image for image, path in zip(images, paths, strict=True) if f"/{path}".endswith(f"/{name}")]
        if len(matches) == 1:
            return matches[0]
    return None


def _unnamed_folder(name: str, image: str) -> str:
    """Returns the part of an image's folder that the name does not contain."""
    return "/".join(_path_of(image).split("/")[: -_comparable(name).count("/") - 1])


def _path_of(image: str) -> str:
    """Returns the path of an image; of slices, that of their folder."""
    return folder_of_slices(image) or image
