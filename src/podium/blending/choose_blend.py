"""Chooses how the runs are blended.

    podium submit --runs A B [--blend STRATEGY]

The choice is the shrunk blend (shrunk.py), whose weights are as far from equal ones as the images show. If the best
single run scores better, or if equal weights or that run are better by more than chance, the best of these is taken.
A stack is taken only if it is better than all others by more than chance.

Each strategy is scored by nested cross-validation (nested.py). blend_strategies.py fits the weights; expected_score.py
estimates the score of the chosen blend on the test images.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from podium.basics.errors import PodiumError
from podium.basics.terminal import plural, progress_bar, table
from podium.blending.blend import Blend, Probs
from podium.blending.blend_strategies import fit_blend, list_strategies
from podium.blending.expected_score import Estimate, bootstrap_scores, estimate_score, percentile_interval
from podium.blending.gain import Gain
from podium.blending.held_out import HeldOut
from podium.blending.importances import FittedPart, find_importances
from podium.blending.nested import Mask, predict_nested
from podium.blending.stack_fits import MOST_BOOSTED_CLASSES, MOST_CLASSES
from podium.blending.strategy_names import (
    ALL_STRATEGIES,
    BEST,
    BOOSTED,
    BY_RUN,
    CALIBRATED,
    GEOMETRIC,
    LINEAR,
    POWER,
    RANK,
    STACKED,
    STACKS,
    STRATEGIES,
)
from podium.options.extensions.extend import OWN_STACKS
from podium.tasks.metrics import METRICS, evaluate

# Runs x images x classes x classes: a stack that nobody has asked for is tried if it takes a few seconds.
MOST_STACKED = 20_000_000
MOST_BOOSTED = 20_000  # images x classes


@dataclass(frozen=True)
class Candidate:
    """A strategy that was tried."""

    strategy: str
    gain: Gain  # nested: over the best single run, on images that neither the models nor the weights have seen

    def as_json(self) -> dict[str, Any]:
        return {"strategy": self.strategy, **self.gain.as_json()}


@dataclass(frozen=True)
class BlendChoice:
    blend: Blend  # fitted to all held-out images
    candidates: tuple[Candidate, ...]
    estimate: Estimate
    nested: Probs = field(compare=False, repr=False)  # of the held-out images: each by blends fitted to other parts

    def candidates_table(self, metric: str) -> str:
        rows = []
        for candidate in self.candidates:
            gain, (low, high) = candidate.gain, candidate.gain.interval
            scores = [f"{gain.score:z.5f}", f"{gain.gain:+z.5f}", f"{low:+z.5f} to {high:+z.5f}"]
            rows.append([candidate.strategy, *scores])
        text = table(["strategy", metric, "gain", "95 % interval"], rows)
        return f"{text}\ngain: over {BEST}, the best single run, chosen without the images that it is scored on"


def choose_blend(
    held_out: HeldOut, metric: str, test_count: int, strategy: str | None = None, *, is_quick: bool = False
) -> BlendChoice:
    """Returns the blend, fitted to all held-out images, and what to expect of it on `test_count` test images.

    `strategy` is the user's choice, if there is one; a quick choice tries no trees unasked.
    """
    better = METRICS[metric]().better
    strategies = _strategies_to_try(held_out, metric, strategy, is_quick)
    nested, parts = _predict_each(strategies, held_out, metric)
    scores = {name: evaluate(metric, held_out.targets, probs) for name, probs in nested.items()}
    resampled = {name: better * bootstrap_scores(held_out, probs, metric) for name, probs in nested.items()}
    baseline = BEST if BEST in strategies else strategies[0]

    def is_clearly_better(name: str, other: str) -> bool:
        """Returns whether it is better by more than chance: zero is not in the interval of the difference."""
        return percentile_interval(resampled[name] - resampled[other])[0] > 0

    wanted = [name for name in strategies if strategy and name.startswith(strategy)]
    wanted = wanted or [name for name in strategies if name not in STACKS]
    # The first of equal ones; a metric that lacks a class is not a number, and then this is the first of all.
    top = max(wanted, key=lambda name: better * scores[name])
    if strategy:
        chosen = top if is_clearly_better(top, wanted[0]) else wanted[0]
    else:
        chosen = _choose_plain({name: better * scores[name] for name in wanted}, top, is_clearly_better)
        stacks = [name for name in strategies if name in STACKS]
        for name in stacks:
            chosen = name if all(is_clearly_better(name, one) for one in {chosen, top}) else chosen
    candidates = [
        Candidate(
            name,
            Gain(
                before=scores[baseline],
                score=scores[name],
                gain=better * (scores[name] - scores[baseline]) + 0.0,  # turns -0.0 into 0.0
                interval=percentile_interval(resampled[name] - resampled[baseline]),
            ),
        )
        for name in strategies
    ]
    blend = fit_blend(chosen, held_out.probs, held_out.targets, metric, held_out.features)
    if parts and blend.stack and blend.stack.has_further:
        blend = replace(blend, stack=replace(blend.stack, importances=find_importances(parts, held_out, metric)))
    return BlendChoice(
        blend=blend,
        candidates=tuple(candidates),
        estimate=estimate_score(held_out, nested[chosen], metric, test_count),
        nested=nested[chosen],
    )


def _choose_plain(scores: dict[str, float], top: str, is_clearly_better: Callable[[str, str], bool]) -> str:
    """Returns the last of the strategies, or the top one if that is clearly better or a single run scores better.

    `scores` are higher if they are better.
    """
    (first, *_), preferred = scores, list(scores)[-1]
    single = scores.get(BEST, scores[first])
    is_beaten = single > scores[preferred] or is_clearly_better(top, preferred)
    return top if is_beaten or np.isnan(scores[preferred]) else preferred


def _strategies_to_try(held_out: HeldOut, metric: str, strategy: str | None, is_quick: bool) -> tuple[str, ...]:
    """Returns the user's strategy and the baseline, or all; raises if there are too few images to fit weights."""
    task = held_out.targets.task
    if strategy in (GEOMETRIC, POWER, RANK) and task.has_columns:
        raise PodiumError(f"--blend {strategy} is for one label or several, not for {task.words}; use {STRATEGIES[0]}")
    group_count = len(np.unique(held_out.groups))
    can_fit = held_out.can_be_fitted_to()
    if strategy and strategy.endswith(CALIBRATED) and not task.sums_to_one:
        raise PodiumError(
            f"--blend {strategy}: temperatures are for one label an image; use {strategy.removesuffix(CALIBRATED)}"
        )
    if strategy and strategy != "equal" and not can_fit:
        images = plural(len(held_out), "image")
        if group_count < len(held_out):
            images += f" of {plural(group_count, 'group')}"
        raise PodiumError(
            f"--blend {strategy}: weights cannot be fitted to {images} held out by all runs; use --blend equal"
        )
    classes = held_out.probs.shape[2]
    stacks: tuple[str, ...] = STACKS if classes <= MOST_BOOSTED_CLASSES else STACKS[:-1]
    if strategy in OWN_STACKS:
        return STRATEGIES[0], BEST, strategy
    if strategy in (STACKED, *STACKS):
        if classes > MOST_CLASSES:
            raise PodiumError(f"--blend {strategy} is for at most {MOST_CLASSES} classes; use convex")
        # The first is what a stack corrects.
        return STRATEGIES[0], BEST, *(stacks if strategy == STACKED else (strategy,))
    if strategy:
        return tuple(name for name in ALL_STRATEGIES if name in (BEST, strategy))
    if not can_fit:
        return STRATEGIES[:1]
    stacks = (BY_RUN,) if len(held_out.probs) > 1 and classes <= MOST_CLASSES else ()
    if classes <= MOST_CLASSES and held_out.probs.size * classes <= MOST_STACKED:
        stacks = (*stacks, LINEAR)
        if not is_quick and held_out.features is not None and len(held_out) * classes <= MOST_BOOSTED:
            stacks = (*stacks, BOOSTED)  # of the runs alone, trees learn little
    return (*list_strategies(len(held_out.probs), metric, task), *stacks)


def _predict_each(
    strategies: Sequence[str], held_out: HeldOut, metric: str
) -> tuple[dict[str, Probs], list[FittedPart]]:
    """Returns what each strategy predicts for each part when it is fitted to the other parts; and the fitted trees."""
    nested: dict[str, Probs] = {}
    parts: list[FittedPart] = []

    def fit_and_apply(strategy: str, is_fitted: Mask, is_scored: Mask) -> Probs:
        fitted, scored = held_out.of(is_fitted), held_out.of(is_scored)
        blend = fit_blend(strategy, fitted.probs, fitted.targets, metric, fitted.features)
        if strategy == BOOSTED or strategy in OWN_STACKS:
            parts.append(FittedPart(blend, is_scored))
        return blend.apply(scored.probs, scored.features)

    with progress_bar(total=len(strategies), desc="scoring blends", unit="strategy") as progress:
        for strategy in strategies:
            nested[strategy] = predict_nested(held_out, partial(fit_and_apply, strategy))
            progress.update()
    return nested, parts
