"""Looks at every image before training does: bad files, odd ones, duplicates, leaks, labels that disagree.

    podium audit [-c SLUG]

Decodes every training and test file (see store.py) and compares all with all (see duplicates.py). Writes
data/prepared/<slug>/audit.csv, a row for each image, and duplicates.csv, a row for each pair. Both can be
deleted and made anew.
"""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium import PodiumError
from podium.competition.csv_files import csv_text, read_table
from podium.competition.load import Competition
from podium.disk import write_json, write_text
from podium.images.duplicates import COLOUR, CONTENT, NOISE, RESAMPLING, Pairs, find_copies, linked_groups
from podium.images.store import FileRecord, Store, open_store, open_verified_store, stored_side
from podium.terminal import command_for, first_few, plural, say, show, table

USUAL_SIZE = 224  # pixels: what most models train at
SHOWN = 10  # of each kind of finding; the rest is in audit.csv
LARGE = 0.02  # of the training images: a group of copies that may be something else
SMALL = 16  # pixels: a shorter side from which little can be learned
OBLONG = 8  # times as long as wide
COLUMNS = (
    "role", "id", "target", "image", "reason", "width", "height", "format", "mode", "bytes", "sha256", "group", "doubt"
)  # fmt: skip


def audit(competition: Competition, root: Path, image_size: int = USUAL_SIZE, keep: bool = True) -> Path:
    """Writes audit.csv and duplicates.csv, and prints what they come to."""
    store = open_verified_store(competition, root, stored_side(image_size), keep)
    rows = _audit(competition, root, store)
    show(summary(competition, rows))
    folder = audit_path(competition.slug, root).parent
    say(f"podium: wrote {folder / 'audit.csv'}, {folder / 'duplicates.csv'} and {store.path}")
    say(f"next: {command_for('folds', competition.slug)}")
    return audit_path(competition.slug, root)


def load_audit(competition: Competition, root: Path) -> pd.DataFrame:
    """The rows of audit.csv: those of `competition.train`, then those of its test. Made where they are not there or
    of other files."""
    store = open_store(competition, root, stored_side(USUAL_SIZE), keep=None)
    path = audit_path(competition.slug, root)
    try:
        known = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = None
    if known != _key(competition, store) or not path.exists():
        store = open_verified_store(
            competition, root, stored_side(USUAL_SIZE), keep=None, read=("thumbs.bin", "files.jsonl")
        )
        return _audit(competition, root, store)
    rows = read_table(path, f"delete it and run: {command_for('audit', competition.slug)}")
    parts = (competition.train.assign(role="train"), competition.test.assign(role="test", target=""))
    wanted = pd.concat(parts)[["role", "id", "target", "image"]].to_numpy().tolist()
    if list(rows.columns) != list(COLUMNS) or rows[["role", "id", "target", "image"]].to_numpy().tolist() != wanted:
        raise PodiumError(f"{path} was changed by hand; delete it and run: {command_for('audit', competition.slug)}")
    return rows


def audit_path(slug: str, root: Path) -> Path:
    return root / "data" / "prepared" / slug / "audit.csv"


def _key(competition: Competition, store: Store) -> dict[str, str]:
    """What an audit is about: when any of it changes, it is stale."""
    return {
        "files": store.sources,
        "train": competition.train_hash,
        "test": competition.test_hash,
        "copies": f"{competition.copies}: noise {NOISE}, resampling {RESAMPLING}, content {CONTENT}, colour {COLOUR}",
    }


def _audit(competition: Competition, root: Path, store: Store) -> pd.DataFrame:
    path = audit_path(competition.slug, root)
    say("podium: looking for duplicates")
    pairs = same_files(store) if competition.copies == "exact" else find_pairs(store)
    rows = _rows(competition, store, _groups(store, pairs))
    write_text(path.with_name("duplicates.csv"), _pairs_csv(store, pairs))
    write_text(path, csv_text([COLUMNS, *rows.itertuples(index=False, name=None)]))
    write_json(path.with_suffix(".json"), _key(competition, store))
    return rows


