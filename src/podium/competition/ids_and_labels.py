"""Which images are learned from and which are to be answered: rows of ids, labels and images.

From a table of labels or from a folder per class; from the sample submission, a table of test ids or a folder.
"""

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

import pandas as pd

from podium import PodiumError
from podium.competition.card import Card
from podium.competition.csv_files import read_table
from podium.competition.find_images import IMAGE_SUFFIXES, ROLES, Files, Role, class_folders
from podium.terminal import first_few, plural

# What tables are called, in small letters and nothing else; the first line that fits any decides.
TABLE_NAMES = {
    "sample_submission": (r"samplesub.*|submission.*", r".*submission.*|.*submit.*|sample"),
    "train_table": (r"train(labels?)?", r"train.*", r".*train.*", r"labels?"),
    "test_table": (r"test(ids)?", r"test.*"),
}
TARGET_NAMES = (
    *("target", "label", "class", "category", "labels", "classes", "label_id", "class_id", "category_id"),
    *("label_name", "class_name", "category_name"),
)


class Table(NamedTuple):
    path: Path
    rows: pd.DataFrame
    place: int = 0  # of the ids in the file; in `rows` a sample submission's come first


@dataclass
class Sources:
    """What there is to go by."""

    card: Card
    files: Files
    sample: Table | None = None
    notes: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)  # tables

    def table(self, key: Literal["sample_submission", "train_table", "test_table"]) -> Table | None:
        """The table that the card names, else the uppermost of those whose names fit best."""
        files, name = self.files, self.card.get(key)
        if name is None:
            name = self._uppermost(key)
        elif name and name.removeprefix("./") not in (*files.tables, *files.others):
            raise PodiumError(
                f'the card\'s {key} = "{name}" is not among the tables of {files.folder}: {first_few(files.tables)}'
            )
        if not name:
            return None
        name = name.removeprefix("./")
        self.used.add(name)
        table = Table(files.folder / name, read_table(files.folder / name))
        first = str(table.rows.columns[0])
        if any(files.find([first], role)[first] for role in ROLES):
            raise PodiumError(f"{table.path}, line 1: '{first}' names an image, so there is no header; add one")
        # A quote that nobody closed swallows rows without a word.
        several = [_several_lines(table.rows[column]) for column in table.rows]
        for long in several[1:] if key == "sample_submission" else ():
            if long.any():
                raise PodiumError(f"{table.path}, line {long.idxmax()}: a cell of several lines; close its quote")
        long = pd.concat(several, axis=1).any(axis=1)
        if long.any():
            rows = f"{table.path.name}: {plural(int(long.sum()), 'row')} with a cell of several lines"
            self.notes.append(f"{rows}, the first on line {long.idxmax()}; is a quote left open there?")
        return table

    def _uppermost(self, key: str) -> str | None:
        taken = self.sample and self.sample.path.relative_to(self.files.folder).as_posix()
        plain = {name: re.sub(r"[\W_]", "", PurePosixPath(name).stem.lower()) for name in self.files.tables}
        for pattern in TABLE_NAMES[key]:
            fitting = [name for name in plain if name != taken and re.fullmatch(pattern, plain[name])]
            fitting.sort(key=lambda name: name.count("/"))
            if len(fitting) > 1 and fitting[0].count("/") == fitting[1].count("/"):
                raise PodiumError(
                    f"{self.files.folder}: {fitting[0]} or {fitting[1]}?"
                    f' Write {key} = "NAME" in the competition\'s card'
                )
            if fitting:
                return fitting[0]
        return None

    def images(self, key: Literal["train_images", "test_images"]) -> str:
        """The folder of images that the card names, or nothing."""
        folder = str(self.card.get(key, "")).removeprefix("./").strip("/")
        if folder and not self.files.within(folder):
            raise PodiumError(
                f'the card\'s {key} = "{folder}" holds no images below {self.files.folder}; these do:'
                f" {first_few(name or '.' for name in self.files.by_folder)}"
            )
        return folder


