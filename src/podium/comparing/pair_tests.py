"""Tests, for every pair of runs, whether one is more accurate, or whether the difference may be chance (McNemar).

Reads runs/<slug>/*/fold<k>/oof.npz. Only images count that exactly one of the two classifies correctly: if the runs
were equally good, each would be right on half of them. If images have numbers, the run that is closer is right, which
makes it a sign test. With many pairs, some would differ by chance alone, so Holm's correction multiplies the p-values.
"""

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from podium.basics.errors import PodiumError
from podium.blending.held_out import HeldOut, collect_held_out
from podium.saved_runs.run_folder import Run, find_runs
from podium.tasks.task import are_right

COLUMNS = ("run", "other", "images", "only_run", "only_other", "p", "p_corrected")


def compare_pairs(
    slug: str, root: Path, names: list[str], only_first: bool = False, labels: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Returns a row per pair: how many images only one of them classifies correctly, and the p-values.

    With `only_first`, only the pairs of the first run: fewer questions, so the correction is smaller. `labels` are as
    in held_out.py.
    """
    runs = find_runs(slug, root, names)
    pairs = list(combinations(runs, 2))[: len(runs) - 1 if only_first else None]
    rows = [row for run, other in pairs if (row := _compare_pair(run, other, labels))]
    table = pd.DataFrame(rows, columns=COLUMNS[:-1])
    return table.assign(p_corrected=correct(table["p"].to_list()))


def _compare_pair(
    run: Run, other: Run, labels: Mapping[str, str] | None
) -> tuple[str, str, int, int, int, float] | None:
    """Returns None if they have no images in common, or other classes."""
    try:
        held_out = collect_held_out([run, other], run.out_of_fold(run.finished()[0]).classes, labels=labels)
    except PodiumError:
        return None
    if not len(held_out):
        return None
    return run.name, other.name, len(held_out), *mcnemar(held_out)


def mcnemar(pair: HeldOut) -> tuple[int, int, float]:
    """Returns how many images only the first, and only the second of two runs classifies correctly, and the p-value."""
    if pair.targets.task.are_labels:
        right, other_right = are_right(pair.targets, pair.probs)
    else:  # the run that is closer is right
        error, other_error = np.nanmean(np.abs(pair.probs - pair.targets.values), axis=-1)
        right, other_right = error < other_error, other_error < error
    only_run, only_other = int((right & ~other_right).sum()), int((other_right & ~right).sum())
    differing = only_run + only_other
    return only_run, only_other, _binomial_test(only_run, differing)


def _binomial_test(successes: int, trials: int) -> float:
    """Returns the probability that a fair coin is at least as uneven."""
    term = total = 1  # the binomial coefficients, as whole numbers of any size
    for count in range(1, min(successes, trials - successes) + 1):
        term = term * (trials - count + 1) // count
        total += term
    return min(1.0, float(2 * total / 2**trials))


def correct(p_values: list[float]) -> list[float]:
    """Returns Holm's corrected p-values: the smallest times the number of pairs, the next times one less, and so on."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, largest = [0.0] * len(p_values), 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, p_values[index] * (len(p_values) - place)))
        corrected[index] = largest
    return corrected
