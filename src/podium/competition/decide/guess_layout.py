"""Guesses the layout of a competition from its card and its files. Only this and what it calls guess.

What the card says is not guessed. What Podium knows of the competition and does not fit this copy is dropped with a
note; what the user wrote and does not fit is an error.
"""

import posixpath
import re
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from podium.basics.errors import MissingFiles, PodiumError
from podium.basics.terminal import first_few, plural
from podium.competition.card import Card
from podium.competition.decide.answer_groups import are_whole_in_groups, find_answer_columns
from podium.competition.decide.features import guess_features, named_columns
from podium.competition.decide.find_tables import find_table
from podium.competition.decide.guess_group import guess_group_column
from podium.competition.decide.guess_images import guess_image_names
from podium.competition.decide.guess_targets import guess_targets
from podium.competition.decide.labels_in_names import guess_label_pattern
from podium.competition.decide.layout import (
    AnswerColumns,
    ClassFolders,
    ImageNames,
    Layout,
    TargetColumns,
    TestLayout,
    TrainLayout,
)
from podium.competition.decide.read_with_extension import ReaderRows
from podium.competition.decide.tables import Tables
from podium.competition.find.facts import Facts
from podium.competition.find.find_files import find_class_folders, find_validation_folders
from podium.competition.find.match_images import FIRST_ROWS, ImagePool
from podium.competition.find.table import Table
from podium.tasks.task import ONE_LABEL


def guess_layout(tables: Tables, reader: ReaderRows | None) -> Layout:
    """Returns how the rows are read; those of a project's own reader are there already."""
    train = _guess_of_reader(tables, reader) if reader else _guess_of_labels(tables)
    has_test = reader is not None and reader.test is not None
    test = TestLayout("reader") if has_test else _guess_test(tables, train.layout)
    return Layout(train.card, train.layout, test, (*train.notes, *filter(None, [test.images.note])))


class TrainGuess(NamedTuple):
    layout: TrainLayout
    card: Card  # without the columns that the training table lacks
    notes: list[str]


def _guess_of_reader(tables: Tables, reader: ReaderRows) -> TrainGuess:
    card = tables.facts.card
    notes = _notes_on_no_columns(card)
    targets = TargetColumns((card.get("target_column", "label"),), origin=reader.origin, task_origin="the usual one")
    layout = TrainLayout("reader", card.get("id_column", "id"), targets, id_origin=reader.origin)
    return TrainGuess(layout, card, [*reader.notes, *notes])


def _notes_on_no_columns(card: Card) -> list[str]:
    """Returns notes on columns that the card names, where there is no training table."""
    return [note for key in ("features", "also") if (note := named_columns(card, key, None)[1])]


def _guess_of_labels(tables: Tables) -> TrainGuess:
    card = tables.facts.card
    if "label_pattern" in card and card.get("train_table"):
        raise PodiumError(f"{card.path}: train_table and label_pattern both give the labels; delete one of them")
    table = None if "label_pattern" in card else tables.train
    return _guess_of_names(tables.facts) if table is None else _guess_of_table(tables, table)


# --- a table holds the labels ------------------------------------------------------------------------


def _guess_of_table(tables: Tables, table: Table) -> TrainGuess:
    facts, sample = tables.facts, tables.sample
    refuse_boxes(facts.card, table)
    card, notes = _without_missing_columns(facts.card, table)
    pool = facts.images("train")
    answers = find_answer_columns(facts.images("test"), sample, table, lambda: tables.test)
    id_column, id_origin = _guess_id_column(card, table, sample, pool, answers)
    targets = guess_targets(card, table, id_column, sample)
    ids = table.rows[id_column].drop_duplicates()
    images = guess_image_names(ids, pool, table.rows.head(FIRST_ROWS), lambda: table)
    labels = table.rows[targets.columns[0]] if targets.task is ONE_LABEL and not targets.are_marks else None
    named = (id_column, *targets.columns, images.column, *(sample.answer_columns if sample else ()))
    in_card = str(card.get("group_column", ""))
    group, on_group = guess_group_column(card, table, named, labels, lambda: tables.test)
    if group and answers and not are_whole_in_groups(table.rows, answers.train_columns, group):
        group, on_group = "", ""
    (features, note), (also, on_also) = (named_columns(card, key, table) for key in ("features", "also"))
    beside = (*named, group)
    guessed, on_guess = ([], "") if answers else guess_features(card, table, beside, lambda: tables.test)
    layout = TrainLayout(
        "table",
        id_column,
        targets,
        images,
        id_origin=id_origin,
        answers=answers,
        group_column=in_card or group,
        features=tuple(features or guessed),
        also=tuple(also),
    )
    return TrainGuess(
        layout, card, [*notes, *filter(None, (targets.note, images.note, on_group, on_guess, note, on_also))]
    )


