"""A competition in memory, without files, for the tests of submissions."""

from pathlib import Path

import pandas as pd

from podium.competition.build.corrections import Corrections
from podium.competition.build.submission_format import SubmissionFormat
from podium.competition.card import Card
from podium.competition.find.csv_files import CsvStyle, csv_text
from podium.competition.load import Competition
from podium.tasks.task import ONE_LABEL


def make_competition(
    ids: list[str], classes: list[str], columns: list[str], wants: str = "labels", newline: str = "\n"
) -> Competition:
    """Returns a competition with these test ids, one training image per class, and these columns in its sample."""
    test = pd.DataFrame({"id": ids, "image": [f"{number}.jpg" for number in range(len(ids))]})
    train = pd.DataFrame({"id": classes, "target": classes, "image": classes})
    style = CsvStyle(csv_text([columns], ""), ",", newline)
    expected = SubmissionFormat(tuple(columns), wants, "sample_submission.csv", style)
    card = Card(Path("x.toml"), {})
    facts = ("x", Path(), train, test, tuple(classes), "accuracy", expected, card, None, ())
    return Competition(*facts, Corrections(Path("x.csv"), {}, train, classes), ONE_LABEL, root=Path())