def find_pairs(store: Store) -> Pairs:
    """Pairs of positions in the store that show the same picture."""
    good = np.flatnonzero([not file.reason for file in store.files])
    if not len(good):
        raise PodiumError(f"{store.folder}: not one of its {len(store.files):,} images can be read")
    areas = np.array([file.width * file.height for file in store.files], dtype=np.int64)[good]
    first, second, distance, mirrored = find_copies(store.thumbs[good], areas)
    return Pairs(good[first], good[second], distance, mirrored)


def same_files(store: Store) -> Pairs:
    """Each file that is the same as an earlier one, and that."""
    digests = np.array([file.sha256 if not file.reason else str(at) for at, file in enumerate(store.files)])
    first, which = np.unique(digests, return_index=True, return_inverse=True)[1:]
    copies = np.flatnonzero(first[which] != np.arange(len(digests)))
    return Pairs(first[which][copies], copies, np.zeros(len(copies), np.float32), np.zeros(len(copies), bool))


def _groups(store: Store, pairs: Pairs) -> NDArray[np.str_]:
    """For every image the name of its group, that of the first image in it; nothing for an image without copies."""
    leader = linked_groups(pairs.first, pairs.second, len(store.names))
    alone = np.bincount(leader, minlength=len(leader))[leader] == 1
    return np.where(alone, "", store.names[leader])


def _rows(competition: Competition, store: Store, groups: NDArray[np.str_]) -> pd.DataFrame:
    parts = []
    for role, rows in (("train", competition.train), ("test", competition.test.assign(target=""))):
        at = store.positions(rows["image"])
        facts = pd.DataFrame([store.files[i] for i in at], columns=FileRecord._fields).drop(columns="image")
        part = pd.concat([rows.reset_index(drop=True), facts], axis=1).assign(role=role, group=groups[at])
        parts.append(part[list(COLUMNS)].astype(str))
    return pd.concat(parts, ignore_index=True).astype(object)


def _pairs_csv(store: Store, pairs: Pairs) -> str:
    rows: list[tuple[object, ...]] = [("first", "second", "kind", "distance")]
    for first, second, distance, mirrored in zip(*(each.tolist() for each in pairs), strict=True):
        same = store.files[first].sha256 == store.files[second].sha256
        kind = "same file" if same else "mirrored" if mirrored else "same picture"
        rows.append((store.names[first], store.names[second], kind, f"{distance:.2f}"))
    return csv_text(rows)


# --- what a person reads ---------------------------------------------------------------------------------


def summary(competition: Competition, rows: pd.DataFrame) -> str:
    parts = [
        f"{competition.title}: every file decoded",
        _files(rows),
        _bad(rows),
        _doubtful(rows),
        _odd(rows),
        _copies(rows),
        _classes(rows),
    ]
    return "\n\n".join(part for part in parts if part)


def _files(rows: pd.DataFrame) -> str:
    lines = []
    for role in ("train", "test"):
        some = rows[rows["role"] == role]
        good = some[some["reason"] == ""]
        sizes = (good["width"] + " x " + good["height"]).value_counts()
        kinds = (good["format"] + " " + good["mode"]).value_counts()
        usual = f"{sizes.index[0]} ({sizes.iloc[0] / len(good):.1%}), {len(sizes)} in all" if len(good) else "-"
        lines.append([role, f"{len(some):,}", f"{len(some) - len(good):,}", usual, _kinds(kinds)])
    return table(["", "images", "bad", "sizes", "formats"], lines)


def _kinds(kinds: "pd.Series[int]") -> str:
    return ", ".join(f"{kind} {count:,}" for kind, count in kinds.head(4).items()) or "-"


