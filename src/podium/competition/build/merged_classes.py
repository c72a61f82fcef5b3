"""Merges classes where the submission asks for one probability and the training images have more than two classes.

Four folders Cover, JMiPOD, JUNIWARD and UERD, and a sample of numbers: the answer is the probability that an image is
anything but a cover. Which class is set against the others is the card's `positive`, else told by its name, as a guess.
"""

import re
from dataclasses import replace

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few
from podium.competition.build.positive_class import NEGATIVE
from podium.competition.build.read_rows import Rows
from podium.competition.card import Card
from podium.competition.decide.labels import are_numbers, are_words
from podium.competition.find.table import Table
from podium.tasks.metrics import METRICS
from podium.tasks.task import ONE_LABEL, Task

OTHER = "other than "
NOT_LOOKED_FOR = NEGATIVE | {"cover", "clean", "real", "original", "genuine", "authentic"}  # first words of labels


def merge_classes(card: Card, task: Task, rows: Rows, sample: Table | None) -> Rows:
    """Returns the rows with two classes, if the sample submission asks for the probability of one of them."""
    names = sorted(set(rows.train["target"]))
    if task is not ONE_LABEL or len(names) <= 2 or not _asks_for_probability(card, names, sample):
        return rows
    assert sample is not None
    chosen = str(card.get("positive", ""))
    alone = chosen.removeprefix(OTHER) or _not_looked_for(names)
    if alone not in names:
        raise PodiumError(
            f"{sample.path}: one column of numbers, but the training images have {len(names)} classes of words,"
            f" {first_few(names)}; " + card.advise('positive = "NAME"', 'wants = "labels"')
        )
    other = f"{OTHER}{alone}"
    positive = chosen or other
    notes = list(rows.notes)
    if not chosen:
        merged = first_few(sorted({*names} - {alone}))
        notes.append(
            f"{sample.path.name} asks for one probability of {len(names)} classes: that it is of all but '{alone}'"
            f" ({merged}) is a guess; " + card.advise(f'positive = "{other}"', '"NAME"')
        )
    targets = rows.train["target"].where(rows.train["target"] == alone, other)
    return replace(rows, train=rows.train.assign(target=targets), marked=positive, notes=tuple(notes))


def _asks_for_probability(card: Card, names: list[str], sample: Table | None) -> bool:
    if sample is None or len(sample.answer_columns) != 1 or not are_words(names):
        return False
    metric = card.get("metric")
    if "wants" in card or (metric is not None and METRICS[metric]().wants not in ("probs", "")):
        return bool(card.get("wants") == "probs")
    answers = [cell for cell in sample.rows.iloc[:, 1].str.strip() if cell]
    return bool(answers) and are_numbers(answers) and all(0 <= float(cell) <= 1 for cell in answers)


def _not_looked_for(names: list[str]) -> str:
    """Returns the only label that says what is not looked for; "" if there is none, or more than one."""
    found = [name for name in names if re.split(r"[\W_]+", name.lower().strip())[0] in NOT_LOOKED_FOR]
    return found[0] if len(found) == 1 else ""
