"""Takes a competition and a time, and comes back with the best submission that Podium can make in it.

    podium compete [-c SLUG] [--budget 2h]

A frozen head comes first, so that there is a submission within minutes. Then the step with the largest expected
gain of the blend per minute (next_step.py), again and again, as long as there is time. Each member is an ordinary run.
Writes submissions/<slug>/compete.csv and its lineage (best_csv.py), and what ledger.py describes. The same command goes
on, also with more time.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from podium.blending.pool_images import rows_of
from podium.competing.best_csv import BestCsv, finite
from podium.competing.choices import Choices, CompeteRequest
from podium.competing.next_step import Standing, Step, choose_step, gain_in, trust_in
from podium.competing.portfolio import PLAIN, SCRATCH, TUNED, Candidate
from podium.competing.progress_table import ProgressTable
from podium.competing.standing import Judgement
from podium.competing.understand import understand
from podium.competition.load import Competition
from podium.errors import InUse, NoSpaceLeft, PodiumError
from podium.models.device import is_cpu, pick_device
from podium.saved_runs.fold_names import WHOLE, fold_name
from podium.saved_runs.ledger import BEGUN, ENDED, FAILED, LOG, STARTED, STOPPED, SUBMITTED, Ledger, Line
from podium.tasks.metrics import score_of
from podium.terminal import aside, duration, first_few, first_line, plural, say

if TYPE_CHECKING:
    import pandas as pd

CPU_BUDGET, GPU_BUDGET = 1_800.0, 7_200.0  # seconds
LEAST_GAIN = 0.002  # of the blend's error: what promises less is not worth a step
LEAST_WEIGHT = 0.05  # of a member that gets a model of all images
RESERVE = 5.0  # seconds for the last blend and its CSV, at least
HOUR = 3_600.0


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
            ledger.add(STARTED, budget=budget, **({"on": request.on} if request.on else {}))
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
        if not self.judgement:
            return Standing((), math.inf)
        return replace(self.judgement.standing, trust=self.trust)

    @property
    def trust(self) -> dict[str, float]:
        """Returns how far to believe what is expected of each kind, by what its steps have brought so far."""
        gains: dict[str, list[tuple[float, float]]] = {}
        begun: dict[str, Line] = {}
        for line in self.ledger.of(BEGUN, ENDED):
            if line["event"] == BEGUN:
                begun[line["member"]] = line
            elif (step := begun.get(line["member"])) and step.get("blend_error") and not _is_trial(step):
                brought, promised = ((one.get("gain") or 0.0) / step["blend_error"] for one in (line, step))
                gains.setdefault(step["kind"], []).append((brought, promised))
        return {kind: trust_in(of_kind) for kind, of_kind in gains.items()}

    @property
    def is_enough(self) -> bool:
        most = self.choices.request.most_members
        return most is not None and self.trained >= most

    @property
    def seconds_left(self) -> float:
        return self.budget - self.ledger.worked - max(RESERVE, 1.5 * self.best.seconds)

    def run(self) -> Outcome:
        self.judge()
        try:
            self.train_members()
        except NoSpaceLeft as error:
            if self.judgement is None:
                raise
            self.shown.tell(f"podium: warning: {first_line(error)}; no further member is trained")
        else:
            self.learn_from_all_images()
        self.take_what_is_begun()
        return finish(self)

    def train_members(self) -> None:
        """Trains one member after the other, as long as there is time and one promises a gain."""
        if unfinished := self.ledger.unfinished():
            self.train(_step_of(unfinished), "it was begun before")
        while not self.is_enough and (step := self.next_step()) is not None:
            self.choices.decide_folds(self.standing, step, self.seconds_left)
            self.train(step, step.why(self.standing))

    def next_step(self) -> Step | None:
        """Returns the step with the largest expected gain per minute; None if there is no time or no gain left."""
        if self.judgement is None:
            step = self.choices.first()
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
        folds = "" if step.folds == self.choices.every else f", {first_few(map(fold_name, step.folds))}"
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

    def learn_from_all_images(self) -> None:
        """Gives the blend's members models that no image can judge, in the time that no further member fits into."""
        weights, by_name, workshop = (
            self.judgement.weights if self.judgement else {},
            self.by_name(),
            self.choices.workshop,
        )
        for name in sorted(weights, key=lambda name: -weights[name]):
            if self.is_enough or weights[name] < LEAST_WEIGHT or name not in by_name:
                continue
            step = Step(by_name[name], (WHOLE,), workshop.seconds(by_name[name], (WHOLE,)), 0.0, math.nan, 1.0)
            if 0 < step.seconds < self.seconds_left:
                self.train(
                    step, "the time left is too short for another member, and a model of all images helps a little"
                )

    def take_what_is_begun(self) -> None:
        """Compares on the first fold only, if the time ended before a member had more, and the blend gains by it."""
        if any(not member.is_whole for member in self.standing.members):
            self.take_if_better(self.choices.judging[:1])
            if self.judgement:
                self.show(self.judgement)

    def take_if_better(self, folds: Sequence[int]) -> None:
        """Takes the blend that only these folds judge, if it is better there than the one that more have judged."""
        if judgement := self.best.update(self.by_name(), folds, self.judgement):
            self.judgement = judgement

    def by_name(self) -> dict[str, Candidate]:
        by_name = {one.name: one for one in self.choices.candidates(self.standing)}
        return by_name | {line["member"]: _step_of(line).candidate for line in self.ledger.of(BEGUN)}

    def judge(self) -> None:
        self.shown.begin("blending")
        submitted, judging = self.ledger.of(SUBMITTED), self.choices.judging
        folds = tuple(submitted[-1]["folds"]) if submitted else self.choices.every
        self.judgement = self.best.update(self.by_name(), folds)
        if folds != judging and any(self.has_all(judging, known.candidate) for known in self.standing.members):
            self.take_if_better(judging)
        for name, reason in self.best.left_out.items():
            if name not in self.told:
                self.told.add(name)
                self.shown.tell(f"podium: not blended: {name} ({reason})")
        if self.judgement:
            self.show(self.judgement)

    def has_all(self, folds: Sequence[int], candidate: Candidate) -> bool:
        """Returns whether a member that is trained on some folds is trained on all of these."""
        return candidate.kind in (TUNED, SCRATCH) and not set(folds) - set(
            self.choices.workshop.run_of(candidate).finished()
        )

    def show(self, judgement: Judgement) -> None:
        """Updates the table; where there is none, says how the blend stands."""
        metric, weights = self.competition.metric, judgement.weights
        low, high = self.best.interval
        expected = f"{metric} {judgement.score:z.4f} expected ({low:z.4f} to {high:z.4f})"
        self.shown.update(
            [
                (name, f"{score:z.4f}", f"{weight:z.3f}", f"{minutes:z.1f}")
                for name, score, weight, minutes in self.rows
            ],
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


# --- the end -----------------------------------------------------------------------------------------


def finish(journey: Journey) -> Outcome:
    """Says how it stands; raises if there is no member."""
    if journey.judgement is None:
        raise _nothing(journey)
    competition, shown, judgement = journey.competition, journey.shown, journey.judgement
    more = _gain_of_an_hour(journey)
    why = "the time left is too short for another member" if more else "no further step promises a gain"
    why = "enough members are trained" if journey.is_enough else why
    journey.ledger.add(STOPPED, why=why)
    metric, (low, high), tests = competition.metric, journey.best.interval, len(competition.answer_ids)
    shown.tell(shown.text())
    shown.tell(f"podium: {why} after {duration(journey.ledger.worked)}; {_in_words(journey, more)}")
    shown.tell(
        f"podium: {metric} {judgement.score:z.4f}; expect between {low:z.4f} and {high:z.4f} on {tests:,} test"
        f" {rows_of(competition)}"
    )
    if failed := sorted(journey.choices.failed):
        shown.tell(f"podium: warning: failed, and left out: {first_few(failed)}")
    members = {name: weight for name, weight in judgement.weights.items() if weight}
    return Outcome(journey.best.path, judgement.score, (low, high), members, journey.rows)


def _gain_of_an_hour(journey: Journey) -> float:
    """Returns a guess at what more time would bring; 0 if that is next to nothing."""
    steps = journey.choices.steps(journey.standing, HOUR, journey.budget + HOUR)
    gain = gain_in(HOUR, steps, journey.standing)
    return gain if gain >= LEAST_GAIN * journey.standing.blend_error else 0.0


def _in_words(journey: Journey, gain: float) -> str:
    if not gain:
        return "an hour more would bring next to nothing, by a guess"
    return f"an hour more would bring {gain:z.4f} of {journey.competition.metric}, by a guess"


def _nothing(journey: Journey) -> PodiumError:
    """Returns why there is no submission."""
    if failed := sorted(journey.choices.failed):
        log = journey.ledger.folder / LOG
        return PodiumError(f"no member could be trained: {first_few(failed)} failed; {log} says why")
    first = journey.choices.first()
    seconds = first.seconds if first else math.nan
    least = duration(60 * math.ceil((journey.ledger.worked + 1.5 * seconds + 2 * RESERVE) / 60))
    return PodiumError(
        f"--budget: the first member takes about {duration(seconds)}, and {duration(journey.budget)} are too few for"
        f" it; allow {least} at least"
    )


# --- lines of the ledger -----------------------------------------------------------------------------


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
        "share": candidate.share,
        "options": dict(candidate.options),
        "seconds": finite(step.seconds),
        "gain": finite(step.gain),
        "error": finite(step.error),
        "chance": step.chance,
        "is_trial": step.seconds_in_all > step.seconds,  # on the first fold: it brings nothing yet
    }


def _is_trial(line: Line) -> bool:
    """Returns whether a step could not bring anything yet, or nothing that can be judged."""
    return bool(line.get("is_trial")) or not line.get("gain")


def _step_of(line: Line) -> Step:
    """Returns the step that a line of the ledger has begun."""
    texts = (str(line.get(name, "")) for name in ("family", "variant"))
    family, variant = texts
    share = float(line.get("share", 1.0))
    candidate = Candidate(
        line["kind"], line["model"], family, line["side"], line["options"], line["seed"], variant, share
    )
    return Step(candidate, tuple(line["folds"]), float(line.get("seconds") or 0.0), 0.0, math.nan, 1.0)
