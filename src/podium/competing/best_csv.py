"""Keeps submissions/<slug>/compete.csv: there is always a valid one, and only a better one replaces it."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from podium.basics.disk import sha256
from podium.basics.errors import PodiumError
from podium.basics.machine import Machine
from podium.basics.terminal import first_few
from podium.blending.select_runs import find_reasons
from podium.competing.portfolio import Candidate, candidate_of
from podium.competing.standing import Judge, Judgement, Member
from podium.competition.load import Competition
from podium.saved_runs.imported_runs import why_untrusted
from podium.saved_runs.ledger import BEGUN, ENDED, SUBMITTED, Ledger, Line
from podium.saved_runs.run_folder import Run, find_runs
from podium.submissions.lineage import read_lineage
from podium.submissions.submission import Target, write_blend

NAME = "compete"  # of the CSV, without its ending


@dataclass
class BestCsv:
    competition: Competition
    machine: Machine
    ledger: Ledger
    except_runs: tuple[str, ...] = ()
    seconds: float = 0.0  # the longest that judging and writing has taken
    left_out: dict[str, str] = field(default_factory=dict)  # runs that are not blended, and why
    last: Judgement | None = None  # that was taken

    @property
    def path(self) -> Path:
        return self.competition.root / "submissions" / self.competition.slug / f"{NAME}.csv"

    @property
    def interval(self) -> tuple[float, float]:
        """Returns where the score on the test images is expected."""
        submitted = self.ledger.of(SUBMITTED)
        low, high = submitted[-1].get("interval", (None, None)) if submitted else (None, None)
        return (math.nan if low is None else low), (math.nan if high is None else high)

    def update(
        self, candidates: dict[str, Candidate], folds: Sequence[int], than: Judgement | None = None
    ) -> Judgement | None:
        """Judges the blend of all members that are trained on these folds, and writes it if it is better.

        Returns None if there is no member yet, or if it is no better than another blend, which lacks its members.
        """
        started = time.monotonic()
        judge = Judge(self.competition, folds)
        members = self.members(candidates, judge)
        if not any(judge.is_whole(member.run) for member in members):
            return None
        last, ended = self.ledger.of(SUBMITTED), self.ledger.of(ENDED)
        weighed = ended[-1]["errors"] if ended else ()
        judgement = judge.judge(members, last[-1]["runs"] if last else (), weighed, self.last)
        if than and not (set(judgement.names) - than.errors.keys() and judge.is_better(judgement, than)):
            return None
        self.last = judgement
        if self.competition.answered_by == "submit" and not self._is_written(judgement, folds):
            self._write(judgement, folds)
        self.seconds = max(self.seconds, time.monotonic() - started)
        return judgement

    def members(self, candidates: dict[str, Candidate], judge: Judge) -> list[Member]:
        """Returns the runs that may be blended: those of `compete`, and those that a person has trained."""
        try:
            runs = find_runs(self.competition.slug, self.competition.root, None, list(self.except_runs))
        except PodiumError:  # there is none yet
            return []
        reasons = {run: reason for run in runs if (reason := why_untrusted(run))}
        if len(reasons) < len(runs):
            known = [run for run in runs if run not in reasons]
            reasons |= find_reasons(known, self.competition, of_all_folds=False)
        members = [
            Member(run, candidates.get(run.name) or candidate_of(run), run.name in candidates)
            for run in runs
            if run not in reasons
        ]
        by_hand = [member for member in members if not member.is_own and not judge.is_whole(member.run)]
        self.left_out = {run.name: reason for run, reason in reasons.items()}
        self.left_out |= {one.run.name: f"it lacks some of the folds {first_few(judge.folds)}" for one in by_hand}
        return [member for member in members if member not in by_hand]

    def _is_written(self, judgement: Judgement, folds: Sequence[int]) -> bool:
        """Returns whether the CSV is already this blend, decided so: a kill may have come before its lineage."""
        last = self.ledger.of(SUBMITTED)
        if not last or last[-1]["runs"] != judgement.names or last[-1]["folds"] != list(folds):
            return False
        if last[-1].get("models") != models_of(judgement):  # there are more now, such as those of all images
            return False
        lineage = self.path.with_suffix(".json")
        if not (self.path.exists() and lineage.exists() and sha256(self.path) == last[-1]["sha256"]):
            return False
        return read_lineage(lineage).blend.decision == judgement.chosen.blend.decision  # else the card has changed

    def _decisions(self) -> list[Line]:
        """Returns what was trained so far, why, and what it brought; of the last member, that is not known yet."""
        decisions: list[Line] = []
        for line in self.ledger.of(BEGUN, ENDED):
            if line["event"] == BEGUN:
                facts = {"seconds": line.get("seconds") or 0.0, "gain": None}
                decisions.append({"member": line["member"], "why": str(line.get("why", "")), **facts})
            elif decisions:
                decisions[-1] |= {"seconds": line["seconds"], "gain": line.get("gain")}
        return decisions

    def _write(self, judgement: Judgement, folds: Sequence[int]) -> None:
        target = Target(NAME, replaces=True, anyway=True, decisions=self._decisions())
        runs: tuple[Run, ...] = judgement.runs
        written = write_blend(self.competition, runs, judgement.chosen, target, self.machine)
        bounds = written.estimate.interval if written.estimate else (math.nan, math.nan)
        self.ledger.add(
            SUBMITTED,
            runs=judgement.names,
            folds=list(folds),
            score=finite(judgement.score),
            interval=[finite(bound) for bound in bounds],
            weights={name: round(weight, 4) for name, weight in judgement.weights.items()},
            models=models_of(judgement),
            sha256=written.sha256,
        )


def models_of(judgement: Judgement) -> list[int]:
    """Returns how many models each run of a blend has."""
    return [len(run.models()) for run in judgement.runs]


def finite(value: float) -> float | None:
    """Returns a number as JSON can hold it."""
    return round(float(value), 6) if math.isfinite(value) else None
