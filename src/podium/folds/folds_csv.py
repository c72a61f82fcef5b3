"""Splits the training images into K folds, once for all runs; reads, checks and certifies folds.csv.

    podium folds [-c SLUG] [--k 5] [--seed 0] [--group COLUMN] [--by-time COLUMN --gap N]
    podium folds --by-site [COLUMN]
    podium folds --verify [FILE]

Reads the audit, so that duplicates share a fold. Writes data/prepared/<slug>/folds.csv, with the columns
id,target,fold,group, and its certificate, folds.json. In folds.csv a group is named by the id of its first image. Fold
-1 is trained on in every fold and validated in none: it holds the classes with fewer than K images or only one group.
Only a split by time has a fifth column, trained_from: the first fold that trains on an image; all later ones do, too.
A file from elsewhere works if it has the columns id and fold; a blank trained_from means all other folds.

The targets in folds.csv are those of the competition's files, without corrections: the folds of images whose labels are
corrected later, or which are dropped, stay valid.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from podium.basics.disk import sha256, write_bytes, write_json
from podium.basics.errors import PodiumError
from podium.basics.terminal import (
    busy_with,
    command_for,
    command_to_drop_bad,
    first_few,
    plural,
    podium_command,
    say,
    show,
    table,
)
from podium.competition.find.csv_files import csv_text, read_table
from podium.competition.load import Competition
from podium.folds.certificate import Certificate, certify, fold_groups, readable_train_images
from podium.folds.folds import Folds, Ints, Mask
from podium.folds.sites import Sites
from podium.folds.split import labels_of
from podium.folds.strategies import Split, split_images, stratified_folds
from podium.images.audit import load_audit
from podium.images.audit_report import advise_on_large_group, doubt_of_copies


def folds_path(slug: str, root: Path | str) -> Path:
    return Path(root) / "data" / "prepared" / slug / "folds.csv"


def _sites_path(path: Path) -> Path:
    return path.with_name("sites.csv")


# --- making and verifying ----------------------------------------------------------------------------


@busy_with("splitting the images")
def write_folds(competition: Competition, split: Split, in_use_by: Sequence[str] = (), verbose: bool = False) -> Path:
    """Splits the training images, writes folds.csv and folds.json, and prints what the split guarantees.

    Raises if that would replace folds that the runs `in_use_by` were trained on.
    """
    split.check()
    split.refuse_validation(competition)
    path = folds_path(competition.slug, competition.root)
    times = split.times(competition)
    rows = load_audit(competition)
    train, is_good = readable_train_images(competition, rows)
    groups = fold_groups(competition, train, split.sites)
    advice = advise_on_large_group(competition, rows)
    try:
        folds = split_images(competition, train, is_good, groups, split, times)
    except PodiumError as error:
        raise PodiumError("; ".join(filter(None, (str(error), advice)))) from None
    if advice:
        say(f"podium: warning: {advice}")
    _say_validation(competition, folds)
    has_changed = _replace_folds(path, _lines_of(competition, train["id"], folds, groups), in_use_by)
    of_columns = split.needs_columns and split.sites is None
    possible = _possible_folds(competition, train, is_good, folds) if of_columns else folds.of_image
    certificate = certify(competition, rows, folds, path, possible, times, split.sites)
    if split.sites:
        split.sites.write(_sites_path(path), train["id"])
        say(f"podium: {split.sites.describe(folds)}; {_sites_path(path).name} has all")
    write_json(path.with_suffix(".json"), certificate.as_json())
    show(f"{folds_table(competition, folds, is_good)}\n\n{certificate.describe(verbose)}")
    _warn_of_copies(certificate.as_json())
    say(f"podium: wrote {path} and {path.with_suffix('.json').name}" if has_changed else f"podium: {path} is unchanged")
    if certificate.broken:  # only a splitter of the project can cause it
        say(f"podium: warning: {path}: {'; '.join(certificate.broken)}; correct the splitter {split.strategy}")
    _say_what_blocks_training(competition, train[~is_good])
    return path


def has_bad_images(competition: Competition) -> bool:
    """Returns whether training of these folds would refuse images, because they cannot be read."""
    return bool(_read_certificate(folds_path(competition.slug, competition.root)).get("bad_images"))


def _say_what_blocks_training(competition: Competition, unreadable: pd.DataFrame) -> None:
    """Says which images training will refuse, and what leaves them out."""
    if not len(unreadable):
        return
    first = unreadable.iloc[0]
    say(
        f"podium: warning: training will refuse {plural(len(unreadable), 'image')} that cannot be read, the first"
        f" {competition.folder / first['image']} ({first['reason']}); replace them, or leave them out with"
        f" {command_to_drop_bad(competition.slug)}"
    )


def _lines_of(competition: Competition, ids: "pd.Series[str]", folds: Folds, groups: Ints) -> bytes:
    """Returns the content of folds.csv; only a rolling split needs the column trained_from."""
    targets_in_files = competition.train_in_files.set_index("id")["target"].loc[ids]
    names = ids.to_numpy()
    columns = [names, targets_in_files, folds.of_image.tolist(), names[groups]]
    header = ["id", "target", "fold", "group"]
    if folds.is_rolling:
        header, columns = [*header, "trained_from"], [*columns, folds.trained_from.tolist()]
    return csv_text([header, *zip(*columns, strict=True)]).encode()


def _possible_folds(competition: Competition, train: pd.DataFrame, is_good: Mask, folds: Folds) -> Ints:
    """Returns as many stratified folds, which show what these images and groups allow."""
    try:
        return stratified_folds(competition, train, is_good, fold_groups(competition, train), Split(folds.count))
    except PodiumError:  # there is nothing to compare with
        return folds.of_image


def _say_validation(competition: Competition, folds: Folds) -> None:
    """Says which images for validation are trained on; raises if all are."""
    if not competition.validation:
        return
    count = len(competition.validation & set(competition.train["id"]))
    kept = count - int(folds.validates(0).sum())
    reason = "they are duplicates of training images or share a group with them, cannot be read, or hold a class alone"
    if not folds.validates(0).any():
        raise PodiumError(f"no image for validation is left: {reason}; delete folds in {competition.card.path}")
    if kept:
        say(f"podium: {kept:,} of {count:,} images for validation are trained on: {reason}")


def verify_folds(competition: Competition, path: Path | None, split: Split, verbose: bool = False) -> None:
    """Prints what a folds file guarantees; raises if it leaks. Of `split`, only the column of times counts."""
    split.check()
    own_path = folds_path(competition.slug, competition.root)
    path = path or own_path
    folds = read_folds(competition, path)
    rows = load_audit(competition)
    train, is_good = readable_train_images(competition, rows)
    source = (_read_certificate(own_path).get("sites") or {}).get("source")
    sites = Sites.read(_sites_path(own_path), competition, source) if source else None
    possible = folds.of_image if sites else _possible_folds(competition, train, is_good, folds)
    certificate = certify(competition, rows, folds, path, possible, split.times(competition), sites)
    show(f"{folds_table(competition, folds, is_good)}\n\n{certificate.describe(verbose)}")
    _warn_of_copies(certificate.as_json())
    if path.resolve() == own_path.resolve():
        _keep_certificate(path, certificate)
    if certificate.broken:
        remedy = f"correct that file, or split again with: {command_for('folds', competition.slug)}"
        raise PodiumError(f"{path}: {'; '.join(certificate.broken)}; {remedy}")
    say(f"podium: {path} guarantees all of this")


def _keep_certificate(path: Path, certificate: Certificate) -> None:
    """Writes folds.json, also if the folds leak: it names the columns. The answer to another question is not kept."""
    kept = _read_certificate(path)
    is_other = any(kept.get(name) != value for name, value in certificate.question.items())
    if kept.get("folds_sha256") == certificate.folds_sha256 and is_other:
        settings = ", ".join(f"{name.replace('_', ' ')} {kept.get(name) or 'none'}" for name in certificate.question)
        say(f"podium: note: {path.with_suffix('.json')} stays: it certifies these folds for {settings}")
    else:
        write_json(path.with_suffix(".json"), certificate.as_json())


def _replace_folds(path: Path, content: bytes, in_use_by: Sequence[str]) -> bool:
    """Writes folds.csv and keeps different older folds beside it; returns False if nothing changes."""
    before = path.read_bytes() if path.exists() else None
    if before == content:
        return False
    if before is not None and in_use_by:
        raise PodiumError(
            f"{path} holds other folds, on which these runs were trained: {first_few(in_use_by)}; with new folds they"
            " can neither resume nor be blended with new runs; keep the folds, or replace them with --force"
        )
    if before is not None:
        kept = path.with_name(f"folds-{hashlib.sha256(before).hexdigest()[:8]}.csv")
        write_bytes(kept, before)
        say(f"podium: warning: the folds have changed; runs of the old ones resume if {kept.name} is {path.name} again")
    write_bytes(path, content)
    return True


# --- reading -----------------------------------------------------------------------------------------


def read_folds(competition: Competition, path: Path | None = None) -> Folds:
    """Returns the folds of the rows of `competition.train`, from folds.csv or another file.

    The file may also list images that the corrections drop.
    """
    own_path = folds_path(competition.slug, competition.root)
    path, split_again = path or own_path, command_for("folds", competition.slug)
    if not path.exists():
        remedy = f"split the training images with: {split_again}" if path == own_path else "correct the path"
        raise PodiumError(f"{path} does not exist; {remedy}")
    rows = read_table(path, f"make folds with: {split_again}")
    _refuse_bad_lines(path, rows, competition.train_in_files["id"])
    count = rows["fold"].astype(np.int64).max() + 1
    rows = rows.set_index("id").reindex(competition.train["id"])
    without_fold = rows.index[rows["fold"].isna()]
    if len(without_fold):
        raise PodiumError(
            f"{path}: {plural(len(without_fold), 'training image')} without a fold, '{without_fold[0]}' first; add"
            f" them, or split again with: {split_again}"
        )
    if "target" in rows.columns:
        _refuse_other_labels(path, rows["target"], competition)
    trained_from = rows["trained_from"].replace("", "0").astype(np.int64).to_numpy() if "trained_from" in rows else None
    folds = Folds.of(rows["fold"].astype(np.int64).to_numpy(), trained_from)
    if 0 < folds.count < count:
        problem = f"the corrections leave no image of fold {count - 1}"
        raise PodiumError(f"{path}: {problem}; split again with: {split_again}")
    if fault := folds.fault():
        raise PodiumError(f"{path}: {fault}")
    return folds


def _refuse_bad_lines(path: Path, rows: pd.DataFrame, train_ids: "pd.Series[str]") -> None:
    for column in ("id", "fold"):
        if column not in rows.columns:
            raise PodiumError(
                f"{path}: no column '{column}'; its columns are {', '.join(rows.columns)}; add or rename one"
            )
    ids, folds = rows["id"], rows["fold"]
    repeated = ids[ids.duplicated()]
    if len(repeated):
        raise PodiumError(
            f"{path}, line {repeated.index[0]}: id '{repeated.iloc[0]}' appears twice; delete one of its lines"
        )
    invalid = folds[~folds.str.fullmatch("-1|0|[1-9][0-9]{0,3}")]
    if len(invalid):
        raise PodiumError(
            f"{path}, line {invalid.index[0]}: fold '{invalid.iloc[0]}' is not -1, 0, 1, ...; correct that line"
        )
    first = rows.get("trained_from", pd.Series("", index=rows.index))
    invalid = first[~first.str.fullmatch("|0|[1-9][0-9]{0,3}")]
    if len(invalid):
        raise PodiumError(
            f"{path}, line {invalid.index[0]}: trained_from '{invalid.iloc[0]}' is not the number of the first fold"
            " that trains on the image (blank: all others do); correct that line"
        )
    unknown = ids[~ids.isin(train_ids)]
    if len(unknown):
        raise PodiumError(
            f"{path}, line {unknown.index[0]}: no training image has the id '{unknown.iloc[0]}'; correct or delete"
            " that line"
        )


def _refuse_other_labels(path: Path, labels: "pd.Series[str]", competition: Competition) -> None:
    """Raises unless the labels are those of the training images, in the same order, with or without corrections."""
    train = competition.train
    in_files = competition.train_in_files.set_index("id")["target"].loc[train["id"]]
    differs = (labels.to_numpy() != train["target"].to_numpy()) & (labels.to_numpy() != in_files.to_numpy())
    if differs.any():
        image_id, label, train_label = (column[differs].iloc[0] for column in (train["id"], labels, train["target"]))
        raise PodiumError(
            f"{path}: id '{image_id}' has the label '{label}' here, but '{train_label}' in the competition's files;"
            f" correct the label, or split again with: {command_for('folds', competition.slug)}"
        )


def read_groups(competition: Competition) -> dict[str, str]:
    """Returns the group of each training image that has one, from folds.csv or else from the card's group column."""
    train, path = competition.train, folds_path(competition.slug, competition.root)
    ids, groups = train["id"], pd.Series("", index=train.index) if competition.groups is None else competition.groups
    if path.exists():
        rows = read_table(path, f"make folds with: {command_for('folds', competition.slug)}")
        if {"id", "group"} <= set(rows.columns):
            ids, groups = rows["id"], rows["group"]
    return {image_id: group for image_id, group in zip(ids, groups, strict=True) if group}


