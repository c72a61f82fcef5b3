"""What a competition's files say: ids, labels, classes, image paths, the metric, the submission's shape.

    podium data -c SLUG          prints what was understood

Reads data/raw/<slug>/ as Kaggle delivers it, and the card data/competitions/<slug>.toml, which may
override any of it. Writes nothing.
"""

import hashlib
import os
import tomllib
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd

from podium import PodiumError
from podium.files import Files, class_folders, common_folder, find_files, role_of
from podium.metrics import METRICS
from podium.tables import newline_of, read_table

CARD_KEYS = {
    "title": str,
    "url": str,
    "metric": str,
    "wants": str,  # "labels" or "probs"
    "train_table": str,
    "train_images": str,
    "test_images": str,
    "sample_submission": str,
    "id_column": str,
    "target_column": str,
    "recipe": dict,  # this competition's own defaults for the knobs of a run
}
TARGET_NAMES = ("target", "label", "class", "category", "labels", "classes", "label_id", "class_id", "category_id")


@dataclass(frozen=True)
class Shape:
    """The submission that Kaggle expects, to the letter."""

    columns: tuple[str, ...]  # the first holds the ids
    wants: str  # "labels": one column; "probs": a column per class, or one for the second of two classes
    newline: str
    source: str  # the file that decided this, in words


@dataclass(frozen=True)
class Competition:
    slug: str
    title: str
    folder: Path
    train: pd.DataFrame  # id, target (text), image (relative to folder)
    test: pd.DataFrame  # id, image; in the submission's order
    classes: tuple[str, ...]
    metric: str
    shape: Shape
    recipe: dict[str, Any]
    notes: tuple[str, ...]

    @cached_property
    def train_hash(self) -> str:
        return self._hash(self.train)

    @cached_property
    def test_hash(self) -> str:
        return self._hash(self.test)

    def _hash(self, rows: pd.DataFrame) -> str:
        """Of ids, labels, file names and sizes: changes whenever the data does, in a second for a million images."""
        digest = hashlib.sha256("\0".join(self.classes).encode())
        for row in rows.itertuples(index=False):
            size = os.stat(self.folder / row.image).st_size
            digest.update("\0".join((*map(str, row), str(size), "\n")).encode())
        return digest.hexdigest()

    def describe(self) -> str:
        counts = Counter(self.train["target"])
        largest, smallest = counts.most_common(1)[0], counts.most_common()[-1]
        number = "s" if len(self.shape.columns) > 2 else ""
        wants = {"labels": "one label a row", "probs": f"the probability{'' if not number else ' of each class'} a row"}
        lines = [
            f"{self.title}  ({self.folder})",
            f"  train    {len(self.train):,} images in {common_folder(list(self.train['image']))}/",
            f"  test     {len(self.test):,} images in {common_folder(list(self.test['image']))}/",
            f"  classes  {len(self.classes)}, from {largest[1]:,} images ('{largest[0]}')"
            f" down to {smallest[1]:,} ('{smallest[0]}')",
            f"  submit   {_few(self.shape.columns)}: {wants[self.shape.wants]}, as in {self.shape.source}",
            f"  metric   {self.metric}",
            *(f"  note     {note}" for note in self.notes),
        ]
        return "\n".join(lines)


def raw_folder(slug: str, root: Path) -> Path:
    """Where the competition's files lie; on Kaggle's own machines they are mounted elsewhere."""
    here = root / "data" / "raw" / slug
    if "KAGGLE_KERNEL_RUN_TYPE" in os.environ and not here.exists():
        for mounted in (Path("/kaggle/input", slug), Path("/kaggle/input/competitions", slug)):
            if mounted.exists():
                return mounted
    return here


def read_card(slug: str, root: Path) -> dict[str, Any]:
    """The competition's card, checked; empty where there is none."""
    from difflib import get_close_matches

    path = root / "data" / "competitions" / f"{slug}.toml"
    if not path.exists():
        return {}
    try:
        card = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PodiumError(f"{path}: {error}") from None
    for key, value in card.items():
        if key not in CARD_KEYS:
            near = get_close_matches(key, CARD_KEYS, 1)
            raise PodiumError(f"{path}: no setting '{key}'; " + (f"did you mean {near[0]}?" if near else _all_keys()))
        if not isinstance(value, CARD_KEYS[key]):
            raise PodiumError(f"{path}: {key} must be {'a table' if key == 'recipe' else 'text'}, not {value!r}")
    _one_of(card, "metric", tuple(METRICS), path)
    _one_of(card, "wants", ("labels", "probs"), path)
    return card


