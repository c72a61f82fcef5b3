"""Finds the tables among a competition's files: the sample submission, the training table, the test table."""

import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.competition.card import Card
from podium.competition.coco_tables import read_coco_tables
from podium.competition.contained_images import rows_in_container, table_in_containers
from podium.competition.csv_files import read_head, read_table
from podium.competition.find_files import ROLES, Files, Role
from podium.competition.image_names import is_image_name
from podium.competition.long_rows import LongRows
from podium.competition.match_images import FIRST_ROWS, ImagePool
from podium.errors import PodiumError
from podium.tasks.task import ONE_LABEL, Task
from podium.terminal import first_few, plural

TableKey = Literal["sample_submission", "train_table", "test_table"]

# Patterns for the names of tables, in small letters without punctuation; the first pattern that fits a table decides.
TABLE_NAMES: dict[TableKey, tuple[str, ...]] = {
    "sample_submission": (r"samplesub.*|submission.*", r".*submission.*|.*submit.*|sample", r".*test.*sample"),
    "train_table": (r"train(labels?)?", r"train.*", r".*train.*", r"labels?"),
    "test_table": (r"test(ids)?", r"test.*", r"(public|private)test.*"),
}


class Table(NamedTuple):
    path: Path
    rows: pd.DataFrame  # of text; the index holds the lines of the file; a sample submission's ids come first
    id_position: int = 0  # of a sample submission's id column in the file
    long: LongRows | None = None  # of a sample submission whose file has a row for each label

    @property
    def answer_columns(self) -> list[str]:
        """The columns of a sample submission that are to be filled in."""
        return [str(column) for column in self.rows.columns[1:]]


class AnswerGroups(NamedTuple):
    """The columns that say which images belong to an answer."""

    listing: Table  # of the test images
    id_column: str  # of the answers
    image_column: str  # of the test images
    train_ids: "pd.Series[str]"  # the answer's id of each row of the training table


