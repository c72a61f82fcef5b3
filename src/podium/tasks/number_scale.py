"""How numbers are measured while a model learns them: as they are, by logarithm or by rank; then in deviations.

    none    the number itself
    log1p   the logarithm of 1 + number; for numbers from 0 on
    rank    the normal score of its rank: a curve through at most 65 of the training numbers, straight between them

All is found out from a fold's training images, and undone before anything is stored. Beyond the training numbers the
curve of ranks goes on level, so no answer lies outside of them.
"""

from __future__ import annotations  # options name the scales; numpy and torch are imported where numbers are computed

from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

SCALES = ("none", "log1p", "rank")
_, LOG1P, RANK = SCALES
MOST_KNOTS = 65
LARGEST_LOGARITHM = 80.0  # its number is finite in float32

Units = tuple[tuple[float, float], ...]  # of each column: the mean and the deviation on the scale
Curve = tuple[tuple[float, float], ...]  # numbers, and where they are on the scale; both rise


def fit_scale(numbers: NDArray[np.float64], scale: str) -> tuple[Units, tuple[Curve, ...]]:
    """Returns how numbers [images, columns] vary on the scale, and each column's curve if it is that of ranks."""
    import numpy as np
    import torch

    curves = tuple(_curve_of_ranks(column[~np.isnan(column)]) for column in numbers.T) if scale == RANK else ()
    on_scale = to_scale(torch.from_numpy(numbers), scale, curves).numpy()
    means, deviations = np.nanmean(on_scale, 0), np.nanstd(on_scale, 0)
    deviations = np.where(deviations > 0, deviations, 1.0)  # a column that never varies
    return tuple(zip(means.tolist(), deviations.tolist(), strict=True)), curves


def to_scale(numbers: Tensor, scale: str, curves: Sequence[Curve]) -> Tensor:
    """Returns where numbers [..., columns] are on the scale; those from elsewhere may be below 0, and count as 0."""
    if scale == LOG1P:
        return numbers.clamp(min=0).log1p()
    return _follow(numbers, curves) if scale == RANK else numbers


def from_scale(values: Tensor, scale: str, curves: Sequence[Curve]) -> Tensor:
    """Returns the numbers [..., columns] that are there on the scale."""
    if scale == LOG1P:
        return values.clamp(max=LARGEST_LOGARITHM).expm1()
    return _follow(values, [[(end, start) for start, end in curve] for curve in curves]) if scale == RANK else values


def _curve_of_ranks(column: NDArray[np.float64]) -> Curve:
    """Returns the curve from numbers to normal scores; equal numbers share the middle of their ranks."""
    import numpy as np

    values, counts = np.unique(column, return_counts=True)
    shares = (counts.cumsum() - counts / 2) / counts.sum()
    if len(values) > MOST_KNOTS:
        even = np.searchsorted(shares, np.linspace(shares[0], shares[-1], MOST_KNOTS))
        chosen = np.unique(even.clip(max=len(values) - 1))
        values, shares = values[chosen], shares[chosen]
    scores = [NormalDist().inv_cdf(share) for share in shares.tolist()]
    return tuple(zip(values.tolist(), scores, strict=True))


def _follow(values: Tensor, curves: Sequence[Sequence[tuple[float, float]]]) -> Tensor:
    """Returns where curves lead, a sum of slopes: every program that reads an exported model can compute it."""
    import torch

    columns = []
    for column, curve in zip(values.unbind(-1), curves, strict=True):
        knots = torch.tensor(curve, dtype=values.dtype, device=torch.device("cpu"))
        starts, ends = knots.to(values.device, non_blocking=True).unbind(1)
        widths = starts.diff()
        passed = (column[..., None] - starts[:-1]).clamp(min=0).minimum(widths)
        columns.append(ends[0] + (passed * (ends.diff() / widths)).sum(-1))
    return torch.stack(columns, -1)