def load(slug: str, root: Path) -> Competition:
    """Everything above, from the files; an error says which file, what about it and how to go on."""
    folder = raw_folder(slug, root)
    card = read_card(slug, root)
    if not folder.is_dir():
        raise PodiumError(f"{folder} does not exist; get the competition's files with: podium data -c {slug}")
    files = find_files(folder)
    if not files.images:
        raise PodiumError(f"{folder}: no images below it; delete it and run: podium data -c {slug}")
    notes: list[str] = []

    sample_name = _sample_name(files, card)
    sample = read_table(folder / sample_name) if sample_name else None
    train_name = _train_name(files, card, sample_name)
    if train_name:
        train, columns = _train_from_table(files, card, train_name, sample, notes)
    else:
        train, columns = _train_from_folders(files, card)
    test = _test(files, card, sample, sample_name, train)

    seen = sorted(set(train["target"]), key=_natural(set(train["target"])))
    if len(seen) < 2:
        raise PodiumError(f"{folder}: every training image has the label '{seen[0]}'; there is nothing to learn")
    shape, classes = _shape(folder, card, sample, sample_name, columns, seen)
    unused = len(files.images) - len(set(train["image"]) | set(test["image"]))
    if unused:
        notes.append(f"{unused:,} images belong to no row")
    default = "accuracy" if shape.wants == "labels" else "log_loss"
    return Competition(
        slug=slug,
        title=card.get("title", slug),
        folder=folder,
        train=train,
        test=test,
        classes=tuple(classes),
        metric=card.get("metric", default),
        shape=shape,
        recipe=card.get("recipe", {}),
        notes=tuple(notes),
    )


# --- which file is which ---------------------------------------------------------------------------


def _sample_name(files: Files, card: dict[str, Any]) -> str | None:
    if "sample_submission" in card:
        return _given(files, card["sample_submission"], "sample_submission")
    found = [
        name
        for name in files.tables
        if _plain(name).startswith(("samplesub", "submission")) or _plain(name) == "sample"
    ]
    return _only(found, "sample_submission")


def _train_name(files: Files, card: dict[str, Any], sample_name: str | None) -> str | None:
    if "train_table" in card:
        return _given(files, card["train_table"], "train_table")
    others = [name for name in files.tables if name != sample_name]
    for fits in (
        lambda plain: plain in ("train", "trainlabels", "trainlabel"),
        lambda plain: plain.startswith("train"),
        lambda plain: "train" in plain,
        lambda plain: plain in ("labels", "label"),
    ):
        found = [name for name in others if fits(_plain(name))]
        if found:
            return _only(found, "train_table")
    return None


def _given(files: Files, name: str, key: str) -> str:
    if name not in files.tables:
        raise PodiumError(
            f'the card\'s {key} = "{name}" is not among the tables of {files.folder}: {_few(files.tables)}'
        )
    return name


def _only(found: list[str], key: str) -> str | None:
    found.sort(key=lambda name: (name.count("/"), name))
    if len(found) > 1 and found[0].count("/") == found[1].count("/"):
        raise PodiumError(f'{found[0]} and {found[1]}: which one? Write {key} = "NAME" in the competition\'s card')
    return found[0] if found else None


def _plain(name: str) -> str:
    return "".join(c for c in PurePosixPath(name).stem.lower() if c.isalnum())


# --- the training images -----------------------------------------------------------------------------


def _train_from_table(
    files: Files, card: dict[str, Any], name: str, sample: pd.DataFrame | None, notes: list[str]
) -> tuple[pd.DataFrame, tuple[str, str]]:
    """The rows, and what the table calls its ids and its labels."""
    path = files.folder / name
    table = read_table(path)
    within = _folder(files, card, "train_images")
    id_column = _id_column(files, card, path, table, sample, within)
    target_column, targets = _targets(card, path, table, id_column, sample)
    rows = pd.DataFrame({"id": table[id_column], "target": targets})
    for column, text in (("id", "id"), ("target", "label")):
        blank = rows.index[rows[column].str.strip() == ""]
        if len(blank):
            raise PodiumError(f"{path}, line {blank[0]}: no {text}; fill it in or delete the line")
    rows = _without_repeats(rows, path, notes)
    located = files.locate(list(rows["id"]), "train", within)
    missing = [name for name, image in zip(rows["id"], located, strict=True) if image is None]
    if missing:
        raise PodiumError(_no_files(missing, len(rows), path, files.folder, "train_images"))
    rows["image"] = located
    twice = rows[rows["image"].duplicated(keep=False)]
    if len(twice):
        raise PodiumError(f"{path}: the ids '{twice['id'].iloc[0]}' and '{twice['id'].iloc[1]}' mean the same image")
    return rows.reset_index(drop=True), (id_column, target_column)


