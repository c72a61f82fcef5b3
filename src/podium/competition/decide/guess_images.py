"""Guesses what names the images of a table's ids: the ids themselves, or another column if they are only numbers."""

from collections.abc import Callable

import pandas as pd

from podium.competition.decide.layout import BY_IDS, ImageNames
from podium.competition.find.image_names import is_image_name
from podium.competition.find.match_images import FIRST_ROWS, ImagePool
from podium.competition.find.table import Table


def guess_image_names(
    ids: "pd.Series[str]", pool: ImagePool, head: pd.DataFrame | None, listing: Callable[[], Table | None]
) -> ImageNames:
    """Returns which column of the listing names the images.

    The listing is the table of the ids itself or, for a sample submission, the test table. `head` holds its first rows.
    """
    first_ids = ids.head(FIRST_ROWS)
    are_called_so = all(pool.find_files(first_ids).values())
    if are_called_so and (first_ids.map(is_image_name).all() or not _has_file_names(head)):
        return BY_IDS
    table = listing()
    if table is None:
        return BY_IDS
    if ids.name not in table.rows:
        return BY_IDS if are_called_so else _names_by_row(table, ids, pool)
    if are_called_so:
        return _column_of_other_files(table, str(ids.name), pool)
    column = pool.find_column(table.rows, preferred=ids.name)
    if column in (None, ids.name) or _are_folders_of_slices(first_ids, table.rows[column].head(FIRST_ROWS), pool):
        return BY_IDS
    return ImageNames(str(column), origin="its cells name images")


def _are_folders_of_slices(ids: "pd.Series[str]", cells: "pd.Series[str]", pool: ImagePool) -> bool:
    """Returns whether ids name folders, and these cells only repeat what slices are called: a mark 1 is no 1.dcm."""
    return bool(cells.duplicated().any()) and all(pool.find_candidates(ids).values())


def _has_file_names(head: pd.DataFrame | None) -> bool:
    """Returns whether a column of these first rows holds names of files."""
    return head is not None and any(head[column].astype(str).map(is_image_name).all() for column in head)


def _column_of_other_files(listing: Table, id_column: str, pool: ImagePool) -> ImageNames:
    """Returns the column that says which files the images are, if the ids are only called like other files.

    Its cells are names of files, with their extension. If such a column names the files that the ids are called like,
    the ids do, too.
    """
    head = listing.rows.head(FIRST_ROWS)
    columns = [str(name) for name in head.columns.drop(id_column) if head[name].map(is_image_name).all()]
    called = pool.find_files(head[id_column]) if columns else {}
    found = None
    for column in columns:
        named = pool.find_files(head[column])
        pairs = [(named[cell], called[row_id]) for cell, row_id in zip(head[column], head[id_column], strict=True)]
        if any(not images for images, _ in pairs):
            continue
        if all(set(images) & set(others) for images, others in pairs):
            return BY_IDS
        found = found or column
    if found is None:
        return BY_IDS
    note = (
        f"the images of {listing.path.name} are those in its column '{found}', although others are called like its"
        " ids; if the ids name the images, delete that column"
    )
    return ImageNames(found, origin="its cells are names of files", note=note)


def _names_by_row(listing: Table, ids: "pd.Series[str]", pool: ImagePool) -> ImageNames:
    """Returns the column that names the images, if the ids count the rows of the listing."""
    column = pool.find_column(listing.rows) if len(listing.rows) == len(ids) else None
    counts = [[str(number + first) for number in range(len(ids))] for first in (0, 1)]
    if column is None or list(ids) not in counts:
        return BY_IDS
    note = f"the ids '{ids.name}' count the rows of {listing.path.name}"
    return ImageNames(column, by_row=True, origin="the ids count the rows", note=note)
