"""Records Kaggle's scores: submissions/<slug>/history.csv has one line for each submission that Kaggle has scored."""

import contextlib
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from podium.basics.disk import sha256, write_text
from podium.competition.find.csv_files import csv_text
from podium.submissions.kaggle_scores import COLUMNS, HISTORY, read_history


class Standing(NamedTuple):
    """A submission's place among the day's submissions."""

    rank: int  # 0: unknown
    submissions_today: int  # 0: unknown
    submissions_left: int | None

    def describe(self) -> str:
        rank = f"; rank {self.rank} of today's {self.submissions_today} submissions" if self.rank else ""
        left = "" if self.submissions_left is None else f"; {self.submissions_left} submissions left today"
        return rank + left


def read_status(submission: Any) -> str:
    """Returns PENDING, COMPLETE or ERROR."""
    return str(submission.status).rpartition(".")[2].upper()


def find_rank(submission: Any, listed: Sequence[Any], better: int) -> tuple[int, int]:
    """Returns the rank of the submission's public score among those of today, and their number.

    `better` is 1 if higher scores are better, otherwise -1.
    """
    today = datetime.now(UTC).date()
    scores = {item.ref: _finite(item.public_score) for item in listed if item.date and item.date.date() == today}
    own_score = scores.setdefault(submission.ref, _finite(submission.public_score))
    finite_scores = [score for score in scores.values() if score is not None]
    ahead = [score for score in finite_scores if own_score is None or better * (score - own_score) > 0]
    return len(ahead) + 1, len(scores)


def _finite(text: str | None) -> float | None:
    with contextlib.suppress(ValueError):
        number = float(text or "")
        return number if math.isfinite(number) else None
    return None


def add_to_history(csv: Path, message: str, submission: Any, standing: Standing) -> Path:
    """Writes the submission's line to the history beside the CSV; replaces its earlier line. Returns the history."""
    row = {
        "date": f"{submission.date:%Y-%m-%d %H:%M:%S}" if submission.date else "",
        "file": csv.name,
        "sha256": sha256(csv),
        "message": message,
        "status": read_status(submission).lower(),
        "public_score": submission.public_score or "",
        "private_score": submission.private_score or "",
        "rank_today": standing.rank or "",
        "submissions_today": standing.submissions_today or "",
        "left_today": "" if standing.submissions_left is None else standing.submissions_left,
        "ref": submission.ref,
    }
    history = csv.parent / HISTORY
    rows = [earlier for earlier in read_history(history) if earlier["ref"] != str(row["ref"])]
    rows.append({name: str(row[name]).replace("\n", " ") for name in COLUMNS})
    write_text(history, csv_text([COLUMNS, *(fields.values() for fields in rows)]))
    return history
