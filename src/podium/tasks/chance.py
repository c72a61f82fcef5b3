"""Tells whether predictions are clearly better than chance: by at least two deviations, in one of four ways.

Accuracy and log loss are means over images, so they are compared image by image with the same prediction for all: the
shares of the classes. Such a prediction orders no images, and may have no score in the competition's metric. So these
two, the order (as AUC sees it) and the metric, are compared with the same predictions dealt to other images.
"""

from __future__ import annotations  # numpy appears in the types and is imported only where numbers are computed

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from podium.tasks.metrics import METRICS, evaluate, score_per_image
from podium.tasks.task import Targets

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[Any]

DEVIATIONS = 2.0  # by which a mean over images is clearly better
DEALT = 39  # how often the predictions are dealt to other images
DEALT_DEVIATIONS = 2.5  # as above, where the deviation is that of so few scores
RANKED_CLASSES = 64  # at a time
MOST_RANKED = 20_000_000  # probabilities; if there are more, those of the classes with the most images
MOST_IMAGES = 1000  # that these scores are computed of: some metrics are slow


def is_better_than_chance(targets: Targets, probs: Array, metric: str) -> bool:
    if _are_all_the_same(targets):
        return True  # nothing can be compared
    if targets.task.are_labels:
        is_better = any(_beats_shares(name, targets, probs) for name in ("accuracy", "log_loss"))
    else:
        is_better = _are_closer_than_mean(targets.values, probs)
    return is_better or _orders_images(targets, probs) or _beats_dealt(metric, targets, probs)


def _are_all_the_same(targets: Targets) -> bool:
    import numpy as np

    if not targets.task.are_labels:
        return not (np.nanstd(targets.values, 0) > 0).any()
    return bool((targets.taught == targets.taught[:1]).all())


def _beats_shares(name: str, targets: Targets, probs: Array) -> bool:
    import numpy as np

    shares = targets.counts(probs.shape[1]) / len(targets)
    constant = np.broadcast_to(shares, probs.shape)
    scores, by_chance = (score_per_image(name, targets, predicted) for predicted in (probs, constant))
    return _is_clear(METRICS[name]().better * (np.asarray(scores) - np.asarray(by_chance)))


def _are_closer_than_mean(targets: Array, numbers: Array) -> bool:
    """Compares the squared errors with those of the mean, in units of each column's deviation."""
    import numpy as np

    deviations = np.nanstd(targets, 0)
    columns = deviations > 0
    errors, by_chance = (
        (targets - predicted)[:, columns] / deviations[columns] for predicted in (numbers, np.nanmean(targets, 0))
    )
    return _is_clear(np.nanmean(by_chance**2 - errors**2, axis=1))


def _is_clear(gains: NDArray[np.float64]) -> bool:
    """Returns whether the mean of the images' gains lies clearly above zero."""
    import numpy as np

    return bool(np.nanmean(gains) > DEVIATIONS * np.nanstd(gains) / len(gains) ** 0.5)


def _orders_images(targets: Targets, probs: Array) -> bool:
    """Returns whether the images of a class, or with a label, have clearly higher probabilities of it than others.

    The mean rank of these images tells as much as AUC, and is computed for thousands of classes at once.
    """
    import numpy as np

    from podium.tasks.ranks import average_ranks

    if targets.task.has_columns:
        return False
    if targets.task.sums_to_one:
        counts = targets.counts(probs.shape[1])
        ranked = np.sort(np.argsort(-counts, kind="stable")[: max(2, MOST_RANKED // len(probs))])  # of the classes
        ranks = np.empty((len(probs), len(ranked)), np.float32)  # holds halves exactly, up to eight million images
        for start in range(0, len(ranked), RANKED_CLASSES):  # not of thousands at once
            columns = slice(start, start + RANKED_CLASSES)
            ranks[:, columns] = average_ranks(probs[:, ranked[columns]])
        images = np.flatnonzero(np.isin(targets.values, ranked))
        columns_of = np.searchsorted(ranked, targets.values[images])
        weights = 1 / counts[targets.values[images]]  # all classes count the same

        def mean_rank(order: NDArray[np.int64]) -> float:
            return float((ranks[order[images], columns_of].astype(np.float64) / len(probs) * weights).sum())

        return _stands_out(mean_rank, len(targets))
    places, shares = average_ranks(probs) / len(probs), targets.values / targets.values.sum(0).clip(1)
    return _stands_out(lambda order: float((places[order] * shares).sum()), len(targets))


def _beats_dealt(metric: str, targets: Targets, probs: Array) -> bool:
    import numpy as np

    chosen = np.random.default_rng(0).permutation(len(targets))[:MOST_IMAGES]
    targets, probs = targets[chosen], probs[chosen]
    better = METRICS[metric]().better
    return _stands_out(lambda order: better * evaluate(metric, targets, probs[order]), len(targets))


def _stands_out(score_in_order: Callable[[NDArray[np.int64]], float], count: int) -> bool:
    """Returns whether the score of the images in their own order is clearly higher than those in other orders."""
    import numpy as np

    rng = np.random.default_rng(0)
    dealt = np.array([score_in_order(rng.permutation(count)) for _ in range(DEALT)])
    gain = score_in_order(np.arange(count)) - dealt.mean()
    return bool(gain > DEALT_DEVIATIONS * dealt.std() and gain > 0)
