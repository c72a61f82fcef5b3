"""What `--model auto` trains on a CPU: the best single model, found as `compete` finds members.

Frozen heads come first, at one size after the other, as long as each promises less error. Then models that promise
even less are trained on the first fold: fine-tuned, or from scratch. The best of all becomes the run, and the best head
stays beside it as <run>-head. recipe.json keeps what was seen and chosen (`auto`), and a resumed run does not look
again.
"""

import math
import shutil
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from podium.basics.errors import InUse, NoSpaceLeft, PodiumError
from podium.basics.terminal import aside, duration, first_line, say
from podium.competing.next_step import Known, Standing, Step, choose_step, expect, gain_of_best
from podium.competing.portfolio import HEAD, QUESTIONS, Candidate, candidates_of
from podium.competing.standing import Judge, Member
from podium.competing.understand import backbones_to_have
from podium.competing.workshop import LEAST_EPOCHS, Workshop
from podium.models.device import device_kind, pick_device
from podium.models.hub import JOIN
from podium.options.recipe import NEUTRAL, only_in_training
from podium.saved_runs.fold_names import holds_nothing_out
from podium.saved_runs.ledger import LOG
from podium.saved_runs.run_folder import Run, keep_choice
from podium.tasks.metrics import score_of
from podium.training.plan import Plan, with_options, with_run

FOLD_SECONDS = 420.0  # that a fold may take, if there is no budget
HEADS_SHARE = 0.25  # of that time, for all heads
LEAST_GAIN = 0.05  # of the best member's error: what promises less is not worth its time
TINY = 1e-6


def choose_one(plan: Plan) -> Plan:
    """Returns the plan with the model that suits its images; without `--model auto`, as it is."""
    if not plan.may_choose:
        return plan
    search = OneModel(plan)
    if not search.rows:
        say(f"podium: note: no pretrained weights are here, so auto trains {plan.recipe.model} from scratch")
        return plan
    started = time.monotonic()
    say("podium: auto tries frozen heads, then what promises more, and takes the best")
    best = search.run()
    say(
        f"podium: auto takes {best.describe()}, after {duration(time.monotonic() - started)}; --model NAME overrules it"
    )
    return settle(search, best)


