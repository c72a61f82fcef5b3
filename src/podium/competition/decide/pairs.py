"""Finds out whether a row of the submission is a pair of test images, whose similarity is the answer.

The card names the two columns of the test table (`pairs = ["query_image", "gallery_image"]`), or they are found: beside
the ids of the sample submission, two columns name images, and the training table has no such columns. Models learn the
labels of single images, as everywhere. The test images are those of the pairs, each once.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few
from podium.competition.decide.find_tables import TableKey, find_table
from podium.competition.find.csv_files import CsvStyle, csv_style_of, csv_text
from podium.competition.find.facts import Facts
from podium.competition.find.match_images import FIRST_ROWS
from podium.competition.find.table import Table, refuse_blank_cells

ANSWER = "similarity"  # what the column to fill is called if there is no sample submission


class PairTable(NamedTuple):
    """The test table, a row for each pair, and the sample submission as it is in its file."""

    table: Table
    sample: Table | None
    columns: tuple[str, str]
    origin: str  # why these columns

    @property
    def images(self) -> Table:
        """Returns the test table with a row for each image."""
        cells = [self.table.rows[column] for column in self.columns]
        for column, own in zip(self.columns, cells, strict=True):
            refuse_blank_cells(own, self.table.path, column)
        names = pd.concat(cells).drop_duplicates()
        return self.table._replace(rows=pd.DataFrame({"image": names}))


class Pairs(NamedTuple):
    """The pairs of the submission, in its order."""

    columns: tuple[str, str]
    ids: list[str]
    first: list[str]  # the id of the first test image of each pair
    second: list[str]
    header: tuple[str, str]  # of the submission
    style: CsvStyle


def find_pairs(facts: Facts, sample: Table | None, test: Callable[[], Table | None]) -> PairTable | None:
    """Returns the test table of pairs; None if a row of it is no pair. `test` reads it."""
    columns, origin = _columns_of_pairs(facts, sample)
    if not columns:
        return None
    table = test()
    if table is None:
        remedy = "name the table of the pairs there, test_table, or delete pairs"
        raise PodiumError(f"{facts.card.path}: pairs = {list(columns)}, but there is no test table; {remedy}")
    missing = [name for name in columns if name not in table.rows]
    if missing:
        raise PodiumError(
            f"{facts.card.path}: pairs names '{missing[0]}', which is not a column of {table.path}:"
            f" {first_few(table.rows.columns)}; correct that name"
        )
    return PairTable(table, sample, (columns[0], columns[1]), origin)


def _columns_of_pairs(facts: Facts, sample: Table | None) -> tuple[tuple[str, ...], str]:
    if "pairs" in facts.card:
        return tuple(facts.card["pairs"]), facts.card.origin_of("pairs")
    none = (), ""
    if sample is None or len(sample.rows.columns) != 2:
        return none
    key, head = str(sample.rows.columns[0]), _head_of(facts, "test_table", sample)
    if head is None or key not in head or len(head.columns) < 3:
        return none
    pool, others = facts.images("test"), head.drop(columns=key)
    found = {str(column): pool.find_files(others[column]) for column in others}
    named = [column for column, images in found.items() if 2 * sum(map(bool, images.values())) > len(images)]
    if len(named) != 2:
        return none
    first, second = named
    if not any(found[first][a] != found[second][b] for a, b in zip(others[first], others[second], strict=True)):
        return none  # both name the same image
    train = _head_of(facts, "train_table", sample)
    if train is None or {first, second} <= set(train.columns):
        return none
    return (first, second), f"each row of the test table names two images, beside {key}"


def _head_of(facts: Facts, key: TableKey, sample: Table) -> pd.DataFrame | None:
    """Returns the first rows of a table; one that is unclear or broken is none here, and refused where it is needed."""
    with suppress(PodiumError):
        name = find_table(facts.files, facts.card, key, sample.files[0] if sample.files else None).name
        return facts.head_of(name, FIRST_ROWS) if name else None
    return None


def read_pairs(found: PairTable | None) -> Pairs | None:
    """Returns the pairs in the order of the sample submission, or of the test table if there is none."""
    if found is None:
        return None
    table, sample = found.table, found.sample
    rows, key = table.rows, str((sample or table).rows.columns[0])
    if key not in rows or key in found.columns:
        raise PodiumError(f"{table.path}: no column '{key}' with the ids of the pairs; add it")
    if sample is not None and len(sample.rows.columns) != 2:
        raise PodiumError(
            f"{sample.path}: {len(sample.rows.columns)} columns, but the answer for a pair is one similarity beside its"
            " id; name another sample_submission"
        )
    repeated = rows[key][rows[key].duplicated()]
    if len(repeated):
        raise PodiumError(f"{table.path}, line {repeated.index[0]}: id '{repeated.iloc[0]}' appears twice; delete one")
    ids = rows[key] if sample is None else sample.rows.iloc[:, 0]
    missing = ids[~ids.isin(rows[key])]
    if len(missing):
        raise PodiumError(
            f"{sample and sample.path}, line {missing.index[0]}: '{missing.iloc[0]}' is no pair of {table.path};"
            " download again"
        )
    ordered = rows.set_index(key).loc[ids]
    header = (key, ANSWER if sample is None else str(sample.rows.columns[1]))
    style = CsvStyle(csv_text([header], ""), ",", "\n") if sample is None else csv_style_of(sample.path, list(header))
    first, second = (ordered[column].tolist() for column in found.columns)
    return Pairs(found.columns, ids.tolist(), first, second, header, style)
