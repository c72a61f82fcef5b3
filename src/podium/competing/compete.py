"""Takes a competition and a time, and comes back with the best submission that Podium can make in it.

    podium compete [-c SLUG] [--budget 2h]

A frozen head comes first, so that there is a submission within a minute or two. Then the step with the largest expected
gain of the blend per minute (next_step.py), again and again, as long as there is time. Each member is an ordinary run.
Writes submissions/<slug>/compete.csv and its lineage (best_csv.py), and what ledger.py describes. The same command goes
on, also with more time.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from podium.blending.pool_images import rows_of
from podium.competing.best_csv import BestCsv, finite
from podium.competing.next_step import Known, Standing, Step, choose_step, expect, folds_that_judge, gain_in
from podium.competing.portfolio import HEAD, PLAIN, TUNED, Candidate, candidates_of
from podium.competing.progress_table import ProgressTable
from podium.competing.standing import Judgement
from podium.competing.understand import backbones_to_have, understand
from podium.competing.workshop import Train, Workshop
from podium.competition.load import Competition
from podium.errors import InUse, NoSpaceLeft, PodiumError
from podium.machine import Machine
from podium.models.device import device_kind, is_cpu, pick_device
from podium.saved_runs.ledger import BEGUN, ENDED, FAILED, FOLDS, LOG, STARTED, STOPPED, Ledger, Line
from podium.tasks.metrics import score_of
from podium.terminal import aside, duration, first_few, first_line, plural, say
from podium.training.plan import make_plan
from podium.training.request import Request, check_before_plan
from podium.training.train import train_folds

if TYPE_CHECKING:
    import pandas as pd

CPU_BUDGET, GPU_BUDGET = 1_800.0, 7_200.0  # seconds
FIRST_SIDES = (160, 128, 96)  # of the first head: the largest whose features take no longer than this
FIRST_SECONDS = 30.0
SHARE_OF_TIME = 0.5  # that one member may take of all time
LEAST_GAIN = 0.002  # of the blend's error: what promises less is not worth a step
RESERVE = 5.0  # seconds for the last blend and its CSV, at least
HOUR = 3_600.0


@dataclass(frozen=True)
class CompeteRequest:
    budget: float | None = None  # seconds; None: half an hour on a CPU, two hours with a GPU
    machine: Machine = field(default_factory=Machine)
    except_runs: tuple[str, ...] = ()  # left out
    train: Train = train_folds  # where a member is trained
    most_members: int | None = None  # that this call trains


@dataclass(frozen=True)
class Outcome:
    """What a competition came to."""

    submission: Path
    score: float
    interval: tuple[float, float]
    members: dict[str, float]  # the runs of the blend, and their weights
    rows: tuple[tuple[str, float, float, float], ...] = field(repr=False)  # of all: name, score, weight, minutes

    @property
    def expected(self) -> str:
        """Returns the expected score and its interval, in words."""
        return f"{self.score:z.4f} ({self.interval[0]:z.4f} to {self.interval[1]:z.4f})"

    @property
    def table(self) -> "pd.DataFrame":
        """Returns a row for each member: its score, its weight in the blend, and the minutes of its training."""
        import pandas as pd

        return pd.DataFrame(list(self.rows), columns=["member", "score", "weight", "minutes"])


def compete(competition: Competition, root: Path, request: CompeteRequest) -> Outcome:
    """Trains, blends and submits for the time of the request; goes on with what an earlier call has done."""
    ledger = Ledger(competition.slug, root)
    with ledger.open():
        budget = budget_of(ledger, request)
        worked = f", of which {duration(ledger.worked)} are worked already" if ledger.lines else ""
        default = "" if request.budget else " (BUDGET=2h or --budget 2h gives more)"
        say(f"podium: competing for {duration(budget)}{default}{worked}; Ctrl-C stops, the same command goes on")
        with aside(ledger.folder / LOG) as spoken, ProgressTable(competition.metric, budget, spoken) as shown:
            shown.worked = lambda: ledger.worked
            ledger.add(STARTED, budget=budget)
            shown.begin("reading and decoding the images")
            understand(competition, root, shown.tell)
            return Journey(competition, root, request, ledger, budget, shown).run()


def budget_of(ledger: Ledger, request: CompeteRequest) -> float:
    """Returns the time of the request, or that of the call before, or what suits the device."""
    given = [line["budget"] for line in ledger.of(STARTED)]
    if request.budget is not None:
        return request.budget
    if given:
        return float(given[-1])
    return CPU_BUDGET if is_cpu(pick_device(request.machine.device)) else GPU_BUDGET


class Choices:
    """The steps that can be taken now, and what is expected of each."""

    def __init__(self, competition: Competition, root: Path, request: CompeteRequest, ledger: Ledger) -> None:
        self.competition, self.root, self.request, self.ledger = competition, root, request, ledger
        self.device = device_kind(pick_device(request.machine.device))
        self.rows = list(backbones_to_have(self.device))
        options = {"model": self.rows[0].model, "linear": True} if self.rows else {"model": "auto", "weights": "none"}
        plan = make_plan(
            check_before_plan(competition.slug, root, Request(options, machine=request.machine), only_shown=True)
        )
        self.workshop = Workshop(replace(plan, competition=competition), request.machine, request.train)
        self.every = tuple(range(plan.folds.count))
        chosen = ledger.of(FOLDS)
        self.judging = tuple(chosen[-1]["judging"]) if chosen else self.every
        self.failed = {line["member"] for line in ledger.of(FAILED)}

    def candidates(self, standing: Standing) -> Iterator[Candidate]:
        """Yields what can be trained, without mirrored images where these do not keep their class."""
        data, asked = self.workshop.base.data, self.competition.recipe
        yield from candidates_of(self.rows, data, self.device, asked, standing.keeps_mirrored)

    def first(self) -> Step | None:
        """Returns the first head, of a size whose features take seconds; without weights, a model from scratch."""
        standing = Standing((), math.inf)
        heads = [one for one in self.candidates(standing) if one.kind == HEAD and not one.variant]
        by_side = {one.side: one for one in heads if one.model == heads[0].model}
        firsts = [by_side[side] for side in FIRST_SIDES if side in by_side] or list(by_side.values())
        firsts = firsts or list(self.candidates(standing))[:1]
        steps = [expect(one, self.every, self.workshop.seconds(one, self.every), standing) for one in firsts]
        return next((step for step in steps if step.seconds <= FIRST_SECONDS), steps[-1] if steps else None)

    def steps(self, standing: Standing, seconds_left: float, budget: float) -> list[Step]:
        """Returns what each candidate is expected to bring, if there is time for it."""
        known, workshop = {member.candidate.name: member for member in standing.members}, self.workshop
        most, steps = min(seconds_left, SHARE_OF_TIME * budget), []
        judging = self.folds_to_judge(standing, seconds_left)
        for candidate in self.candidates(standing):
            if candidate.name in self.failed or not _is_next(candidate, known):
                continue
            folds = self.every if candidate.kind == HEAD else judging
            fitted = workshop.with_epochs_for(candidate, folds, most)
            if fitted is None:
                continue
            if candidate.kind != HEAD and candidate.name not in known:
                folds = folds[:1]  # what does not help there need not be trained on the others
            steps.append(expect(fitted, folds, workshop.seconds(fitted, folds), standing))
        return steps

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

    def decide_folds(self, standing: Standing, step: Step, seconds_left: float) -> bool:
        """Decides on the folds if the step is the first that needs it; returns whether others judge from now on."""
        if step.candidate.kind == HEAD or self.ledger.of(FOLDS):
            return False
        judging, before = self.folds_to_judge(standing, seconds_left), self.judging
        why = f"{plural(len(judging), 'fold')} of fine-tuned members fit into the time"
        self.ledger.add(FOLDS, judging=list(judging), why=why)
        self.judging = judging
        return judging != before


def _is_next(candidate: Candidate, known: dict[str, Known]) -> bool:
    """Returns whether a member is not trained, and what it is a variant of is."""
    if candidate.name in known and known[candidate.name].is_whole:
        return False
    if candidate.variant == PLAIN:  # asked once, by the first head
        return not any(member.candidate.variant == PLAIN for member in known.values()) and len(known) == 1
    if candidate.variant:
        return replace(candidate, variant="").name in known
    if candidate.seed:
        before = replace(candidate, seed=candidate.seed - 1).name
        return before in known and known[before].is_whole
    return True


class Journey:
    """One call of the command."""

    def __init__(
        self,
        competition: Competition,
        root: Path,
        request: CompeteRequest,
        ledger: Ledger,
        budget: float,
        shown: ProgressTable,
    ) -> None:
        self.competition, self.ledger, self.budget, self.shown = competition, ledger, budget, shown
        self.choices = Choices(competition, root, request, ledger)
        self.best = BestCsv(competition, root, request.machine, ledger, request.except_runs)
        self.judgement: Judgement | None = None
        self.told: set[str] = set()
        self.trained = 0
        self.minutes: dict[str, float] = {}
        for line in ledger.of(ENDED):
            self.minutes[line["member"]] = self.minutes.get(line["member"], 0.0) + line["seconds"] / 60

    @property
    def standing(self) -> Standing:
        return self.judgement.standing if self.judgement else Standing((), math.inf)

    @property
    def is_enough(self) -> bool:
        most = self.choices.request.most_members
        return most is not None and self.trained >= most

    @property
    def seconds_left(self) -> float:
        return self.budget - self.ledger.worked - max(RESERVE, 1.5 * self.best.seconds)

    def run(self) -> Outcome:
        self.judge()
        if unfinished := self.ledger.unfinished():
            self.train(_step_of(unfinished), "it was begun before")
        while not self.is_enough and (step := self.next_step()) is not None:
            if self.choices.decide_folds(self.standing, step, self.seconds_left):
                self.judge()
            self.train(step, step.why(self.standing))
        return self.end()

    def next_step(self) -> Step | None:
        """Returns the step with the largest expected gain per minute; None if there is no time or no gain left."""
        if self.judgement is None:
            step = None if self.choices.failed else self.choices.first()
            return step if step and step.seconds < self.seconds_left else None
        steps = self.choices.steps(self.standing, self.seconds_left, self.budget)
        plain = [step for step in steps if step.candidate.variant == PLAIN]  # the rest depends on its answer
        step = plain[0] if plain else choose_step(steps, self.seconds_left)
        if step is None or (not plain and step.gain < LEAST_GAIN * self.standing.blend_error):
            return None
        return step

    def train(self, step: Step, why: str) -> None:
        """Trains a member on some folds, judges the blend, and submits it if it is better."""
        candidate, before, started = step.candidate, self.standing.blend_error, time.monotonic()
        self.ledger.add(BEGUN, **_facts_of(step), blend_error=finite(before), why=why)
        folds = "" if step.folds == self.choices.every else f", fold {', '.join(map(str, step.folds))}"
        self.shown.begin(f"training {candidate.describe()}{folds}")
        try:
            self.choices.workshop.train(candidate, step.folds, self.seconds_left)
        except (InUse, NoSpaceLeft):
            raise
        except (PodiumError, RuntimeError, MemoryError) as error:
            self.choices.failed.add(candidate.name)
            self.ledger.add(FAILED, member=candidate.name, error=first_line(error))
            self.shown.tell(f"podium: warning: {candidate.name} failed and is left out: {first_line(error)}")
            return
        seconds, self.trained = time.monotonic() - started, self.trained + 1
        self.minutes[candidate.name] = self.minutes.get(candidate.name, 0.0) + seconds / 60
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

    def judge(self) -> None:
        self.shown.begin("blending")
        by_name = {one.name: one for one in self.choices.candidates(self.standing)}
        by_name |= {line["member"]: _step_of(line).candidate for line in self.ledger.of(BEGUN)}
        self.judgement = self.best.update(by_name, self.choices.judging)
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
        expected = f"{metric} {judgement.score:z.4f} expected ({low:z.4f} to {high:z.4f})"
        self.shown.update(
            [(name, f"{score:z.4f}", f"{weight:.3f}", f"{minutes:.1f}") for name, score, weight, minutes in self.rows],
            expected,
        )
        if not self.shown.is_live:
            count = sum(weight > 0 for weight in weights.values())
            self.shown.tell(f"    blend of {plural(count, 'member')}: {expected}")

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

    # --- the end ---

    def end(self) -> Outcome:
        if self.judgement is None:
            raise self.nothing()
        why = "no further step promises a gain" if self.seconds_left > 60 else "the time is over"
        why = "enough members are trained" if self.is_enough else why
        self.ledger.add(STOPPED, why=why)
        metric, (low, high), tests = self.competition.metric, self.best.interval, len(self.competition.answer_ids)
        self.shown.tell(self.shown.text())
        self.shown.tell(f"podium: {why} after {duration(self.ledger.worked)}; {self.what_an_hour_brings()}")
        self.shown.tell(
            f"podium: {metric} {self.judgement.score:z.4f}; expect between {low:z.4f} and {high:z.4f} on {tests:,} test"
            f" {rows_of(self.competition)}"
        )
        if failed := sorted(self.choices.failed):
            self.shown.tell(f"podium: warning: failed, and left out: {first_few(failed)}")
        members = {name: weight for name, weight in self.judgement.weights.items() if weight}
        return Outcome(self.best.path, self.judgement.score, (low, high), members, self.rows)

    def what_an_hour_brings(self) -> str:
        """Returns a guess at what more time would bring."""
        steps = self.choices.steps(self.standing, HOUR, self.budget + HOUR)
        gain = gain_in(HOUR, steps, self.standing)
        if gain < LEAST_GAIN * self.standing.blend_error:
            return "an hour more would bring next to nothing, by a guess"
        return f"an hour more would bring {gain:.4f} of {self.competition.metric}, by a guess"

    def nothing(self) -> PodiumError:
        """Returns why there is no submission."""
        if failed := sorted(self.choices.failed):
            log = self.ledger.folder / LOG
            return PodiumError(f"no member could be trained: {first_few(failed)} failed; {log} says why")
        first = self.choices.first()
        seconds = first.seconds if first else math.nan
        least = duration(60 * math.ceil((self.ledger.worked + 1.5 * seconds + 2 * RESERVE) / 60))
        return PodiumError(
            f"--budget: the first member takes about {duration(seconds)}, and {duration(self.budget)} are too few for"
            f" it; allow {least} at least"
        )


def _facts_of(step: Step) -> Line:
    """Returns what the ledger keeps of a step that begins."""
    candidate = step.candidate
    return {
        "member": candidate.name,
        "folds": list(step.folds),
        "kind": candidate.kind,
        "model": candidate.model,
        "family": candidate.family,
        "side": candidate.side,
        "seed": candidate.seed,
        "variant": candidate.variant,
        "options": dict(candidate.options),
        "seconds": finite(step.seconds),
        "gain": finite(step.gain),
        "error": finite(step.error),
        "chance": step.chance,
    }


def _step_of(line: Line) -> Step:
    """Returns the step that a line of the ledger has begun."""
    texts = (str(line.get(name, "")) for name in ("family", "variant"))
    family, variant = texts
    candidate = Candidate(
        line["kind"], line["model"], family, line["side"], line["options"], line["seed"], variant=variant
    )
    return Step(candidate, tuple(line["folds"]), float(line.get("seconds") or 0.0), 0.0, math.nan, 1.0)
