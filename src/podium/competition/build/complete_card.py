"""The complete card of a competition: every setting that was used, guessed or written, with its origin.

    podium data -c SLUG --card

prints it as TOML. Saved as data/competitions/<slug>.toml, it fixes what was guessed, and reads the same competition.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from podium.basics.terminal import printable
from podium.competition.build.choose_metric import MetricChoice
from podium.competition.build.guess_submission import Labels
from podium.competition.build.positive_class import find_positive
from podium.competition.build.submission_format import SubmissionFormat
from podium.competition.card import KEYS, Card
from podium.competition.decide.layout import Layout
from podium.competition.decide.tables import Tables
from podium.competition.find.table import Table
from podium.tasks.task import ONE_LABEL


class Setting(NamedTuple):
    """A setting of the card, or a part of the layout that the card has no setting for."""

    key: str
    value: Any
    origin: str
    is_settled: bool = True  # written in a card, it gives the same competition; else it is only for people

    def describe(self) -> str:
        """Returns the line of a card, with the origin as its comment."""
        return f"{self.key} = {_toml(self.value)}  {self.comment}"

    @property
    def comment(self) -> str:
        return f"# {printable(' '.join(self.origin.split()))}"


def settings_of(
    card: Card, tables: Tables, layout: Layout, labels: Labels, submission: SubmissionFormat, metric: MetricChoice
) -> tuple[Setting, ...]:
    """Returns the settings, in the order in which card.py lists them; those beside the card come last."""
    used = {setting.key: setting for setting in _guessed(tables, layout, labels, submission, metric)}
    written = {key: Setting(key, value, card.origin_of(key)) for key, value in card.items() if key not in used}
    known = {**used, **written}
    order = [*(key for key in KEYS if key in known), *(key for key in known if key not in KEYS)]
    return tuple(known[key] for key in order)


def _guessed(
    tables: Tables, layout: Layout, labels: Labels, submission: SubmissionFormat, metric: MetricChoice
) -> Iterator[Setting]:
    train, test, targets = layout.train, layout.test, layout.train.targets
    yield Setting("metric", metric.name, metric.origin)
    yield Setting("task", targets.task.name, targets.task_origin or "the usual one")
    yield Setting("wants", submission.wants, submission.reason)
    if labels.unknown:
        reason = "an answer of the sample submission that no training image has"
        yield Setting("unknown", labels.unknown.name, labels.card.origin_of("unknown", reason))
    yield _of_table("sample_submission", tables.sample_in_file, tables)
    if tables.pairs:
        yield Setting("pairs", list(tables.pairs.columns), tables.pairs.origin)
    if "test" in tables.read:
        yield _of_table("test_table", tables.read["test"], tables)
    if train.labels_in == "folders":
        yield Setting("train_table", "", labels.card.origin_of("train_table", "there is a folder for each class"))
    elif train.labels_in == "names":
        reason = "the only way to read labels from the names of files"
        yield Setting("label_pattern", train.label_pattern, labels.card.origin_of("label_pattern", reason))
    elif train.labels_in == "table":
        yield from _of_columns(tables, layout)
    if test.images.column:
        yield Setting("column of the test images", test.images.column, test.images.origin, False)
    if submission.wants == "probs" and targets.task is ONE_LABEL and len(submission.answer_columns) == 1:
        positive = find_positive(labels.card, labels.names, submission.answer_columns[0], labels.marked)
        if positive:
            reason = "a guess, the last by the alphabet" if positive.is_guess else "names or cells of the tables say so"
            yield Setting("positive", positive.label, labels.card.origin_of("positive", reason))


def _of_table(key: str, table: Table | None, tables: Tables) -> Setting:
    if table is None:
        return Setting(key, "", tables.facts.card.origin_of(key, "no table has such a name"))
    names = table.files or (table.path.relative_to(tables.facts.files.folder).as_posix(),)
    is_single = len(table.files) == 1
    return Setting(key, ", ".join(names), table.origin, is_single)


def _of_columns(tables: Tables, layout: Layout) -> Iterator[Setting]:
    train, table, sample = layout.train, tables.train, tables.sample
    yield _of_table("train_table", table, tables)
    is_long = sample is not None and sample.long is not None  # its own ids are not those of images
    yield Setting("id_column", train.id_column, train.id_origin, not is_long)
    is_single = len(train.targets.columns) == 1
    key = "target_column" if is_single else "columns of the targets"
    yield Setting(key, ", ".join(train.targets.columns), train.targets.origin, is_single)
    if train.images.column:
        yield Setting("column of the training images", train.images.column, train.images.origin, False)
    if train.group_column:
        reason = "a guess" if "group_column" not in layout.card else layout.card.origin_of("group_column")
        yield Setting("group_column", train.group_column, reason)
    if train.answers:
        columns = ", ".join(train.answers.train_columns)
        yield Setting("columns of the answers", columns, f"they make the ids {train.answers.id_column}", False)


def as_toml(slug: str, settings: Iterable[Setting]) -> str:
    """Returns the text of a card; what it has no setting for, or could not say, stands in comments."""
    lines = [f"# What Podium uses of {slug}, and why. Each line may be changed or deleted."]
    tables = []
    for setting in settings:
        if isinstance(setting.value, dict):
            tables += ["", f"[{setting.key}]  {setting.comment}"]
            tables += [f"{_toml_key(key)} = {_toml(value)}" for key, value in setting.value.items()]
        else:
            lines.append(("" if setting.is_settled else "# ") + setting.describe())
    return "\n".join([*lines, *tables])


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml(key)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml_key(key)} = {_toml(cell)}" for key, cell in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
