"""Checks every image before training: unreadable files, odd sizes, duplicates, leaks, labels that disagree.

    podium audit [-c SLUG] [--drop-bad]

Decodes every training and test image (store.py) and compares all of them with each other (duplicates.py). Writes
data/prepared/<slug>/audit.csv, a row for each image, duplicates.csv, a row for each pair of duplicates, and
audit.json, which shows whether they are up to date. All can be deleted; the command writes them again.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.disk import write_json, write_text
from podium.basics.errors import PodiumError
from podium.basics.terminal import command_for, first_few, plural, say, show
from podium.competition.find.csv_files import csv_text, read_table
from podium.competition.load import Competition
from podium.images.audit_report import describe_pages, summarise_audit
from podium.images.duplicates import THRESHOLDS, Pairs, find_duplicates, identical_pairs, linked_groups
from podium.images.few_greys import describe_ranges
from podium.images.store import Store, open_store, open_verified_store, stored_side
from podium.images.store_format import FileRecord

USUAL_SIZE = 224  # pixels; most models train at this size
UNREADABLE = "cannot be read: "  # begins the reason in the lines of --drop-bad, by which they are known again
IDENTITY = ["role", "id", "target", "image"]  # columns that must agree with the competition's files
# "group" is the first image of a group of duplicates; "" for an image without duplicates.
COLUMNS = [*IDENTITY, "reason", "width", "height", "format", "mode", "bytes", "sha256", "group", "doubt"]


def audit(competition: Competition, image_size: int = USUAL_SIZE, keep: bool = True) -> pd.DataFrame:
    """Writes audit.csv and duplicates.csv, prints a summary, returns the rows. `keep` stores pixels for training."""
    store = open_verified_store(competition, stored_side(image_size), keep)
    rows = _write_audit(competition, store)
    parts = summarise_audit(competition, rows), describe_pages(store.files), describe_ranges(competition, store)
    show("\n\n".join(part for part in parts if part))
    path = audit_path(competition.slug, competition.root)
    say(f"podium: wrote {path}, {path.with_name('duplicates.csv')} and {store.path}")
    if mended := _mended_images(competition, store):
        images = f"{plural(len(mended), 'training image')} that --drop-bad has left out can be read now"
        lines = f"delete {'its line' if len(mended) == 1 else 'their lines'} in {competition.corrections.path}"
        say(f"podium: note: {images}, id {first_few(mended)}; to train on what is mended, {lines}")
    return rows


def _mended_images(competition: Competition, store: Store) -> list[str]:
    """Returns the ids that `drop_bad` has left out, and whose images can be read now."""
    lines = competition.corrections.lines
    dropped = {name for name in competition.corrections.dropped_ids if lines[name].why.startswith(UNREADABLE)}
    rows = competition.train_in_files[competition.train_in_files["id"].isin(dropped)]
    positions = store.positions(rows["image"])
    return [name for name, position in zip(rows["id"], positions, strict=True) if not store.files[position].reason]


def bad_training_images(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of training images that cannot be read."""
    return rows[(rows["role"] == "train") & (rows["reason"] != "")]


def drop_bad(competition: Competition, bad: pd.DataFrame) -> None:
    """Leaves these training images out: by lines in the corrections, which later commands see."""
    if bad.empty:
        say("podium: every training image can be read; --drop-bad leaves out none")
        return
    corrections = competition.corrections.dropping(dict(zip(bad["id"], UNREADABLE + bad["reason"], strict=True)))
    if competition.train[~competition.train["id"].isin(bad["id"])]["target"].nunique() < 2:
        raise PodiumError(
            f"{competition.folder}: fewer than two classes have images that can be read; replace the others, which"
            f" {audit_path(competition.slug, competition.root)} lists"
        )
    corrections.write(corrections.path)
    count, are = plural(len(bad), "training image"), "is" if len(bad) == 1 else "are"
    say(f"podium: {count} that cannot be read {are} left out from now on, by lines of {corrections.path}")


def load_audit(competition: Competition) -> pd.DataFrame:
    """Returns the rows of audit.csv: first those of `competition.train`, then those of `competition.test`.

    Writes the audit first if there is none or if the competition's files have changed.
    """
    side = stored_side(USUAL_SIZE)
    store = open_store(competition, side, keep=None)
    path = audit_path(competition.slug, competition.root)
    if _read_inputs(path) != _inputs_of(competition, store) or not path.exists():
        store = open_verified_store(competition, side, keep=None, verify=("thumbs.bin", "files.jsonl"))
        return _write_audit(competition, store)
    remedy = f"delete it and run: {command_for('audit', competition.slug)}"
    rows = read_table(path, remedy)
    parts = (competition.train.assign(role="train"), competition.test.assign(role="test", target=""))
    expected = pd.concat(parts)[IDENTITY].to_numpy().tolist()
    if list(rows.columns) != COLUMNS or rows[IDENTITY].to_numpy().tolist() != expected:
        raise PodiumError(f"{path} was changed by hand; {remedy}")
    return rows


