"""The metrics: they are scikit-learn's, and no set of classes breaks them."""

import numpy as np
import pytest

from podium.metrics import METRICS, evaluate, is_better_than_chance


def test_a_right_answer_scores_best_and_a_wrong_one_worse() -> None:
    targets = np.array([0, 1, 2, 2, 1])
    right = np.eye(3)[targets] * 0.8 + 0.2 / 3
    for metric in METRICS:
        score = evaluate(metric, targets, right)
        assert score == pytest.approx(-np.log(0.8 + 0.2 / 3) if metric == "log_loss" else 1)
        worse = evaluate(metric, targets, right[::-1].copy())
        assert (score - worse) * METRICS[metric]().better > 0


def test_classes_that_do_not_occur_break_no_metric() -> None:
    targets, probs = np.array([0, 1, 1]), np.full((3, 5), 0.2)
    assert {metric for metric in METRICS if not np.isfinite(evaluate(metric, targets, probs))} == set()


def test_two_classes_are_ranked_by_the_probability_of_the_second() -> None:
    probs = np.array([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]])
    assert evaluate("roc_auc", np.array([0, 1, 0]), probs) == 1.0


# --- chance ------------------------------------------------------------------------------------------


def test_chance_is_the_same_prediction_for_every_image() -> None:
    rng = np.random.default_rng(0)
    targets = rng.choice(3, 500, p=(0.7, 0.2, 0.1))
    shares = np.tile(np.bincount(targets) / 500, (500, 1))
    noise = rng.dirichlet((1.0, 1.0, 1.0), 500)
    knowing = 0.9 * shares + 0.1 * np.eye(3)[targets]  # as accurate as chance, but with a lower log loss
    overconfident = np.eye(3)[np.where(rng.random(500) < 0.9, targets, 2 - targets)]  # a log loss worse than chance
    for probs, expected in ((shares, False), (noise, False), (knowing, True), (overconfident, True)):
        assert is_better_than_chance(targets, probs) is expected
    assert is_better_than_chance(np.zeros(5, np.int64), noise[:5])  # one class only: nothing can be compared