def read_sample_submission(given: Sources) -> Table | None:
    """The sample submission, its ids first; they are in the first column, unless only another one names the images."""
    table = given.table("sample_submission")
    if table is None:
        return None
    first, within = table.rows.columns[0], given.images("test_images")
    column = given.card.get("id_column")
    if column not in table.rows:
        column = _naming(given, table, "test", within, first)
        if column is None or table.rows[column].duplicated().any():
            return table
        if not all(given.files.find(table.rows[column], "test", within).values()):
            return table
    place = list(table.rows.columns).index(column)
    rows = table.rows[[column, *table.rows.columns.drop(column)]]
    return Table(table.path, rows, place)


def note_unused_tables(given: Sources) -> None:
    """Files that may be the sample submission, where none is known."""
    if given.sample or "sample_submission" in given.card:
        return
    others = [name for name in given.files.others if re.search("submi|sample", name.lower())]
    others += [name for name in given.files.tables if name not in given.used]
    if others:
        what = f'where {first_few(others)} is one, write sample_submission = "NAME" in the competition\'s card'
        given.notes.append(f"no sample submission is known, so header and order are guesses; {what}")


# --- to learn from ---------------------------------------------------------------------------------------


def train_rows(given: Sources) -> tuple[pd.DataFrame, tuple[str, str]]:
    """Columns id, target, group (where the card names one) and image; and what the files call the first two."""
    table = given.table("train_table")
    if table is None:
        if "group_column" in given.card:
            raise PodiumError(f"{given.files.folder}: no table of training images, so none has a group_column")
        return _from_class_folders(given)
    within = given.images("train_images")
    id_column = _id_column(given, table, within)
    target_column, targets = _targets(given, table, id_column)
    rows = pd.DataFrame({"id": table.rows[id_column], "target": targets})
    _refuse_blanks(rows["id"], table.path, "id")
    _refuse_blanks(rows["target"], table.path, "label")
    long = rows["target"][_several_lines(rows["target"])]
    if len(long):
        start = long.iloc[0].splitlines()[0]
        raise PodiumError(
            f"{table.path}, line {long.index[0]}: a label of several lines, '{start}...'; close its quote"
        )
    _note_like_labels(given, table.path, rows["target"])
    if "group_column" in given.card:
        rows["group"] = table.rows[_column(given, table, "group_column")].str.strip()
    rows = _without_repeats(given, table.path, rows)
    names = _image_names(given, table, table.rows.loc[rows.index, id_column], "train", within)
    rows["image"] = given.files.locate(names, table.path, "train", within)
    return rows.reset_index(drop=True), (id_column, target_column)


def _id_column(given: Sources, table: Table, within: str) -> str:
    if "id_column" in given.card:
        return _column(given, table, "id_column")
    if given.sample and given.sample.rows.columns[0] in table.rows.columns:
        return str(given.sample.rows.columns[0])
    column = _naming(given, table, "train", within)
    if column is None:
        raise PodiumError(
            f"{table.path}: no column names images below {given.files.folder / within}; its columns are"
            f' {first_few(table.rows.columns)}; write id_column = "NAME" or another train_table in the competition\'s card,'
            ' or train_table = "" where the folders are the classes'
        )
    return column


def _naming(given: Sources, table: Table, role: Role, within: str, rather: object = None) -> str | None:
    """The column whose first cells name the most images, if any does; of several `rather` this one."""
    first = table.rows.head(200)
    found = given.files.find({cell for column in first for cell in first[column]}, role, within)
    hits = {str(column): sum(bool(found[cell]) for cell in set(first[column])) for column in first}
    best = max(hits, key=lambda column: (hits[column], column == rather))
    return best if hits[best] else None


