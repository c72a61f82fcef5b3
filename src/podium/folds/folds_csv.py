"""Splits the training images into K folds, once, for every run: stratified, seeded, without leaks, certified.

    podium folds [-c SLUG] [--k 5] [--seed 0] [--group COLUMN]          podium folds --verify [FILE]

Reads the audit, so that copies of one picture share a fold. Writes data/prepared/<slug>/folds.csv with columns
id,target,fold,group, and folds.json, what it guarantees. Fold -1 is trained on in every fold and validated in
none: the images of classes that have fewer than K or only one group. A file made elsewhere serves as well, as
long as it has the columns id and fold.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium import PodiumError
from podium.competition.csv_files import csv_text, read_table
from podium.competition.load import Competition
from podium.disk import sha256, write_bytes, write_json
from podium.folds.certificate import certify
from podium.folds.split import assign_folds
from podium.images.audit import large_group_advice, load_audit
from podium.images.duplicates import merge_groupings
from podium.terminal import command_for, podium_command, say, show, table

Ints = NDArray[np.int64]

MOST_FOLDS = 100


def folds_path(slug: str, root: Path) -> Path:
    return root / "data" / "prepared" / slug / "folds.csv"


def write_folds(competition: Competition, root: Path, k: int, seed: int) -> Path:
    """Splits, certifies and writes."""
    if k < 2:
        raise PodiumError(f"--k {k}: at least two folds are needed, one to learn from and one to validate on")
    if k > MOST_FOLDS:
        raise PodiumError(f"--k {k}: each fold is a model to train, {MOST_FOLDS} are enough")
    path = folds_path(competition.slug, root)
    rows = load_audit(competition, root)
    train = rows[rows["role"] == "train"]
    good = (train["reason"] == "").to_numpy()
    if not good.any():
        raise PodiumError(f"{competition.folder}: not one training image can be read; download it again")
    groups = _groups(competition, train)
    alike = large_group_advice(rows)
    try:
        folds = _assigned(train, good, groups, k, seed)
    except PodiumError as error:
        raise PodiumError("; ".join([str(error), *alike])) from None
    for text in alike:
        say(f"podium: warning: {text}")
    ids = train["id"].to_numpy()  # a group is called by its first one
    rows_of_file = zip(ids, train["target"], folds.tolist(), ids[groups], strict=True)
    content = csv_text([("id", "target", "fold", "group"), *rows_of_file]).encode()
    before = path.read_bytes() if path.exists() else None
    if before == content:
        say(f"podium: {path} holds these folds already")
    else:
        if before is not None:
            kept = path.with_name("folds-before.csv")
            write_bytes(kept, before)
            say(f"podium: warning: the folds have changed; runs begun on the old ones, now {kept}, cannot go on")
        write_bytes(path, content)
    certificate = certify(competition, rows, folds, path, folds)
    write_json(path.with_suffix(".json"), certificate.as_json())
    show(f"{folds_table(competition, folds, good)}\n\n{certificate}")
    say(f"podium: wrote {path} and {path.with_suffix('.json').name}")
    say(f"next: {command_for('train', competition.slug, model='vit_small_patch32_224')}")
    return path


def _groups(competition: Competition, train: pd.DataFrame) -> Ints:
    """For each training image the first of its group: of copies, of the named column, or of both in a chain."""
    return merge_groupings([train["group"], *([] if competition.groups is None else [competition.groups])])


def _assigned(train: pd.DataFrame, good: NDArray[np.bool_], groups: Ints, k: int, seed: int) -> Ints:
    """Folds of the images that can be read; the others are in none."""
    folds = np.full(len(train), -1, dtype=np.int64)
    folds[good] = assign_folds(list(train["target"][good]), k, seed, groups[good])
    return folds


def verify_folds(competition: Competition, root: Path, path: Path | None) -> None:
    """Recomputes what a folds file guarantees; an error where it is not what it should be."""
    own = folds_path(competition.slug, root)
    path = path or own
    folds = read_folds(competition, root, path)
    rows = load_audit(competition, root)
    train = rows[rows["role"] == "train"]
    good = (train["reason"] == "").to_numpy()
    try:
        possible = _assigned(train, good, _groups(competition, train), int(folds.max()) + 1, seed=0)
    except PodiumError:  # nothing better is known
        possible = folds
    certificate = certify(competition, rows, folds, path, possible)
    show(f"{folds_table(competition, folds, good)}\n\n{certificate}")
    if path.resolve() == own.resolve():
        path.with_suffix(".json").unlink(missing_ok=True)
        if not certificate.broken:
            write_json(path.with_suffix(".json"), certificate.as_json())
    if certificate.broken:
        raise PodiumError(f"{path}: {'; '.join(certificate.broken)}")
    say(f"podium: {path} holds what it should")


def certified_group_column(slug: str, root: Path) -> str | None:
    """The column of groups that the competition's folds were certified with."""
    try:
        known = json.loads(folds_path(slug, root).with_suffix(".json").read_text(encoding="utf-8"))
        return str(known["group_column"]) if known["group_column"] else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def read_groups(competition: Competition, root: Path) -> dict[str, str]:
    """The group of each training image that has one, by the folds' file, ours or anybody's, or else by the card."""
    train, path = competition.train, folds_path(competition.slug, root)
    ids, groups = train["id"], pd.Series("", index=train.index) if competition.groups is None else competition.groups
    if path.exists():
        rows = read_table(path, f"make folds with: {command_for('folds', competition.slug)}")
        if {"id", "group"} <= set(rows.columns):
            ids, groups = rows["id"], rows["group"]
    return {name: group for name, group in zip(ids, groups, strict=True) if group}


