"""Uploads a submission to Kaggle and waits for Kaggle's own verdict.

    podium submit --upload [--message TEXT]

Writes submissions/<slug>/history.csv: one line for each verdict.

The client says that all is well when an upload has failed, so only what stands in Kaggle's list of submissions counts.
There the submission is known by a mark in its description: an upload that was interrupted is found, not made again.
"""

import contextlib
import io
import math
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from podium import PodiumError
from podium.competition.csv_files import csv_text, read_table
from podium.disk import locked, sha256, write_text
from podium.kaggle.client import explain, http_status, kaggle_client
from podium.metrics import METRICS
from podium.submit.submission import HISTORY
from podium.terminal import duration, progress_bar, say

APPEARS = 120.0  # seconds until an upload stands in the list
PATIENCE = 1800.0  # seconds until it has a score
LONGEST = 400  # letters of a description: the mark comes first, in case Kaggle cuts them
PAUSES = (2.0, 5.0, 10.0, 20.0)  # seconds between looks; the last one on and on
COLUMNS = (
    *("date", "file", "sha256", "message", "status", "public_score", "private_score"),
    *("rank_today", "submissions_today", "left_today", "ref"),
)


def upload(slug: str, csv: Path, metric: str, message: str) -> None:
    """Kaggle has the submission and has judged it, or an error says why not."""
    message = "".join(letter for letter in " ".join(message.split()) if letter.isprintable())
    with locked(csv.parent / ".upload.lock") as mine:
        if not mine:
            raise PodiumError(f"another process uploads to {slug} already; wait for it")
        mark = f"[podium {sha256(csv)[:12]}]"
        before = _upload(slug, csv, mark, message)
        waiting = "the same command goes on waiting"
        with kaggle_client(slug, waiting) as client, contextlib.redirect_stdout(io.StringIO()):  # it advises aloud
            found = _verdict(client, slug, mark, before)
            rank, today = _rank(client, slug, found, METRICS[metric]().better)
            left = _left(client, slug)
    row = {
        "date": f"{found.date:%Y-%m-%d %H:%M:%S}" if found.date else "",
        "file": csv.name,
        "sha256": sha256(csv),
        "message": message,
        "status": _status(found).lower(),
        "public_score": found.public_score or "",
        "private_score": found.private_score or "",
        "rank_today": rank or "",
        "submissions_today": today or "",
        "left_today": "" if left is None else left,
        "ref": found.ref,
    }
    history = _keep(csv.parent / HISTORY, row)
    if _status(found) == "ERROR":
        what = found.error_description or "without a reason"
        raise PodiumError(f"Kaggle refused {csv.name}: {what}; it stands in {history}")
    scores = f"public {found.public_score or '?'}" + (f", private {found.private_score}" if found.private_score else "")
    place = f"; number {rank} of today's {today}" if rank else ""
    quota = "" if left is None else f"; {left} more may follow today"
    say(f"podium: Kaggle says: {scores}{place}{quota}")
    say(f"podium: wrote {history}")


def _upload(slug: str, csv: Path, mark: str, message: str) -> set[int]:
    """Kaggle's client has sent the submission, unless it is there; those with its mark that failed before."""
    by_hand = f"upload {csv} at https://www.kaggle.com/competitions/{slug}/submit, or run the same command again"
    with (
        kaggle_client(slug, by_hand) as client,
        contextlib.redirect_stdout(io.StringIO()),
    ):  # it advises on standard output
        before = _marked(client, slug, mark)
        failed = [each for each in before if _status(each) == "ERROR"]
        if len(failed) < len(before):
            say(f"podium: {csv.name} is at Kaggle already")
        else:
            _check_quota(client, slug)
            say(f"podium: uploading {csv.name} to {slug}")
            answer = client.competition_submit(str(csv), f"{mark} {message}"[:LONGEST], slug, quiet=True)
            if not getattr(answer, "ref", 0) and "Could not" in str(answer.message):
                raise PodiumError(f"Kaggle's client could not upload {csv.name} ({answer.message}); {by_hand}")
    return {each.ref for each in failed}


