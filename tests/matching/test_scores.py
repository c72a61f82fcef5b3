"""Scores of similarities, compared with scikit-learn's."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, average_precision_score, balanced_accuracy_score

from podium_annex.matching.scores import (
    PairScores,
    Queries,
    adjusted_rand,
    average_precisions,
    gain_of_queries,
)

pytestmark = pytest.mark.annex


def test_average_precision_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    identity, rows = rng.integers(6, size=30), rng.random((30, 30))
    identity[3] = 99  # alone
    for start in (0, 11):
        found = average_precisions(rows[start:], start, identity)
        for row in range(start, 30):
            others = np.arange(30) != row
            is_right = identity[others] == identity[row]
            if not is_right.any():
                assert np.isnan(found[row - start])
            else:
                assert found[row - start] == pytest.approx(average_precision_score(is_right, rows[row][others]))


def test_equal_similarities_count_as_if_the_wrong_images_came_first() -> None:
    identity = np.array([0, 0, 1, 1])
    assert average_precisions(np.ones((1, 4)), 0, identity).tolist() == [pytest.approx(1 / 3)]


def test_individuals_count_alike_however_many_images_they_have() -> None:
    queries = Queries(np.array([1.0, 1.0, 1.0, 0.0]), np.array([7, 7, 7, 2]))
    assert queries.mean() == 0.5


def test_a_gain_is_clear_where_all_individuals_gain_and_not_where_half_of_them_lose() -> None:
    rng, identity = np.random.default_rng(0), np.repeat(np.arange(40), 3)
    before = Queries(rng.random(120) / 2, identity)
    assert gain_of_queries(before, before._replace(precision=before.precision + 0.1)).is_clear
    signs = np.where(identity % 2 == 0, 0.1, -0.1)
    assert not gain_of_queries(before, before._replace(precision=before.precision + signs)).is_clear


def test_balanced_accuracy_and_its_best_threshold_are_those_of_a_search() -> None:
    rng = np.random.default_rng(0)
    pairs = PairScores(np.sort(rng.normal(1, 1, 60)), np.sort(rng.normal(0, 1, 400)))
    truth, values = np.repeat([1, 0], [60, 400]), np.concatenate(pairs)

    def accuracy(threshold: float) -> float:
        return float(balanced_accuracy_score(truth, values >= threshold))

    best = pairs.best_threshold()
    assert pairs.balanced_accuracy(best) == pytest.approx(accuracy(best))
    assert accuracy(best) == pytest.approx(max(map(accuracy, values)))


@pytest.mark.parametrize("seed", range(3))
def test_the_rand_index_is_that_of_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    identity, cluster = rng.integers(5, size=60), rng.integers(4 + 3 * seed, size=60)
    assert adjusted_rand(identity, cluster) == pytest.approx(adjusted_rand_score(identity, cluster))
    assert adjusted_rand(identity, identity) == 1
