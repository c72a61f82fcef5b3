"""Uploads a submission to Kaggle and waits for its score.

    podium submit --upload [--message TEXT]

Writes submissions/<slug>/history.csv: one line for each submission that Kaggle has scored.

Kaggle's client reports success even when an upload has failed, so only Kaggle's list of submissions counts. A marker in
the description identifies the submission there: an interrupted upload is found there and not repeated.
"""

import contextlib
import io
from pathlib import Path
from typing import Any

from podium.basics.disk import locked, sha256
from podium.basics.errors import PodiumError
from podium.basics.terminal import duration, say
from podium.kaggle.client import signed_in_client
from podium.kaggle.polling import Poll
from podium.kaggle.upload_history import Standing, add_to_history, find_rank, read_status
from podium.tasks.metrics import METRICS

APPEARS = 120.0  # seconds to wait until an upload is in Kaggle's list
PATIENCE = 1800.0  # seconds to wait until it has a score
MAX_DESCRIPTION = 400  # characters; the marker comes first, in case Kaggle cuts the end
PAUSES = (2.0, 5.0, 10.0, 20.0)  # seconds between two requests; the last one repeats
PAGE_SIZE = 100  # submissions that Kaggle lists at once
FATAL = (401, 403, 404)  # HTTP statuses that end the wait


def upload(slug: str, csv: Path, metric: str, message: str) -> None:
    """Uploads the CSV unless Kaggle has it, waits for its score and adds that to the history."""
    message = "".join(letter for letter in " ".join(message.split()) if letter.isprintable())
    with locked(csv.parent / ".upload.lock") as acquired:
        if not acquired:
            raise PodiumError(f"another process is already uploading to {slug}; wait for it")
        marker = f"[podium {sha256(csv)[:12]}]"
        refused = _upload_once(slug, csv, marker, message)
        with (
            signed_in_client(slug, "run the same command again to continue waiting") as client,
            contextlib.redirect_stdout(io.StringIO()),  # the client prints advice, but standard output is for results
        ):
            submission = _wait_until_judged(client, slug, marker, refused)
            standing = _find_standing(client, slug, submission, METRICS[metric]().better)
    history = add_to_history(csv, message, submission, standing)
    if read_status(submission) == "ERROR":
        reason = submission.error_description or "without a reason"
        raise PodiumError(f"Kaggle refused {csv.name}: {reason}; correct that and submit again; {history} records it")
    private = f", private {submission.private_score}" if submission.private_score else ""
    say(f"podium: Kaggle says: public {submission.public_score or '?'}{private}{standing.describe()}")
    say(f"podium: wrote {history}")


def _upload_once(slug: str, csv: Path, marker: str, message: str) -> set[int]:
    """Uploads the CSV unless Kaggle has it; returns the refs of earlier uploads of it that Kaggle refused."""
    by_hand = f"upload {csv} at https://www.kaggle.com/competitions/{slug}/submit, or run the same command again"
    with signed_in_client(slug, by_hand) as client, contextlib.redirect_stdout(io.StringIO()):
        earlier = _find_marked(client, slug, marker)
        refused = {submission.ref for submission in earlier if read_status(submission) == "ERROR"}
        if len(refused) < len(earlier):
            say(f"podium: {csv.name} is already at Kaggle")
            return refused
        if _count_submissions_left(client, slug) == 0:
            raise PodiumError(
                f"no submission to {slug} is left for today, which ends at midnight UTC;"
                " run the same command again tomorrow"
            )
        say(f"podium: uploading {csv.name} to {slug}")
        response = client.competition_submit(str(csv), f"{marker} {message}"[:MAX_DESCRIPTION], slug, quiet=True)
        if not getattr(response, "ref", 0) and "Could not" in str(response.message):
            raise PodiumError(f"Kaggle's client could not upload {csv.name} ({response.message}); {by_hand}")
    return refused


def _wait_until_judged(client: Any, slug: str, marker: str, refused: set[int]) -> Any:
    """Returns the submission with the marker, not one that was refused before, when it has a score or an error."""
    not_listed = (
        f"the upload is not in Kaggle's list of submissions after {duration(APPEARS)}: it failed;"
        f" run the same command again, or upload it at https://www.kaggle.com/competitions/{slug}/submit"
    )
    not_judged = (
        f"Kaggle has not judged the submission after {duration(PATIENCE)};"
        " run the same command again to continue waiting"
    )

    def find_listed() -> Any | None:
        marked = _find_marked(client, slug, marker)
        return next((submission for submission in marked if submission.ref not in refused), None)

    def find_judged() -> Any | None:
        submission = find_listed()
        return submission if submission and read_status(submission) != "PENDING" else None

    Poll(slug, PAUSES, APPEARS, not_listed, FATAL).until(find_listed, "waiting until Kaggle lists the upload")
    return Poll(slug, PAUSES, PATIENCE, not_judged, FATAL).until(find_judged, "waiting for Kaggle's score")


def _find_standing(client: Any, slug: str, submission: Any, better: int) -> Standing:
    """Returns the submission's rank among those of the day; unknown if Kaggle does not answer.

    The score is known by then, so a missing answer must not stop the command.
    """
    rank, today = 0, 0
    with contextlib.suppress(OSError, ValueError):
        rank, today = find_rank(submission, _list_submissions(client, slug), better)
    return Standing(rank, today, _count_submissions_left(client, slug))


def _find_marked(client: Any, slug: str, marker: str) -> list[Any]:
    """Returns the submissions with the marker, the newest first."""
    return [submission for submission in _list_submissions(client, slug) if marker in (submission.description or "")]


def _list_submissions(client: Any, slug: str) -> list[Any]:
    return list(client.competition_submissions(slug, page_size=PAGE_SIZE) or [])


def _count_submissions_left(client: Any, slug: str) -> int | None:
    """Returns how many more submissions Kaggle accepts today; None if it does not say."""
    with contextlib.suppress(OSError, ValueError):
        limits = client.competition_get_submission_limits(slug)
        is_known = limits.num_today or limits.num_total or limits.num_allowed_now  # all 0 for a user without a team
        return int(limits.num_allowed_now) if is_known else None
    return None