def _check_quota(client: Any, slug: str) -> None:
    left = _left(client, slug)
    if left == 0:
        raise PodiumError(
            f"no submission to {slug} is left for today, which ends at midnight UTC; the same command goes on tomorrow"
        )


def _left(client: Any, slug: str) -> int | None:
    """How many submissions may follow today; None where Kaggle does not say."""
    with contextlib.suppress(OSError, ValueError):
        limits = client.competition_get_submission_limits(slug)
        known = limits.num_today or limits.num_total or limits.num_allowed_now
        return int(limits.num_allowed_now) if known else None  # all are zero for whoever is in no team yet
    return None


def _marked(client: Any, slug: str, mark: str) -> list[Any]:
    """The submissions with the mark, the newest first."""
    listed = client.competition_submissions(slug, page_size=100) or []
    return [each for each in listed if mark in (each.description or "")]


def _verdict(client: Any, slug: str, mark: str, before: set[int]) -> Any:
    """The submission with the mark that is not one of those that failed before, once it is judged."""
    began, looks, found = time.monotonic(), 0, None
    with progress_bar(desc="waiting for Kaggle's verdict", unit="look") as progress:
        while True:
            try:
                listed = _marked(client, slug, mark)
                found = next((each for each in listed if each.ref not in before), found)
            except (OSError, ValueError) as error:  # a cut connection or a 429 need not be the end
                if http_status(error) in (401, 403, 404):
                    raise
                progress.set_postfix_str(explain(error, slug))
            if found is not None and _status(found) != "PENDING":
                return found
            waited = time.monotonic() - began
            if found is None and waited > APPEARS:
                raise PodiumError(
                    f"the upload is not in Kaggle's list of submissions after {duration(waited)}: it failed;"
                    f" run the same command again, or upload it at https://www.kaggle.com/competitions/{slug}/submit"
                )
            if waited > PATIENCE:
                raise PodiumError(
                    f"Kaggle has not judged the submission after {duration(waited)}; the same command goes on waiting"
                )
            time.sleep(PAUSES[min(looks, len(PAUSES) - 1)])
            looks += 1
            progress.update()


def _status(found: Any) -> str:
    return str(found.status).rpartition(".")[2].upper()


def _rank(client: Any, slug: str, found: Any, better: int) -> tuple[int, int]:
    """The place of its public score among the day's submissions, and how many there are; zeros where Kaggle does not
    say, as a verdict that is known must not be lost for that."""
    with contextlib.suppress(OSError, ValueError):
        listed = client.competition_submissions(slug, page_size=100) or []
        today = datetime.now(UTC).date()
        scores = {each.ref: _number(each.public_score) for each in listed if each.date and each.date.date() == today}
        mine = scores.setdefault(found.ref, _number(found.public_score))
        known = [score for score in scores.values() if score is not None]
        ahead = [score for score in known if mine is None or better * (score - mine) > 0]
        return len(ahead) + 1, len(scores)
    return 0, 0


def _number(text: str | None) -> float | None:
    with contextlib.suppress(ValueError):
        number = float(text or "")
        return number if math.isfinite(number) else None
    return None


def _keep(history: Path, row: dict[str, object]) -> Path:
    """One line a submission: a second verdict on one replaces the first."""
    rows: list[list[str]] = []
    if history.exists():
        known = read_table(history, "move it away")
        if tuple(known.columns) != COLUMNS:
            raise PodiumError(f"{history} has other columns than Podium's; move it away and run the same command again")
        rows = [list(each) for each in known.itertuples(index=False, name=None) if each[-1] != str(row["ref"])]
    rows.append([str(row[name]).replace("\n", " ") for name in COLUMNS])
    write_text(history, csv_text([COLUMNS, *rows]))
    return history
