"""Reads the training and test rows by a layout: ids, targets, groups and images. Guesses nothing.

Every refusal of a row or a cell, with its file and line, comes from here or from what this calls.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from podium.basics.errors import MissingFiles, PodiumError
from podium.basics.terminal import plural
from podium.competition.build.fold_settings import choose_validation, groups_of_test, take_groups
from podium.competition.build.positive_class import marked_label
from podium.competition.build.read_targets import check_labels, read_targets
from podium.competition.containers.image_place import folder_of_slices
from podium.competition.decide.answer_groups import Answers, check_answer_groups, ids_of_answers, read_test_images
from podium.competition.decide.features import Features, read_features
from podium.competition.decide.labels_in_names import read_labels_in_names
from podium.competition.decide.layout import ClassFolders, ImageNames, Layout
from podium.competition.decide.number_columns import notes_on_far_numbers
from podium.competition.decide.read_with_extension import ReaderRows
from podium.competition.decide.tables import Tables
from podium.competition.find.facts import Facts
from podium.competition.find.image_names import is_image_name, strip_suffix
from podium.competition.find.table import Table, refuse_blank_cells
from podium.tasks.task import NUMBERS

if TYPE_CHECKING:
    from podium.competition.extras.further_targets import FurtherTargets


@dataclass(frozen=True, eq=False)
class Rows:
    """What the files say of the images, in the order of the training table and of the submission."""

    train: pd.DataFrame  # id, target, image
    test: pd.DataFrame  # id, image
    groups: "pd.Series[str] | None"
    test_groups: "pd.Series[str] | None"
    answers: Answers | None
    features: Features | None
    further: "FurtherTargets | None"
    validation: frozenset[str]  # ids of the only fold, if the card wants it
    marked: str | None  # the label of two that another column of the training table marks with 1
    votes: pd.DataFrame | None  # the share of each class in the votes of an image, by its id; None: not learned
    columns: pd.DataFrame | None  # of the training table, as text, by the ids of the images; None: not kept
    notes: tuple[str, ...]


class TrainRows(NamedTuple):
    """The training images. The index of `rows` holds lines of the training table, if there is one."""

    rows: pd.DataFrame  # id, target, group (if a column or a reader gives it), answer (if images share one), image
    validation: frozenset[str] = frozenset()  # ids of those that a table lists for validation
    marked: str | None = None
    votes: pd.DataFrame | None = None
    columns: pd.DataFrame = pd.DataFrame()
    notes: tuple[str, ...] = ()


def read_rows(tables: Tables, layout: Layout, reader: ReaderRows | None, with_columns: bool) -> Rows:
    """Returns the rows, of files or of the project's own reader; keeps the training table `with_columns`."""
    read = _read_train(tables, layout, reader, with_columns)
    train, labels = read.rows, set(read.rows["target"])
    if len(labels) < 2:
        raise PodiumError(
            f"{tables.facts.files.folder}: every training image has the label '{min(labels)}', so there is nothing to"
            " learn; if another column holds the labels, " + layout.card.advise('target_column = "NAME"')
        )
    of_reader = reader and reader.test
    test = _read_test(tables, layout, train.iloc[0]) if of_reader is None else of_reader
    _refuse_missing_folder(tables.facts, train, test)
    answers = _take_answers(layout, tables, train, test)
    groups, on_groups = take_groups(layout, tables.facts, train, answers)
    features, on_features = read_features(tables, layout, train, test)
    validation, on_validation = choose_validation(layout, train, read.validation)
    return Rows(
        train=train.reset_index(drop=True),
        test=test,
        groups=None if groups is None else groups.reset_index(drop=True),
        test_groups=None if groups is None else groups_of_test(layout, tables, test),
        answers=answers,
        features=features,
        further=_read_further(tables, layout, train),
        validation=validation,
        marked=read.marked,
        votes=read.votes,
        columns=read.columns if with_columns else None,
        notes=(*read.notes, *on_groups, *on_features, *on_validation),
    )


def _read_further(tables: Tables, layout: Layout, train: pd.DataFrame) -> "FurtherTargets | None":
    """Returns the further columns that are learned; the index of `train` holds the lines of the training table."""
    if not layout.train.also or tables.train is None:
        return None
    from podium.competition.extras.further_targets import FurtherTargets

    path, targets = layout.card.path, layout.train.targets.columns
    for name in layout.train.also:
        if name in (layout.train.id_column, *targets):
            what = "the answers" if name in targets else "the ids of the images"
            raise PodiumError(f"{path}: also names '{name}', which holds {what}; leave it out")
    cells = tables.train.rows.loc[train.index, list(layout.train.also)].set_axis(train["id"].to_numpy())
    further = FurtherTargets(cells.apply(lambda column: column.str.strip()))
    further.check(str(path))
    return further


