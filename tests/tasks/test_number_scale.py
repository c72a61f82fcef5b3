"""The scales on which numbers are learned: what they do to numbers, and that it is undone."""

import numpy as np
import pytest
import torch

from podium.tasks.number_scale import MOST_KNOTS, RANK, SCALES, Curve, fit_scale, from_scale, to_scale

SKEWED = np.random.default_rng(0).lognormal(3, 1.5, (500, 2)) * [1.0, 1000.0]


def there_and_back(numbers: torch.Tensor, scale: str, curves: tuple[Curve, ...]) -> torch.Tensor:
    return from_scale(to_scale(numbers, scale, curves), scale, curves)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_every_scale_is_undone(scale: str, kind: torch.dtype) -> None:
    numbers, (_, curves) = torch.from_numpy(SKEWED).to(kind), fit_scale(SKEWED, scale)
    assert torch.allclose(there_and_back(numbers, scale, curves), numbers, rtol=1e-4)


def test_without_a_scale_units_are_mean_and_deviation() -> None:
    numbers = np.array([[1.0, 5.0], [np.nan, 5.0], [3.0, 5.0]])
    assert fit_scale(numbers, "none") == (((2.0, 1.0), (5.0, 1.0)), ())


def test_ranks_are_normally_distributed_whatever_the_numbers_are() -> None:
    _, curves = fit_scale(SKEWED, RANK)
    assert all(len(curve) == MOST_KNOTS for curve in curves)
    scores = to_scale(torch.from_numpy(SKEWED), RANK, curves).numpy()
    assert np.abs(np.quantile(scores, [0.025, 0.16, 0.5, 0.84, 0.975], axis=0).T - [-1.96, -1, 0, 1, 1.96]).max() < 0.06


def test_equal_numbers_share_a_rank_and_unknown_ones_stay_unknown() -> None:
    numbers = np.array([[0.0], [0.0], [0.0], [7.0], [np.nan]])
    (unit,), curves = fit_scale(numbers, RANK)
    scores = to_scale(torch.from_numpy(numbers), RANK, curves)[:, 0].tolist()
    assert scores[0] == scores[1] == scores[2] == pytest.approx(-0.3186, abs=1e-3)  # of a share of 3/8
    assert scores[3] == pytest.approx(1.1503, abs=1e-3)
    assert np.isnan(scores[4])
    assert unit[0] == pytest.approx(np.mean(scores[:4]))


def test_answers_stay_within_the_ranks_of_training_and_are_finite() -> None:
    _, curves = fit_scale(SKEWED, RANK)
    far = torch.tensor([[-1e6, -1e6], [1e6, 1e6]])
    ends = np.stack([SKEWED.min(0), SKEWED.max(0)])
    assert np.allclose(from_scale(far, RANK, curves), ends, rtol=1e-5)
    assert from_scale(far, "log1p", ()).isfinite().all()


def test_a_column_that_never_varies_has_one_answer() -> None:
    _, curves = fit_scale(np.full((5, 1), 4.0), RANK)
    assert there_and_back(torch.tensor([[3.0], [9.0]]), RANK, curves).tolist() == [[4.0], [4.0]]
