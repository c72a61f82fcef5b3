"""The layout of a competition: what was found out once of how its files are to be read, each part with its reason.

guess_layout.py fills it in from the card and the files; read_rows.py and the rest only follow it.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from podium.competition.card import Card
from podium.tasks.task import ONE_LABEL, Task

JOIN = "_"  # between the cells of several columns that make the id of an answer


class ImageNames(NamedTuple):
    """What names the image of each id."""

    column: str = ""  # of the table that lists the images; "": the ids do
    by_row: bool = False  # the ids count the rows of that table
    origin: str = "the ids name the images"
    note: str = ""


BY_IDS = ImageNames()


class AnswerColumns(NamedTuple):
    """The columns that say which images a row of the submission is for."""

    id_column: str  # of the answers, in the test table
    image_column: str  # of the test images, in the test table
    train_columns: tuple[str, ...]  # of the training table, whose cells make the ids of the answers


class TargetColumns(NamedTuple):
    """Which columns of the training table hold what is learned, and how."""

    columns: tuple[str, ...] = ()
    task: Task = ONE_LABEL
    separator: str = ""  # between several labels in a cell; "": they have a column each
    origin: str = ""  # of the columns
    task_origin: str = ""
    note: str = ""

    @property
    def are_marks(self) -> bool:
        """Whether the columns are called after classes, and hold 1 or 0."""
        return len(self.columns) > 1 and self.task.are_labels and not self.task.has_columns

    @property
    def name(self) -> str:
        """The name of the label column."""
        return self.columns[0] if len(self.columns) == 1 else "label"


class ClassFolders(NamedTuple):
    """A folder for each class."""

    parent: str  # below which an image's path is its id
    images: tuple[str, ...]
    notes: tuple[str, ...] = ()
    are_versions: bool = False  # all folders hold the same names: each is that of one picture, in several versions


@dataclass(frozen=True)
class TrainLayout:
    labels_in: Literal["table", "folders", "names", "reader"]
    id_column: str
    targets: TargetColumns
    images: ImageNames = BY_IDS
    id_origin: str = ""
    answers: AnswerColumns | None = None  # if a row of the submission is for several images
    group_column: str = ""
    features: tuple[str, ...] = ()
    also: tuple[str, ...] = ()  # further columns that are learned
    folders: ClassFolders | None = None
    label_pattern: str = ""


@dataclass(frozen=True)
class TestLayout:
    ids_in: Literal["sample", "table", "folder", "reader"]
    id_column: str = ""
    images: ImageNames = BY_IDS


@dataclass(frozen=True)
class Layout:
    card: Card  # without what Podium knows of the competition and this copy of it lacks
    train: TrainLayout
    test: TestLayout
    notes: tuple[str, ...] = ()