def _read_train(tables: Tables, layout: Layout, reader: ReaderRows | None, with_columns: bool) -> TrainRows:
    train, facts = layout.train, tables.facts
    if reader:
        return TrainRows(reader.train, columns=reader.columns)
    if train.folders:
        return TrainRows(_rows_of_folders(train.folders))
    if train.label_pattern:
        return TrainRows(read_labels_in_names(facts, train.label_pattern))
    table = tables.train
    assert table is not None, "the layout says that a table holds the labels"
    return _rows_of_table(tables, layout, table, with_columns)


def _rows_of_table(tables: Tables, layout: Layout, table: Table, with_columns: bool) -> TrainRows:
    train, path = layout.train, table.path
    id_column, targets = train.id_column, train.targets
    refuse_blank_cells(table.rows[id_column], path, "id")
    labels = read_targets(layout.card, table, targets)
    rows = pd.DataFrame({"id": table.rows[id_column], "target": labels})
    notes = check_labels(path, labels, targets)
    notes += notes_on_far_numbers(table, targets.columns) if targets.task is NUMBERS else []
    others = table.rows.drop(columns=[id_column, targets.name], errors="ignore")
    if train.group_column:
        rows["group"] = table.rows[train.group_column].str.strip()
    if train.answers:
        rows["answer"] = ids_of_answers(table.rows, train.answers.train_columns)
        check_answer_groups(path, rows, train.answers.id_column)
    rows, note = _without_repeated_rows(path, rows)
    names = _names_of_images(table, table.rows.loc[rows.index, id_column], train.images)
    rows["image"] = tables.facts.images("train").match(names, path)
    columns = table.rows.loc[rows.index].set_axis(rows["id"].to_numpy()) if with_columns else pd.DataFrame()
    validation = frozenset(rows["id"][rows.index.isin(table.validation)])
    votes = None if table.votes is None else table.votes.loc[rows.index].set_axis(rows["id"].to_numpy())
    if votes is not None and train.answers:
        remedy = layout.card.advise('metric = "log_loss"')
        raise PodiumError(
            f"{path}: shares of votes cannot be learned where an answer is for several images; to learn the label with"
            f" the most votes, {remedy}"
        )
    notes = [*notes, *filter(None, [note])]
    return TrainRows(rows, validation, marked_label(labels, others), votes, columns, tuple(notes))


