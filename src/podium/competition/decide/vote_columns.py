"""Reads votes: columns of counts, of which a sample submission wants shares that add up to 1.

    eeg_id,spectrogram_id,seizure_vote,lpd_vote            spectrogram_id,seizure_vote,lpd_vote
    100,7,3,0                                       ->     7,1,0         0.67,0.33
    101,7,1,2

So it is with HMS's brain waves, of which experts judged several parts of a recording. The votes for an image are added
up. Their shares are learned and scored by kl_divergence; where one label is needed, it is the column with the most. A
card with another metric, or with task = "one_label" and no metric, has that label alone learned.
"""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.terminal import first_few, plural
from podium.competition.card import Card
from podium.competition.find.facts import Facts
from podium.competition.find.match_images import FIRST_ROWS
from podium.competition.find.table import Table
from podium.tasks.metrics import METRICS
from podium.tasks.task import ONE_LABEL

METRIC = "kl_divergence"  # that of shares
TINY = 1e-12  # instead of 0, by which nothing can be divided
ROUNDED = 0.05  # how far from 1 a sum of written shares may be: six times 0.17 are 1.02


def count_votes(facts: Facts, sample: Table | None, table: Table) -> Table:
    """Returns the training table with a row for each image, 1 in the column with the most votes, and their shares.

    Returns it as it is if its columns hold no votes, or the card wants something else of them.
    """
    card = facts.card
    if sample is None or sample.long is not None or not _may_be_one_label(card):
        return table
    columns, is_said = sample.answer_columns, card.get("metric") == METRIC
    votes = _votes_in(table, columns, is_said) if is_said or _asks_for_shares(sample) else None
    if votes is None:
        return table
    key = _column_of_images(facts, table.rows.drop(columns=columns), str(sample.rows.columns[0]))
    if key is None:
        return table
    added = votes.groupby(table.rows[key], sort=False).sum()
    counts = added.to_numpy(np.float64)
    has_votes = counts.max(axis=1) > 0
    marks = pd.DataFrame(np.eye(len(columns), dtype=int)[counts.argmax(axis=1)].astype(str), added.index, columns)
    rows = _rows_of_images(table.rows.drop(columns=columns), key).join(marks[has_votes], on=key, how="inner")
    count = plural(len(table.rows), "row")
    table = table.noting(
        _note_on_labels(table, columns, counts),
        f"the votes in {count} are added up for {plural(len(added), 'image')} of '{key}'",
    )
    are_learned = is_said or not {"metric", "task"} & set(card)
    if not are_learned:
        return table._replace(rows=rows)
    table = table.noting("" if is_said else _note_on_guess(card, sample))
    shares = added.div(added.sum(axis=1).clip(lower=TINY), axis=0).astype(np.float32)
    return table._replace(rows=rows, votes=shares.loc[rows[key]].set_axis(rows.index))


def _note_on_guess(card: Card, sample: Table) -> str:
    advice = card.advise(f'metric = "{METRIC}"')
    return (
        f"that they are votes, whose shares are learned and scored by {METRIC}, is a guess, as the rows of"
        f" {sample.path.name} add up to 1; if that is right, {advice}; to learn the label alone, "
        + card.advise('task = "one_label"')
    )


def _note_on_labels(table: Table, columns: list[str], counts: NDArray[np.float64]) -> str:
    most = counts.max(axis=1, keepdims=True)
    ties, without = int(((counts == most).sum(axis=1) > 1)[most[:, 0] > 0].sum()), int((most == 0).sum())
    return (
        f"{table.path.name}: {first_few(columns)} hold votes, of which an image's label is the column with the most,"
        f" with {plural(ties, 'tie')}, which go to the first of the columns"
        + (f"; {plural(without, 'image')} without a vote left out" if without else "")
    )


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


def _votes_in(table: Table, columns: list[str], is_said: bool) -> pd.DataFrame | None:
    """Returns the votes: whole numbers, not only 0 and 1; None if the columns hold anything else.

    If the card says what they are, they may be shares.
    """
    if len(columns) < 2 or not set(columns) <= set(table.rows):
        return None
    votes = table.rows[columns].apply(pd.to_numeric, errors="coerce")
    cells = votes.to_numpy(np.float64)
    if not np.isfinite(cells).all() or (cells < 0).any():
        return None
    if is_said:
        are_marks = set(np.unique(cells)) <= {0, 1} and (cells.sum(axis=1) == 1).all()
        return None if are_marks else votes
    are_votes = (cells % 1 == 0).all() and not set(np.unique(cells)) <= {0, 1}
    return votes if are_votes else None


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
