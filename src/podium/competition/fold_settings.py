"""Reads what a competition's files and its card say of folds: which images share one, and which are for validation."""

import pandas as pd

from podium.competition.answer_groups import Answers
from podium.competition.find_files import is_for_validation
from podium.competition.find_tables import Sources
from podium.errors import PodiumError
from podium.terminal import plural


def take_groups(sources: Sources, train: pd.DataFrame, answers: Answers | None) -> "pd.Series[str] | None":
    """Takes the column of groups out of the rows, or reads the groups from the ids by the card's pattern.

    Without both, the images of an answer are a group.
    """
    card = sources.card
    if "group" in train:
        return train.pop("group").rename(card.get("group_column", "group"))
    if "group_pattern" not in card:
        return train["id"].map(answers.train).rename(answers.column) if answers else None
    pattern = card.pattern("group_pattern", "group's name")
    groups = train["id"].str.extract(pattern)[0]
    if groups.isna().any():
        problem = f"group_pattern = '{pattern.pattern}' finds no group in the id '{train['id'][groups.isna()].iloc[0]}'"
        if "group_pattern" not in card.known:
            raise PodiumError(f"{card.path}: {problem}; correct it")
        sources.notes.append(f"{problem}, so there are no groups")
        return None
    return groups.rename("group_pattern")


def choose_validation(sources: Sources, train: pd.DataFrame) -> frozenset[str]:
    """Returns the ids of the images for validation if the card makes them the only fold."""
    if sources.card.get("folds") != "val":
        return frozenset()
    ids = sources.validation or frozenset(train["id"][train["image"].map(is_for_validation)])
    if not 0 < len(ids) < len(train):
        raise PodiumError(
            f'{sources.card.path}: folds = "val", but {"all" if ids else "no"} training images are in a folder val/ or'
            " a table val.json; delete that line"
        )
    sources.notes.append(f'the {plural(len(ids), "image")} for validation are the only fold (folds = "val")')
    return ids
