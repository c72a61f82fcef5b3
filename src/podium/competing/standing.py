"""Judges the members of a competition: the error of each, and of their blend, on images that none of them has seen."""

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

import numpy as np

from podium.blending.held_out import HeldOut, collect_held_out
from podium.blending.own_decision import undecided_answers
from podium.blending.pool_images import pool_held_out
from podium.blending.table_rows import rows_of_tables
from podium.competing.next_step import Known, Standing
from podium.competing.portfolio import HEAD, Candidate
from podium.competition.load import Competition
from podium.folds.folds_csv import read_groups
from podium.saved_runs.run_folder import Run
from podium.submissions.choose_steps import ChosenSteps, choose_steps, wishes_of
from podium.tasks.metrics import calibrates, error_of, evaluate
from podium.tasks.pool import MEAN, Pool
from podium.tasks.task import Targets
from podium.tasks.temperature import apply_temperature, fit_temperature

MANY = 2  # members: of more, the worst one may be left out
# Times the best member's error: of a head of small images, a blend keeps more than helps. A guess, seen on pets only.
GOOD = 2.0


@dataclass(frozen=True)
class Member:
    """A run that the blend may take."""

    run: Run
    candidate: Candidate
    is_own: bool = True  # else a person has trained it, or brought its predictions


@dataclass(frozen=True)
class Judgement:
    """What the members' predictions for held-out images say."""

    errors: dict[str, float]  # by run
    chosen: ChosenSteps  # the steps of the best blend, which these runs are blended by
    runs: tuple[Run, ...]
    standing: Standing
    folds: tuple[int, ...]  # whose images have judged

    @property
    def score(self) -> float:
        return self.chosen.estimate.score if self.chosen.estimate else math.nan

    @property
    def names(self) -> list[str]:
        return [run.name for run in self.runs]

    @property
    def weights(self) -> dict[str, float]:
        return {run.name: weight for run, weight in zip(self.runs, self.chosen.blend.weights, strict=True)}


