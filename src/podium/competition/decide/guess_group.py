"""Guesses which column says that images belong together: the images of one patient, camera or place.

The test images are then of others, and a split by image would show a model the patients that it is judged by. A column
is guessed by its name, or because its values repeat and no test image has one of them.
"""

import re
from collections.abc import Callable, Iterable
from contextlib import suppress

import pandas as pd

from podium.basics.errors import PodiumError
from podium.competition.card import Card
from podium.competition.find.table import Table

# Words in the names of columns, from what holds most images together to what holds least.
NAMES = ("hospital", "patient", "subject", "person", "individual", "driver", "case", "study", "series", "sequence")
LEAST_GROUPS = 5
LEAST_IMAGES = 1.2  # in a group, on average
LEAST_SHARED = 5  # test images that would have a value of training, if they were drawn like training images
MOST_PAIRED = 0.5  # of the images, at least, that have a partner
BOTH_SIDES = re.compile(r"(.+?)[\W_]?(left|right)(?:\.\w+)?", re.IGNORECASE)  # an id that ends in a side
MOST_LONELY = 0.1  # of the classes may be in one group alone: beyond that, it is a kind of label


def guess_group_column(
    card: Card, table: Table, others: Iterable[str], labels: "pd.Series[str] | None", test: Callable[[], Table | None]
) -> tuple[str, str]:
    """Returns the column and a note; two times "" if there is none. `others` hold ids, answers and images.

    `labels` are those of each row, None of numbers.
    """
    if "group_column" in card or "group_pattern" in card:
        return "", ""
    columns = [str(name) for name in table.rows.columns.drop(list(others), errors="ignore")]
    columns = [name for name in columns if could_be_groups(table.rows[name], labels)]
    named = [name for word in NAMES for name in columns if word in words_of(name)]
    reason = "by its name"
    if not named:
        rows = _rows_of_test(test) if columns else pd.DataFrame()
        named = [name for name in columns if name in rows and _are_others(table.rows[name], rows[name])]
        named.sort(key=lambda name: table.rows[name].nunique())  # the largest groups hold the others together, too
        reason = "its values repeat, and the test images have others"
    if not named:
        return "", ""
    note = f"that images of one '{named[0]}' share a fold is a guess ({reason}); "
    return named[0], note + card.advise(f'group_column = "{named[0]}"', '"" for no groups')


def guess_pairs(card: Card, ids: "pd.Series[str]") -> "tuple[pd.Series[str] | None, str]":
    """Returns whose left or right each image shows, where all ids end in a side and most come in pairs; and a note."""
    found = ids.str.extract(BOTH_SIDES.pattern + "$", flags=re.IGNORECASE)
    whose = found[0]
    if not len(ids) or whose.isna().any() or whose.duplicated(keep=False).mean() < MOST_PAIRED:
        return None, ""
    note = f"that '{ids.iloc[0]}' and its other side share a fold is a guess; "
    return whose.rename("side"), note + card.advise("group_pattern = '(.+)'", "a pattern for other groups")


def _rows_of_test(test: Callable[[], Table | None]) -> pd.DataFrame:
    """Returns the rows of the test table; none if there is none, or it is not clear which it is."""
    with suppress(PodiumError):
        table = test()
        return pd.DataFrame() if table is None else table.rows
    return pd.DataFrame()


def words_of(name: str) -> list[str]:
    """Returns the words of a name in small letters: patient_id, PatientID."""
    return [word.lower() for word in re.split(r"[\W_]+|(?<=[a-z])(?=[A-Z])", name)]


def could_be_groups(cells: "pd.Series[str]", labels: "pd.Series[str] | None") -> bool:
    count = cells.nunique()
    if not LEAST_GROUPS <= count <= len(cells) / LEAST_IMAGES or (cells.str.strip() == "").any():
        return False
    if labels is None:
        return True
    classes = pd.DataFrame({"label": labels, "group": cells}).groupby("label")["group"]
    several = classes.nunique()[classes.size() > 1]
    return len(several) > 0 and float((several == 1).mean()) <= MOST_LONELY


def _are_others(train: "pd.Series[str]", test: "pd.Series[str]") -> bool:
    """Returns whether no test image has a value of training, and that is no chance."""
    expected = float(train.duplicated(keep=False).mean()) * len(test)
    return expected >= LEAST_SHARED and not set(train) & set(test)
