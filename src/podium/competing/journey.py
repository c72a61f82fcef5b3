"""One call of `podium compete`: trains one member after the other, judges them, and keeps the best blend.

The step with the largest expected gain of the blend per minute comes next (choices.py, next_step.py); best_csv.py
judges and writes. Every decision is a line of the ledger.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from podium.basics.errors import InUse, NoSpaceLeft, PodiumError
from podium.basics.terminal import first_few, first_line, plural
from podium.competing.best_csv import BestCsv, finite
from podium.competing.choices import Choices, CompeteRequest
from podium.competing.ledger_lines import facts_of, step_of, trust_of
from podium.competing.next_step import Standing, Step, choose_step
from podium.competing.portfolio import QUESTIONS, Candidate
from podium.competing.progress_table import ProgressTable
from podium.competing.standing import Judgement
from podium.competition.load import Competition
from podium.saved_runs.fold_names import WHOLE, fold_name
from podium.saved_runs.ledger import BEGUN, ENDED, FAILED, SUBMITTED, Ledger
from podium.tasks.metrics import score_of

WORTH = 0.01  # of the blend's error: steps that promise less come after all that promise more
LEAST_GAIN = 0.002  # of it: what promises less is not worth a step
RESERVE = 5.0  # seconds for the last blend and its CSV, at least


class Journey:
    """One call of the command."""

    def __init__(
        self,
        competition: Competition,
        request: CompeteRequest,
        ledger: Ledger,
        budget: float,
        shown: ProgressTable,
    ) -> None:
        self.competition, self.ledger, self.budget, self.shown = competition, ledger, budget, shown
        self.choices = Choices(competition, request, ledger)
        self.best = BestCsv(competition, request.machine, ledger, request.except_runs)
        self.judgement: Judgement | None = None
        self.told: set[str] = set()
        self.trained = 0
        self.is_behind = False  # the CSV, to whose members models of all images have come
        self.minutes: dict[str, float] = {}
        for line in ledger.of(ENDED):
            self.minutes[line["member"]] = self.minutes.get(line["member"], 0.0) + line["seconds"] / 60

    @property
    def standing(self) -> Standing:
        if not self.judgement:
            return Standing((), math.inf)
        return replace(self.judgement.standing, trust=trust_of(self.ledger))

    @property
    def is_enough(self) -> bool:
        most = self.choices.request.most_members
        return most is not None and self.trained >= most

    @property
    def seconds_left(self) -> float:
        last = max(RESERVE, 1.5 * self.best.seconds) + self.choices.seconds_owed(self.standing)
        return self.budget - self.ledger.worked - last

    def train_members(self) -> None:
        """Trains one member after the other, as long as there is time and one promises a gain."""
        unfinished = self.ledger.unfinished()
        if unfinished and self.judgement and self.ledger.worked >= self.budget:
            name = step_of(unfinished).candidate.describe()
            self.shown.tell(f"podium: {name} was begun, and the time is over; a longer BUDGET (--budget) finishes it")
        elif unfinished:
            self.train(step_of(unfinished), "it was begun before")
        while not self.is_enough and (step := self.next_step()) is not None:
            self.choices.decide_folds(self.standing, step, self.seconds_left)
            self.train(step, step.why(self.standing))

    def next_step(self) -> Step | None:
        """Returns the step with the largest expected gain per minute; None if there is no time or no gain left."""
        if self.judgement is None:
            step = self.choices.first()
            return step if step and step.seconds < self.seconds_left else None
        steps = self.choices.steps(self.standing, self.seconds_left, self.budget)
        if questions := [step for step in steps if step.candidate.variant in QUESTIONS]:  # the rest depends on these
            return questions[0]
        error = self.standing.blend_error
        for least in (WORTH, LEAST_GAIN):
            if step := choose_step((one for one in steps if one.gain >= least * error), self.seconds_left):
                return step
        return None

    def train(self, step: Step, why: str) -> None:
        """Trains a member on some folds, judges the blend, and submits it if it is better.

        After a model of all images, the CSV waits for the next call of `judge`.
        """
        candidate, before, started = step.candidate, self.standing.blend_error, time.monotonic()
        self.ledger.add(BEGUN, **facts_of(step), blend_error=finite(before), why=why)
        folds = "" if step.folds == self.choices.every else f", {first_few(map(fold_name, step.folds))}"
        self.shown.begin(f"training {candidate.describe()}{folds}")
        try:
            self.choices.workshop.train(candidate, step.folds, self.seconds_left)
        except (InUse, NoSpaceLeft):
            raise
        except (PodiumError, RuntimeError, MemoryError) as error:
            self.choices.failed.add(candidate.name)
            self.ledger.add(FAILED, member=candidate.name, error=first_line(error))
            what = "failed and is left out" if step.folds != (WHOLE,) else "goes on without a model of all images"
            self.shown.tell(f"podium: warning: {candidate.name} {what}: {first_line(error)}")
            return
        seconds, self.trained = time.monotonic() - started, self.trained + 1
        self.minutes[candidate.name] = self.minutes.get(candidate.name, 0.0) + seconds / 60
        self.is_behind = step.folds == (WHOLE,)  # no image judges such a model, so one CSV serves for all of them
        if not self.is_behind:
            self.judge()
        after, errors = self.standing.blend_error, self.judgement.errors if self.judgement else {}
        self.ledger.add(
            ENDED,
            member=candidate.name,
            seconds=round(seconds, 1),
            blend_error=finite(after),
            gain=finite(before - after),
            errors={name: finite(error) for name, error in errors.items()},
        )

    def take_if_better(self, folds: Sequence[int]) -> None:
        """Takes the blend that only these folds judge, if members that lack others make it better than the last one."""
        if judgement := self.best.update(self.by_name(), folds, self.judgement):
            self.judgement = judgement

    def by_name(self) -> dict[str, Candidate]:
        by_name = {one.name: one for one in self.choices.candidates(self.standing)}
        return by_name | {line["member"]: step_of(line).candidate for line in self.ledger.of(BEGUN)}

    def judge(self) -> None:
        self.shown.begin("blending")
        self.is_behind = False
        submitted, judging = self.ledger.of(SUBMITTED), self.choices.judging
        folds = tuple(submitted[-1]["folds"]) if submitted else self.choices.every
        self.judgement = self.best.update(self.by_name(), folds)
        if folds != judging and any(
            self.choices.has_trained(known.candidate, judging) for known in self.standing.members
        ):
            self.take_if_better(judging)
        for name, reason in self.best.left_out.items():
            if name not in self.told:
                self.told.add(name)
                self.shown.tell(f"podium: not blended: {name} ({reason})")
        if self.judgement:
            self.show(self.judgement)

    def show(self, judgement: Judgement) -> None:
        """Updates the table; where there is none, says how the blend stands."""
        metric, weights = self.competition.metric, judgement.weights
        low, high = self.best.interval
        interval = f"({low:z.4f} to {high:z.4f})"
        self.shown.update(
            [
                (name, f"{score:z.4f}", f"{weight:z.3f}", f"{minutes:z.1f}")
                for name, score, weight, minutes in self.rows
            ],
            f"expect {judgement.score:z.4f} {interval}",
        )
        if not self.shown.is_live:
            count = sum(weight > 0 for weight in weights.values())
            self.shown.tell(
                f"    blend of {plural(count, 'member')}: {metric} {judgement.score:z.4f} expected {interval}"
            )

    @property
    def rows(self) -> tuple[tuple[str, float, float, float], ...]:
        """Returns a row for each member, those with the largest weights first: name, score, weight, minutes."""
        assert self.judgement
        weights, errors, metric = self.judgement.weights, self.judgement.errors, self.competition.metric
        names = sorted(errors, key=lambda name: (-weights.get(name, 0.0), errors[name]))
        return tuple(
            (name, score_of(metric, errors[name]), weights.get(name, 0.0), self.minutes.get(name, 0.0))
            for name in names
        )