class Judge:
    """Compares members and blends on the images of some folds."""

    def __init__(self, competition: Competition, folds: Sequence[int]) -> None:
        self.competition, self.folds = competition, tuple(folds)
        self.groups = read_groups(competition)
        self.wishes = replace(wishes_of(competition), folds=self.folds)

    def judge(
        self,
        members: Sequence[Member],
        earlier: Sequence[str] = (),
        weighed: Container[str] = (),
        last: Judgement | None = None,
    ) -> Judgement:
        """Judges blends of the members; takes the one with the best honest estimate.

        `earlier` are the runs that a submission blends; a tie goes to it, and it need not be fitted again if it was
        judged last. It is compared with itself and what was not `weighed` before, with all members, with all but the
        worst one, with those about as good as the best one, and with that one alone.
        """
        whole = [member.run for member in members if self.is_whole(member.run)]
        known, loss_left = self.singles(members)
        errors = {member.run.name: one.error for member, one in zip(members, known, strict=True) if one.is_whole}
        good = GOOD * min(errors.values(), default=0.0)
        options = (
            [run for run in whole if run.name in earlier],
            [run for run in whole if run.name in earlier or run.name not in weighed],
            [run for run in whole if len(whole) > MANY and errors[run.name] < max(errors.values())],
            whole,
            [run for run in whole if errors[run.name] <= good],
            sorted(whole, key=lambda run: errors[run.name])[:1],
        )
        runs, chosen = self.best_of([tuple(option) for option in options if option], last)
        has_tables = self.competition.features or self.competition.test_groups is not None
        if has_tables and not (last and chosen is last.chosen):  # trees, which take time, for the best one only
            chosen = self.blend(runs, is_quick=False)
        return Judgement(errors, chosen, runs, Standing(tuple(known), self.error(chosen), loss_left), self.folds)

    def best_of(
        self, options: Sequence[tuple[Run, ...]], last: Judgement | None = None
    ) -> tuple[tuple[Run, ...], ChosenSteps]:
        """Returns the runs whose blend is best, and the blend; of equal ones the first."""
        chosen = {}
        for runs in dict.fromkeys(options):
            is_known = last and last.folds == self.folds and last.runs == runs
            chosen[runs] = last.chosen if last and is_known else self.blend(runs)
        return min(chosen.items(), key=lambda option: self.error(option[1]))

    def singles(self, members: Sequence[Member]) -> tuple[list[Known], float]:
        """Returns the error of each member, and what the best head leaves of the loss of the classes' shares.

        Those of fewer folds are put beside whole runs.
        """
        whole = [member for member in members if self.is_whole(member.run)]
        beside, errors, loss_left = [member.run for member in whole], {}, 1.0
        if whole:
            held_out = self._held_out([member.run for member in whole])
            loss_left = self._loss_left(whole, held_out)
            for member, probs in zip(whole, held_out.probs, strict=True):
                errors[member.run.name] = self._error_of(probs, held_out.targets)
        known = [
            Known(member.candidate, errors[member.run.name])
            if member.run.name in errors
            else self._known_in_part(member, beside)
            for member in members
        ]
        return known, loss_left

    def is_whole(self, run: Run) -> bool:
        return not set(self.folds) - set(run.finished())

    def blend(self, runs: Sequence[Run], is_quick: bool = True) -> ChosenSteps:
        return choose_steps(self.competition, runs, replace(self.wishes, is_quick=is_quick))

    def error(self, chosen: ChosenSteps) -> float:
        return error_of(self.competition.metric, chosen.estimate.score) if chosen.estimate else math.inf

    def is_better(self, new: Judgement, old: Judgement) -> bool:
        """Returns whether a blend judged on these folds is better there than one that was fitted to more of them.

        The old one has seen these images, which favours it a little: what is kept is not worse.
        """
        blend, metric = old.chosen.blend, self.competition.metric
        held_out = self._held_out(old.runs, pool=blend.pool, has_rows=blend.stack is not None)
        undecided = undecided_answers(self.competition, blend.decision, held_out.ids)
        probs = blend.apply(held_out.probs, held_out.features, undecided)
        return self.error(new.chosen) < error_of(metric, evaluate(metric, held_out.targets, probs))

    def _held_out(
        self, runs: Sequence[Run], folds: Sequence[int] = (), pool: Pool = MEAN, has_rows: bool = False
    ) -> HeldOut:
        competition = self.competition
        found = collect_held_out(runs, competition.classes, self.groups, competition.label_of, folds or self.folds)
        if has_rows:
            found = replace(found, features=rows_of_tables(competition, found.ids))
        return pool_held_out(found, competition, pool) if competition.answers else found

    def _error_of(self, probs: np.ndarray, targets: Targets) -> float:
        """Returns the error of one run, of calibrated probabilities: smoothed labels make a good model look unsure."""
        metric = self.competition.metric
        if calibrates(metric, targets.task):
            probs = apply_temperature(probs, fit_temperature(probs, targets.values, targets.votes))
        error = error_of(metric, evaluate(metric, targets, probs))
        return error if math.isfinite(error) else math.inf

    def _known_in_part(self, member: Member, runs: Sequence[Run]) -> Known:
        """Returns a member of fewer folds with the error that its folds show, in relation to those of whole runs."""
        folds = [fold for fold in self.folds if fold in member.run.finished()]
        held_out = self._held_out([member.run, *runs], folds)
        errors = [self._error_of(probs, held_out.targets) for probs in held_out.probs]
        if not runs:
            return Known(member.candidate, errors[0], is_whole=False)
        whole = self._held_out(runs)
        of_all = [self._error_of(probs, whole.targets) for probs in whole.probs]
        harder = np.median([part / max(error, 1e-9) for part, error in zip(errors[1:], of_all, strict=True)])
        return Known(member.candidate, errors[0] / max(float(harder), 1e-9), is_whole=False)

    def _loss_left(self, members: Sequence[Member], held_out: HeldOut) -> float:
        """Returns the least loss that a frozen head leaves, of the loss of the classes' shares."""
        task, targets = self.competition.task, held_out.targets
        heads = [probs for member, probs in zip(members, held_out.probs, strict=True) if member.candidate.kind == HEAD]
        if not heads or not task.are_labels or not len(targets):
            return 1.0
        prior = prior_of(targets, heads[0].shape)
        of_prior = evaluate(task.loss, targets, prior)
        losses = []
        for probs in heads:
            calibrated = (
                apply_temperature(probs, fit_temperature(probs, targets.values, targets.votes))
                if task.sums_to_one
                else probs
            )
            losses.append(evaluate(task.loss, targets, calibrated))
        return min(losses) / max(of_prior, 1e-9)


def prior_of(targets: Targets, shape: tuple[int, ...]) -> np.ndarray:
    """Returns the classes' shares, for each image."""
    counts = targets.counts(shape[1]).astype(float) + 1
    shares = counts / counts.sum() if targets.task.sums_to_one else (counts / (len(targets) + 2)).clip(1e-6, 1 - 1e-6)
    return np.tile(shares, (shape[0], 1))
