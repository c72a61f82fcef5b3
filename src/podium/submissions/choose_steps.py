"""Chooses the steps of a submission's blend from the held-out images, and says why: pooling, weights, decision.

Each is taken if it gains more than chance on images that it was not fitted to (blending/nested.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from podium.basics.errors import PodiumError
from podium.basics.terminal import busy_with, command_for, first_few, plural, say
from podium.blending.blend import OF_LOGS, Blend, Probs, equal_blend
from podium.blending.choose_blend import BlendChoice, Candidate, choose_blend
from podium.blending.choose_decision import (
    choose_decision,
    choose_least_prob,
    decide_as_wanted,
    decide_by_cost,
    decide_by_test_shares,
    find_kind,
)
from podium.blending.choose_pooling import choose_pooling
from podium.blending.cost import Costs, find_costs
from podium.blending.decision import Decision
from podium.blending.expected_score import Estimate, estimate_score
from podium.blending.held_out import HeldOut, collect_held_out
from podium.blending.nested import Judged
from podium.blending.own_decision import OwnDecision, find_own_decision, undecided_answers
from podium.blending.own_stack import OwnStack
from podium.blending.pool_images import pool_held_out, rows_of
from podium.blending.shares_of_test import refuse_other_tasks
from podium.blending.stack import Stack
from podium.blending.stack_fits import fit_stack
from podium.blending.strategy_names import AUTO, BEST, DECISIONS, SHRUNK, STACKED, STACKS, TEST_SHARES
from podium.blending.table_rows import rows_of_tables
from podium.competition.load import Competition
from podium.folds.folds_csv import read_groups
from podium.options.extensions.extend import OWN_STACKS
from podium.saved_runs.run_folder import Run
from podium.tasks.metrics import OF_LOGARITHMS, evaluate
from podium.tasks.pool import MEAN, Pool


@dataclass(frozen=True)
class ChosenSteps:
    blend: Blend  # fitted to all held-out images
    candidates: tuple[Candidate, ...] = ()
    pooling: Judged[Pool] | None = None  # None: each row of the submission is for one image
    decision: Judged[Decision] | Judged[OwnDecision] | None = None  # None: none is possible, or none is wanted
    estimate: Estimate | None = None  # None: no image was held out by all runs


@dataclass(frozen=True)
class Wishes:
    """What somebody wants of the steps; the rest is chosen."""

    strategy: str | None = None  # the user's choice, if there is one
    decision: OwnDecision | str = AUTO  # or another of DECISIONS, or one of the project's own
    costs: Costs | None = None  # that decide in its place
    is_quick: bool = False  # whether the choice is one of many
    folds: Sequence[int] = ()  # only images count that these hold out: so the scores of several blends compare


def wishes_of(
    competition: Competition, strategy: str | None = None, decision: str | None = None, cost: Path | None = None
) -> Wishes:
    """Returns what the user asks for. What is asked for here comes before what the card says.

    `decision` is one of DECISIONS or the name of one of the project's own, `cost` a file of the cost of each mistake.
    """
    card, where = competition.card, "--decision"
    if cost and decision not in (None, AUTO):
        raise PodiumError(f"--cost and --decision {decision} are two ways to decide; leave one of them out")
    if cost is None and decision is None and {"cost", "decision"} <= card.keys():
        raise PodiumError(f"{card.path}: decision and [cost] are two ways to decide; delete one of them")
    costs = find_costs(competition, cost) if decision in (None, AUTO) else None
    if decision is None:
        decision, where = (AUTO if costs else card.get("decision", AUTO)), str(card.path)
    if decision == TEST_SHARES:
        refuse_other_tasks(competition, f"{where} {TEST_SHARES}" if where == "--decision" else where)
    return Wishes(strategy, decision if decision in DECISIONS else find_own_decision(decision, where), costs)


@busy_with("choosing how to blend")
def choose_steps(competition: Competition, runs: Sequence[Run], wishes: Wishes) -> ChosenSteps:
    """Returns the steps, and prints the reasons."""
    import scipy.optimize  # noqa: F401 - only a BLAS that is loaded already can be limited
    from threadpoolctl import threadpool_limits

    # The matrices are small: a second thread gains nothing, and on a busy machine it waits for a core at each of them.
    with threadpool_limits(1, "blas"):
        return _choose_steps(competition, runs, wishes)


def _choose_steps(competition: Competition, runs: Sequence[Run], wishes: Wishes) -> ChosenSteps:
    strategy, costs = wishes.strategy, wishes.costs
    metric, test_count = competition.metric, len(competition.answer_ids)
    held_out = _collect(competition, runs, wishes)
    if not len(held_out):
        if strategy not in (None, "equal"):
            raise PodiumError(f"--blend {strategy}: no image was held out by all of these runs; use --blend equal")
        say("podium: warning: no image was held out by all of these runs, so their weights are equal")
        if costs:
            raise PodiumError(f"{costs.source}: no held-out image shows what costs would save; leave them out")
        if isinstance(wishes.decision, OwnDecision):
            raise PodiumError(
                f"the decision {wishes.decision.describe()}: no held-out image shows what it gains; use --decision none"
            )
        if wishes.decision == TEST_SHARES:
            raise PodiumError(f"--decision {TEST_SHARES}: no held-out image says what is usual; use --decision none")
        return ChosenSteps(equal_blend(len(runs)))
    pooling = choose_pooling(held_out, competition) if competition.answers else None
    pool = (pooling and pooling.taken) or MEAN
    held_out = pool_held_out(held_out, competition, pool)
    _compare_on_shared_images(runs, held_out, competition)
    choice = choose_blend(held_out, metric, test_count, strategy, is_quick=wishes.is_quick)
    _say_candidates(competition, held_out, runs, choice, strategy)
    decision: Judged[Decision] | Judged[OwnDecision] | None = None
    decided: Probs | None = None
    if costs:
        decision, decided = _decide_by_cost(held_out, choice.nested, competition, costs)
    elif isinstance(wishes.decision, OwnDecision):
        decision, decided = _decide_as_wanted(held_out, choice.nested, competition, wishes.decision)
    elif wishes.decision == TEST_SHARES:
        decision, decided = _decide_by_test_shares(held_out, choice.nested, competition)
    elif wishes.decision == AUTO:
        decision, decided = _choose_decision(competition, held_out, choice.nested)
    taken = decision.taken if decision else None
    return ChosenSteps(
        blend=replace(choice.blend, pool=pool, decision=taken),
        candidates=choice.candidates,
        pooling=pooling,
        decision=decision,
        estimate=choice.estimate
        if taken is None or decided is None
        else estimate_score(held_out, decided, metric, test_count, undecided=choice.nested),
    )


def _collect(competition: Competition, runs: Sequence[Run], wishes: Wishes) -> HeldOut:
    """Returns the images that all runs held out, with the card's features, which a stack learns from."""
    labels = competition.label_of
    held_out = collect_held_out(runs, competition.classes, read_groups(competition), labels, wishes.folds)
    if competition.features and wishes.strategy not in (None, STACKED, *STACKS, *OWN_STACKS):
        say(f"podium: note: the features {first_few(competition.features.names)} are for --blend {STACKED}")
        return held_out
    return replace(held_out, features=rows_of_tables(competition, held_out.ids))