def folds_table(competition: Competition, folds: Folds, is_good: Mask | None = None) -> str:
    """Returns a table: how many images each fold trains on and validates. `is_good` selects the readable images."""
    if is_good is None:
        is_good = np.ones(len(competition.train), bool)
    labels = labels_of(list(competition.train["target"]), competition.task).of_images(is_good)
    folds = folds.some(is_good)
    rows = []
    for fold in range(folds.count):
        is_trained, is_validated = folds.trains(fold), folds.validates(fold)
        classes = len(set(labels.label[is_validated[labels.image]].tolist()))
        rows.append([fold, f"{is_trained.sum():,}", f"{is_validated.sum():,}", classes])
    return table(["fold", "train", "validate", "classes"], rows)


# --- the certificate on disk -------------------------------------------------------------------------


COUNTS = {"test_copies": 0, "test_copies_validated": 0, "test_images": 0}


def certified_columns(slug: str, root: Path) -> tuple[str | None, str | None, float]:
    """Returns the column of groups, the column of times and the gap in the certificate of the competition's folds."""
    certificate = _read_certificate(folds_path(slug, root))
    group, time = (str(certificate[key]) if certificate.get(key) else None for key in ("group_column", "time_column"))
    return group, time, float(certificate.get("gap") or 0) if time else 0.0


