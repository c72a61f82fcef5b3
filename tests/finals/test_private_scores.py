"""What honest estimates and public scores say of private ones, and which pairs that makes."""

import numpy as np
import pytest

from podium_annex.finals.private_scores import Forecast, choose_pairs, find_spread, forecast

NONE = np.full(3, np.nan)
ALIKE = np.array([[0.1, 0.08, 0.08], [0.08, 0.1, 0.08], [0.08, 0.08, 0.1]])  # of the scores on one image


def of_images(expected: list[float], public: np.ndarray, public_images: int = 300) -> Forecast:
    return forecast(np.array(expected), [1000] * len(expected), ALIKE, public, public_images, 700)


def test_without_public_scores_the_estimates_count() -> None:
    assert of_images([0.9, 0.8, 0.7], NONE).mean.tolist() == [0.9, 0.8, 0.7]


def test_a_public_score_counts_as_so_many_more_images() -> None:
    public = np.array([0.90, 0.92, 0.88])
    own = of_images([0.92, 0.90, 0.88], public, public_images=1000)
    assert own.mean == pytest.approx((np.array([0.92, 0.90, 0.88]) + public) / 2)  # as many as were held out
    few = of_images([0.92, 0.90, 0.88], public, public_images=10)
    assert few.mean[0] - few.mean[1] == pytest.approx(0.02 - 0.04 * 10 / 1010)


def test_what_all_public_scores_share_changes_no_order() -> None:
    own = of_images([0.92, 0.90, 0.88], np.array([0.62, 0.60, 0.58]))
    assert own.mean == pytest.approx(np.array([0.62, 0.60, 0.58]), abs=1e-3)


def test_one_upload_says_nothing_of_the_order() -> None:
    own = of_images([0.92, 0.90, 0.88], np.array([0.80, np.nan, np.nan]))
    assert np.diff(own.mean) == pytest.approx([-0.02, -0.02], abs=1e-3)


def test_differences_beyond_chance_are_found() -> None:
    rng, count, images = np.random.default_rng(0), 12, 1_000_000
    chance = 0.1 * np.eye(count) / images
    seen = np.arange(count)
    assert find_spread(rng.normal(0, chance[0, 0] ** 0.5, count), 2 * chance, chance, seen) <= chance[0, 0] ** 0.5
    assert find_spread(rng.normal(0, 0.01, count), 2 * chance, chance, seen) == 4 * chance[0, 0] ** 0.5  # the most
    assert find_spread(rng.normal(0, 0.01, 3), 2 * chance[:3, :3], chance, seen[:3]) == 0.0  # too few


def test_the_bold_pair_errs_on_other_images() -> None:
    covariance = np.array([[4.0, 3.9, 0.5], [3.9, 4.0, 0.5], [0.5, 0.5, 4.0]]) * 1e-4
    own = Forecast(np.array([0.90, 0.899, 0.897]), covariance, 0.0)
    pairs = choose_pairs(own)
    assert (pairs.safe, pairs.bold) == ((0, 1), (0, 2))
    draws = np.random.default_rng(1).multivariate_normal(own.mean, covariance, 200_000)
    for pair in (pairs.safe, pairs.bold):
        assert own.best_of(*pair) == pytest.approx(draws[:, pair].max(1).mean(), abs=2e-4)


def test_pairs_are_better_than_those_of_the_best_public_scores() -> None:
    """Of simulated competitions: twelve submissions, 2,000 held-out images, 200 public and 800 private ones."""
    rng = np.random.default_rng(2)
    factors = rng.normal(size=(12, 4)) * 0.1 + 0.25
    covariance = factors @ factors.T + 0.03 * np.eye(12)
    gains = []
    for _ in range(300):
        truth = 0.8 + 0.01 * rng.normal(size=12)
        of_estimates, public, private = (
            rng.multivariate_normal(truth, covariance / images) for images in (2000, 200, 800)
        )
        own = forecast(of_estimates, [2000] * 12, covariance, public - 0.05, 200, 800)
        best = np.argsort(-public)[:2]
        pairs = choose_pairs(own)
        gains.append([private[list(pair)].max() - private[best].max() for pair in (pairs.safe, pairs.bold)])
    safe, bold = np.mean(gains, axis=0)
    assert min(safe, bold) > 0.002