def blended_held_out(competition: Competition, runs: Sequence[Run], blend: Blend) -> tuple[HeldOut, Probs]:
    """Returns the held-out answers of the runs, and what the blend makes of them; a stack has learned from them."""
    held_out = _pooled_for(competition, runs, blend)
    if isinstance(blend.stack, OwnStack):
        blend = replace(blend, stack=_fitted(blend, held_out))
    undecided = undecided_answers(competition, blend.decision, held_out.ids)
    return held_out, blend.apply(held_out.probs, held_out.features, undecided)


def fit_again(competition: Competition, runs: Sequence[Run], blend: Blend) -> Stack:
    """Returns the stack of a blend, fitted to the held-out images of its runs."""
    return _fitted(blend, _pooled_for(competition, runs, blend))


def _pooled_for(competition: Competition, runs: Sequence[Run], blend: Blend) -> HeldOut:
    """Returns the held-out answers as the blend gets them."""
    strategy = blend.strategy if blend.stack else None  # which says nothing of features that only stacks learn from
    return pool_held_out(_collect(competition, runs, Wishes(strategy)), competition, blend.pool)


def _fitted(blend: Blend, held_out: HeldOut) -> Stack:
    return fit_stack(blend.strategy, held_out.probs, held_out.targets, held_out.features)