def _targets(given: Sources, table: Table, id_column: str) -> tuple[str, pd.Series]:
    """The label column's name and content; a column of 0 and 1 for every class becomes one of labels."""
    if "target_column" in given.card:
        name = _column(given, table, "target_column")
        return name, table.rows[name]
    rest = [column for column in table.rows.columns if column != id_column]
    if not rest:
        raise PodiumError(
            f"{table.path}: no column beside '{id_column}' could hold the label; write train_table = \"NAME\" in the"
            ' competition\'s card, or train_table = "" where the folders are the classes'
        )
    answers = list(given.sample.rows.columns[1:]) if given.sample else []
    if len(answers) > 1 and set(answers) <= set(rest):
        return "label", _marked(table.path, table.rows[answers])
    of_classes = [name for name in rest if len(answers) > 1 and set(table.rows[name]) <= set(answers)]
    lower = {name.lower(): name for name in reversed(rest)}
    named = [lower[name.lower()] for name in (*answers, *TARGET_NAMES) if name.lower() in lower]
    told = set(given.sample.rows.iloc[:, 1]) if given.sample and len(answers) == 1 else set()
    exactly = any(name in table.rows for name in answers)  # placeholders do not count against the column's own name
    fitting = [name for name in named if told and told <= set(table.rows[name]) and not exactly]
    for found in (rest if len(rest) == 1 else [], of_classes, fitting, named):
        if found:
            return found[0], table.rows[found[0]]
    raise PodiumError(
        f"{table.path}: which of the columns {first_few(rest)} holds the label?"
        ' Write target_column = "NAME" in the competition\'s card'
    )


def _marked(path: Path, columns: pd.DataFrame) -> pd.Series:
    marks = columns.isin(["1", "1.0", "True"])
    wrong = marks.index[marks.sum(axis=1) != 1]
    if len(wrong):
        raise PodiumError(
            f"{path}, line {wrong[0]}: {int(marks.loc[wrong[0]].sum())} classes are marked; Podium learns one label"
            " for each image, delete the lines of others"
        )
    return marks.idxmax(axis=1)


def _column(given: Sources, table: Table, key: str) -> str:
    name = str(given.card[key])
    if name not in table.rows.columns:
        raise PodiumError(f'{key} = "{name}" is not a column of {table.path}: {first_few(table.rows.columns)}')
    return name


def _without_repeats(given: Sources, path: Path, rows: pd.DataFrame) -> pd.DataFrame:
    different = rows.drop_duplicates()
    conflicts = different[different["id"].duplicated(keep=False)]
    if len(conflicts):
        name = conflicts["id"].iloc[0]
        first, second = conflicts.index[conflicts["id"] == name][:2]
        what = "labels" if conflicts["target"][first] != conflicts["target"][second] else "groups"
        raise PodiumError(f"{path}, lines {first} and {second}: id '{name}' has two {what}; delete the wrong line")
    if len(different) < len(rows):
        extra = len(rows) - len(different)
        given.notes.append(f"{extra:,} rows of {path.name} repeat an id with the same label and were left out")
    return different


def _from_class_folders(given: Sources) -> tuple[pd.DataFrame, tuple[str, str]]:
    base, images = class_folders(given.files, given.images("train_images"))
    if not images:
        raise PodiumError(
            f"{given.files.folder}: neither a table of training labels (train.csv) nor a folder for each of several"
            " classes (train/<class>/); name it in the competition's card: train_table or train_images"
        )
    ids = [image.removeprefix(base).removeprefix("/") for image in images]
    targets = [PurePosixPath(image).parent.name for image in images]
    columns = given.card.get("id_column", "id"), given.card.get("target_column", "label")
    return pd.DataFrame({"id": ids, "target": targets, "image": images}), columns


# --- to answer -------------------------------------------------------------------------------------------


