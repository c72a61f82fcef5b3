"""Reads what a competition's files and its card say of folds: which images share one, and which are for validation."""

import posixpath
from contextlib import suppress

import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.terminal import plural
from podium.competition.card import Card
from podium.competition.decide.answer_groups import Answers
from podium.competition.decide.features import rows_of_images
from podium.competition.decide.guess_group import NAMES, could_be_groups, guess_pairs, words_of
from podium.competition.decide.layout import Layout
from podium.competition.decide.tables import Tables
from podium.competition.find.facts import Facts
from podium.competition.find.find_files import is_for_validation


def take_groups(
    layout: Layout, facts: Facts, train: pd.DataFrame, answers: Answers | None
) -> "tuple[pd.Series[str] | None, list[str]]":
    """Takes the column of groups out of the rows, or reads the groups from the ids by the card's pattern; and notes.

    Without both, the images of an answer are a group, or what the names of the images or a table beside them tell.
    """
    card = layout.card
    if "group" in train:
        return train.pop("group").rename(layout.train.group_column or "group"), []
    if answers and "group_pattern" not in card:
        return train["id"].map(answers.train).rename(answers.column), []
    if "group_pattern" not in card:
        if "group_column" in card:
            return None, []
        groups, note = guess_pairs(card, train["id"])
        if groups is None and layout.train.folders:
            groups, note = _groups_beside(card, facts, train)
        return groups, [note] if note else []
    pattern = card.pattern("group_pattern", "group's name")
    groups = train["id"].str.extract(pattern)[0]
    if groups.isna().any():
        problem = f"group_pattern = '{pattern.pattern}' finds no group in the id '{train['id'][groups.isna()].iloc[0]}'"
        refusal = f"{card.path}: {problem}; correct it"
        return None, [card.drop("group_pattern", f"{problem}, so there are no groups", refusal)]
    return groups.rename("group_pattern"), []


def groups_of_test(layout: Layout, tables: Tables, test: pd.DataFrame) -> "pd.Series[str] | None":
    """Returns the group of each test image, "" for none; None where the test table, or the ids, do not tell it."""
    column, card = layout.train.group_column, layout.card
    if column:
        with suppress(PodiumError):
            if tables.test is not None and column in tables.test.rows:
                return rows_of_images(card, tables.test, test["id"], [column])[column].str.strip()
        return None
    if "group_pattern" not in card:
        return None
    return test["id"].str.extract(card.pattern("group_pattern", "group's name"))[0].fillna("")


def _groups_beside(card: Card, facts: Facts, train: pd.DataFrame) -> "tuple[pd.Series[str] | None, str]":
    """Returns whose each image is, by a table that names all of them, where folders hold the labels; and a note."""
    stems = train["id"].map(_stem)
    if stems.duplicated().any():
        return None, ""
    for name in facts.files.tables:
        head = facts.head_of(name, 1)
        if head is None or not any(set(NAMES) & set(words_of(column)) for column in head):
            continue
        try:
            rows = facts.rows_of(name)
        except PodiumError:  # nothing else needs this table
            continue
        for column in rows:
            of_stem = rows.set_index(rows[column].map(_stem))
            if of_stem.index.duplicated().any() or not stems.isin(of_stem.index).all():
                continue
            beside = of_stem.loc[stems].drop(columns=column).set_axis(train.index)
            named = [other for word in NAMES for other in beside if word in words_of(str(other))]
            whose = next((beside[other] for other in named if could_be_groups(beside[other], train["target"])), None)
            if whose is not None:
                note = f"that images of one '{whose.name}' of {name} share a fold is a guess (by its name); "
                return whose, note + card.advise("group_pattern = '(.+)'", "a pattern for other groups")
    return None, ""


def _stem(name: str) -> str:
    return posixpath.splitext(posixpath.basename(name))[0]


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