def _say_candidates(
    competition: Competition, held_out: HeldOut, runs: Sequence[Run], choice: BlendChoice, strategy: str | None
) -> None:
    if len(choice.candidates) == 1:
        return
    images = f"{len(held_out):,} {rows_of(competition)}"
    say(f"podium: blending strategies, each scored on images that it was not fitted to ({images}, in parts)")
    say("  " + choice.candidates_table(competition.metric).replace("\n", "\n  "))
    weights = [f"{run.name} {weight:z.3f}" for run, weight in zip(runs, choice.blend.weights, strict=True)]
    reason = "chosen with --blend" if strategy else _reason(choice.blend)
    if choice.blend.stack and choice.blend.stack.has_rows and competition.features:
        weights.append(f"the features {first_few(competition.features.names)}")
    say(f"podium: {choice.blend.strategy}, {reason}: {', '.join(weights)}")
    if choice.blend.stack and (worth := choice.blend.stack.describe_importances()):
        say(f"podium: what the stack learned from; {competition.metric} falls by so much without it: {worth}")


def _reason(blend: Blend) -> str:
    if blend.stack:
        return "better than every other strategy by more than chance"
    if blend.strategy == BEST:
        return "because no blend scores better on images that it was not fitted to"
    if blend.strategy == SHRUNK and len(blend.weights) == 1:
        return "calibrated, which scores no worse on images that it was not fitted to"
    if blend.strategy == SHRUNK:
        mean = "a mean of logarithms" if blend.mean.kind in OF_LOGS else "a mean"
        return f"{mean} with weights as far from equal ones as the held-out images show"
    return "because nothing fitted scores better on images that it was not fitted to"


def _choose_decision(
    competition: Competition, held_out: HeldOut, nested: Probs
) -> tuple[Judged[Decision] | None, Probs | None]:
    """Returns the decision that follows the blend, if the metric rewards one, and what it makes of held-out images."""
    metric, card = competition.metric, competition.card
    kind = find_kind(metric, competition.task, competition.classes, card, competition.unknown)
    if kind is None:
        if card.get("unknown") and card["unknown"] not in competition.classes:
            unknown = card["unknown"]
            say(f"podium: no decision: no training image has the class {unknown}, and no answer of {metric} can be it")
        return None, None
    if competition.unknown and not (held_out.targets.values == kind.unknown).any():
        problem = "no held-out image is of a class that its model has not seen, so no threshold can be fitted"
        remedy = f"make other folds ({command_for('folds', competition.slug)}) and train again"
        say(f"podium: no decision: {problem}; to place {competition.unknown.name}, {remedy}")
        return None, None
    if not held_out.can_be_fitted_to():
        loss = ", so the sums of the card may not hold" if card.get("sums") else ""
        say(f"podium: no decision: {plural(len(held_out), 'held-out image')} are too few to fit one{loss}")
        return None, None
    judged, decided = choose_decision(held_out, nested, metric, kind)
    kept = "the most probable class is kept" if competition.task.sums_to_one else "labels from 0.5 on are kept"
    if metric in OF_LOGARITHMS and not judged.is_taken:
        judged, decided = choose_least_prob(held_out, nested, metric, judged)
        kept = f"instead, no probability is below {judged.step.numbers[0]:.2g}, the least that they can show"
        say(f"podium: no other limit gains clearly on {len(held_out):,} held-out {rows_of(competition)}; {kept}")
    elif not competition.task.are_labels:
        lowest, highest = np.array(judged.step.numbers).reshape(-1, len(competition.classes))[:2]
        ranges = zip(competition.classes, lowest, highest, strict=True)
        limits = first_few(f"{name} from {low:g} to {high:g}" for name, low, high in ranges)
        holds = f"; {' and '.join(card['sums'])} holds, and" if card.get("sums") else ";"
        say(f"podium: decision: {judged.describe(metric)}{holds} numbers stay in the range of training: {limits}")
    else:
        say(f"podium: decision: {judged.describe(metric)}" + ("" if judged.is_taken else f"; {kept}"))
    return judged, decided


