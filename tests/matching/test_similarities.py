"""Cosines, expansion and re-ranking, compared with plain loops over their definitions, and scaled to 0 to 1."""

import numpy as np
import pytest

from podium_annex.matching import similarities
from podium_annex.matching.questions import similarities_of
from podium_annex.matching.similarities import OWN_SHARE, PLAIN, WAYS, Array, Way, expanded, nearest, scaled, unit

pytestmark = pytest.mark.annex


def planted(individuals: int, each: int, noise: float, seed: int = 0, width: int = 24) -> tuple[Array, "np.ndarray"]:
    """Returns features that point to their individuals, and these."""
    rng = np.random.default_rng(seed)
    identity = np.repeat(np.arange(individuals), each)
    directions = rng.normal(size=(individuals, width))[identity]
    return unit(directions + noise * rng.normal(size=directions.shape)), identity


def nearest_by_loop(cosines: Array, image: int, count: int) -> list[int]:
    others = sorted((-cosines[image, other], other) for other in range(len(cosines)) if other != image)
    return [image, *(other for _, other in others[:count])]


def test_the_nearest_are_those_of_a_loop_and_an_image_comes_first() -> None:
    features, _ = planted(8, 4, 1.0)
    features[1] = features[0]  # equal images
    places, cosines = nearest(features, 5)
    whole = features @ features.T
    for image in range(len(features)):
        assert places[image].tolist() == nearest_by_loop(whole, image, 5)
    assert cosines == pytest.approx(np.take_along_axis(whole, places, 1), abs=1e-6)


def test_expansion_is_the_weighted_mean_of_the_nearest() -> None:
    features, _ = planted(8, 4, 1.0)
    whole = features @ features.T
    for image, own in enumerate(expanded(features, 2, power=3.0)):
        mean = sum(max(whole[image, other], 0) ** 3 * features[other] for other in nearest_by_loop(whole, image, 2))
        assert own == pytest.approx(mean / np.linalg.norm(mean), abs=1e-5)


def reranked_by_loop(features: Array, count: int) -> Array:
    """Returns the similarities as Zhong et al. define them, with sets."""
    cosines, images = features @ features.T, range(len(features))

    def mutual(image: int, size: int) -> set[int]:
        near = nearest_by_loop(cosines, image, size)
        return {other for other in near if image in nearest_by_loop(cosines, other, size)}

    shares = np.zeros_like(cosines, dtype=float)
    for image in images:
        own = mutual(image, count)
        members = set(own)
        for other in own:
            theirs = mutual(other, round(count / 2))
            if len(theirs & own) >= 2 / 3 * len(theirs):
                members |= theirs
        for member in members:
            shares[image, member] = np.exp(-((features[image] - features[member]) ** 2).sum())
        shares[image] /= shares[image].sum()
    friends = [nearest_by_loop(cosines, image, round(count / 3)) for image in images]
    shares = np.array([shares[own].mean(0) for own in friends])
    result = np.zeros_like(cosines)
    for first in images:
        for second in images:
            low, high = (change(shares[first], shares[second]).sum() for change in (np.minimum, np.maximum))
            result[first, second] = 1 - (1 - OWN_SHARE) * (1 - low / high) - OWN_SHARE * (1 - cosines[first, second])
    return result


@pytest.mark.parametrize("count", [4, 6])
def test_re_ranking_is_that_of_sets(count: int) -> None:
    features, _ = planted(6, 5, 1.2)
    assert Way(0, count).matrix(features) == pytest.approx(reranked_by_loop(features, count), abs=1e-5)


@pytest.mark.parametrize("way", WAYS, ids=Way.describe)
def test_blocks_change_nothing_and_pairs_are_cells_of_the_matrix(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    features, _ = planted(10, 4, 1.2)
    whole = way.matrix(features)
    assert (whole <= 1 + 1e-6).all()
    monkeypatch.setattr(similarities, "BLOCK", 7)
    assert way.matrix(features) == pytest.approx(whole, abs=1e-5)
    first, second = np.random.default_rng(0).integers(len(features), size=(2, 50))
    assert similarities_of(features, way, first, second) == pytest.approx(whole[first, second], abs=1e-5)


@pytest.mark.parametrize("way", [Way(2), Way(0, 6), Way(2, 6)], ids=Way.describe)
def test_neighbours_help_where_an_individual_has_several_images(way: Way) -> None:
    features, identity = planted(40, 6, 1.4, width=64)
    is_same = identity[:, None] == identity
    np.fill_diagonal(is_same, False)

    def found(matrix: Array) -> float:
        """Returns the share of an individual's images among as many of the most similar ones."""
        matrix = matrix.copy()
        np.fill_diagonal(matrix, -2)
        best = np.argsort(-matrix, 1)[:, :5]
        return float(np.take_along_axis(is_same, best, 1).mean())

    assert found(way.matrix(features)) > found(PLAIN.matrix(features)) + 0.03


def test_fewer_images_than_neighbours_are_no_problem() -> None:
    features, _ = planted(1, 3, 1.0)
    for way in WAYS:
        assert way.matrix(features).shape == (3, 3)


def test_scaling_keeps_the_order_and_puts_the_threshold_in_the_middle() -> None:
    values = np.linspace(-1, 1, 41)
    for threshold in (-0.4, 0.0, 0.9, 1.0):
        result = scaled(values, threshold)
        assert result.min() == 0
        assert result.max() <= 1
        assert (np.diff(result) >= 0).all()
        assert scaled(np.array([threshold]), threshold)[0] == pytest.approx(0.5)
    assert (np.diff(scaled(values, 0.3)) > 0).all()


def test_an_image_of_zeros_is_like_no_other() -> None:
    features, _ = planted(5, 3, 0.5)
    features[4] = 0
    for way in (PLAIN, Way(2)):
        matrix = way.matrix(unit(features))
        assert np.isfinite(matrix).all()
        assert (matrix[4] <= 1e-6).all()