def _without_missing_columns(card: Card, table: Table) -> tuple[Card, list[str]]:
    """Returns the card without the columns that this copy of the training table lacks, and notes that say so."""
    notes = []
    for key in ("id_column", "target_column", "group_column"):
        column = card.get(key, "")
        is_none = key == "group_column" and column == ""
        if key not in card or column in table.rows or is_none:
            continue
        place = f"{'with --group or ' if key == 'group_column' else ''}in {card.path}"
        notes.append(
            card.drop(
                key,
                f"{table.path.name} has no column '{column}', which this competition's table has",
                f'{key} = "{column}" is not a column of {table.path}: {first_few(table.rows.columns)};'
                f" correct that name, {place}",
            )
        )
        card = card.without(key)
    return card, notes


def _guess_id_column(
    card: Card, table: Table, sample: Table | None, pool: ImagePool, answers: AnswerColumns | None
) -> tuple[str, str]:
    """Returns the column of the images' ids, and why it is."""
    if "id_column" in card:
        return str(card["id_column"]), card.origin_of("id_column")
    if sample and sample.rows.columns[0] in table.rows.columns and not answers:
        return str(sample.rows.columns[0]), "the sample submission has it"
    column = pool.find_column(table.rows)
    if column is None:
        settings = 'id_column = "NAME"', "another train_table", 'train_table = "" (then the folders are the classes)'
        raise MissingFiles(
            f"{table.path}: no column names images below {pool.path}; its columns are {first_few(table.rows.columns)}; "
            + card.advise(*settings)
        )
    return column, "its cells name images"


# --- the names of folders or files hold the labels ---------------------------------------------------


def _guess_of_names(facts: Facts) -> TrainGuess:
    """Returns a folder for each class, or a pattern of labels in the names of files."""
    card, files, notes = facts.card, facts.files, []
    if card.get("group_column"):
        problem = "no table of training images, so there is no group_column"
        refusal = f"{files.folder}: {problem}; " + card.advise('train_table = "NAME"')
        notes.append(card.drop("group_column", problem, refusal))
        card = card.without("group_column")
    notes += _notes_on_no_columns(card)
    id_column, targets = card.get("id_column", "id"), TargetColumns((card.get("target_column", "label"),))
    layout = TrainLayout("names", id_column, targets)
    if "label_pattern" in card:
        pattern = card.pattern("label_pattern", "label").pattern
        return TrainGuess(replace(layout, label_pattern=pattern), card, notes)
    folders = _guess_class_folders(facts)
    if folders:
        return TrainGuess(replace(layout, labels_in="folders", folders=folders), card, [*notes, *folders.notes])
    guess = guess_label_pattern(facts)
    if guess is None:
        raise MissingFiles(
            f"{files.folder}: there is neither a table of training labels (train.csv) nor a folder for each of"
            " several classes (train/<class>/) nor a label in the name of each image (train/<class>.1.jpg); "
            + card.advise('train_table = "NAME"', 'train_images = "FOLDER"', r"label_pattern = '(\w+)\.\d+'")
        )
    return TrainGuess(replace(layout, label_pattern=guess.pattern), card, [*notes, guess.note])


def _guess_class_folders(facts: Facts) -> ClassFolders | None:
    """Returns the folders, and those of the same classes for validation; None if there are none."""
    files, card = facts.files, facts.card
    parent, images = find_class_folders(files, card, facts.images("train").folder)
    if not images:
        return None
    val_parent, val_images = "", list[str]()
    if "train_images" not in card:
        val_parent, val_images = find_validation_folders(files, card, parent)
    if not val_images:
        are_versions = "group_pattern" not in card and _are_versions(images)
        note = (
            f"the folders below {parent or files.folder} hold files of the same names: that these are versions of one"
            " picture, which share a fold, is a guess; if not, " + card.advise("group_pattern = '(.+)'")
        )
        return ClassFolders(parent, tuple(images), (note,) if are_versions else (), are_versions)
    advice = card.advise(f'train_images = "{parent}"')
    note = (
        f"{plural(len(val_images), 'image')} in {val_parent}/ join the {len(images):,} training images in"
        f" {parent}/; to leave them out, {advice}"
    )
    return ClassFolders(posixpath.dirname(parent), (*images, *val_images), (note,))