def _decide_by_cost(
    held_out: HeldOut, nested: Probs, competition: Competition, costs: Costs
) -> tuple[Judged[Decision], Probs]:
    judged, decided = decide_by_cost(held_out, nested, competition.metric, costs)
    before, after = (costs.mean_of(held_out.targets, probs) for probs in (nested, decided))
    saved = f", {1 - after / before:.0%} less" if 0 < after < before else ""
    say(
        f"podium: decision: the answers that cost least by {costs.source}: {after:z.4f} an image on {len(held_out):,}"
        f" held-out {rows_of(competition)}, and {before:z.4f} with the most probable ones{saved}"
    )
    say(f"podium: {competition.metric} of the same answers: {judged.gain.before:z.4f} -> {judged.gain.score:z.4f}")
    return judged, decided


def _decide_by_test_shares(
    held_out: HeldOut, nested: Probs, competition: Competition
) -> tuple[Judged[Decision], Probs]:
    if not held_out.can_be_fitted_to():
        images = plural(len(held_out), "held-out image")
        raise PodiumError(f"--decision {TEST_SHARES}: {images} are too few to fit it; use --decision none")
    judged, decided = decide_by_test_shares(held_out, nested, competition.metric)
    say(
        f"podium: decision: {judged.describe(competition.metric)}, as you ask; held-out images have the shares of"
        " training, so this is what it costs where the shares are the same"
    )
    return judged, decided


def _decide_as_wanted(
    held_out: HeldOut, nested: Probs, competition: Competition, own: OwnDecision
) -> tuple[Judged[OwnDecision], Probs]:
    undecided = undecided_answers(competition, own, held_out.ids)
    assert undecided is not None
    judged, decided = decide_as_wanted(held_out, nested, competition.metric, own, undecided)
    verdict = f"; {judged.gain.verdict}" if np.isfinite(judged.gain.interval[0]) else ""
    say(f"podium: decision: {judged.describe(competition.metric)}, as you ask{verdict}")
    return judged, decided


def _compare_on_shared_images(runs: Sequence[Run], held_out: HeldOut, competition: Competition) -> None:
    """Prints the score of each run on the images that all runs held out, and the run that has the fewest of them."""
    if len(runs) == 1:
        return
    metric, ids = competition.metric, competition.train["id"].to_numpy(dtype=str)
    counts = [sum(int(np.isin(run.out_of_fold(fold).id, ids).sum()) for fold in run.finished()) for run in runs]
    if len(held_out) < max(counts) and not competition.answers:
        reason = "the runs have held out different images"
        if min(counts) < max(counts):
            fewest = runs[counts.index(min(counts))].name
            reason = f"{fewest} has held out only {min(counts):,} of {max(counts):,}; without it there are more"
        say(f"podium: warning: all runs are compared on {len(held_out):,} images, because {reason}")
    say(f"podium: {metric} on the {len(held_out):,} {rows_of(competition)} that all runs held out")
    for run, probs in zip(runs, held_out.probs, strict=True):
        say(f"  {run.name}: {evaluate(metric, held_out.targets, probs):z.5f}")
