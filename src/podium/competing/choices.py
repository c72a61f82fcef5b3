"""The steps that `podium compete` can take now: what can be trained here, in which time, and what that would bring."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from podium.basics.machine import Machine
from podium.basics.terminal import plural
from podium.competing.next_step import WANTED, Known, Standing, Step, expect, first_of_kind, folds_that_judge
from podium.competing.portfolio import HEAD, PSEUDO, QUESTIONS, SCRATCH, TUNED, Candidate, candidates_of
from podium.competing.understand import backbones_to_have
from podium.competing.workshop import Train, Workshop
from podium.competition.load import Competition
from podium.models.device import device_kind, pick_device
from podium.saved_runs.ledger import BEGUN, FOLDS, SUBMITTED, Ledger
from podium.training.plan import make_plan
from podium.training.request import Request, check_before_plan
from podium.training.train import train_folds

FIRST_SIDES = (160, 128, 96, 64)  # of the first head: the largest whose features take no longer than this
FIRST_SECONDS = 30.0
SHARE_OF_TIME = 0.5  # that one member may take of all time


@dataclass(frozen=True)
class CompeteRequest:
    budget: float | None = None  # seconds; None: half an hour on a CPU, two hours with a GPU
    machine: Machine = field(default_factory=Machine)
    except_runs: tuple[str, ...] = ()  # left out
    train: Train = train_folds  # where a member is trained
    on: str = ""  # where its folds are cells that other processes may train, too
    most_members: int | None = None  # that this call trains


class Choices:
    """The steps that can be taken now, and what is expected of each."""

    def __init__(self, competition: Competition, request: CompeteRequest, ledger: Ledger) -> None:
        self.competition, self.request, self.ledger = competition, request, ledger
        device = pick_device(request.machine.device)
        self.device, self.rows = device_kind(device), list(backbones_to_have(device))
        options = {"model": self.rows[0].model, "linear": True} if self.rows else {"model": "auto", "weights": "none"}
        plan = make_plan(
            check_before_plan(
                competition.slug, competition.root, Request(options, machine=request.machine), only_shown=True
            )
        )
        self.workshop = Workshop(replace(plan, competition=competition), request.machine, request.train)
        self.every = tuple(range(plan.folds.count))
        chosen = ledger.of(FOLDS)
        self.judging = tuple(chosen[-1]["judging"]) if chosen else self.every
        self.failed = ledger.failed()

    def candidates(self, standing: Standing) -> Iterator[Candidate]:
        """Yields what can be trained, as the answers to QUESTIONS want it."""
        data, asked = self.workshop.base.data, self.competition.recipe
        for one in candidates_of(self.rows, data, self.device, asked, standing.learned):
            if one.variant != PSEUDO or self.competition.without_labels:
                yield one

    def first(self) -> Step | None:
        """Returns the first head, of a size whose features take seconds; without weights, a model from scratch.

        A model that has failed is not tried again.
        """
        standing = Standing((), math.inf)
        failed = {one.model for one in self.candidates(standing) if one.name in self.failed}
        possible = [one for one in self.candidates(standing) if one.model not in failed]
        heads = [one for one in possible if one.kind == HEAD and not one.variant]
        by_side = {one.side: one for one in heads if one.model == heads[0].model}
        firsts = [by_side[side] for side in FIRST_SIDES if side in by_side] or list(by_side.values())
        firsts = firsts or possible[:1]
        steps = [expect(one, self.every, self.workshop.seconds(one, self.every), standing) for one in firsts]
        return next((step for step in steps if step.seconds <= FIRST_SECONDS), steps[-1] if steps else None)

    def steps(self, standing: Standing, seconds_left: float, budget: float) -> list[Step]:
        """Returns what each candidate is expected to bring, if there is time for it."""
        known, workshop = {member.candidate.name: member for member in standing.members}, self.workshop
        kinds = {member.candidate.kind for member in standing.members} | {HEAD}
        most, steps = min(seconds_left, SHARE_OF_TIME * budget), []
        judging = self.folds_to_judge(standing, seconds_left)
        for candidate in self.candidates(standing):
            if candidate.name in self.failed or not _is_next(candidate, known):
                continue
            folds = self.every if candidate.kind == HEAD else judging
            # The first of a kind is to leave time for others: rather with fewer epochs than of a smaller size.
            times = [most] if candidate.kind in kinds else [min(most, seconds_left / WANTED), most]
            fitted = next((one for time in times if (one := workshop.with_epochs_for(candidate, folds, time))), None)
            if fitted is None:
                continue
            in_all = workshop.seconds(fitted, folds)
            if candidate.kind != HEAD and candidate.name not in known:
                folds = folds[:1]  # what does not help there need not be trained on the others
            if not set(folds) - set(workshop.run_of(candidate).finished()):
                continue  # the blend has not taken it
            steps.append(expect(fitted, folds, workshop.seconds(fitted, folds), standing, in_all))
        return _one_of_new_kinds(steps, kinds, seconds_left)

    def has_trained(self, candidate: Candidate, folds: Sequence[int]) -> bool:
        """Returns whether a model that is trained fold by fold is trained on all of these."""
        return candidate.kind in (TUNED, SCRATCH) and not set(folds) - set(self.workshop.run_of(candidate).finished())

    def seconds_owed(self, standing: Standing) -> float:
        """Returns how long the test images take for members that no CSV has blended yet: a later one may."""
        blended = {name for line in self.ledger.of(SUBMITTED) for name in line["runs"]}
        owing = {line["member"] for line in self.ledger.of(BEGUN)} - blended
        members = [known.candidate for known in standing.members if known.candidate.name in owing]
        return sum(map(self.workshop.seconds_to_predict, members))

    def folds_to_judge(self, standing: Standing, seconds_left: float) -> tuple[int, ...]:
        """Returns the folds that members are trained on: decided once, before the first fine-tuning."""
        if self.ledger.of(FOLDS):
            return self.judging
        tuned = [one for one in self.candidates(standing) if one.kind == TUNED and not one.seed]
        steps = [expect(one, (0,), self.workshop.seconds(one, (0,)), standing) for one in tuned]
        if not steps:
            return self.every
        step = max(steps, key=lambda one: one.gain_per_minute)
        folds = self.workshop.base.folds
        sizes = [int(folds.validates(fold).sum()) for fold in self.every]
        return self.every[: folds_that_judge(seconds_left, step.seconds, sizes)]

    def decide_folds(self, standing: Standing, step: Step, seconds_left: float) -> None:
        """Decides on the folds of fine-tuned members, if the step is the first of them."""
        if step.candidate.kind == HEAD or self.ledger.of(FOLDS):
            return
        self.judging = self.folds_to_judge(standing, seconds_left)
        why = f"{plural(len(self.judging), 'fold')} of fine-tuned members fit into the time"
        self.ledger.add(FOLDS, judging=list(self.judging), why=why)


def _one_of_new_kinds(steps: list[Step], kinds: set[str], seconds_left: float) -> list[Step]:
    """Returns the steps, of each kind that nothing is known of only the one that is to be tried first."""
    left = [step for step in steps if step.candidate.kind in kinds]
    for kind in (TUNED, SCRATCH):
        of_kind = [step for step in steps if step.candidate.kind == kind and kind not in kinds]
        if first := first_of_kind(of_kind, seconds_left):
            left.append(first)
    return left


def _is_next(candidate: Candidate, known: dict[str, Known]) -> bool:
    """Returns whether a member is not trained, and what it is a variant of is."""
    if candidate.name in known and known[candidate.name].is_whole:
        return False
    if candidate.variant in QUESTIONS and sum(one.candidate.variant not in QUESTIONS for one in known.values()) > 1:
        return False  # they are asked once, beside the first head
    if candidate.variant:
        base = known.get(replace(candidate, variant="").name)
        return base is not None and base.is_whole
    if candidate.seed:
        before = replace(candidate, seed=candidate.seed - 1).name
        return before in known and known[before].is_whole
    return True