def _are_versions(images: list[str]) -> bool:
    """Returns whether all folders hold the same names. Those that are counted from the start say nothing."""
    names: dict[str, set[str]] = {}
    for image in images:
        folder, _, name = image.rpartition("/")
        names.setdefault(folder, set()).add(posixpath.splitext(name)[0])
    first, *others = names.values()
    return len(first) > 1 and all(own == first for own in others) and not _are_counted(first)


def _are_counted(names: set[str]) -> bool:
    """Returns whether the names are 1, 2, 3 and so on, perhaps with a word before them, as in many folders."""
    numbers = sorted(int(match[0]) for name in names if (match := re.search(r"[0-9]{1,18}$", name)))
    return (
        len(numbers) == len(names) and numbers[0] <= 1 and numbers == list(range(numbers[0], numbers[0] + len(names)))
    )


# --- the test images ---------------------------------------------------------------------------------


def _guess_test(tables: Tables, train: TrainLayout) -> TestLayout:
    """Returns where the test ids are: in the sample submission, else in the test table, else only in a folder."""
    facts, sample = tables.facts, tables.sample
    pool = facts.images("test")
    if train.answers and sample:
        column = ImageNames(train.answers.image_column, origin="its cells name images")
        return TestLayout("sample", str(sample.rows.columns[0]), column)
    table = sample or tables.test
    if table is None:
        return TestLayout("folder")
    has_id_column = not sample and train.id_column in table.rows  # the ids of a sample submission come first
    id_column = train.id_column if has_id_column else str(table.rows.columns[0])
    head = _head_of_test_table(tables) if sample else table.rows.head(FIRST_ROWS)
    images = guess_image_names(table.rows[id_column], pool, head, lambda: tables.test)
    return TestLayout("sample" if sample else "table", id_column, images)


def _head_of_test_table(tables: Tables) -> pd.DataFrame | None:
    """Returns the first rows of the table beside a sample submission; an unclear or broken one is none.

    The ids of the sample submission may do without it.
    """
    facts, sample = tables.facts, tables.sample
    with suppress(PodiumError):
        found = find_table(facts.files, facts.card, "test_table", sample and sample.files[0])
        return facts.head_of(found.name, FIRST_ROWS) if found.name else None
    return None


# --- searches for objects, which are refused ---------------------------------------------------------

FIRST_CELLS = 50
BOX_COLUMNS = (
    *({"bbox"}, {"bboxes"}, {"bounding_box"}, {"predictionstring"}),
    *({"xmin", "ymin"}, {"x_min", "y_min"}, {"x1", "y1", "x2", "y2"}, {"x", "y", "width", "height"}),
    {"x", "y", "w", "h"},
)
MASK_COLUMNS = {"encodedpixels", "rle", "rle_mask", "segmentation"}
BOX_CELL = re.compile(r"([^\d\s]\S*( -?\d+(\.\d+)?){4} ?)+")  # a name and four numbers, once or more


def refuse_boxes(card: Card, table: Table) -> None:
    """Raises if the training table says where objects are, unless the card names the column of labels."""
    if "target_column" in card:
        return
    columns = {str(column).strip().lower(): str(column) for column in table.rows.columns}
    boxes = next((names for names in BOX_COLUMNS if names <= set(columns)), None)
    first_rows = table.rows.head(FIRST_CELLS).to_numpy(object)
    for column, cells in zip(table.rows.columns, first_rows.T, strict=True):
        filled = [cell for cell in cells if cell != ""]
        if filled and all(BOX_CELL.fullmatch(cell) for cell in filled):
            boxes = {str(column).strip().lower()}
    masks = MASK_COLUMNS & set(columns)
    if masks:
        raise PodiumError(
            f"{table.path}, line 1: the outlines of objects ({columns[min(masks)]}) make this a competition of"
            " segmentation, which Podium does not do; if a column holds a label of the whole image, "
            + card.advise('target_column = "NAME"')
        )
    if boxes:
        names = ", ".join(sorted(columns[name] for name in boxes))
        raise PodiumError(
            f"{table.path}, line 1: the boxes of objects ({names}) make this a competition of detection, which Podium"
            " does not do; if a column holds a label of the whole image, " + card.advise('target_column = "NAME"')
        )
