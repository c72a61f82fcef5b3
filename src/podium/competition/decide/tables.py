"""The tables of a competition as the rest of Podium sees them: each read once, at first use, with a row for each image.

Ids come first in the sample submission. A table with a row for each label is widened (long_tables.py), and one whose
rows are groups is joined with the table that lists their images (answer_groups.py). Votes become marks of one label
(vote_columns.py). Where the test table lists pairs of images (pairs.py), there is no sample submission for images.
"""

from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.terminal import plural
from podium.competition.decide.answer_groups import list_images_of_groups
from podium.competition.decide.find_tables import FoundTable, TableKey, find_table, find_validation_table
from podium.competition.decide.long_tables import widen_sample, widen_training_table
from podium.competition.decide.pairs import PairTable, find_pairs
from podium.competition.decide.vote_columns import count_votes
from podium.competition.find.coco_tables import read_coco_tables
from podium.competition.find.contained_images import rows_in_container, table_in_containers
from podium.competition.find.csv_files import note_on_encoding
from podium.competition.find.facts import Facts
from podium.competition.find.find_files import Role
from podium.competition.find.table import Table, have_line_breaks, take_index


@dataclass(frozen=True, eq=False)
class Tables:
    facts: Facts

    @cached_property
    def sample_in_file(self) -> Table | None:
        return _open(self.facts, "sample_submission", None)

    @cached_property
    def pairs(self) -> PairTable | None:
        sample = self.sample_in_file
        return find_pairs(self.facts, sample, lambda: _open(self.facts, "test_table", sample))

    @cached_property
    def sample(self) -> Table | None:
        """The sample submission of answers for images; None if there is none, or if it is for pairs of images."""
        table = self.sample_in_file
        if table is None or self.pairs:
            return None
        rows, counted = take_index(table.rows)
        return _with_ids_first(self.facts, table._replace(rows=rows, counted=counted))

    @cached_property
    def train(self) -> Table | None:
        table = _open(self.facts, "train_table", self.sample)
        table = table and _without_missing_validation(self.facts, table, _name_of_ids(self.facts, self.sample))
        table = table and list_images_of_groups(self.facts, self.sample, widen_training_table(self.sample, table))
        return table and count_votes(self.facts, self.sample, table)

    @cached_property
    def test(self) -> Table | None:
        return self.pairs.images if self.pairs else _open(self.facts, "test_table", self.sample)

    @property
    def read(self) -> dict[str, Table]:
        """Returns the tables that were needed so far, by their names here."""
        return {name: table for name in ("sample", "train", "test") if (table := vars(self).get(name))}

    @property
    def notes(self) -> list[str]:
        """Returns the notes on the tables that were needed so far, and on those that Podium knows and did not find."""
        keys: dict[str, TableKey] = {"sample": "sample_submission", "train": "train_table", "test": "test_table"}
        missing = [key for name, key in keys.items() if name in vars(self) and name not in self.read]
        sample = self.read["sample"].files[0] if "sample" in self.read else None
        lost = [find_table(self.facts.files, self.facts.card, key, sample).note for key in missing]
        return [*(note for table in self.read.values() for note in table.notes), *filter(None, lost)]


def _with_ids_first(facts: Facts, table: Table) -> Table:
    """Returns the sample submission with its ids in the first column, and a row for each image.

    The ids are in the first column, unless the card says so or only another column names the images.
    """
    pool, rows = facts.images("test"), table.rows
    id_column = facts.card.get("id_column")
    if id_column not in rows:
        if all(pool.find_files(rows.iloc[:, 0]).values()):
            return table._replace(ids_name_images=True)
        wide = widen_sample(facts, table, pool)
        if wide is not None:
            return wide
        id_column = pool.find_column(rows, preferred=rows.columns[0])
        if id_column is None or rows[id_column].duplicated().any():
            return table
        if not all(pool.find_candidates(rows[id_column]).values()):
            return table
    position = list(rows.columns).index(id_column)
    return table._replace(rows=rows[[id_column, *rows.columns.drop(id_column)]], id_position=position)


def _open(facts: Facts, key: TableKey, sample: Table | None) -> Table | None:
    """Reads the table that the card names, else the one whose name fits best; None if there is none."""
    files, folder = facts.files, facts.files.folder
    sample_name = sample and sample.path.relative_to(folder).as_posix()
    id_name = _name_of_ids(facts, sample)
    found = find_table(files, facts.card, key, sample_name)
    if not found.name:
        in_containers = key != "sample_submission" and not files.images and files.containers
        role: Role = "train" if key == "train_table" else "test"
        return _in_containers(facts, role, id_name) if in_containers else None
    table = _read(facts, key, found, id_name)
    header = str(table.rows.columns[0])
    if facts.names_an_image(header):
        raise PodiumError(f"{table.path}, line 1: '{header}' names an image, so there is no header; add one")
    return _with_checked_line_breaks(table, key)