def warn_unless_certified(competition: Competition) -> None:
    """Warns that folds leak, or that no certificate of these very folds and images exists; and of copies in it."""
    path = folds_path(competition.slug, competition.root)
    certificate = _read_certificate(path)
    command = f"{podium_command()} folds -c {competition.slug}"
    if (certificate.get("folds_sha256"), certificate.get("data_sha256")) != (sha256(path), competition.train_hash):
        problem = "duplicates of an image may be in different folds, because the folds are not verified"
        say(f"podium: warning: {path}: {problem}; run: {command} --verify")
        return
    _warn_of_copies(certificate)
    if not certificate.get("holds"):
        problem = "these folds leak, so the scores may be too high"
        say(f"podium: warning: {path}: {problem}; {command} --verify says where, and {command} makes others")


def _warn_of_copies(certificate: Mapping[str, Any]) -> None:
    """Warns of copies that are validated; an older certificate does not say which are."""
    copies = certificate.get("test_copies", 0)
    validated = certificate.get("test_copies_validated", copies)
    among = "training images" if validated == copies else "training images that are validated"
    if doubt := doubt_of_copies(validated, certificate.get("test_images", 0), among):
        say(f"podium: warning: {doubt}")


def _read_certificate(path: Path) -> dict[str, Any]:
    """Returns the certificate of the folds in `path`; an empty one if it cannot be read, or was edited wrongly."""
    try:
        certificate = dict(json.loads(path.with_suffix(".json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}
    is_valid = all(isinstance(certificate.get(key, default), type(default)) for key, default in COUNTS.items())
    is_valid = is_valid and isinstance(certificate.get("gap", 0) or 0, int | float)
    return certificate if is_valid else {}
