"""The numbers of a report, against small cases computed by hand."""

from dataclasses import replace

import numpy as np
import pytest

from blending.simulated_runs import simulate_runs
from podium_annex.report.gallery import choose_correct, choose_mistakes
from podium_annex.report.numbers import (
    HeldOutImages,
    calibrated_probs,
    class_table,
    confusion_matrix,
    fold_scores,
    most_confused,
    order_by_confusion,
    reliability,
)

CLASSES = ("a", "b", "c")


def images_of(targets: list[int], predicted: list[int], confidence: list[float]) -> HeldOutImages:
    """Returns images with the given predictions; the rest of the probability is spread over the other classes."""
    count = len(targets)
    probs = np.repeat((1 - np.array(confidence))[:, None] / 2, 3, axis=1)
    probs[np.arange(count), predicted] = confidence
    ids = np.array([str(number) for number in range(count)])
    return HeldOutImages(ids, np.arange(count) % 2, np.array(targets), probs, CLASSES)


def simulated_images(strength: float = 2.5, count: int = 4000) -> HeldOutImages:
    held_out = simulate_runs((strength,), count, seed=1, class_count=5)
    ids = np.array([str(number) for number in range(count)])
    return HeldOutImages(ids, held_out.parts, held_out.targets.values, held_out.probs[0], tuple("abcde"))


def test_the_confusion_matrix_has_labels_as_rows() -> None:
    images = images_of([0, 0, 0, 1, 2], [0, 1, 1, 1, 0], [0.9] * 5)
    assert confusion_matrix(images).tolist() == [[1, 2, 0], [0, 1, 0], [1, 0, 0]]


def test_precision_recall_and_the_class_that_is_taken_for_it() -> None:
    images = images_of([0, 0, 0, 1], [0, 1, 1, 1], [0.9] * 4)
    rows = class_table(images, np.arange(3))
    assert rows[0] == {
        "name": "a", "support": 3, "precision": 1.0, "recall": pytest.approx(1 / 3), "f1": 0.5, "mistaken_for": "b",
    }  # fmt: skip
    assert (rows[1]["precision"], rows[1]["recall"], rows[1]["mistaken_for"]) == (pytest.approx(1 / 3), 1.0, "")
    assert (rows[2]["precision"], rows[2]["recall"], rows[2]["f1"]) == (None, None, None)


def test_the_class_that_most_mistakes_name_is_the_first_of_equals() -> None:
    images = images_of([0, 0, 0, 1, 1, 1], [2, 1, 0, 2, 2, 0], [0.9] * 6)
    assert [row["mistaken_for"] for row in class_table(images, np.array([0, 1]))] == ["b", "c"]


def test_a_cut_matrix_holds_the_classes_with_the_most_mistakes() -> None:
    count = 5000
    targets = np.arange(count).repeat(2)
    predicted = targets.copy()
    predicted[[14, 15, 80]] = [9, 9, 7]  # class 7 is taken for 9 twice, class 40 for 7
    probs = np.zeros((len(targets), count), np.float32)
    probs[np.arange(len(targets)), predicted] = 1
    ids, folds = np.arange(len(targets)).astype(str), np.zeros(len(targets), np.int64)
    images = HeldOutImages(ids, folds, targets, probs, tuple(map(str, range(count))))  # type: ignore[arg-type]
    shown = most_confused(images, 3)
    assert shown.tolist() == [7, 9, 40]
    assert confusion_matrix(images, shown).tolist() == [[0, 2, 0], [0, 2, 0], [1, 0, 1]]
    assert [row["support"] for row in class_table(images, shown)] == [2, 2, 2]
    assert most_confused(images_of([0, 1, 2], [1, 1, 2], [0.9] * 3), 3).tolist() == [0, 1, 2]