def _bad(rows: pd.DataFrame) -> str:
    bad = rows[rows["reason"] != ""]
    return _listed("files that are no images", bad["image"] + ": " + bad["reason"])


def _doubtful(rows: pd.DataFrame) -> str:
    some = rows[rows["doubt"] != ""]
    return _listed("damaged images, which are used as far as they can be read", some["image"] + ": " + some["doubt"])


def _odd(rows: pd.DataFrame) -> str:
    good = rows[rows["reason"] == ""]
    width, height = good["width"].astype(int), good["height"].astype(int)
    short, long = np.minimum(width, height), np.maximum(width, height)
    odd = good[(short < SMALL) | (long > OBLONG * short)]
    return _listed("very small or very oblong images", odd["image"] + ": " + odd["width"] + " x " + odd["height"])


def _copies(rows: pd.DataFrame) -> str:
    train = rows[(rows["role"] == "train") & (rows["group"] != "")]
    together, seen = train[train["group"].duplicated(keep=False)], test_images_with_copies(rows)
    if not (rows["group"] != "").any() and not len(seen):
        return "duplicates: none"
    lines = [
        "duplicates (copies, also at another size or quality, or mirrored):"
        f" {plural(rows['group'][rows['group'] != ''].nunique(), 'group')}",
        f"  {plural(len(together), 'training image')} with a copy among the training images, which folds keep together",
        f"  {plural(len(seen), 'test image')} with a copy among the training images:"
        f" {len(seen) / (rows['role'] == 'test').sum():.2%} of all",
    ]
    lines += [f"  warning: {text}" for text in large_group_advice(rows)]
    labels = train.groupby("group")["target"].nunique()
    torn = train[train["group"].isin(labels.index[labels > 1])].sort_values("group", kind="stable")
    said = [
        first_few(f"{image} '{target}'" for image, target in zip(some["image"], some["target"], strict=True))
        for _, some in torn.groupby("group", sort=False)
    ]
    return "\n".join(lines) + (f"\n{_listed('copies with different labels', said)}" if said else "")


def large_group_advice(rows: pd.DataFrame) -> list[str]:
    """A group of copies so large that they may be something else: what to do, in a sentence; or nothing."""
    train = rows[rows["role"] == "train"]
    largest = train["group"][train["group"] != ""].value_counts().max()
    if not largest > max(SHOWN, LARGE * len(train)):
        return []
    said = f"{largest:,} training images hang together as copies; where these only look alike, write"
    return [f'{said} copies = "exact" in the competition\'s card']


def test_images_with_copies(rows: pd.DataFrame) -> pd.DataFrame:
    """The test images that training has seen, as they are or as a copy."""
    train, test = (rows[rows["role"] == role] for role in ("train", "test"))
    return test[test["image"].isin(train["image"]) | test["group"].isin(set(train["group"]) - {""})]


def _classes(rows: pd.DataFrame) -> str:
    counts = rows[rows["role"] == "train"]["target"].value_counts()
    shown = counts if len(counts) <= 2 * SHOWN else pd.concat([counts.head(SHOWN), counts.tail(SHOWN)])
    lines = table(["class", "images"], [[name, f"{count:,}"] for name, count in shown.items()]).splitlines()
    lines[1:] = [
        f"{line}  {'#' * max(1, round(40 * count / shown.iloc[0]))}"
        for line, count in zip(lines[1:], shown, strict=True)
    ]
    if len(shown) < len(counts):
        lines.insert(SHOWN + 1, f"... {len(counts) - len(shown):,} classes between ...")
    return "\n".join(lines)


def _listed(what: str, lines: Iterable[str]) -> str:
    found = list(lines)
    if not found:
        return ""
    more = [f"  ... and {len(found) - SHOWN:,} more in audit.csv"] if len(found) > SHOWN else []
    return "\n".join([f"{what}: {len(found):,}", *(f"  {line}".replace("\n", "\\n") for line in found[:SHOWN]), *more])
