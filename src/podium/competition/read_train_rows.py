"""Reads the training rows: ids, labels and images, from a table, one folder per class or the names of files."""

import posixpath
from pathlib import Path, PurePosixPath

import pandas as pd

from podium.competition.answer_groups import check_answer_groups, find_answer_groups, list_images_of_groups
from podium.competition.boxes import refuse_boxes
from podium.competition.features import read_train_features
from podium.competition.find_files import find_class_folders, find_validation_folders
from podium.competition.find_tables import Sources, Table, forget_other_columns, refuse_blank_cells
from podium.competition.labels import check_labels, find_labels
from podium.competition.labels_in_names import read_labels_in_names
from podium.competition.long_tables import widen_training_table
from podium.competition.match_images import ImagePool
from podium.competition.positive_class import marked_label
from podium.errors import PodiumError
from podium.terminal import first_few, plural


def read_train_rows(sources: Sources) -> tuple[pd.DataFrame, tuple[str, str]]:
    """Returns the rows, and the names of the table's id column and label column.

    The columns of the rows are id, target, group (if the card names its column), answer (if images share one), image.
    """
    has_pattern = "label_pattern" in sources.card
    if has_pattern and sources.card.get("train_table"):
        path = sources.card.path
        raise PodiumError(f"{path}: train_table and label_pattern both give the labels; delete one of them")
    table = None if has_pattern else sources.read_table("train_table")
    if table is None:
        if "group_column" in sources.card and "group_column" not in sources.card.known:
            raise PodiumError(
                f"{sources.files.folder}: no table of training images, so there is no group_column; "
                + sources.card.advise('train_table = "NAME"')
            )
        columns = sources.card.get("id_column", "id"), sources.card.get("target_column", "label")
        return _read_rows_without_table(sources), columns
    table = list_images_of_groups(sources, widen_training_table(sources, table))
    refuse_boxes(sources, table)
    forget_other_columns(sources, table)
    pool = sources.image_pool("train")
    sources.answer_groups = groups = find_answer_groups(sources, table)
    id_column = _find_id_column(sources, table, pool)
    label_column, labels = find_labels(sources, table, id_column)
    rows = pd.DataFrame({"id": table.rows[id_column], "target": labels})
    refuse_blank_cells(rows["id"], table.path, "id")
    check_labels(sources, table.path, rows["target"])
    sources.marked = marked_label(labels, table.rows.drop(columns=[id_column, label_column], errors="ignore"))
    if "group_column" in sources.card:
        rows["group"] = table.rows[sources.card_column("group_column", table)].str.strip()
    if groups:
        rows["answer"] = groups.train_ids
        check_answer_groups(table.path, rows, groups.id_column)
    rows = _drop_repeated_rows(sources, table.path, rows)
    names = sources.find_image_names(table, table.rows.loc[rows.index, id_column], pool)
    rows["image"] = pool.match(names, table.path)
    if sources.keeps_columns:
        sources.train_columns = table.rows.loc[rows.index].set_axis(rows["id"].to_numpy())
    sources.train_features = read_train_features(sources, table, rows)
    sources.validation = frozenset(rows["id"][rows.index.isin(sources.validation_lines)])
    return rows.reset_index(drop=True), (id_column, label_column)


def _find_id_column(sources: Sources, table: Table, pool: ImagePool) -> str:
    if "id_column" in sources.card:
        return sources.card_column("id_column", table)
    if sources.sample and sources.sample.rows.columns[0] in table.rows.columns and not sources.answer_groups:
        return str(sources.sample.rows.columns[0])
    column = pool.find_column(table.rows)
    if column is None:
        settings = 'id_column = "NAME"', "another train_table", 'train_table = "" (then the folders are the classes)'
        raise PodiumError(
            f"{table.path}: no column names images below {pool.path}; its columns are {first_few(table.rows.columns)}; "
            + sources.card.advise(*settings)
        )
    return column


def _drop_repeated_rows(sources: Sources, path: Path, rows: pd.DataFrame) -> pd.DataFrame:
    unique_rows = rows.drop_duplicates()
    conflicts = unique_rows[unique_rows["id"].duplicated(keep=False)]
    if len(conflicts):
        name = conflicts["id"].iloc[0]
        first, second = conflicts.index[conflicts["id"] == name][:2]
        difference = "labels" if conflicts["target"][first] != conflicts["target"][second] else "groups"
        remedy = "delete the wrong line"
        if len(conflicts) > len(unique_rows) / 2:  # no mistakes: the ids are a part of the images' names
            remedy = "if ids name an image together with another column, add a column that names the files"
        raise PodiumError(f"{path}, lines {first} and {second}: id '{name}' has two {difference}; {remedy}")
    extra_count = len(rows) - len(unique_rows)
    if extra_count:
        sources.notes.append(
            f"{plural(extra_count, 'row')} of {path.name} left out: they repeat an id with the same label"
        )
    return unique_rows


def _read_rows_without_table(sources: Sources) -> pd.DataFrame:
    """Returns the rows; the labels are the names of folders or parts of the names of files."""
    rows = None if "label_pattern" in sources.card else _read_class_folders(sources)
    rows = read_labels_in_names(sources) if rows is None else rows
    if rows is None:
        raise PodiumError(
            f"{sources.files.folder}: there is neither a table of training labels (train.csv) nor a folder for each of"
            " several classes (train/<class>/) nor a label in the name of each image (train/<class>.1.jpg); "
            + sources.card.advise('train_table = "NAME"', 'train_images = "FOLDER"', r"label_pattern = '(\w+)\.\d+'")
        )
    return rows


def _read_class_folders(sources: Sources) -> pd.DataFrame | None:
    files, card = sources.files, sources.card
    parent, images = find_class_folders(files, card, sources.image_pool("train").folder)
    if not images:
        return None
    val_parent, val_images = "", list[str]()
    if "train_images" not in card:
        val_parent, val_images = find_validation_folders(files, card, parent)
    if val_images:
        advice = card.advise(f'train_images = "{parent}"')
        sources.notes.append(
            f"{plural(len(val_images), 'image')} in {val_parent}/ join the {len(images):,} training images in"
            f" {parent}/; to leave them out, {advice}"
        )
        images, parent = [*images, *val_images], posixpath.dirname(parent)
    ids = [image.removeprefix(parent).removeprefix("/") for image in images]
    labels = [PurePosixPath(image).parent.name for image in images]
    return pd.DataFrame({"id": ids, "target": labels, "image": images})
