"""What to train next, for people who go step by step: `podium next`.

The same arithmetic as in `compete` (next_step.py), on the runs that are there: the three steps with the largest
expected gain of the blend per minute, why, and the command of each.
"""

import math
import os
from pathlib import Path
from shlex import quote

from podium.basics.machine import Machine
from podium.basics.terminal import aside, command_for, duration, podium_command, say, show
from podium.competing.best_csv import BestCsv
from podium.competing.choices import Choices, CompeteRequest
from podium.competing.ending import HOUR
from podium.competing.next_step import Standing, Step
from podium.competing.portfolio import QUESTIONS
from podium.competing.standing import Judge
from podium.competition.load import Competition
from podium.folds.folds_csv import folds_path, write_folds
from podium.folds.strategies import Split
from podium.options.recipe import Options, flag_of
from podium.saved_runs.ledger import Ledger
from podium.tasks.metrics import score_of

SHOWN = 3


def show_next_steps(competition: Competition, machine: Machine) -> None:
    """Prints the next steps; without a run, the first one."""
    if not folds_path(competition.slug, competition.root).exists():
        write_folds(competition, Split())
    ledger = Ledger(competition.slug, competition.root)
    with aside(Path(os.devnull)):
        steps, standing = _next_steps(competition, machine, ledger)
    if standing.members:
        metric = competition.metric
        say(f"podium: the blend of your runs: {metric} {score_of(metric, standing.blend_error):z.4f}")
    if not steps:
        then = command_for(competition.answered_by or "compare", competition.slug)
        say(f"podium: no step promises a gain within an hour; next: {then}")
    for number, step in enumerate(steps, 1):
        show(f"{number}. {step.candidate.describe()}: {_why(step, standing)}\n   {command_of(step, competition.slug)}")


def _next_steps(competition: Competition, machine: Machine, ledger: Ledger) -> tuple[list[Step], Standing]:
    """Returns the steps, the most promising first; without a run, the first one."""
    choices = Choices(competition, CompeteRequest(HOUR, machine), ledger)
    judge = Judge(competition, choices.judging)
    candidates = {one.name: one for one in choices.candidates(Standing((), math.inf))}
    members = BestCsv(competition, machine, ledger).members(candidates, judge)
    if not any(judge.is_whole(member.run) for member in members):
        first = choices.first()
        return [first] if first else [], Standing((), math.inf)
    standing = judge.judge(members).standing
    promising = [step for step in choices.steps(standing, HOUR, HOUR) if step.gain > 0]
    return sorted(promising, key=lambda step: -step.gain_per_minute)[:SHOWN], standing


def _why(step: Step, standing: Standing) -> str:
    return step.why(standing) if standing.members else f"a first score, in {duration(step.seconds)}"


def command_of(step: Step, slug: str) -> str:
    """Returns the command that trains a step's member, under the name that `compete` gives it."""
    words = words_of(step.candidate.name, step.candidate.options)
    if step.candidate.kind != "head" or step.candidate.variant in QUESTIONS:
        words += ["--folds", ",".join(map(str, step.folds))]
    return " ".join([podium_command(), "train", "-c", slug, *map(quote, words)])


def words_of(name: str, options: Options) -> list[str]:
    """Returns the flags with which `podium train` makes a run of this name with these options."""
    words = ["--name", name]
    for option, value in options.items():
        flag = flag_of(option)
        off = flag.replace("--", "--no-", 1)
        words += [flag] if value is True else [off] if value is False else [flag, str(value)]
    return words
