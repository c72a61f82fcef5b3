"""Summarises the rows of an audit for people: `podium audit` and the first notebook print it.

Reads and writes no files. A row is a row of audit.csv (audit.py).
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from podium.basics.terminal import first_few, plural, table
from podium.competition.load import Competition
from podium.images.store_format import FileRecord

SHOWN = 10  # lines of each list; audit.csv holds all
LARGE = 0.02  # share of the training images: a larger group of duplicates may be a mistake
MANY_COPIES = 0.05  # share of the test images: a few have a duplicate among the training images everywhere
SMALL = 16  # pixels: little can be learned from a shorter side below this
OBLONG = 8  # times as long as wide


def summarise_audit(competition: Competition, rows: pd.DataFrame) -> str:
    is_bad = rows["reason"] != ""
    bad, good, damaged = rows[is_bad], rows[~is_bad], rows[rows["doubt"] != ""]
    parts = [
        f"{competition.title}: {len(good):,} of {len(rows):,} files are images that can be read",
        _files_table(rows),
        _listed("files that are not readable images", bad["image"] + ": " + bad["reason"]),
        _listed("damaged images, which are read as far as possible", damaged["image"] + ": " + damaged["doubt"]),
        _odd_sizes(good),
        _duplicates_summary(competition, rows),
        _classes_table(rows),
    ]
    return "\n\n".join(part for part in parts if part)


def advise_on_large_group(competition: Competition, rows: pd.DataFrame) -> str:
    """Returns advice if a group of duplicates is suspiciously large, else ""."""
    train = rows[rows["role"] == "train"]
    largest = train["group"][train["group"] != ""].value_counts().max()
    if not largest > max(SHOWN, LARGE * len(train)):
        return ""
    remedy = competition.card.advise('copies = "exact"')
    return f"{largest:,} training images count as duplicates of one image; if they only look alike, {remedy}"


def find_leaked_test_images(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns the test images that are also training images, or have a duplicate among them."""
    train, test = (rows[rows["role"] == role] for role in ("train", "test"))
    return test[test["image"].isin(train["image"]) | test["group"].isin(set(train["group"]) - {""})]


def _files_table(rows: pd.DataFrame) -> str:
    lines = []
    for role in ("train", "test"):
        images = rows[rows["role"] == role]
        good = images[images["reason"] == ""]
        sizes = (good["width"] + " x " + good["height"]).value_counts()
        usual = (
            f"{sizes.index[0]} ({sizes.iloc[0] / len(good):.1%}), {plural(len(sizes), 'size')}" if len(good) else "-"
        )
        formats = (good["format"] + " " + good["mode"]).value_counts()
        most_common = ", ".join(f"{name} {count:,}" for name, count in formats.head(4).items()) or "-"
        lines.append([role, f"{len(images):,}", f"{len(images) - len(good):,}", usual, most_common])
    return table(["", "images", "bad", "sizes", "formats"], lines)


def _odd_sizes(good: pd.DataFrame) -> str:
    width, height = good["width"].astype(int), good["height"].astype(int)
    short, long = np.minimum(width, height), np.maximum(width, height)
    odd = good[(short < SMALL) | (long > OBLONG * short)]
    return _listed("very small or very oblong images", odd["image"] + ": " + odd["width"] + " x " + odd["height"])


def _duplicates_summary(competition: Competition, rows: pd.DataFrame) -> str:
    groups = rows["group"][rows["group"] != ""]
    leaked, advice = find_leaked_test_images(rows), advise_on_large_group(competition, rows)
    if not len(groups) and not len(leaked):
        return "duplicates: none"
    train = rows[(rows["role"] == "train") & (rows["group"] != "")]
    repeated = train[train["group"].duplicated(keep=False)]
    test_count = (rows["role"] == "test").sum()
    lines = [
        f"duplicates (also at another size or quality, or mirrored): {plural(groups.nunique(), 'group')} of duplicates",
        f"  {plural(len(repeated), 'training image')} with a duplicate among the training images;"
        " folds keep them together",
        f"  {plural(len(leaked), 'test image')} with a duplicate among the training images:"
        f" {len(leaked) / test_count:.2%} of all"
        if test_count
        else "",
        f"  warning: {doubt}" if (doubt := doubt_of_copies(len(leaked), test_count)) else "",
        f"  warning: {advice}" if advice else "",
        _label_conflicts(train),
    ]
    return "\n".join(line for line in lines if line)


def describe_pages(files: Iterable[FileRecord]) -> str:
    """Returns which files have further pages, which are not read; "" if none has."""
    pages = (f"{file.image}: page 1 of {file.pages:,}" for file in files if file.pages > 1)
    return _listed("files of several pages, of which the first is read (to use others, save each as a file)", pages)


def doubt_of_copies(copies: int, test_images: int, among: str = "training images") -> str:
    """Returns what it means if many test images are among the training images; nothing for a few, which occur."""
    if copies <= MANY_COPIES * test_images:
        return ""
    return (
        f"{copies:,} of {test_images:,} test images are among the {among}, too: if their labels are a model's"
        " answers (pseudo-labels), held-out scores compare with answers and not with the truth; then keep these rows"
        " out of validation, with fold -1 in folds.csv"
    )


def _label_conflicts(train: pd.DataFrame) -> str:
    """Lists the groups of duplicates whose training images have different labels."""
    label_counts = train.groupby("group")["target"].nunique()
    conflicting = train[train["group"].isin(label_counts.index[label_counts > 1])]
    groups = conflicting.sort_values("group", kind="stable").groupby("group", sort=False)
    lines = [
        first_few(f"{image} '{target}'" for image, target in zip(group["image"], group["target"], strict=True))
        for _, group in groups
    ]
    return _listed("duplicates with different labels", lines)


def _classes_table(rows: pd.DataFrame) -> str:
    """Returns a bar chart of the training images of each class; if there are many, the largest and the smallest."""
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


def _listed(title: str, items: Iterable[str]) -> str:
    """Returns the title with the number of items, and the first of them; "" without items."""
    lines = [f"  {item}".replace("\n", "\\n") for item in items]
    if not lines:
        return ""
    omitted = [f"  ... and {len(lines) - SHOWN:,} more in audit.csv"] if len(lines) > SHOWN else []
    return "\n".join([f"{title}: {len(lines):,}", *lines[:SHOWN], *omitted])