@dataclass
class Sources:
    """A competition's card and files, the sample submission, and what was understood and noted while reading them."""

    card: Card
    files: Files
    sample: Table | None = None
    task: Task = ONE_LABEL
    separator: str = ""  # between several labels in a cell of the files; "": they have a column each
    columns: list[str] = field(default_factory=list)  # of the training table that hold numbers, or a label each
    answer_groups: AnswerGroups | None = None  # if a row of the submission is the answer for several images
    ids_name_images: bool = False  # those of the sample submission
    marked: str | None = None  # the label of two that another column of the training table marks with 1
    notes: list[str] = field(default_factory=list)
    train_features: pd.DataFrame | None = None  # the columns that the card names, by the ids of the training images
    keeps_columns: bool = False  # also those of the training table that nothing else needs
    train_columns: pd.DataFrame = field(default_factory=pd.DataFrame)  # of text, by the ids of the training images
    validation_lines: frozenset[int] = frozenset()  # of the training table
    validation: frozenset[str] = frozenset()  # the ids of the training images that are for validation
    tables_read: set[str] = field(default_factory=set)

    def read_table(self, key: TableKey) -> Table | None:
        """Reads the table that the card names, else the one whose name fits best; None if there is none."""
        name = self.name_of(key)
        if not name and key != "sample_submission" and not self.files.images and self.files.containers:
            return self._read_contained_table("train" if key == "train_table" else "test")
        if not name:
            return None
        self.tables_read.add(name)
        path = self.files.folder / name
        table = Table(path, self._rows_of(name, key))
        self._refuse_missing_header(table)
        _check_line_breaks(self, table, key)
        return table

    def name_of(self, key: TableKey) -> str | None:
        return self._named_table(key) if key in self.card else self._guess_table(key)

    def _named_table(self, key: TableKey) -> str | None:
        """Returns the table that the card names; "" if the card says that there is none.

        A copy of the competition may have the table that Podium knows in another folder, or not at all.
        """
        named, tables = str(self.card[key]), (*self.files.tables, *self.files.others)
        name = named.removeprefix("./")
        if not named or name in tables:
            return name
        if key in self.card.known:
            matches = [table for table in tables if PurePosixPath(table).name == name]
            return matches[0] if len(matches) == 1 else self._guess_table(key)
        raise PodiumError(
            f'{self.card.path}: {key} = "{named}" is not among the tables of {self.files.folder}:'
            f" {first_few(self.files.tables)}; correct that name"
        )

    def _rows_of(self, name: str, key: TableKey) -> pd.DataFrame:
        if name in self.files.containers:
            return rows_in_container(self.files, self.card, name, self._id_name())
        if not name.lower().endswith(".json"):
            rows = read_table(self.files.folder / name)
            return _with_validation(self, name, rows) if key == "train_table" and key not in self.card else rows
        rows, count, note = read_coco_tables(self.files.folder, name, self._id_name(), key == "train_table")
        self.notes += [note] if note else []
        if key == "train_table":
            self.validation_lines = frozenset(rows.index[len(rows) - count :])
        return rows

    def _id_name(self) -> str:
        """The name of a column of ids that we add: the sample submission's, if there is one."""
        return str(self.sample.rows.columns[0]) if self.sample else str(self.card.get("id_column", "id"))

    def _read_contained_table(self, role: Role) -> Table | None:
        """Returns the table in the containers themselves; None if there is none."""
        folder = self._folder_of(role)
        found = table_in_containers(self.files, self.card, role, self._id_name(), folder)
        if found is None:
            return None
        path, rows, note = found
        self.notes += [note] if note else []
        return Table(path, rows)

    def _folder_of(self, role: Role) -> str:
        """The folder or container that the card names; a table that the card names may hold the images too."""
        folder = str(self.card.get(f"{role}_images", ""))
        table = str(self.card.get(f"{role}_table", "")).removeprefix("./")
        return folder.removeprefix("./").strip("/") or (table if table in self.files.containers else "")

    def _guess_table(self, key: TableKey) -> str | None:
        """Returns the name that fits best; of several, the one in the fewest folders."""
        sample_name = self.sample and self.sample.path.relative_to(self.files.folder).as_posix()
        stems = {name: _comparable_stem(name) for name in self.files.tables}
        for pattern in TABLE_NAMES[key]:
            matches = [name for name, stem in stems.items() if name != sample_name and re.fullmatch(pattern, stem)]
            matches.sort(key=lambda name: name.count("/"))
            if len(matches) > 1 and matches[0].count("/") == matches[1].count("/"):
                raise PodiumError(
                    f"{self.files.folder}: {matches[0]} and {matches[1]} could both be the {key.replace('_', ' ')}; "
                    + self.card.advise(f'{key} = "NAME"')
                )
            if matches:
                return matches[0]
        return None

    def _refuse_missing_header(self, table: Table) -> None:
        cell = str(table.rows.columns[0])
        if any(ImagePool(self.files, self.card, role).find_candidates([cell])[cell] for role in ROLES):
            raise PodiumError(f"{table.path}, line 1: '{cell}' names an image, so there is no header; add one")

    def image_pool(self, role: Role) -> ImagePool:
        """Returns the images of a role; raises if the card names a folder without images."""
        key = f"{role}_images"
        folder = self._folder_of(role)
        pool = ImagePool(self.files, self.card, role, folder)
        if folder and not pool.has_images():
            raise PodiumError(
                f'{self.card.path}: {key} = "{folder}" holds no images below {self.files.folder}; these folders do:'
                f" {first_few(name or '.' for name in self.files.images_by_folder)}; correct that name"
            )
        return pool

    def card_column(self, key: str, table: Table) -> str:
        """Returns the column that the card names under this key; raises if the table has none of this name."""
        column = str(self.card[key])
        if column not in table.rows.columns:
            place = f"{'with --group or ' if key == 'group_column' else ''}in {self.card.path}"
            raise PodiumError(
                f'{key} = "{column}" is not a column of {table.path}: {first_few(table.rows.columns)};'
                f" correct that name, {place}"
            )
        return column

    def find_image_names(self, table: Table, ids: pd.Series, pool: ImagePool) -> pd.Series:
        """Returns what names the image of each id: the id itself or, if ids are only row numbers, another column.

        That column is in the training table or, for the sample submission, in the test table.
        """
        are_called_so = all(pool.find_candidates(ids.head(FIRST_ROWS)).values())
        if are_called_so and (ids.head(FIRST_ROWS).map(is_image_name).all() or not _may_name_files(self, table)):
            return ids
        listing = self.read_table("test_table") if table is self.sample else table
        if listing is None:
            return ids
        if ids.name not in listing.rows:
            return ids if are_called_so else _names_by_row(self, listing, ids, pool)
        if are_called_so:
            column = _column_of_other_files(self, listing, ids, pool)
        else:
            column = pool.find_column(listing.rows, preferred=ids.name)
        return ids if column is None or column == ids.name else _names_in_column(listing, ids, column)


def _names_in_column(listing: Table, ids: pd.Series, column: str) -> pd.Series:
    named = listing.rows[[ids.name, column]].drop_duplicates()
    repeated = named[named[ids.name].duplicated()]
    if len(repeated):
        raise PodiumError(
            f"{listing.path}, line {repeated.index[0]}: id '{repeated[ids.name].iloc[0]}' has a second image;"
            " delete one of its lines"
        )
    return ids.map(named.set_index(ids.name)[column]).fillna(ids)


def _may_name_files(sources: Sources, table: Table) -> bool:
    """Returns whether a column of this table, or of the test table beside a sample submission, holds names of files.

    Only the first rows are read, and an unclear or broken test table is none: the ids do without it.
    """
    head: pd.DataFrame | None = None
    if table is not sources.sample:
        head = table.rows.head(FIRST_ROWS)
    else:
        with suppress(PodiumError):
            name = sources.name_of("test_table")
            head = read_head(sources.files.folder / name, FIRST_ROWS) if name else None
    return head is not None and any(head[column].astype(str).map(is_image_name).all() for column in head)