def _id_column(
    files: Files, card: dict[str, Any], path: Path, table: pd.DataFrame, sample: pd.DataFrame | None, within: str
) -> str:
    if "id_column" in card:
        return _column(card["id_column"], table, path, "id_column")
    if sample is not None and sample.columns[0] in table.columns:
        return str(sample.columns[0])

    def hits(column: str) -> int:
        return sum(bool(files.candidates(cell, "train", within)) for cell in table[column].head(200))

    best = max(table.columns, key=hits)
    if not hits(best):
        raise PodiumError(f"{path}: no column names images below {files.folder}; its columns are {_few(table.columns)}")
    return str(best)


def _targets(
    card: dict[str, Any], path: Path, table: pd.DataFrame, id_column: str, sample: pd.DataFrame | None
) -> tuple[str, pd.Series]:
    """The label column's name and content; a column of 0 and 1 for every class becomes one of labels."""
    if "target_column" in card:
        name = _column(card["target_column"], table, path, "target_column")
        return name, table[name]
    rest = [column for column in table.columns if column != id_column]
    wide = list(sample.columns[1:]) if sample is not None else []
    if len(wide) > 1 and set(wide) <= set(rest):
        marks = table[wide].isin(["1", "1.0", "True"])
        wrong = marks.index[marks.sum(axis=1) != 1]
        if len(wrong):
            raise PodiumError(
                f"{path}, line {wrong[0]}: {int(marks.loc[wrong[0]].sum())} classes are marked;"
                " Podium trains on one label for each image"
            )
        return "label", marks.idxmax(axis=1)
    named = [name for name in (*wide, *TARGET_NAMES) if name in rest]
    among = [name for name in rest if len(wide) > 1 and set(table[name]) <= set(wide)]
    for found in (rest if len(rest) == 1 else [], among, named):
        if found:
            return found[0], table[found[0]]
    raise PodiumError(f'{path}: which of {_few(rest)} holds the label? Write target_column = "NAME" in the card')


def _column(name: str, table: pd.DataFrame, path: Path, key: str) -> str:
    if name not in table.columns:
        raise PodiumError(f'the card\'s {key} = "{name}" is not a column of {path}: {_few(table.columns)}')
    return name


def _without_repeats(rows: pd.DataFrame, path: Path, notes: list[str]) -> pd.DataFrame:
    repeated = rows[rows["id"].duplicated(keep=False)]
    if repeated.empty:
        return rows
    labels = repeated.groupby("id")["target"].nunique()
    if (labels > 1).any():
        name = labels.index[labels > 1][0]
        lines = list(repeated.index[repeated["id"] == name][:2])
        raise PodiumError(f"{path}, lines {lines[0]} and {lines[1]}: id '{name}' has two labels; keep the right one")
    extra = int(rows["id"].duplicated().sum())
    notes.append(f"{extra:,} rows of {path.name} repeat an id with the same label and were left out")
    return rows.drop_duplicates("id")


def _train_from_folders(files: Files, card: dict[str, Any]) -> tuple[pd.DataFrame, tuple[str, str]]:
    within = _folder(files, card, "train_images")
    base, images = class_folders(files, within)
    if not images:
        raise PodiumError(
            f"{files.folder}: neither a table of training labels (train.csv) nor a folder per class (train/<class>/);"
            " name the table or the folder in the competition's card: train_table, train_images"
        )
    inside = [image[len(base) + 1 :] if base != "." else image for image in images]
    targets = [PurePosixPath(image).parent.name for image in images]
    columns = card.get("id_column", "id"), card.get("target_column", "label")
    return pd.DataFrame({"id": inside, "target": targets, "image": images}), columns


# --- the test images and the submission --------------------------------------------------------------


def _test(
    files: Files, card: dict[str, Any], sample: pd.DataFrame | None, sample_name: str | None, train: pd.DataFrame
) -> pd.DataFrame:
    within = _folder(files, card, "test_images")
    table, name = sample, sample_name
    if table is None:
        name = _only([n for n in files.tables if _plain(n) in ("test", "testids")], "sample_submission")
        table = read_table(files.folder / name) if name else None
    if table is None:
        return _test_from_files(files, within, train)
    path = files.folder / str(name)
    column = str(table.columns[0])
    if sample is None and "id_column" in card:
        column = _column(card["id_column"], table, path, "id_column")
    ids = table[column]
    blank = ids.index[ids.str.strip() == ""]
    if len(blank):
        raise PodiumError(f"{path}, line {blank[0]}: no id")
    twice = ids[ids.duplicated()]
    if len(twice):
        raise PodiumError(f"{path}, line {twice.index[0]}: id '{twice.iloc[0]}' stands there twice")
    located = files.locate(list(ids), "test", within)
    missing = [name for name, image in zip(ids, located, strict=True) if image is None]
    if missing:
        raise PodiumError(_no_files(missing, len(ids), path, files.folder, "test_images"))
    return pd.DataFrame({"id": ids.to_numpy(), "image": located})


