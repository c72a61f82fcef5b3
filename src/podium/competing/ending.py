"""How a call of `podium compete` goes to its end: models of all images, what is begun, and how it stands."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from podium.basics.errors import NoSpaceLeft, PodiumError
from podium.basics.terminal import command_for, duration, first_few, first_line
from podium.blending.pool_images import rows_of
from podium.competing.journey import LEAST_GAIN, RESERVE, Journey
from podium.competing.next_step import LEAST_JUDGES, Step, own_gain
from podium.saved_runs.fold_names import WHOLE
from podium.saved_runs.ledger import FAILED, STOPPED

if TYPE_CHECKING:
    import pandas as pd

LEAST_WEIGHT = 0.05  # of a member that gets a model of all images
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


def run_to_the_end(journey: Journey) -> Outcome:
    """Trains members, and models of all images in the time that is left; says how it stands."""
    journey.judge()
    try:
        journey.train_members()
    except NoSpaceLeft as error:
        if journey.judgement is None:
            raise
        journey.shown.tell(f"podium: warning: {first_line(error)}; no further member is trained")
    else:
        learn_from_all_images(journey)
    take_what_is_begun(journey)
    return finish(journey)


def learn_from_all_images(journey: Journey) -> None:
    """Gives the blend's members models that no image can judge, in the time that no further member fits into."""
    weights = journey.judgement.weights if journey.judgement else {}
    by_name, why = journey.by_name(), "no further member fits into the time, and a model of all images helps a little"
    for name in sorted(weights, key=lambda name: -weights[name]):
        if journey.is_enough or weights[name] < LEAST_WEIGHT or name not in by_name:
            continue
        seconds = journey.choices.workshop.seconds(by_name[name], (WHOLE,))
        if 0 < seconds < journey.seconds_left:
            journey.train(Step(by_name[name], (WHOLE,), seconds, 0.0, math.nan, 1.0), why)
    if journey.is_behind:
        journey.judge()


def take_what_is_begun(journey: Journey) -> None:
    """Compares on the first fold only, if the time ended before a member had more, and the blend gains by it.

    The fold has to hold enough images to judge by.
    """
    folds, first = journey.choices.workshop.base.folds, journey.choices.judging[:1]
    judges = sum(int(folds.validates(fold).sum()) for fold in first)
    if judges >= LEAST_JUDGES and any(not member.is_whole for member in journey.standing.members):
        journey.take_if_better(first)
        if journey.judgement:
            journey.show(journey.judgement)


def finish(journey: Journey) -> Outcome:
    """Says how it stands; raises if there is no member."""
    if journey.judgement is None:
        raise _nothing(journey)
    competition, shown, judgement = journey.competition, journey.shown, journey.judgement
    more = _best_of_an_hour(journey)
    why = "the time left is too short for another member" if more else "no further step promises a gain"
    why = "enough members are trained" if journey.is_enough else why
    journey.ledger.add(STOPPED, why=why)
    metric, (low, high), tests = competition.metric, journey.best.interval, len(competition.answer_ids)
    shown.tell(shown.text())
    shown.tell(f"podium: {why} after {duration(journey.ledger.worked)}; {_in_words(journey, more)}")
    expected = f"; expect between {low:z.4f} and {high:z.4f} on {tests:,} test {rows_of(competition)}"
    is_submitted = competition.answered_by == "submit"
    shown.tell(f"podium: {metric} {judgement.score:z.4f}{expected if is_submitted else ' on held-out images'}")
    if failed := sorted(journey.choices.failed - judgement.errors.keys()):
        shown.tell(f"podium: warning: failed, and left out: {first_few(failed)}")
    members = {name: weight for name, weight in judgement.weights.items() if weight}
    return Outcome(journey.best.path, judgement.score, (low, high), members, journey.rows)


def _best_of_an_hour(journey: Journey) -> Step | None:
    """Returns the step that would bring most if there were an hour more; None if that is next to nothing."""
    steps = journey.choices.steps(journey.standing, HOUR, journey.budget + HOUR)
    best = max(steps, key=own_gain, default=None)
    return best if best and own_gain(best) >= LEAST_GAIN * journey.standing.blend_error else None


def _in_words(journey: Journey, step: Step | None) -> str:
    if not step:
        return "an hour more would bring next to nothing, by a guess"
    seconds = max(step.seconds, step.seconds_in_all)
    return (
        f"the best next step, {step.candidate.describe()}, might bring {own_gain(step):z.4f} of"
        f" {journey.competition.metric} in {duration(seconds)}, by a guess"
    )


def _nothing(journey: Journey) -> PodiumError:
    """Returns why there is no submission."""
    if failed := sorted(journey.choices.failed):
        why = next(line["error"] for line in reversed(journey.ledger.of(FAILED)) if line["member"] in failed)
        return PodiumError(f"no member could be trained: {first_few(failed)} failed; the last one: {why}")
    first = journey.choices.first()
    seconds = first.seconds if first else math.nan
    minutes = math.ceil((journey.ledger.worked + 1.5 * seconds + 2 * RESERVE) / 60)
    enough = command_for("compete", journey.competition.slug, budget=f"{minutes}m")
    return PodiumError(
        f"--budget: {duration(journey.ledger.worked)} are worked, the first member takes about {duration(seconds)}, and"
        f" {duration(journey.budget)} are too few for both; this should be enough: {enough}"
    )
