"""Chooses how features become similarities, and where the border between same and different lies, on held-out images.

Expansion and re-ranking are decisions: chosen by the individuals of four fifths and scored on those of the last one, in
turn, so no individual judges what it has chosen. The choice is taken only if its gain is clear.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.basics.terminal import plural, say
from podium.blending.gain import Gain
from podium.blending.held_out import MIN_GROUPS
from podium_annex.matching.clusters import Border, choose_border
from podium_annex.matching.galleries import Galleries, Gallery
from podium_annex.matching.scores import Ints, PairScores, Queries, average_precisions, gain_of_queries
from podium_annex.matching.similarities import PLAIN, WAYS, Array, Way

PARTS = 5  # of the individuals
GUESS = 0.5  # where two images show the same individual, if no held-out ones say it


@dataclass(frozen=True)
class Choice:
    """How the similarities of test images are made, and what to expect of them."""

    way: Way
    threshold: float  # of similarities, from which on two images show the same individual
    border: float  # of the mean similarity, from which on two clusters show the same individual
    estimate: dict[str, Any] | None  # for the lineage

    def as_json(self) -> dict[str, Any]:
        numbers = {"threshold": self.threshold, "border": self.border}
        return {"way": self.way._asdict(), **numbers, "estimate": self.estimate}

    @staticmethod
    def from_json(content: dict[str, Any]) -> "Choice":
        way = {name: int(content["way"][name]) for name in Way._fields}
        return Choice(Way(**way), float(content["threshold"]), float(content["border"]), content["estimate"])


def choose_way(galleries: Galleries, for_clusters: bool = False) -> Choice:
    """Returns the choice, and says what it is worth; plain cosines where there is nothing to choose by."""
    if not galleries.parts:
        say(
            "podium: warning: no individual has two held-out images, so nothing can be estimated; plain cosines are"
            " taken"
        )
        return Choice(PLAIN, GUESS, GUESS, None)
    scored = {way: _score(galleries, way) for way in WAYS}
    plain = scored[PLAIN]
    parts = _parts_of(plain.identity)
    count, who = len(np.unique(plain.identity)), galleries.who
    say(
        f"podium: {plural(galleries.query_count, 'held-out image')} of {plural(count, 'individual')} {who}, each"
        f" compared with {galleries.image_count - 1:,} others"
    )
    way, gain = PLAIN, None
    if count >= MIN_GROUPS:
        way, gain = _choose(scored, parts)
    score = plain.mean() if gain is None or way == PLAIN else gain.score
    _say(scored, way, gain, count)
    part_of = dict(zip(plain.identity.tolist(), parts.tolist(), strict=True))
    thresholds = _fit_thresholds(galleries, way, part_of)
    border = choose_border(galleries, way) if for_clusters else Border(thresholds.threshold, math.nan)
    say(
        f"podium: mean average precision {score:z.4f}, the mean over individuals; balanced accuracy of pairs"
        f" {thresholds.accuracy:z.4f} at the threshold {thresholds.threshold:z.4f}"
    )
    if for_clusters:
        say(
            f"podium: clusters of half of the held-out individuals, at the border of the others: adjusted Rand index"
            f" {border.adjusted_rand:z.4f}; border of all {border.similarity:z.4f}"
        )
    if not galleries.are_new:
        say(
            "podium: note: individuals that no model has learned may be told apart less well; to estimate that, make"
            " folds that hold out individuals whole (docs/guide/re-identification.md)"
        )
    estimate = {
        "mean_average_precision": score,
        "pair_accuracy": thresholds.accuracy if math.isfinite(thresholds.accuracy) else None,
        "queries": galleries.query_count,
        "individuals": count,
        "compared_with": galleries.image_count,
        "are_new": galleries.are_new,
        "ways": [{**tried._asdict(), "mean_average_precision": own.mean()} for tried, own in scored.items()],
        **({"adjusted_rand": border.adjusted_rand} if math.isfinite(border.adjusted_rand) else {}),
        **({"gain": gain.as_json()} if gain else {}),
    }
    return Choice(way, thresholds.threshold, border.similarity, estimate)


def _score(galleries: Galleries, way: Way) -> Queries:
    """Returns the average precision of every query."""
    precisions, identities = [], []
    for part in galleries.parts:
        rows = [average_precisions(rows, start, part.identity) for start, rows in way.rows(part.features)]
        precisions.append(np.concatenate(rows)[part.is_query])
        identities.append(part.identity[part.is_query])
    return Queries(np.concatenate(precisions), np.concatenate(identities))


def _parts_of(identity: Ints) -> Ints:
    """Returns which of the parts each query is in: those of one individual together."""
    names, numbers = np.unique(identity, return_inverse=True)
    return np.asarray(np.random.default_rng(0).permutation(len(names))[numbers] % PARTS)


def _choose(scored: dict[Way, Queries], parts: Ints) -> tuple[Way, Gain]:
    """Returns the best way if choosing it has a clear gain, else plain cosines; and the gain, of other individuals."""
    plain = scored[PLAIN]
    nested = plain.precision.copy()
    for part in range(PARTS):
        own = parts == part
        best = max(scored, key=lambda way, others=~own: scored[way].of(others).mean())  # type: ignore[misc]
        nested[own] = scored[best].precision[own]
    gain = gain_of_queries(plain, plain._replace(precision=nested))
    best = max(scored, key=lambda way: scored[way].mean())
    return (best if gain.is_clear else PLAIN), gain


def _say(scored: dict[Way, Queries], way: Way, gain: Gain | None, count: int) -> None:
    if gain is None:
        say(
            f"podium: neither expansion nor re-ranking is tried with fewer than {MIN_GROUPS} individuals, and there are"
            f" {count}"
        )
        return
    best = max(scored, key=lambda own: scored[own].mean())
    low, high = gain.interval
    verdict = "taken" if way != PLAIN else "not taken"
    say(
        f"podium: plain cosines {gain.before:z.4f}; best of {len(scored)} ways: {best.describe()}; chosen by other"
        f" individuals {gain.score:z.4f}, {gain.gain:+z.4f} ({low:+z.4f} to {high:+z.4f}): {verdict}"
    )


@dataclass(frozen=True)
class Thresholds:
    threshold: float
    accuracy: float  # of thresholds that were fitted to other individuals


def _fit_thresholds(galleries: Galleries, way: Way, part_of: dict[int, int]) -> Thresholds:
    """Returns the threshold of all pairs, and the accuracy of those that were fitted to pairs of other individuals."""
    matrices = [(part, way.matrix(part.features)) for part in galleries.parts]
    everything = _pairs(matrices, part_of, None, True)
    accuracies = []
    for part in range(PARTS):
        fitted, judged = (_pairs(matrices, part_of, part, inside) for inside in (False, True))
        if all(map(len, (*fitted, *judged))):
            accuracies.append(judged.balanced_accuracy(fitted.best_threshold()))
    threshold = everything.best_threshold() if all(map(len, everything)) else 0.0
    return Thresholds(threshold, float(np.mean(accuracies)) if accuracies else math.nan)


def _pairs(
    matrices: list[tuple[Gallery, Array]], part_of: dict[int, int], part: int | None, inside: bool
) -> PairScores:
    """Returns the pairs of queries with all images; with a part, those inside it or those that it has no share in."""
    same: list[NDArray[Any]] = []
    other: list[NDArray[Any]] = []
    for gallery, matrix in matrices:
        parts = np.array([part_of.get(number, -1) for number in gallery.identity.tolist()])
        is_own = np.ones(len(parts), bool) if part is None else parts == part
        queries = gallery.is_query & (is_own if inside else ~is_own)
        others = np.ones(len(parts), bool) if inside else ~is_own
        is_right = gallery.identity[queries, None] == gallery.identity[others]
        is_itself = np.flatnonzero(queries)[:, None] == np.flatnonzero(others)
        values = matrix[np.ix_(queries, others)]
        same.append(values[is_right & ~is_itself])
        other.append(values[~is_right])
    return PairScores(np.sort(np.concatenate(same)), np.sort(np.concatenate(other)))
