"""Leaves out images from elsewhere that the competition already has: copies of its test or training images.

A copy of a test image would teach its label, and a copy of a training image that of a held-out one; without a label, it
would still show a fold's model what judges it. Copies that were saved again, resized or mirrored are found as
the audit finds duplicates. Writes data/prepared/<slug>/extra.csv and unlabelled.csv.
"""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.disk import write_text
from podium.basics.project_root import prepared_folder
from podium.basics.terminal import plural, say
from podium.competition.extras.extra_images import COLUMNS, ExtraImages
from podium.competition.find.csv_files import csv_text
from podium.competition.load import Competition
from podium.images.audit import USUAL_SIZE, pair_duplicates
from podium.images.duplicates import linked_groups
from podium.images.store import Store, open_store, stored_side

FILE, OF_UNLABELLED = "extra.csv", "unlabelled.csv"


def usable_extra(competition: Competition) -> pd.DataFrame:
    """Returns the extra images that can be read and that the competition does not have; says which are left out."""
    return _usable(competition, competition.extra, "extra image", FILE)


def usable_unlabelled(competition: Competition) -> pd.DataFrame:
    """Returns such images without labels, as `usable_extra` does."""
    return _usable(competition, competition.unlabelled, "unlabelled image", OF_UNLABELLED)


def _usable(competition: Competition, images: ExtraImages | None, what: str, file: str) -> pd.DataFrame:
    if images is None:
        return pd.DataFrame(columns=COLUMNS)
    store = open_store(competition, stored_side(USUAL_SIZE), keep=None)  # of whole images, as the audit
    positions = store.positions(images.rows["image"])
    copy_of = _copies(competition, store)[positions]
    reasons = np.array([store.files[position].reason for position in positions])
    is_unreadable, is_copy = reasons != "", copy_of != ""
    lines = [("id", "target", "weight", "used", "why")]
    for row, original, reason in zip(images.rows.itertuples(index=False), copy_of, reasons, strict=True):
        why = str(reason) or (f"a copy of {original}" if original else "")
        lines.append((row.id, row.target, f"{row.weight:g}", "no" if why else "yes", why))
    path = prepared_folder(competition.slug, competition.root) / file
    write_text(path, csv_text(lines))
    if is_copy.any():
        say(
            f"podium: warning: {plural(int(is_copy.sum()), what)} left out: copies of the competition's own"
            f" images, the first {images.rows['id'][is_copy].iloc[0]}; {path} lists them"
        )
    if is_unreadable.any():
        say(f"podium: warning: {plural(int(is_unreadable.sum()), what)} cannot be read; {path} lists them")
    return images.rows[~(is_copy | is_unreadable)].reset_index(drop=True)


def _copies(competition: Competition, store: Store) -> NDArray[np.str_]:
    """Returns, for each image of the store, a training or test image that it is linked to as a copy; "" for none."""
    pairs = pair_duplicates(competition, store)
    leader = linked_groups(pairs.first, pairs.second, len(store.names))
    own = np.union1d(*(store.positions(rows["image"]) for rows in (competition.train_in_files, competition.test)))
    original = np.zeros(len(store.names), store.names.dtype)
    original[leader[own]] = store.names[own]
    return np.asarray(original[leader])