def _name_of_ids(facts: Facts, sample: Table | None) -> str:
    """Returns what the ids are called that a table gets from a JSON file or a container."""
    return str(sample.rows.columns[0]) if sample else str(facts.card.get("id_column", "id"))


def _read(facts: Facts, key: TableKey, found: FoundTable, id_name: str) -> Table:
    files, name = facts.files, str(found.name)
    table = Table(files.folder / name, pd.DataFrame(), found.origin, files=(name,)).noting(found.note)
    if name in files.containers:
        return table._replace(rows=rows_in_container(files, facts.card, name, id_name))
    if name.lower().endswith(".json"):
        rows, count, notes = read_coco_tables(files.folder, name, id_name, key == "train_table")
        return table._replace(rows=rows, validation=frozenset(rows.index[len(rows) - count :])).noting(*notes)
    rows = facts.rows_of(name)
    table = table._replace(rows=rows).noting(note_on_encoding(name, rows.attrs["encoding"]))
    return _with_validation(facts, table) if key == "train_table" and key not in facts.card else table


def _in_containers(facts: Facts, role: Role, id_name: str) -> Table | None:
    """Returns the table in the containers themselves; None if there is none."""
    found = table_in_containers(facts.files, facts.card, role, id_name, facts.folder_of(role))
    if found is None:
        return None
    path, rows, note = found
    return Table(path, rows, "the files of images hold it").noting(note)


def _with_validation(facts: Facts, table: Table) -> Table:
    """Joins the rows of the table for validation, val_labels.csv beside train_labels.csv, if there is one."""
    (name,) = table.files
    found = find_validation_table(facts.files, name)
    validation = None if found is None else facts.rows_of(found)
    if found is None or validation is None or list(validation.columns) != list(table.rows.columns):
        return table
    advice = facts.card.advise(f'train_table = "{name}"')
    joined = pd.concat([table.rows, validation], ignore_index=True)
    joined.index = pd.RangeIndex(2, len(joined) + 2, name=table.rows.index.name)
    lines = frozenset(joined.index[len(table.rows) :])
    return table._replace(rows=joined, validation=lines, files=(name, found)).noting(
        f"the {len(validation):,} rows of {found} join those of {name}; to leave them out, {advice}"
    )


def _without_missing_validation(facts: Facts, table: Table, id_name: str) -> Table:
    """Leaves out rows of tables for validation whose images are not in this download; the main table must have its own.

    An id that both tables give to different images becomes the name of the file in the further table.
    """
    is_further = table.rows.index.isin(table.validation)
    pool, main = facts.images("train"), table.rows[~is_further]
    column = pool.find_column(main) if is_further.any() else None
    if column is None:
        return table
    further = table.rows[is_further]
    candidates = pool.find_candidates(further[column].unique())
    exists = further[column].map(lambda name: bool(candidates[name])).to_numpy(bool)
    kept, notes = further[exists].copy(), []
    if not exists.all():
        count = int((~exists).sum())
        notes.append(f"{plural(count, 'row')} for validation left out: their images are not below {pool.path}")
    if id_name in main and id_name != column:
        of_main = dict(zip(main[id_name], main[column], strict=True))
        collides = kept[id_name].map(of_main).fillna(kept[column]) != kept[column]
        if collides.any():
            kept.loc[collides, id_name] = kept.loc[collides, column]
            notes.append(
                f"{plural(int(collides.sum()), 'id')} for validation belong to other images: {column} replaces them"
            )
    rows = pd.concat([main, kept])
    return table._replace(rows=rows, validation=frozenset(kept.index)).noting(*notes)


def _with_checked_line_breaks(table: Table, key: TableKey) -> Table:
    """Notes cells of several lines, and refuses them in the answers of the sample submission.

    If a quote is not closed, the rows after it become part of its cell.
    """
    has_break = have_line_breaks(table.rows)
    if key == "sample_submission" and has_break[:, 1:].any():
        first = table.rows.index[has_break[:, 1:].T.argmax() % len(table.rows)]
        raise PodiumError(f"{table.path}, line {first}: a cell of several lines; close its quote")
    is_long = pd.Series(has_break.any(1), table.rows.index)
    if not is_long.any():
        return table
    return table.noting(
        f"{table.path.name}: {plural(int(is_long.sum()), 'row')} with a cell of several lines, the first on"
        f" line {is_long.idxmax()}; is a quote not closed there?"
    )
