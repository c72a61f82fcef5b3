"""Reads votes as labels: columns of counts, of which a sample submission wants shares that add up to 1.

    eeg_id,spectrogram_id,seizure_vote,lpd_vote            spectrogram_id,seizure_vote,lpd_vote
    100,7,3,0                                       ->     7,1,0
    101,7,1,2

So it is with HMS's brain waves, of which experts judged several parts of a recording. The votes for an image are added
up, and its label is the column that has the most. The shares themselves are not learned.
"""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.competition.card import Card
from podium.competition.facts import Facts
from podium.competition.match_images import FIRST_ROWS
from podium.competition.table import Table
from podium.tasks.metrics import METRICS
from podium.tasks.task import ONE_LABEL
from podium.terminal import first_few, plural

ROUNDED = 0.05  # how far from 1 a sum of written shares may be: six times 0.17 are 1.02


def count_votes(facts: Facts, sample: Table | None, table: Table) -> Table:
    """Returns the training table with a row for each image, and 1 in the column with the most votes.

    Returns it as it is if its columns hold no votes, or the card wants something else of them.
    """
    card = facts.card
    if sample is None or sample.long is not None or not _may_be_one_label(card):
        return table
    columns = sample.answer_columns
    votes = _votes_in(table, columns) if _asks_for_shares(sample) else None
    if votes is None:
        return table
    key = _column_of_images(facts, table.rows.drop(columns=columns), str(sample.rows.columns[0]))
    if key is None:
        return table
    added = votes.groupby(table.rows[key], sort=False).sum()
    counts = added.to_numpy()
    most = counts.max(axis=1)
    ties, without = int(((counts == most[:, None]).sum(axis=1) > 1)[most > 0].sum()), int((most == 0).sum())
    marks = pd.DataFrame(np.eye(len(columns), dtype=int)[counts.argmax(axis=1)].astype(str), added.index, columns)
    rows = _rows_of_images(table.rows.drop(columns=columns), key).join(marks[most > 0], on=key, how="inner")
    table = table.noting(
        f"{table.path.name}: {first_few(columns)} hold votes, of which an image's label is the column with the most;"
        f" the votes in {plural(len(table.rows), 'row')} are added up for {plural(len(added), 'image')} of '{key}',"
        f" with {plural(ties, 'tie')}, which go to the first of the columns"
        + (f"; {plural(without, 'image')} without a vote left out" if without else "")
    )
    if "task" not in card:
        advice = card.advise('task = "one_label"')
        table = table.noting(
            f"that they are votes is a guess, as the rows of {sample.path.name} add up to 1; shares of votes are not"
            " learned, but one label with its probabilities, and log loss stands for the competition's metric; if that"
            f" is right, {advice}"
        )
    return table._replace(rows=rows)


def _may_be_one_label(card: Card) -> bool:
    metric = card.get("metric")
    of_labels = metric is None or ONE_LABEL.name in METRICS[metric]().tasks
    return "target_column" not in card and card.get("task", ONE_LABEL.name) == ONE_LABEL.name and of_labels


def _asks_for_shares(sample: Table) -> bool:
    """Returns whether there are several columns to fill, whose cells add up to 1 in each row."""
    if len(sample.answer_columns) < 2:
        return False
    cells = sample.rows.iloc[:, 1:].apply(pd.to_numeric, errors="coerce").to_numpy(np.float64)
    return _add_up_to_1(cells)


def _votes_in(table: Table, columns: list[str]) -> pd.DataFrame | None:
    """Returns the votes: whole numbers, not only 0 and 1; None if the columns hold anything else, as shares."""
    if not set(columns) <= set(table.rows):
        return None
    votes = table.rows[columns].apply(pd.to_numeric, errors="coerce")
    cells = votes.to_numpy(np.float64)
    if not np.isfinite(cells).all() or (cells < 0).any() or set(np.unique(cells)) <= {0, 1}:
        return None
    return votes if (cells % 1 == 0).all() else None


def _add_up_to_1(cells: NDArray[np.float64]) -> bool:
    return bool(((cells >= 0).all(axis=1) & (np.abs(cells.sum(axis=1) - 1) <= ROUNDED)).all())


def _column_of_images(facts: Facts, rows: pd.DataFrame, id_column: str) -> str | None:
    """Returns the column that names the images: that of the sample's ids if it does, else another."""
    pool = facts.images("train")
    if id_column in rows and all(pool.find_candidates(rows[id_column].head(FIRST_ROWS)).values()):
        return id_column
    return pool.find_column(rows)


def _rows_of_images(rows: pd.DataFrame, key: str) -> pd.DataFrame:
    """Returns the first row of each image, without the columns that differ among its rows."""
    is_one = {name: name == key or not (rows.groupby(key)[name].nunique() > 1).any() for name in rows}
    first = rows.drop_duplicates(key)
    return first[[name for name in rows if is_one[name]]]