def _without_repeated_rows(path: Path, rows: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Returns each row once, and a note if there were more; refuses ids with two labels or groups."""
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
    if not extra_count:
        return unique_rows, ""
    rows_left_out = f"{plural(extra_count, 'row')} of {path.name} left out"
    return unique_rows, f"{rows_left_out}: they repeat an id with the same label"


def _rows_of_folders(folders: ClassFolders) -> pd.DataFrame:
    images = list(folders.images)
    ids = [image.removeprefix(folders.parent).removeprefix("/") for image in images]
    labels = [PurePosixPath(image).parent.name for image in images]
    rows = pd.DataFrame({"id": ids, "target": labels, "image": images})
    if folders.are_versions:
        rows.insert(2, "group", [PurePosixPath(image).stem for image in images])
    return rows


def _read_test(tables: Tables, layout: Layout, of_train: "pd.Series[str]") -> pd.DataFrame:
    """Returns the test rows: id, image, answer (if images share one), in the order of the submission.

    Without a table or a folder of test images there are none: the competition can be trained on, but not submitted to.
    """
    test, pool, sample = layout.test, tables.facts.images("test"), tables.sample
    table = sample if test.ids_in == "sample" else tables.test
    if test.ids_in == "folder" or table is None:
        return _rows_of_test_folder(tables.facts, of_train)
    if layout.train.answers and tables.test:
        return read_test_images(table, tables.test, layout.train.answers, pool)
    ids = table.rows[test.id_column]
    refuse_blank_cells(ids, table.path, "id")
    repeated = ids[ids.duplicated()]
    if len(repeated) and (test.images.by_row or not _have_several_rows(tables, table, test.id_column)):
        raise PodiumError(
            f"{table.path}, line {repeated.index[0]}: id '{repeated.iloc[0]}' appears twice; download again"
        )
    ids = ids.drop_duplicates()
    listing = tables.test if test.images.column else None
    names = _names_of_images(listing, ids, test.images)
    unique = names.drop_duplicates() if test.images.column else names  # recordings may share a picture
    image_of = dict(zip(unique, pool.match(unique, table.path), strict=True))
    return pd.DataFrame({"id": ids.to_numpy(), "image": names.map(image_of).to_numpy()})


def _have_several_rows(tables: Tables, sample: Table, id_column: str) -> bool:
    """Returns whether ids stand on several rows of the sample submission for a reason, as parts of one recording.

    Then the test table has them as often, or those of training repeat as well.
    """
    if sample is not tables.sample:
        return False
    if tables.test and id_column in tables.test.rows:
        counts, others = (every.rows[id_column].value_counts() for every in (sample, tables.test))
        if counts.sort_index().equals(others.sort_index()):
            return True
    files = tables.train.files if tables.train else ()
    columns = (tables.facts.rows_of(name) for name in files if name.lower().endswith(".csv"))
    return any(id_column in rows and bool(rows[id_column].duplicated().any()) for rows in columns)


def _rows_of_test_folder(facts: Facts, of_train: "pd.Series[str]") -> pd.DataFrame:
    """Returns a row for each test image, with ids like those of training: with or without the extension, or folders."""
    pool = facts.images("test")
    images = sorted(pool.images if pool.folder else facts.files.images_with_role("test"))
    if not images:
        return pd.DataFrame({"id": [], "image": []}, dtype=object)
    if folder := folder_of_slices(of_train["image"]):
        depth = pool.folder.count("/") + 1 if pool.folder else folder.count("/")
        names = pd.Series(sorted({image.split("/")[depth] for image in images if image.count("/") > depth}), name="id")
        return pd.DataFrame({"id": names, "image": pool.match(names, facts.files.folder)})
    has_extension = is_image_name(of_train["id"])
    ids = [name if has_extension else strip_suffix(name) for name in (PurePosixPath(image).name for image in images)]
    name, count = Counter(ids).most_common(1)[0]
    if count > 1:
        advice = facts.card.advise('test_images = "FOLDER"')
        raise PodiumError(f"{facts.files.folder}: {count} test images are called '{name}'; {advice}")
    return pd.DataFrame({"id": ids, "image": images})


def _names_of_images(listing: Table | None, ids: "pd.Series[str]", images: ImageNames) -> "pd.Series[str]":
    """Returns what names the image of each id: the id itself, or the cell of a column of the listing."""
    if not images.column or listing is None:
        return ids
    if images.by_row:
        return pd.Series(listing.rows[images.column].to_numpy(), index=ids.index, name=images.column)
    named = listing.rows[[ids.name, images.column]].drop_duplicates()
    repeated = named[named[ids.name].duplicated()]
    if len(repeated):
        raise PodiumError(
            f"{listing.path}, line {repeated.index[0]}: id '{repeated[ids.name].iloc[0]}' has a second image;"
            " delete one of its lines"
        )
    return ids.map(named.set_index(ids.name)[images.column]).fillna(ids)


def _refuse_missing_folder(facts: Facts, train: pd.DataFrame, test: pd.DataFrame) -> None:
    """Raises if a folder named after one role serves both, unless the card says so: the other may be missing."""
    files, card = facts.files, facts.card
    folder = files.only_folder_with_role()
    in_both = set(train["image"]) & set(test["image"])
    if in_both and folder and not {"train_images", "test_images"} & set(card):
        raise MissingFiles(
            f"{files.folder}: {folder} is the only folder of images, and {len(in_both):,} of them would be in both the"
            " training and the test rows; download again, a folder may be missing; if this folder serves both, "
            + card.advise(f'train_images = "{folder}" and test_images = "{folder}"')
        )


def _take_answers(layout: Layout, tables: Tables, train: pd.DataFrame, test: pd.DataFrame) -> Answers | None:
    """Takes the columns of answers out of the rows; None if a row of the submission is for one image."""
    if layout.train.answers is None or tables.sample is None:
        return None
    ids = tables.sample.rows.iloc[:, 0].tolist()
    of_train = dict(zip(train["id"], train.pop("answer"), strict=True))
    return Answers(layout.train.answers.id_column, of_train, test.pop("answer").tolist(), ids)
