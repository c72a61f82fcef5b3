"""Turns a table with a row for each label of an image into one with a row for each image, and answers back into rows.

    ID,Label               ID,any,subdural
    ID_12_any,1     ->     ID_12,1,0
    ID_12_subdural,0

The sample submission of some competitions has such rows (RSNA's haemorrhages, Bengali.AI, facial keypoints). Their ids
are the image's id and the label's name, or numbers that another table explains.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few, plural
from podium.competition.find.facts import Facts
from podium.competition.find.match_images import FIRST_ROWS, ImagePool
from podium.competition.find.table import LongRows, Table

MOST_NAMES = 1000  # of labels; a column with more different cells holds something else


class Parts(NamedTuple):
    """What the ids of a long table mean."""

    id_column: str  # of the images
    images: "pd.Series[str]"
    names: "pd.Series[str]"
    explained_by: tuple[str, str] | None = None  # columns of another table


def widen_sample(facts: Facts, table: Table, pool: ImagePool) -> Table | None:
    """Returns the sample submission with a row for each image; None if it has no row for each label."""
    if len(table.rows.columns) != 2:
        return None
    parts = _parts_in_table(facts, table, pool) or _parts_of_ids(table.path, table.rows.iloc[:, 0], pool)
    if parts is None:
        return None
    wide, images, names = _pivot(table.path, parts, table.rows.iloc[:, 1])
    ids, answer = table.rows.columns
    rows = LongRows((str(ids), str(answer)), parts.explained_by, table.rows[ids].tolist(), images, names)
    return table._replace(rows=wide, id_position=0, long=rows)


def widen_training_table(sample: Table | None, table: Table) -> Table:
    """Returns the training table with a row for each image, if it has the rows of a long sample submission."""
    if sample is None or sample.long is None:
        return table
    id_column, answer = sample.long.columns
    if id_column not in table.rows or answer not in table.rows or set(sample.answer_columns) <= set(table.rows):
        return table
    explained_by = sample.long.explained_by
    if explained_by and set(explained_by) <= set(table.rows):
        parts = Parts(explained_by[0], *(table.rows[name] for name in explained_by))
    else:
        parts = _split(table.path, table.rows[id_column], sample.answer_columns)
    unique = ~table.rows[[id_column, answer]].duplicated()
    if not unique.all():
        repeated = plural(int((~unique).sum()), "row")
        table = table.noting(f"{repeated} of {table.path.name} left out: they repeat an id with the same label")
    parts = Parts(parts.id_column, parts.images[unique], parts.names[unique])
    wide, _, _ = _pivot(table.path, parts, table.rows[answer][unique])
    missing = [name for name in sample.answer_columns if name not in wide]
    if missing:
        raise PodiumError(f"{table.path}: no row '{missing[0]}', which {sample.path.name} asks for; download it again")
    wide = wide[[parts.id_column, *sample.answer_columns]]
    is_missing = (wide == "").any(axis=1)
    if is_missing.any():
        row = wide[is_missing].iloc[0]
        name = next(name for name in sample.answer_columns if row[name] == "")
        raise PodiumError(
            f"{table.path}: image '{row[parts.id_column]}' has no row '{name}'; add it, or delete its other rows"
        )
    return table._replace(rows=wide)


def _parts_in_table(facts: Facts, table: Table, pool: ImagePool) -> Parts | None:
    """Finds a table that says for each id of the sample which image and which label it is."""
    ids = table.rows.iloc[:, 0]
    for name in facts.files.tables:
        path = facts.files.folder / name
        if path == table.path or name in facts.files.containers or not path.is_file():
            continue
        image_column = _column_of_images(facts.head_of(name, FIRST_ROWS), str(ids.name), pool)
        if image_column is None:
            continue
        rows = facts.rows_of(name)
        columns = _explaining_columns(rows.drop(columns=str(ids.name)), image_column)
        if columns is not None and ids.isin(rows[ids.name]).all() and not rows[ids.name].duplicated().any():
            explained = rows.set_index(ids.name).loc[ids]
            images, names = (pd.Series(explained[key].to_numpy(), ids.index) for key in columns)
            return Parts(columns[0], images, names, columns)
    return None


def _column_of_images(head: pd.DataFrame | None, id_column: str, pool: ImagePool) -> str | None:
    """Returns the column that names the images, of a table that may explain these ids."""
    if head is None or id_column not in head or head.shape[1] < 3 or head[id_column].duplicated().any():
        return None
    return pool.find_column(head.drop(columns=id_column), with_folders=True)


def _explaining_columns(rows: pd.DataFrame, image_column: str) -> tuple[str, str] | None:
    """Returns the columns of a table that hold an image, in several rows each, and a name, once for each image."""
    if not rows[image_column].duplicated().any():
        return None
    for column in rows.columns.drop(image_column):
        is_once = not rows[[image_column, column]].duplicated().any()
        if is_once and 1 < rows[column].nunique() < min(len(rows), MOST_NAMES) and (rows[column] != "").all():
            return image_column, str(column)
    return None


def _parts_of_ids(path: Path, ids: "pd.Series[str]", pool: ImagePool) -> Parts | None:
    """Splits ids such as `ID_12_any` into image and name; None if they name images, or no part of them does."""
    head = ids.head(FIRST_ROWS)
    if not head.str.contains("_").all() or any(pool.find_candidates(head).values()):
        return None
    starts = {row_id: [row_id[: match.start()] for match in re.finditer("_", row_id)] for row_id in head}
    known = pool.find_files({start for row in starts.values() for start in row})
    names: dict[str, None] = {}
    for row_id, row in starts.items():
        image = next((start for start in reversed(row) if known[start]), None)
        if image is None:
            return None
        names[row_id[len(image) + 1 :]] = None
    return _split(path, ids, list(names)) if len(names) > 1 else None


def _split(path: Path, ids: "pd.Series[str]", names: Sequence[str]) -> Parts:
    pattern = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    parts = ids.str.extract(f"^(.*)_({pattern})$", flags=re.DOTALL)
    is_unknown = parts[1].isna()
    if is_unknown.any():
        line = is_unknown.idxmax()
        raise PodiumError(
            f"{path}, line {line}: id '{ids[line]}' ends with none of the names {first_few(names)} of the other rows;"
            " correct it or download again"
        )
    return Parts(str(ids.name), parts[0], parts[1])


def _pivot(
    path: Path, parts: Parts, cells: "pd.Series[str]"
) -> tuple[pd.DataFrame, NDArray[np.int64], NDArray[np.int64]]:
    """Returns the wide table, and the row and the column of each cell in it."""
    images, image_ids = pd.factorize(parts.images)
    names, columns = pd.factorize(parts.names)
    place = images * len(columns) + names
    order = place.argsort(kind="stable")
    is_repeated = np.flatnonzero(place[order][1:] == place[order][:-1])
    if len(is_repeated):
        first, second = sorted(cells.index[order[[is_repeated[0], is_repeated[0] + 1]]])
        name, image = parts.names[second], parts.images[second]
        problem = f"'{name}' of image '{image}' has two rows; delete the wrong line"
        raise PodiumError(f"{path}, lines {first} and {second}: {problem}")
    wide = np.full((len(image_ids), len(columns)), "", dtype=object)
    wide[images, names] = cells
    lines = cells.index[np.unique(images, return_index=True)[1]]
    rows = pd.DataFrame(wide, columns=list(columns), index=lines)
    rows.insert(0, parts.id_column, image_ids)
    return rows, images, names