def _column_of_other_files(sources: Sources, listing: Table, ids: pd.Series, pool: ImagePool) -> str | None:
    """Returns the column that says which files the images are, if the ids are only called like other files.

    Its cells are names of files, with their extension. If such a column names the files that the ids are called like,
    there is none.
    """
    head = listing.rows.head(FIRST_ROWS)
    columns = [str(name) for name in head.columns.drop(ids.name) if head[name].map(is_image_name).all()]
    called = pool.find_candidates(head[ids.name]) if columns else {}
    found = None
    for column in columns:
        named = pool.find_candidates(head[column])
        pairs = [(named[cell], called[row_id]) for cell, row_id in zip(head[column], head[ids.name], strict=True)]
        if any(not images for images, _ in pairs):
            continue
        if all(set(images) & set(others) for images, others in pairs):
            return None
        found = found or column
    if found:
        sources.notes.append(
            f"the images of {listing.path.name} are those in its column '{found}', although others are called like its"
            " ids; if the ids name the images, delete that column"
        )
    return found


def _with_validation(sources: Sources, name: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Joins the rows of the table for validation, val_labels.csv beside train_labels.csv, if there is one."""
    names = [re.sub("train(ing)?", word, name, flags=re.IGNORECASE) for word in ("val", "valid", "validation")]
    found = next((other for other in names if other != name and other in sources.files.tables), None)
    if found is None or found in sources.files.containers:
        return rows
    validation = read_table(sources.files.folder / found)
    if list(validation.columns) != list(rows.columns):
        return rows
    advice = sources.card.advise(f'train_table = "{name}"')
    sources.notes.append(f"the {len(validation):,} rows of {found} join those of {name}; to leave them out, {advice}")
    sources.tables_read.add(found)
    joined = pd.concat([rows, validation], ignore_index=True)
    joined.index = pd.RangeIndex(2, len(joined) + 2, name=rows.index.name)
    sources.validation_lines = frozenset(joined.index[len(rows) :])
    return joined


def _names_by_row(sources: Sources, listing: Table, ids: pd.Series, pool: ImagePool) -> pd.Series:
    """Returns what names the image of each id, if the ids count the rows of the test table."""
    column = pool.find_column(listing.rows) if len(listing.rows) == len(ids) else None
    counts = [[str(number + first) for number in range(len(ids))] for first in (0, 1)]
    if column is None or list(ids) not in counts:
        return ids
    sources.notes.append(f"the ids '{ids.name}' count the rows of {listing.path.name}")
    return pd.Series(listing.rows[column].to_numpy(), index=ids.index, name=column)


def _check_line_breaks(sources: Sources, table: Table, key: TableKey) -> None:
    """Notes cells of several lines, and refuses them in the answers of the sample submission.

    If a quote is not closed, the rows after it become part of its cell.
    """
    has_break = have_line_breaks(table.rows)
    if key == "sample_submission" and has_break[:, 1:].any():
        first = table.rows.index[has_break[:, 1:].T.argmax() % len(table.rows)]
        raise PodiumError(f"{table.path}, line {first}: a cell of several lines; close its quote")
    is_long = pd.Series(has_break.any(1), table.rows.index)
    if is_long.any():
        sources.notes.append(
            f"{table.path.name}: {plural(int(is_long.sum()), 'row')} with a cell of several lines, the first on"
            f" line {is_long.idxmax()}; is a quote not closed there?"
        )


def _comparable_stem(name: str) -> str:
    """Returns the name in small letters without punctuation.

    With its folder if it is a JSON file (train/metadata.json), or if it says nothing alone (train/annotations.csv).
    """
    path = PurePosixPath(name)
    stem, folder = (re.sub(r"[\W_]", "", part.lower()) for part in (path.stem, path.parent.name))
    says_nothing = not any(re.fullmatch(pattern, stem) for patterns in TABLE_NAMES.values() for pattern in patterns)
    return f"{folder}{stem}" if says_nothing or path.suffix.lower() == ".json" else stem


def forget_other_columns(sources: Sources, table: Table) -> None:
    """Drops the columns that Podium knows for this competition if this copy of its table lacks them."""
    for key in ("id_column", "target_column", "group_column"):
        column = sources.card.get(key)
        if key in sources.card.known and column not in table.rows:
            del sources.card[key]
            sources.notes.append(f"{table.path.name} has no column '{column}', which this competition's table has")


def refuse_blank_cells(cells: pd.Series, path: Path, column_name: str) -> None:
    is_blank = cells.str.strip() == ""
    if is_blank.any():
        raise PodiumError(f"{path}, line {is_blank.idxmax()}: no {column_name}; fill it in or delete the line")


def have_line_breaks(cells: pd.DataFrame | pd.Series) -> NDArray[np.bool_]:
    """Returns which cells of text have one; one loop over all, because there may be a million columns."""
    texts = cells.to_numpy(object)
    has_break = ("\n" in text or "\r" in text for text in texts.flat)
    return np.fromiter(has_break, bool, texts.size).reshape(texts.shape)