def test_rows(given: Sources, id_column: str, like: str) -> pd.DataFrame:
    """Columns id and image, in the order of the submission. `id_column` and the id `like` are of the training."""
    within = given.images("test_images")
    table = given.sample or given.table("test_table")
    if table is None:
        return _from_test_folder(given, within, like)
    ids = table.rows[id_column if not given.sample and id_column in table.rows else table.rows.columns[0]]
    _refuse_blanks(ids, table.path, "id")
    twice = ids[ids.duplicated()]
    if len(twice):
        raise PodiumError(
            f"{table.path}, line {twice.index[0]}: id '{twice.iloc[0]}' stands there twice; download again"
        )
    names = _image_names(given, table, ids, "test", within)
    return pd.DataFrame({"id": ids.to_numpy(), "image": given.files.locate(names, table.path, "test", within)})


def _from_test_folder(given: Sources, within: str, like: str) -> pd.DataFrame:
    """Without any table of test ids the files are the rows, named as the training ids are."""
    images = sorted(given.files.within(within) if within else given.files.serving("test"))
    if not images:
        raise PodiumError(
            f"{given.files.folder}: no sample submission, no test.csv and no test folder;"
            ' write test_images = "FOLDER" in the competition\'s card'
        )
    bare = PurePosixPath(like).suffix.lower() not in IMAGE_SUFFIXES
    ids = [PurePosixPath(image).stem if bare else PurePosixPath(image).name for image in images]
    name, count = Counter(ids).most_common(1)[0]
    if count > 1:
        raise PodiumError(
            f"{given.files.folder}: {count} test images are called '{name}';"
            ' write test_images = "FOLDER" in the competition\'s card'
        )
    return pd.DataFrame({"id": ids, "image": images})


# --- both ------------------------------------------------------------------------------------------------


def _image_names(given: Sources, table: Table, ids: pd.Series, role: Role, within: str) -> pd.Series:
    """What names the image of each id: itself or, where ids are mere numbers, another column of train.csv, test.csv."""
    if all(given.files.find(ids.head(200), role, within).values()):
        return ids
    listed = given.table("test_table") if table is given.sample else table
    column = listed and ids.name in listed.rows and _naming(given, listed, role, within, ids.name)
    if not listed or not column or column == ids.name:
        return ids
    named = listed.rows[[ids.name, column]].drop_duplicates()
    twice = named[named[ids.name].duplicated()]
    if len(twice):
        raise PodiumError(
            f"{listed.path}, line {twice.index[0]}: id '{twice[ids.name].iloc[0]}' has a second image; keep one"
        )
    names = named.set_index(ids.name)[column]
    return ids.map(names).fillna(ids)


def _refuse_blanks(cells: pd.Series, path: Path, what: str) -> None:
    blank = cells.index[cells.str.strip() == ""]
    if len(blank):
        raise PodiumError(f"{path}, line {blank[0]}: no {what}; fill it in or delete the line")


def _several_lines(cells: pd.Series) -> pd.Series:
    return cells.str.contains("[\r\n]")


def _note_like_labels(given: Sources, path: Path, labels: pd.Series) -> None:
    """Labels that a person would not tell apart are still as many classes; but whose slip it was should be known."""
    first = labels.drop_duplicates()  # where each is met first
    for _, some in first.groupby(first.map(normalised_label), sort=False):
        if len(some) > 1:
            where = " and ".join(f"{label!r} (line {line})" for line, label in some.head(3).items())
            given.notes.append(f"{path.name}: {where} are different classes; mend the table where one is meant")


def normalised_label(label: str) -> str:
    """What is left when blanks, what cannot be seen, forms of letters and ways to write a number make no difference."""
    plain = "".join(letter for letter in unicodedata.normalize("NFKC", label) if unicodedata.category(letter) != "Cf")
    plain = " ".join(plain.split())
    return (
        str(Fraction(plain)) if re.fullmatch(r"[-+]?[0-9]{1,99}(\.[0-9]{0,99})?|[-+]?\.[0-9]{1,99}", plain) else plain
    )
