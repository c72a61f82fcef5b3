"""Chooses how what is predicted for several images becomes one answer, where a row of the submission is for several.

Nested cross-validation says which way of pool.py gains on answers that it was not chosen by.
"""

import numpy as np

from podium.basics.terminal import say
from podium.blending.gain import gain_of
from podium.blending.held_out import HeldOut
from podium.blending.nested import Judged, Mask, predict_nested
from podium.blending.pool_images import pool_held_out
from podium.competition.load import Competition
from podium.tasks.metrics import METRICS, evaluate
from podium.tasks.pool import MEAN, Pool, ways_of


def choose_pooling(held_out: HeldOut, competition: Competition) -> Judged[Pool]:
    """Returns the way that scores best; the mean where the gain may be chance, or where there is no other way.

    The runs' mean is scored: for each part, by the way that was best on the other parts.
    """
    metric, better = competition.metric, METRICS[competition.metric]().better
    ways = ways_of(held_out.targets.task, held_out.probs.shape[-1])
    pooled = {way: pool_held_out(held_out, competition, Pool(way)) for way in ways}
    mean = pooled["mean"]
    blends = {way: answers.probs.mean(0) for way, answers in pooled.items()}
    if len(pooled) == 1 or not mean.can_be_fitted_to():
        return Judged(MEAN, gain_of(mean, blends["mean"], blends["mean"], metric, is_taken_or_left=True))

    def best_on(mask: Mask) -> str:
        scores = {way: better * evaluate(metric, mean.targets[mask], probs[mask]) for way, probs in blends.items()}
        return max(scores, key=lambda way: np.nan_to_num(scores[way], nan=-np.inf))

    nested = predict_nested(mean, lambda fitted, scored: blends[best_on(fitted)][scored])
    gain = gain_of(mean, blends["mean"], nested, metric, is_taken_or_left=True)
    best = Pool(best_on(np.ones(len(mean), bool)))
    judged = Judged(best, gain, gain.is_clear and best != MEAN)
    way = best.way if gain.is_clear else MEAN.way
    low, high = gain.interval
    scores = ", ".join(f"{name} {evaluate(metric, mean.targets, probs):z.4f}" for name, probs in blends.items())
    text = f"gain over the mean {low:+z.4f} to {high:+z.4f}" if np.isfinite(low) else "no gain over the mean"
    say(f"podium: answers for several images: {way} of the images' probabilities ({metric}: {scores}; {text})")
    return judged
