"""Reads what a competition's files and its card say of folds: which images share one, and which are for validation."""

import pandas as pd

from podium.competition.answer_groups import Answers
from podium.competition.find_files import is_for_validation
from podium.competition.guess_group import guess_pairs
from podium.competition.layout import Layout
from podium.errors import PodiumError
from podium.terminal import plural


def take_groups(
    layout: Layout, train: pd.DataFrame, answers: Answers | None
) -> "tuple[pd.Series[str] | None, list[str]]":
    """Takes the column of groups out of the rows, or reads the groups from the ids by the card's pattern; and notes.

    Without both, the images of an answer are a group.
    """
    card = layout.card
    if "group" in train:
        return train.pop("group").rename(layout.train.group_column or "group"), []
    if answers and "group_pattern" not in card:
        return train["id"].map(answers.train).rename(answers.column), []
    if "group_pattern" not in card:
        groups, note = (None, "") if "group_column" in card else guess_pairs(card, train["id"])
        return groups, [note] if note else []
    pattern = card.pattern("group_pattern", "group's name")
    groups = train["id"].str.extract(pattern)[0]
    if groups.isna().any():
        problem = f"group_pattern = '{pattern.pattern}' finds no group in the id '{train['id'][groups.isna()].iloc[0]}'"
        refusal = f"{card.path}: {problem}; correct it"
        return None, [card.drop("group_pattern", f"{problem}, so there are no groups", refusal)]
    return groups.rename("group_pattern"), []


def choose_validation(
    layout: Layout, train: pd.DataFrame, in_table: frozenset[str]
) -> tuple[frozenset[str], list[str]]:
    """Returns the ids of the images for validation if the card makes them the only fold, and a note that says so.

    `in_table` holds those of a table for validation; else they are in a folder for it.
    """
    if layout.card.get("folds") != "val":
        return frozenset(), []
    ids = in_table or frozenset(train["id"][train["image"].map(is_for_validation)])
    if not 0 < len(ids) < len(train):
        raise PodiumError(
            f'{layout.card.path}: folds = "val", but {"all" if ids else "no"} training images are in a folder val/ or'
            " a table val.json; delete that line"
        )
    return ids, [f'the {plural(len(ids), "image")} for validation are the only fold (folds = "val")']