def _test_from_files(files: Files, within: str, train: pd.DataFrame) -> pd.DataFrame:
    """Without any table of test ids the files are the rows, named as the training ids are."""
    if within:
        images = [image for image in files.images if image.startswith(within.rstrip("/") + "/")]
    else:
        images = [image for image in files.images if role_of(image) == "test"]
    if not images:
        raise PodiumError(
            f"{files.folder}: no sample submission, no test.csv and no test folder;"
            ' write test_images = "FOLDER" in the competition\'s card'
        )
    bare = not PurePosixPath(train["id"].iloc[0]).suffix
    ids = [PurePosixPath(image).stem if bare else PurePosixPath(image).name for image in images]
    twice = [name for name, count in Counter(ids).items() if count > 1]
    if twice:
        raise PodiumError(f"{files.folder}: several test images are called '{twice[0]}'")
    return pd.DataFrame({"id": ids, "image": images})


def _shape(
    folder: Path,
    card: dict[str, Any],
    sample: pd.DataFrame | None,
    sample_name: str | None,
    train_columns: tuple[str, str],
    seen: list[str],
) -> tuple[Shape, list[str]]:
    """The submission's columns and what they hold, and the classes in the order of the model's outputs."""
    if sample is None:
        id_column, target_column = train_columns
        wants = card.get("wants", "labels")
        columns = [id_column, target_column] if wants == "labels" or len(seen) == 2 else [id_column, *seen]
        return Shape(tuple(columns), wants, "\n", "no sample submission"), seen
    columns = [str(column) for column in sample.columns]
    newline = newline_of(folder / str(sample_name))
    if len(columns) == 1:
        raise PodiumError(f"{folder / str(sample_name)}: one column only; a submission has an id and a prediction")
    if len(columns) > 2:
        classes = _classes_of_columns(columns[1:], seen, folder / str(sample_name))
        if card.get("wants") == "labels":
            raise PodiumError(f"the card wants labels, but {sample_name} has {len(columns) - 1} columns to fill")
        return Shape(tuple(columns), "probs", newline, str(sample_name)), classes
    wants = card.get("wants") or ("probs" if len(seen) == 2 and _fractions(sample[columns[1]], seen) else "labels")
    if wants == "probs" and len(seen) != 2:
        raise PodiumError(f"the card wants probabilities, but {sample_name} has one column for {len(seen)} classes")
    return Shape(tuple(columns), wants, newline, str(sample_name)), seen


def _classes_of_columns(columns: list[str], seen: list[str], path: Path) -> list[str]:
    """Each column's class: its name, or its name without what all of them begin with (class_0, class_1, ...)."""
    for prefix in ("", *(column.removesuffix(seen[0]) for column in columns if column.endswith(seen[0]))):
        classes = [column.removeprefix(prefix) for column in columns]
        if set(seen) <= set(classes):
            return classes
    unknown = [label for label in seen if label not in columns]
    raise PodiumError(f"{path}: no column for the class '{unknown[0]}'; its columns are {_few(columns)}")


def _fractions(cells: pd.Series, seen: list[str]) -> bool:
    """Placeholders such as 0.5 or 0.0 that are no label ask for a probability."""
    return all(cell not in seen and cell.replace(".", "", 1).isdigit() and "." in cell for cell in set(cells))


# --- small things -------------------------------------------------------------------------------------


def _folder(files: Files, card: dict[str, Any], key: str) -> str:
    name = str(card.get(key, "")).strip("/")
    if name and not any(image.startswith(name + "/") for image in files.images):
        raise PodiumError(f'the card\'s {key} = "{name}" holds no images below {files.folder}')
    return name


def _natural(labels: set[str]) -> Any:
    """Numbers by value where all labels are plain numbers, else text by letters."""
    return int if all(label.isdecimal() and str(int(label)) == label for label in labels) else str


def _no_files(missing: list[str], rows: int, table: Path, folder: Path, key: str) -> str:
    return (
        f"{table}: {len(missing):,} of {rows:,} rows have no image below {folder} (ids {_few(missing)});"
        f' download again, delete those rows, or write {key} = "FOLDER" in the competition\'s card'
    )


def _few(names: Any, most: int = 5) -> str:
    names = [str(name) for name in names]
    return ", ".join(names[:most]) + (f", ... ({len(names)} in all)" if len(names) > most else "")


def _all_keys() -> str:
    return f"there are {', '.join(CARD_KEYS)}"


def _one_of(card: dict[str, Any], key: str, allowed: tuple[str, ...], path: Path) -> None:
    if key in card and card[key] not in allowed:
        raise PodiumError(f"{path}: {key} must be one of {', '.join(allowed)}, not '{card[key]}'")
