"""Splits the training images into K folds, once, for every run: stratified, seeded, checked.

    podium folds [-c SLUG] [--k 5] [--seed 0]

Writes data/prepared/<slug>/folds.csv with columns id,target,fold,group. Fold -1 is trained on in every
fold and validated in none: the images of classes that have fewer than K. A file made elsewhere serves as
well, as long as it has the columns id and fold.
"""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium import PodiumError
from podium.checkpoint import write_text
from podium.competition import Competition
from podium.console import command, say, table
from podium.tables import read_table


def assign(targets: Sequence[str], k: int, seed: int) -> NDArray[np.int64]:
    """A fold for every image. Each class, and the whole, is spread over the folds to within one image."""
    _, label, counts = np.unique(np.asarray(targets, dtype=object).astype(str), return_inverse=True, return_counts=True)
    order = np.random.default_rng([seed, k]).permutation(len(label))
    order = order[np.argsort(label[order], kind="stable")]  # class after class, shuffled within
    order = order[counts[label[order]] >= k]
    folds = np.full(len(label), -1, dtype=np.int64)
    folds[order] = np.arange(len(order)) % k  # dealt like cards: consecutive images of a class go round
    if not len(order):
        raise PodiumError(f"no class has {k} images, so nothing could be validated; take fewer folds: --k 2")
    return folds


def path_of(slug: str, root: Path) -> Path:
    return root / "data" / "prepared" / slug / "folds.csv"


def write_folds(competition: Competition, root: Path, k: int, seed: int) -> Path:
    if k < 2:
        raise PodiumError(f"--k {k}: at least two folds are needed, one to learn from and one to validate on")
    path = path_of(competition.slug, root)
    rows = competition.train
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "target", "fold", "group"])
    # Every image is a group of its own.
    folds = assign(list(rows["target"]), k, seed)
    writer.writerows(zip(rows["id"], rows["target"], folds, rows["id"], strict=True))
    before = path.read_text(encoding="utf-8") if path.exists() else None
    if before == text.getvalue():
        say(f"podium: {path} holds these folds already")
    else:
        if before is not None:
            kept = path.with_name("folds-before.csv")
            write_text(kept, before)
            say(f"podium: warning: the folds have changed; runs begun on the old ones, now {kept}, cannot go on")
        write_text(path, text.getvalue())
    print(summary(competition, folds))
    say(f"podium: wrote {path}\nnext: {command('train', competition.slug, model='vit_small_patch32_224')}")
    return path


def summary(competition: Competition, folds: NDArray[np.int64]) -> str:
    targets = competition.train["target"].to_numpy()
    counts = pd.crosstab(targets, folds)
    rows = []
    for fold in range(int(folds.max()) + 1):
        validated = int((folds == fold).sum())
        classes = int((counts[fold] > 0).sum())
        rows.append([fold, f"{len(folds) - validated:,}", f"{validated:,}", classes])
    text = table(["fold", "train", "validate", "classes"], rows)
    never = sorted(set(targets[folds == -1]))
    if never:
        count = (folds == -1).sum()
        text += f"\nclasses too small to validate: {len(never)}; their images, trained on in every fold: {count}"
    return text


def read_folds(competition: Competition, root: Path) -> NDArray[np.int64]:
    """The fold of every row of `competition.train`, from folds.csv, ours or anybody's; checked."""
    path = path_of(competition.slug, root)
    if not path.exists():
        raise PodiumError(
            f"{path} does not exist; split the training images with: {command('folds', competition.slug)}"
        )
    rows = read_table(path)
    for column in ("id", "fold"):
        if column not in rows.columns:
            raise PodiumError(f"{path}: no column '{column}'; there are {', '.join(rows.columns)}")
    twice = rows["id"][rows["id"].duplicated()]
    if len(twice):
        raise PodiumError(f"{path}, line {twice.index[0]}: id '{twice.iloc[0]}' stands there twice")
    wrong = rows["fold"][~rows["fold"].str.fullmatch(r"-1|\d{1,4}")]
    if len(wrong):
        raise PodiumError(f"{path}, line {wrong.index[0]}: fold '{wrong.iloc[0]}' is not -1, 0, 1, ...")
    unknown = rows["id"][~rows["id"].isin(competition.train["id"])]
    if len(unknown):
        raise PodiumError(f"{path}, line {unknown.index[0]}: no training image has the id '{unknown.iloc[0]}'")
    aligned = rows.set_index("id").reindex(competition.train["id"])
    absent = aligned.index[aligned["fold"].isna()]
    if len(absent):
        raise PodiumError(f"{path}: {len(absent):,} training images have no fold, '{absent[0]}' first; make it anew")
    if "target" in rows.columns:
        differs = aligned["target"].to_numpy() != competition.train["target"].to_numpy()
        if differs.any():
            there, here = aligned["target"][differs].iloc[0], competition.train["target"][differs].iloc[0]
            raise PodiumError(
                f"{path}: id '{aligned.index[differs][0]}' has the label '{there}' there and '{here}' in the"
                " competition's files; make the folds anew"
            )
    folds: NDArray[np.int64] = aligned["fold"].astype(np.int64).to_numpy()
    empty = sorted(set(range(int(folds.max()) + 1)) - set(folds.tolist()))
    if empty or folds.max() < 0:
        raise PodiumError(
            f"{path}: no image in fold {empty[0] if empty else 0}; folds are numbered from 0 without gaps"
        )
    if (folds >= 0).all() and folds.max() == 0:
        raise PodiumError(f"{path}: all images are in fold 0, so none is left to train on")
    return folds
