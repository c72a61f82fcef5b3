"""Describes what was understood of a competition, for `podium data`."""

from collections import Counter
from pathlib import Path

import pandas as pd

from podium.basics.terminal import first_few, plural
from podium.competition.build.grades import METRIC, are_grades
from podium.competition.build.submission_format import NO_SAMPLE, SubmissionFormat
from podium.competition.find.contained_images import describe_contained
from podium.competition.find.find_files import common_folder
from podium.competition.load import Competition
from podium.tasks.task import NUMBERS, ONE_LABEL, SEVERAL_TARGETS, column_and_label

# Or not about how the files are read.
SHOWN_ABOVE = ("title", "url", "metric", "better", "features", "also", "extra", "unlabelled", "extend", "recipe")


def describe(competition: Competition) -> str:
    lines = [
        f"{competition.title}  ({competition.folder})",
        f"  train    {_images_in(competition.folder, competition.train)}",
        f"  test     {_images_in(competition.folder, competition.test)}"
        if len(competition.test)
        else "  test     no test images",
        f"  task     {_describe_task(competition)}",
        f"  {_describe_targets(competition)}",
        f"  submit   {_describe_submission(competition)}",
        f"  metric   {competition.metric}, {competition.card.origin_of_metric()}",
        *([f"  features {first_few(competition.features.names)}"] if competition.features else []),
        *([f"  also     {competition.further.describe()}"] if competition.further else []),
        *([f"  extra    {competition.extra.describe()}"] if competition.extra else []),
        *([f"  no label {competition.unlabelled.describe()}"] if competition.unlabelled else []),
        *_describe_layout(competition),
        *(f"  note     {note}" for note in competition.notes),
    ]
    return "\n".join(lines)


def _describe_layout(competition: Competition) -> list[str]:
    """Returns a line for each setting of how the files are read, as a card has it."""
    settings = [setting for setting in competition.settings if setting.key not in SHOWN_ABOVE]
    return [f"  {'layout' if number == 0 else '':<8} {line.describe()}" for number, line in enumerate(settings)]


def _describe_submission(competition: Competition) -> str:
    submission, answers = competition.submission_format, competition.answers
    if pairs := competition.pairs:
        images = " and ".join(pairs.columns)
        return f"{first_few(pairs.header)}: how similar {images} are a row, {len(pairs.ids):,} rows (podium match)"
    rows = f"{first_few(submission.header)}: {_describe_answer(competition)} a row"
    if answers:
        rows += f", for each {answers.column} ({len(competition.test) / len(answers.ids):.1f} images on average)"
    return f"{rows}, {_source_of(submission)}"


def _describe_answer(competition: Competition) -> str:
    """Returns what a row of the submission holds."""
    submission = competition.submission_format
    if submission.long:
        what = {"numbers": "one of the numbers", "labels": "the label of one column"}
        return what.get(submission.wants, "the probability of one label") + " of an image"
    return competition.answer_form.words


def _describe_targets(competition: Competition) -> str:
    """Returns a line about the classes, or the numbers."""
    task, classes, targets = competition.task, competition.classes, competition.train["target"]
    if not task.are_labels:
        numbers = pd.DataFrame(task.encode(targets, classes).values, columns=list(classes))
        least, mean, most = numbers.min(), numbers.mean(), numbers.max()
        ranges = (f"{name} from {least[name]:.5g} to {most[name]:.5g}, mean {mean[name]:.5g}" for name in classes)
        return f"numbers  {first_few(ranges, 3)}"
    counts = Counter(label for target in targets for label in task.labels_of(target))
    (largest, most_images), (smallest, least_images) = counts.most_common(1)[0], counts.most_common()[-1]
    return f"classes  {len(classes)}, from {most_images:,} images ('{largest}') down to {least_images:,} ('{smallest}')"


def _describe_task(competition: Competition) -> str:
    if competition.task is ONE_LABEL:
        has_order = competition.metric == METRIC and are_grades(competition.card, competition.classes)
        if competition.votes is not None:
            return "the shares of the votes for each image, whose label has the largest one"
        return "one label for each image" + (f", a grade: {' < '.join(competition.classes)}" if has_order else "")
    if competition.task is NUMBERS:
        count = len(competition.classes)
        return "a number for each image" if count == 1 else f"{count} numbers for each image"
    if competition.task is SEVERAL_TARGETS:
        columns = Counter(column_and_label(name)[0] for name in competition.classes)
        return "a label in each of " + first_few(f"{name} ({count} classes)" for name, count in columns.items())
    counts = competition.train["target"].map(lambda target: len(competition.task.labels_of(target)))
    unlabelled = int((counts == 0).sum())
    none = f", none for {plural(unlabelled, 'image')}" if unlabelled else ""
    return f"several labels for each image: {counts.mean():.1f} on average, at most {counts.max()}{none}"


def _images_in(folder: Path, rows: pd.DataFrame) -> str:
    return describe_contained(folder, rows["image"]) or f"{len(rows):,} images in {common_folder(rows['image'])}/"


def _source_of(submission: SubmissionFormat) -> str:
    is_guess = submission.source == NO_SAMPLE
    return f"a guess, because there is {NO_SAMPLE}" if is_guess else f"as in {submission.source}"
