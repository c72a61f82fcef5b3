"""Finds the submissions of a competition: those whose lineage is here, with Kaggle's public scores of those uploaded.

A submission counts once, also where it was uploaded twice. Its held-out answers are those of its runs, blended as it
was: they show how its mistakes go together with those of the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from podium.basics.disk import sha256
from podium.basics.errors import PodiumError
from podium.blending.expected_score import bootstrap_scores
from podium.blending.held_out import HeldOut
from podium.blending.own_decision import OwnDecision
from podium.competition.load import Competition
from podium.submissions.choose_steps import blended_held_out
from podium.submissions.kaggle_scores import HISTORY, read_history
from podium.submissions.lineage import Lineage, read_lineage
from podium.submissions.rebuild_submission import find_recorded_folds
from podium.tasks.metrics import METRICS

Numbers = NDArray[np.float64]

WIDTH = 2 * 1.96  # of a 95 % interval, in deviations
SHOWN = 0.1  # of that variance, which held-out images show at least: where all are right, they show none


@dataclass(frozen=True)
class Submission:
    lineage: Lineage
    uploaded: str = ""  # when; "": it is not at Kaggle
    public: float | None = None
    private: float | None = None  # after the end of the competition

    @property
    def name(self) -> str:
        return self.lineage.csv.name

    @property
    def expected(self) -> float:
        """Returns the score on held-out images, and what the mean of the fold models adds to it."""
        estimate = self.lineage.content["estimate"]
        return float(estimate["score"] + estimate.get("fold_gain", 0.0))

    @property
    def interval(self) -> tuple[float, float]:
        low, high = self.lineage.content["estimate"]["between"]
        return float(low), float(high)

    @property
    def images(self) -> int:
        """Returns how many held-out images its score is of."""
        return int(self.lineage.content["estimate"]["images"])

    @property
    def made_of(self) -> str:
        """Returns its runs, blend and decision in words."""
        runs = [run["run"] for run in self.lineage.content["runs"]]
        what = runs[0] if len(runs) == 1 else f"{len(runs)} runs, {self.lineage.blend.strategy}"
        decision = self.lineage.blend.decision
        if decision is None:
            return what
        return f"{what}, {decision.name if isinstance(decision, OwnDecision) else decision.kind}"


@dataclass(frozen=True)
class Found:
    submissions: list[Submission]  # that may be proposed
    left_out: dict[str, str]  # files, and why they are not


def find_submissions(competition: Competition, folder: Path) -> Found:
    """Returns the submissions with an honest estimate and no doubt, the last uploaded first."""
    uploads = read_history(folder / HISTORY)
    by_hash = {row["sha256"]: row for row in uploads}  # of several uploads of one file, the last
    found, left_out = dict[str, Submission](), dict[str, str]()
    for path in sorted(folder.glob("*.json")):
        try:
            lineage = read_lineage(path)
        except PodiumError:
            continue  # another JSON
        digest = str(lineage.content["sha256"])
        row = by_hash.get(digest, {})
        if reason := _doubt(competition, lineage, row):
            left_out[lineage.csv.name] = reason
        else:
            scores = [_number(row.get(key, "")) for key in ("public_score", "private_score")]
            if digest not in found or lineage.csv.name == row.get("file"):  # of copies, the one that was uploaded
                found[digest] = Submission(lineage, row.get("date", ""), *scores)
    known = {str(one.lineage.content["sha256"]) for one in found.values()}
    for digest, row in by_hash.items():
        if digest not in known and row["file"] not in left_out and row["status"] != "error":
            left_out[f"{row['file']} of {row['date']}"] = "its lineage is not here any more"
    return Found(sorted(found.values(), key=lambda one: one.uploaded, reverse=True), left_out)


def _doubt(competition: Competition, lineage: Lineage, row: dict[str, str]) -> str:
    """Returns why a submission is not proposed; "" if nothing speaks against it."""
    content = lineage.content
    if row.get("status") == "error":
        return "Kaggle refused it"
    if content["metric"] != competition.metric:
        return f"it was made for the metric {content['metric']}"
    if content["train_sha256"] != competition.train_hash or content["test_sha256"] != competition.test_hash:
        return "it was made of other data"
    if not content["estimate"]:
        return "no held-out image says what to expect of it"
    doubts = [run["doubt"] for run in content["runs"] if run.get("doubt")]
    if doubts:
        return str(doubts[0])
    if lineage.csv.exists() and sha256(lineage.csv) != content["sha256"]:
        return "its CSV was changed after it was written"
    return ""


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if np.isfinite(number) else None


# --- how their mistakes go together ------------------------------------------------------------------


def with_held_out(competition: Competition, found: Found) -> tuple[Found, Numbers]:
    """Returns the submissions whose runs are here, and the covariance of their scores on one image.

    Scores count in the direction in which higher is better. Divided by a number of images, it is the covariance of
    their scores on as many. All are compared on the images that all of them held out, drawn again and again.
    """
    kept, answers, left_out = list[Submission](), list[tuple[HeldOut, Numbers]](), dict(found.left_out)
    for submission in found.submissions:
        try:
            runs = tuple(find_recorded_folds(competition.root, submission.lineage))
            answers.append(blended_held_out(competition, runs, submission.lineage.blend))
            kept.append(submission)
        except PodiumError as error:
            left_out[submission.name] = f"what it held out cannot be blended again: {error}"
    if not kept:
        return Found([], left_out), np.zeros((0, 0))
    base, tables = _on_common_images(answers)
    better = METRICS[competition.metric]().better
    draws = better * np.array([bootstrap_scores(base, table, competition.metric) for table in tables])
    draws = draws[:, np.isfinite(draws).all(0)]
    covariance = np.atleast_2d(np.cov(draws)) * len(base)
    tests = len(competition.answer_ids)
    least = SHOWN * np.array([_variance_on_one(submission, tests) for submission in kept])
    return Found(kept, left_out), covariance + np.diag((least - covariance.diagonal()).clip(0))


def _variance_on_one(submission: Submission, tests: int) -> float:
    """Returns the variance of a score on one image by the estimate's interval, which knows mistakes not seen yet."""
    low, high = submission.interval
    deviation = (high - low) / WIDTH
    return deviation**2 / (1 / submission.images + 1 / tests) if np.isfinite(deviation) else 0.0


def _on_common_images(answers: Sequence[tuple[HeldOut, Numbers]]) -> tuple[HeldOut, list[Numbers]]:
    """Returns the images that all held out, and each submission's answers for them, in one order."""
    row_of = [{name: row for row, name in enumerate(held_out.ids)} for held_out, _ in answers]
    common = [name for name in answers[0][0].ids if all(name in rows for rows in row_of)]
    if len(common) < 2:
        raise PodiumError(
            "the submissions have held out no common images, so nothing compares them; make them of runs that have"
            " trained the same folds"
        )
    common_rows = [np.array([rows[name] for name in common]) for rows in row_of]
    base, _ = answers[0]
    return base.of(common_rows[0]), [table[rows] for (_, table), rows in zip(answers, common_rows, strict=True)]