def audit_path(slug: str, root: Path) -> Path:
    return root / "data" / "prepared" / slug / "audit.csv"


def _inputs_of(competition: Competition, store: Store) -> dict[str, str]:
    """Returns everything that the audit depends on: if any of it changes, the audit is stale."""
    corrections = competition.corrections.sha256
    return {
        "files": store.files_key,
        "train": competition.train_hash,
        "test": competition.test_hash,
        "copies": f"{competition.copies}: {THRESHOLDS}",
        **({"corrections": corrections} if corrections else {}),
    }


def _read_inputs(path: Path) -> object:
    """Returns what the audit at `path` was made from; None if that is not known."""
    try:
        return json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _write_audit(competition: Competition, store: Store) -> pd.DataFrame:
    path = audit_path(competition.slug, competition.root)
    say("podium: looking for duplicates")
    pairs = _of_own_images(competition, store, pair_duplicates(competition, store))
    rows = _rows(competition, store, _duplicate_groups(competition, store, pairs))
    write_text(path.with_name("duplicates.csv"), _pairs_csv(store, pairs))
    write_text(path, csv_text([COLUMNS, *rows.itertuples(index=False, name=None)]))
    write_json(path.with_suffix(".json"), _inputs_of(competition, store))
    return rows


def pair_duplicates(competition: Competition, store: Store) -> Pairs:
    """Returns the pairs of duplicates, as the card counts them, by their positions in the store."""
    return _pair_same_files(store) if competition.copies == "exact" else _pair_similar_images(store)


def _of_own_images(competition: Competition, store: Store, pairs: Pairs) -> Pairs:
    """Returns the pairs of the competition's own images: others neither link them nor count (extra_copies.py)."""
    is_other = np.zeros(len(store.names), bool)
    for rows in competition.from_elsewhere:
        is_other[store.positions(rows["image"])] = True
    for rows in (competition.train_in_files, competition.test) if is_other.any() else ():  # a folder may serve both
        is_other[store.positions(rows["image"])] = False
    own = ~(is_other[pairs.first] | is_other[pairs.second])
    return Pairs(pairs.first[own], pairs.second[own], pairs.distance[own], pairs.mirrored[own])


def _pair_similar_images(store: Store) -> Pairs:
    """Returns the pairs of duplicates among the images that can be read, by their positions in the store."""
    good = np.flatnonzero([not file.reason for file in store.files])
    if not len(good):
        first = store.files[0]
        problem = f"none of its {len(store.files):,} images can be read, {first.image} first ({first.reason})"
        raise PodiumError(f"{store.folder}: {problem}; download it again, or correct that")
    areas = np.array([file.width * file.height for file in store.files], dtype=np.int64)
    return find_duplicates(store.thumbs, areas, good)


def _pair_same_files(store: Store) -> Pairs:
    """Pairs each readable file with the first file that has the same bytes."""
    # An unreadable file has no duplicate: its number, which no other file has, replaces its hash.
    contents = np.array([str(number) if file.reason else file.sha256 for number, file in enumerate(store.files)])
    first, codes = np.unique(contents, return_index=True, return_inverse=True)[1:]
    return identical_pairs(first[codes])


def _duplicate_groups(competition: Competition, store: Store, pairs: Pairs) -> NDArray[np.str_]:
    """Returns, for each image, the first image of its group of duplicates; "" for an image without duplicates.

    An image that the corrections drop is nobody's duplicate, but still links its copies with each other.
    """
    leader = linked_groups(pairs.first, pairs.second, len(store.names))
    used = np.union1d(*(store.positions(rows["image"]) for rows in (competition.train, competition.test)))
    is_alone = np.bincount(leader[used], minlength=len(leader))[leader] <= 1
    return np.where(is_alone, "", store.names[leader])


def _rows(competition: Competition, store: Store, groups: NDArray[np.str_]) -> pd.DataFrame:
    parts = []
    for role, rows in (("train", competition.train), ("test", competition.test.assign(target=""))):
        positions = store.positions(rows["image"])
        records = [store.files[position] for position in positions]
        facts = pd.DataFrame(records, columns=FileRecord._fields).drop(columns="image")
        part = pd.concat([rows.reset_index(drop=True), facts], axis=1).assign(role=role, group=groups[positions])
        parts.append(part[COLUMNS].astype(str))
    return pd.concat(parts, ignore_index=True).astype(object)


def _pairs_csv(store: Store, pairs: Pairs) -> str:
    rows: list[tuple[object, ...]] = [("first", "second", "kind", "distance")]
    for first, second, distance, mirrored in zip(*(column.tolist() for column in pairs), strict=True):
        is_same_file = store.files[first].sha256 == store.files[second].sha256
        kind = "same file" if is_same_file else "mirrored" if mirrored else "same picture"
        rows.append((store.names[first], store.names[second], kind, f"{distance:.2f}"))
    return csv_text(rows)
