"""Clusters of average linkage, compared with scikit-learn's; their border, and the names of known individuals."""

import numpy as np
import pytest
from sklearn.cluster import AgglomerativeClustering

from matching.test_similarities import planted
from podium_annex.matching.clusters import choose_border, names_of_images, tree_of
from podium_annex.matching.galleries import Galleries, Gallery
from podium_annex.matching.scores import adjusted_rand
from podium_annex.matching.similarities import PLAIN, Way

pytestmark = pytest.mark.annex


def test_the_clusters_are_those_of_scikit_learn() -> None:
    features, _ = planted(12, 4, 0.8)
    matrix = PLAIN.matrix(features)
    for border in (0.2, 0.5, 0.8):
        model = AgglomerativeClustering(None, metric="precomputed", linkage="average", distance_threshold=1 - border)
        assert adjusted_rand(tree_of(matrix).cut(border), model.fit_predict(1 - matrix)) == 1


def test_the_border_tells_other_individuals_apart() -> None:
    features, identity = planted(40, 5, 0.8, width=64)
    gallery = Gallery(features, identity, np.ones(len(identity), bool))
    border = choose_border(Galleries([gallery], True), PLAIN)
    others, truth = planted(40, 5, 0.8, seed=1, width=64)
    assert border.adjusted_rand > 0.8
    assert adjusted_rand(truth, tree_of(PLAIN.matrix(others)).cut(border.similarity)) > 0.8


@pytest.mark.parametrize("way", [PLAIN, Way(1), Way(0, 6)], ids=Way.describe)
def test_clusters_of_known_individuals_have_their_names(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    features, identity = planted(12, 6, 0.3, width=64)
    is_test = np.arange(len(identity)) % 6 < 3
    known = [f"one{number}" if number < 8 else None for number in identity[~is_test]]  # the others are not named
    names = names_of_images(np.concatenate([features[is_test], features[~is_test]]), way, 0.5, known)
    for number in range(12):
        own = {name for name, owner in zip(names, identity[is_test], strict=True) if owner == number}
        assert len(own) == 1
        assert (own == {f"one{number}"}) == (number < 8)
    assert len(set(names)) == 12


def test_one_image_is_a_cluster() -> None:
    features, _ = planted(1, 1, 0.1)
    assert names_of_images(features, PLAIN, 0.5, []) == ["cluster_1"]
