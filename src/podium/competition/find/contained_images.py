"""Finds the images that are not files of their own: rows of pixels, and members of HDF5, Parquet, TFRecord and BSON.

The files are opened only where image files do not answer the question. See podium/competition/containers/.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.extras import MissingPackage
from podium.basics.terminal import first_few, plural
from podium.competition.card import Card
from podium.competition.containers.grid import shape_of_grid
from podium.competition.containers.image_place import Place, file_of, place_of
from podium.competition.containers.open_container import Container, Content, open_container, read_place
from podium.competition.containers.pixel_names import UnknownShape
from podium.competition.containers.spectrogram import KEY as SPECTROGRAM
from podium.competition.containers.spectrogram import Spectrogram
from podium.competition.find.find_files import Files, Role, is_for_validation, role_in_path

FEW = 50  # images, of which it is seen whether they are several pictures; files, whether they hold any
TEST_USAGES = {"publictest", "privatetest"}  # in the column Usage of a table of all rows


def containers_of(files: Files, card: Card, role: Role, folder: str = "") -> list[str]:
    """Returns the containers of a role: those that the card's `folder` names, else those whose path contains the role.

    Without any, those whose path contains no role. Those in folders for validation join the training images. Of copies
    in several sizes (192x192, 512x512), only the largest count; train_example.bson does not count beside train.bson.
    """
    if folder:
        return [name for name in files.containers if f"{name}/".startswith(f"{folder}/")]
    roles = _roles_of(_largest(_without_extracts(files.containers)))
    own = [name for name, its_role in roles.items() if its_role == role]
    val = [name for name, its_role in roles.items() if not its_role and is_for_validation(name)]
    own = own or [name for name, its_role in roles.items() if not its_role and name not in val]
    return own + val if role == "train" and own else own


def _roles_of(names: Sequence[str]) -> dict[str, Role | None]:
    """Returns the role of each container. A folder that holds all of them counts only if no other part has a role."""
    folders = [os.path.dirname(name) for name in names]
    shared = len(os.path.commonpath(folders)) if folders else 0
    roles = {name: role_in_path(name[shared:]) for name in names}
    return roles if any(roles.values()) else {name: role_in_path(name) for name in names}


def _without_extracts(names: Sequence[str]) -> list[str]:
    """Leaves out the first images of a file again, which some competitions offer for a look."""
    wholes = {name: re.sub(r"[_-](example|sample|small)(?=\.\w+$)", "", name) for name in names}
    return [name for name, whole in wholes.items() if whole == name or whole not in wholes]


def _largest(names: Sequence[str]) -> list[str]:
    """Leaves out the copies of smaller sizes: of folders called like 192x192, those with the largest number stay."""
    sizes = {name: int(match[1]) for name in names if (match := re.search(r"(\d+)x\d+[^/]*/", name))}
    return [name for name in names if name not in sizes or sizes[name] == max(sizes.values())]


def open_contained(files: Files, card: Card, name: str) -> Container:
    try:
        return open_container(files.folder / name, card.get("pixels", ""))
    except UnknownShape as unknown:
        raise PodiumError(f"{unknown}; " + card.advise('pixels = "HEIGHTxWIDTH"')) from None


def list_contained(files: Files, card: Card, role: Role, folder: str = "") -> Iterator[tuple[str, str]]:
    """Yields the name of each image in a container, as if that were a folder, and its place.

    Beside image files, containers count only if they have ids, and those that cannot be read are passed over. Of a
    folder with a file for each spectrogram only the first is opened, and few of a folder whose files hold no images.
    """
    are_spectrograms, without_images = set[str](), Counter[str]()
    for name in containers_of(files, card, role, folder):
        parent, stem = os.path.dirname(name), os.path.splitext(os.path.basename(name))[0]
        if parent in are_spectrograms and name.lower().endswith(".parquet"):
            yield f"{name}/{stem}", str(Place(name, SPECTROGRAM, ""))
            continue
        if without_images[parent] >= FEW:
            continue
        try:
            container = open_contained(files, card, name)
        except PodiumError:
            if files.images:
                continue
            raise
        if isinstance(container, Spectrogram):
            are_spectrograms.add(parent)
        without_images[parent] += 0 if container.keys else 1
        if container.has_ids or not files.images:
            for image, key in zip(container.names, container.keys, strict=True):
                yield f"{name}/{image}", str(Place(name, key, card.get("pixels", "") if container.pixels else ""))


def missing_packages(files: Files, card: Card) -> str:
    """Returns which package would read a container of images; "" if none is missing."""
    for name in files.containers:
        try:
            open_contained(files, card, name)
        except MissingPackage as missing:
            return str(missing)
        except PodiumError:
            continue
    return ""


def rows_in_container(files: Files, card: Card, name: str, id_column: str) -> pd.DataFrame:
    """Returns the columns that are no pixels. Without ids, `id_column` counts the rows from 1."""
    container = open_contained(files, card, name)
    rows = container.rows
    if len(rows) and not container.keys:
        raise PodiumError(
            f"{files.folder / name}: none of its columns holds images ({first_few(rows.columns)}); write the bytes of"
            " image files in one column, or a number from 0 to 255 in a column for each pixel: pixel0, pixel1, ..."
        )
    usage = next((column for column in rows if str(column).lower() == "usage"), None)
    if usage is not None and TEST_USAGES & set(rows[usage].str.lower()):
        raise PodiumError(
            f"{files.folder / name}: its column '{usage}' says that some rows are test images; write the rows of"
            " Training in train.csv and the others, without their labels, in test.csv"
        )
    if not container.has_ids and id_column in rows:
        line = rows.index[rows[id_column].duplicated()][0]
        raise PodiumError(
            f"{files.folder / name}, line {line}: {id_column} '{rows[id_column][line]}' appears twice;"
            " delete one of these lines"
        )
    if not container.has_ids:
        rows = rows.copy()
        rows.insert(0, id_column, container.names)
    return rows


def table_in_containers(
    files: Files, card: Card, role: Role, id_column: str, folder: str = ""
) -> tuple[Path, pd.DataFrame, str] | None:
    """Returns the table in the containers of a role, where it is, and a note; None if there are none.

    A container that serves both roles lists no test images: it is the training table.
    """
    names = containers_of(files, card, role, folder)
    if role == "test" and not folder and names == containers_of(files, card, "train"):
        return None
    val = [name for name in names if is_for_validation(name)] if role == "train" and not folder else []
    note = f"{plural(len(val), 'file')} for validation, {val[0]} first, join the training images" if val else ""
    tables = []
    for name in names:
        rows = rows_in_container(files, card, name, id_column)
        if len(names) > 1 and not open_contained(files, card, name).has_ids:
            rows[id_column] = f"{name}/" + rows[id_column]
        tables += [rows] if len(rows) else []
    if not tables:
        return None
    path = files.folder / os.path.commonpath(names)
    if len(names) > 1:
        tables = [pd.concat(tables, ignore_index=True).fillna("")]
        tables[0].index += 1
    return path, tables[0], note


def describe_contained(folder: Path, images: pd.Series) -> str:
    """Returns how many images there are in which containers, for people; "" if they are files."""
    place = place_of(images.iloc[0])
    if place is None:
        return ""
    names = sorted({file_of(image) for image in images})
    pixels = open_container(folder / place.file, place.shape).pixels
    where = names[0] if len(names) == 1 else f"{len(names)} files ({first_few(names, 2)})"
    return f"{len(images):,} {f'rows of {where}, {pixels}' if pixels else f'images in {where}'}"


def note_several(folder: Path, images: pd.Series) -> list[str]:
    """Notes whether images of containers are several pictures, judging by some of them."""
    some = images.iloc[:: max(1, len(images) // FEW)].head(FEW)
    counts = [len(content) for image in some if isinstance(content := _content_of(folder, image), list)]
    if not counts:
        return []
    rows, columns = shape_of_grid(max(counts))
    return [
        f"of {plural(len(some), 'image')} in {file_of(some.iloc[0])}, {len(counts)} are several pictures, {max(counts)}"
        f" at most: each becomes one picture, a grid of up to {rows} x {columns}"
    ]


def _content_of(folder: Path, image: str) -> Content | None:
    place = place_of(image)
    try:
        return place and read_place(place._replace(file=str(folder / place.file)))
    except (PodiumError, ValueError):
        return None  # whoever decodes the image reports it


def note_unused(files: Files, used: set[str]) -> list[str]:
    """Notes the containers that hold none of the images `used`, if another one does."""
    unused = [name for name in files.containers if name not in used]
    if not used & set(files.containers) or not unused:
        return []
    return [f"{plural(len(unused), 'more file')} of images left out: {first_few(unused)}"]