class OneModel:
    """The search for the model of one plan. What it trains lies in a hidden folder, which the same command finds."""

    def __init__(self, plan: Plan) -> None:
        self.plan, budget = plan, plan.request.budget
        device = pick_device(plan.request.machine.device)
        self.device, self.rows = device_kind(device), list(backbones_to_have(device))
        self.given = {name: value for name, value in plan.request.options.items() if name != "model"}
        self.asked = {**plan.competition.recipe, **self.given}
        self.folds = tuple(fold for fold in plan.folds_to_train if not holds_nothing_out(fold))
        self.folder = plan.run.path.with_name(f".auto-{plan.run.name}")
        self.workshop = Workshop(plan, replace(plan.request.machine, track=""), folder=self.folder)
        self.judge = Judge(plan.competition, self.folds)
        self.seconds = FOLD_SECONDS * len(self.folds) if budget is None else budget
        self.end = (time.monotonic() if budget is None else plan.request.started) + self.seconds
        self.standing = Standing((), math.inf)
        self.trained: list[Candidate] = []
        self.failed: set[str] = set()
        self.seen: list[dict[str, Any]] = []  # for recipe.json

    @property
    def seconds_left(self) -> float:
        return self.end - time.monotonic()

    @property
    def may_be_head(self) -> bool:
        """Returns whether a head may be the choice: the user has not asked for what only training has."""
        wanted = {**NEUTRAL, **self.given, "teacher": self.asked.get("teacher", "")}
        return self.asked.get("linear") is not False and all(
            wanted[name] == NEUTRAL[name] for name in only_in_training()
        )

    @property
    def eligible(self) -> list[Known]:
        """Returns what may be the choice, the best first."""
        members = [one for one in self.standing.members if self.may_be_head or one.candidate.kind != HEAD]
        return sorted(members, key=lambda one: one.error)

    def run(self) -> Candidate:
        """Trains what promises most, one after the other; returns the best."""
        while step := self.next_step():
            if self.train(step):
                self.look_at(step.candidate)
        if not self.eligible:
            raise PodiumError("--model auto: no model could be trained in the time; name one with --model")
        return self.eligible[0].candidate

    # --- what comes next ---

    def candidates(self) -> Iterator[Candidate]:
        """Yields what may be the one model, or show which one; what the user gives stays."""
        for one in candidates_of(self.rows, self.plan.data, self.device, self.asked, self.standing.learned):
            if one.seed or one.variant not in ("", *QUESTIONS) or JOIN in one.model:
                continue
            if self.asked.get("linear") and one.kind != HEAD:
                continue
            given = self.given
            if one.kind == HEAD:
                given = {name: value for name, value in given.items() if name not in {*only_in_training(), "linear"}}
            yield replace(one, options={**one.options, **given})

    def next_step(self) -> Step | None:
        """Returns the head with the most gain per minute, or else the model with the most gain; None at the end."""
        steps = [step for one in self.candidates() if (step := self.step_of(one))]
        heads = [step for step in steps if step.candidate.kind == HEAD and not step.candidate.variant]
        members = self.standing.members
        if not members:
            firsts = [step for step in heads if step.candidate.model == self.rows[0].model] or steps
            return min(firsts, key=lambda step: step.seconds, default=None) or self.last_resort()
        known = [(one.candidate.model, one.candidate.side) for one in members]
        for step in steps:
            if step.candidate.variant in QUESTIONS and {(step.candidate.model, step.candidate.side)} == {*known}:
                return step  # the rest depends on its answer
        least = LEAST_GAIN * min(member.error for member in members)
        heads = [step for step in heads if step.gain >= least]
        if head := choose_step(heads, self.seconds_left - (1 - HEADS_SHARE) * self.seconds):
            return head
        others = [step for step in steps if step.candidate.kind != HEAD and step.gain >= max(least, TINY)]
        model = max(others, key=lambda step: (step.gain, -step.error), default=None)
        # On a slow machine the first heads are small and take all the time of heads: a larger one may promise more.
        head = choose_step(heads, self.seconds_left) if self.may_be_head else None
        return head if head and head.gain > (model.gain if model else 0.0) else model or self.last_resort()

    def last_resort(self) -> Step | None:
        """Returns the quickest model, with as few epochs as there is time for, if nothing else may be the choice."""
        if self.eligible:
            return None
        steps = [self.step_of(one, least=0.0) for one in self.candidates() if self.may_be_head or one.kind != HEAD]
        return min(filter(None, steps), key=lambda step: step.seconds, default=None)

    def step_of(self, candidate: Candidate, least: float = LEAST_EPOCHS) -> Step | None:
        """Returns what a member promises; nothing if it is tried already, or if there is no time for all its folds.

        With `least` epochs of 0, there always is.
        """
        if candidate.name in self.failed or candidate in self.trained:
            return None
        left = max(self.seconds_left, 1.0)
        if candidate.kind == HEAD or "epochs" in self.given:
            fits = not least or self.workshop.seconds(candidate, self.folds) <= left
            fitted = candidate if fits else None
        else:
            fitted = self.workshop.with_epochs_for(candidate, self.folds, left, least)
        if fitted is None:
            return None
        folds = self.folds if candidate.kind == HEAD else self.folds[:1]
        return expect(fitted, folds, self.workshop.seconds(fitted, folds), self.standing, gain_of=self.gain_of)

    def gain_of(self, candidate: Candidate, error: float, standing: Standing) -> float:
        if candidate.kind != HEAD and not self.eligible:
            return math.inf  # one has to be trained
        return gain_of_best(candidate, error, standing)

    # --- training and judging ---

    def train(self, step: Step) -> bool:
        """Trains a member; returns whether it could be."""
        candidate, budget = step.candidate, self.plan.request.budget
        seconds = math.inf if budget is None else self.seconds_left / len(self.folds)
        try:
            with aside(self.folder / LOG) if candidate.kind == HEAD else nullcontext():
                self.workshop.train(candidate, step.folds, seconds)
        except (InUse, NoSpaceLeft):
            raise
        except (PodiumError, RuntimeError, MemoryError) as error:
            self.failed.add(candidate.name)
            say(f"podium: warning: {candidate.name} failed and is left out: {first_line(error)}")
            return False
        self.trained.append(candidate)
        return True

    def look_at(self, newest: Candidate) -> None:
        """Judges all that is trained; those of the first fold only are put beside the heads there."""
        members = [Member(self.workshop.run_of(one), one) for one in self.trained]
        known, loss_left = self.judge.singles(members)
        self.standing = Standing(tuple(known), min(one.error for one in known), loss_left)
        metric = self.plan.competition.metric
        score = score_of(metric, known[-1].error)
        self.seen.append({"member": newest.name, "score": round(score, 6)})
        say(f"  {newest.describe()}: {metric} {score:z.4f}")


def settle(search: OneModel, best: Candidate) -> Plan:
    """Makes the best member the run, and the best head the run beside it; returns the plan of what is left."""
    plan, workshop = search.plan, search.workshop
    run, options = workshop.run_of(best), workshop.options_of(best)
    recorded = {name: value for name, value in options.items() if plan.request.options.get(name) != value}
    keep_choice(run, {"options": recorded, "folds": list(search.folds), "looks": search.seen})
    heads = [one for one in search.standing.members if one.candidate.kind == HEAD and one.is_whole]
    beside = plan.run.path.with_name(f"{plan.run.name}-head")
    if best.kind != HEAD and heads and not beside.exists():
        head = min(heads, key=lambda one: one.error)
        move_run(workshop.run_of(head.candidate), beside)
        say(f"podium: the best frozen head stays as {beside.name}: submissions weigh both")
    move_run(run, plan.run.path)
    shutil.rmtree(search.folder, ignore_errors=True)
    return with_run(with_options(plan, options), Run(plan.run.path))


def move_run(run: Run, path: Path) -> None:
    """Moves a run to its name; refuses a folder that holds something else."""
    if path.exists():
        if any(path.iterdir()):
            raise PodiumError(f"{path} is no run that auto could go on with; move it, or choose another --name")
        path.rmdir()
    run.path.rename(path)