def test_confused_classes_become_neighbours() -> None:
    count = 8
    matrix = np.eye(count, dtype=np.int64) * 90
    for first, second in ((0, 5), (1, 7), (2, 4), (3, 6)):
        matrix[first, second] = matrix[second, first] = 10
    order = order_by_confusion(matrix)
    assert sorted(order) == list(range(count))
    assert all(abs(order.index(a) - order.index(b)) == 1 for a, b in ((0, 5), (1, 7), (2, 4), (3, 6)))


@pytest.mark.parametrize("count", [1, 2])
def test_few_classes_keep_their_order(count: int) -> None:
    assert order_by_confusion(np.ones((count, count), np.int64)) == list(range(count))


def test_a_class_without_images_has_a_place_in_the_order() -> None:
    assert sorted(order_by_confusion(np.diag([5, 0, 3, 0]))) == [0, 1, 2, 3]


def test_reliability_counts_what_is_right_in_each_bin() -> None:
    images = images_of([0] * 40, [0] * 20 + [0] * 10 + [1] * 10, [0.9] * 20 + [0.6] * 20)
    measured = reliability(images.probs, images.targets)
    assert measured.count == [20, 20]
    assert measured.confidence == pytest.approx([0.6, 0.9])
    assert measured.accuracy == pytest.approx([0.5, 1.0])
    assert measured.error == pytest.approx(0.1)


def test_calibration_finds_the_temperature_that_was_planted() -> None:
    images = simulated_images()
    sharpened = images.probs**2  # a temperature of 1/2
    overconfident = replace(images, probs=sharpened / sharpened.sum(1, keepdims=True))
    probs, temperature = calibrated_probs(overconfident)
    assert temperature == pytest.approx(2, rel=0.1)
    before, after = (reliability(values, images.targets) for values in (overconfident.probs, probs))
    assert after.error < before.error / 3
    assert after.log_loss < before.log_loss


def test_a_folds_own_labels_do_not_choose_its_temperature() -> None:
    images = simulated_images(count=1000)
    own = images.folds == 0
    shuffled = replace(images, targets=np.where(own, (images.targets + 1) % 5, images.targets))
    assert np.array_equal(calibrated_probs(images)[0][own], calibrated_probs(shuffled)[0][own])


def test_one_fold_is_calibrated_by_halves() -> None:
    images = simulated_images(count=1000)
    probs, temperature = calibrated_probs(replace(images, folds=np.zeros(1000, np.int64)))
    assert temperature == pytest.approx(1, rel=0.3)
    assert probs.sum(1) == pytest.approx(np.ones(1000))


def test_the_temperature_of_many_images_is_fitted_to_a_part_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[int] = []

    def count(probs: np.ndarray, targets: np.ndarray) -> float:
        fitted.append(len(targets))
        return 1.0

    monkeypatch.setattr("podium_annex.report.numbers.fit_temperature", count)
    calibrated_probs(simulated_images(count=4000))
    assert sum(fitted) == 4000 * (len(fitted) - 1)
    monkeypatch.setattr("podium_annex.report.numbers.MOST_FITTED", 5 * 1500)
    fitted.clear()
    calibrated_probs(simulated_images(count=4000))
    assert set(fitted) == {1500}


def test_scores_of_folds() -> None:
    images = images_of([0, 1, 2, 0], [0, 1, 1, 1], [0.9] * 4)
    assert fold_scores(images, "accuracy") == {0: 0.5, 1: 0.5}


def test_mistakes_come_with_the_most_confident_and_every_confusion_first() -> None:
    targets, predicted = [0, 0, 0, 0, 1, 2], [1, 1, 1, 0, 2, 2]
    images = images_of(targets, predicted, [0.9, 0.8, 0.95, 0.99, 0.5, 0.9])
    chosen = choose_mistakes(images)
    assert sorted(chosen) == [0, 1, 2, 4]
    assert chosen[0] == 2  # the most confident
    assert chosen.index(4) < chosen.index(1)  # the only one of its cell


def test_examples_are_the_most_confident_of_each_class() -> None:
    images = images_of([0] * 6 + [1], [0] * 6 + [1], [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.4])
    assert sorted(choose_correct(images)) == [2, 3, 4, 5, 6]