def warn_unless_certified(competition: Competition, root: Path) -> None:
    """Hand-made folds serve, but whoever trains on them should know what they hold."""
    path = folds_path(competition.slug, root)
    try:
        known = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        if (known["folds_sha256"], known["data_sha256"]) == (sha256(path), competition.train_hash) and known["holds"]:
            return
    except (OSError, ValueError, LookupError, TypeError):
        pass
    verifying = f"{podium_command()} folds -c {competition.slug} --verify"
    say(f"podium: warning: nobody has verified that {path} keeps copies of one image together: {verifying}")


def folds_table(competition: Competition, folds: Ints, good: NDArray[np.bool_] | None = None) -> str:
    """How many images each fold trains on and validates: of those that can be read, where that is known."""
    targets = competition.train["target"].to_numpy()
    k = int(folds.max()) + 1
    if good is not None:
        targets, folds = targets[good], folds[good]
    counts = pd.crosstab(targets, folds)
    rows = []
    for fold in range(k):
        validated = int((folds == fold).sum())
        classes = int((counts[fold] > 0).sum()) if validated else 0
        rows.append([fold, f"{len(folds) - validated:,}", f"{validated:,}", classes])
    return table(["fold", "train", "validate", "classes"], rows)


def read_folds(competition: Competition, root: Path, path: Path | None = None) -> Ints:
    """The fold of every row of `competition.train`, from folds.csv, ours or anybody's; checked."""
    path = path or folds_path(competition.slug, root)
    if not path.exists():
        raise PodiumError(
            f"{path} does not exist; split the training images with: {command_for('folds', competition.slug)}"
        )
    rows = read_table(path, f"make folds with: {command_for('folds', competition.slug)}")
    for column in ("id", "fold"):
        if column not in rows.columns:
            raise PodiumError(f"{path}: no column '{column}'; there are {', '.join(rows.columns)}")
    twice = rows["id"][rows["id"].duplicated()]
    if len(twice):
        raise PodiumError(f"{path}, line {twice.index[0]}: id '{twice.iloc[0]}' stands there twice")
    wrong = rows["fold"][~rows["fold"].str.fullmatch("-1|0|[1-9][0-9]{0,3}")]
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
