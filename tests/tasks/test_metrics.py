"""The metrics: their values are right for each task, and no data breaks them."""

import math
from typing import Any

import numpy as np
import pytest
import sklearn.metrics
from numpy.typing import NDArray

from by_array import targets_of
from podium.basics.errors import PodiumError
from podium.tasks.metrics import METRICS, evaluate, metrics_of, score_per_image
from podium.tasks.task import NUMBERS, ONE_LABEL, SEVERAL_LABELS, SEVERAL_TARGETS, TASKS, Targets

Arrays = tuple[NDArray[Any], NDArray[np.float64]]

# Predicted: 0, 0, 2, 0. The true classes have the places 1, 2, 1, 3.
LABEL: Arrays = (np.array([0, 1, 2, 2]), np.array([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [0.5, 0.3, 0.2]]))
# Predicted: 0 1 2, 1, 0 2.
LABELS: Arrays = (
    np.array([[1, 0, 1], [0, 1, 0], [1, 1, 0]]),
    np.array([[0.9, 0.6, 0.6], [0.1, 0.8, 0.3], [0.7, 0.4, 0.5]]),
)
VALUES: Arrays = (np.array([[1.0, 10], [2, 20], [3, 60]]), np.array([[1.0, 20], [2, 40], [6, 40]]))


def two_classes() -> Arrays:
    """Five images of the second class and two of the first; one of the five is behind one of the two."""
    second = np.array([0.9, 0.8, 0.7, 0.6, 0.1, 0.5, 0.0])
    return np.array([1, 1, 1, 1, 1, 0, 0]), np.stack([1 - second, second], 1)


# --- values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("accuracy", 1 / 2),
        ("log_loss", -math.log(0.5 * 0.3 * 0.5 * 0.2) / 4),
        ("brier", (0.38 + 0.78 + 0.38 + 0.98) / 4),
        ("roc_auc", (2 / 3 + 1 / 2 + 3 / 4) / 3),
        ("average_precision", (1 / 3 + 1 / 4 + 3 / 4) / 3),
        ("balanced_log_loss", -(math.log(0.5) + math.log(0.3) + math.log(0.5 * 0.2) / 2) / 3),
        ("map_at_3", (1 + 1 / 2 + 1 + 1 / 3) / 4),
        ("top_3_accuracy", 1),
    ],
)
def test_one_label_is_scored_as_by_hand(metric: str, expected: float) -> None:
    """Those that scikit-learn has are compared with it, further down."""
    assert evaluate(metric, targets_of(LABEL[0]), LABEL[1]) == pytest.approx(expected)


def test_kl_divergence_is_that_of_kaggle() -> None:
    shares, probs = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]), np.array([[0.25, 0.5, 0.25], [1.0, 0.0, 0.0]])
    targets = Targets(ONE_LABEL, shares.argmax(axis=1)).with_votes(shares)
    assert evaluate("kl_divergence", targets, probs) == pytest.approx(0.5 * math.log(2) / 2)
    assert evaluate("kl_divergence", targets, 4 * probs) == pytest.approx(0.5 * math.log(2) / 2)
    assert evaluate("kl_divergence", targets, shares) == pytest.approx(0)
    never = evaluate("kl_divergence", targets[1:], np.array([[0.0, 1.0, 0.0]]))
    assert never == pytest.approx(-math.log(1e-15))
    entropy = math.log(2) / 2
    assert evaluate("log_loss", targets, probs) == pytest.approx(0.5 * math.log(2) / 2 + entropy)
    assert evaluate("brier", targets, probs) == pytest.approx((0.25**2 + 0.25**2) / 2)


def test_without_votes_kl_divergence_is_the_log_loss() -> None:
    targets = targets_of(LABEL[0])
    assert evaluate("kl_divergence", targets, LABEL[1]) == pytest.approx(evaluate("log_loss", targets, LABEL[1]))


def test_gap_counts_right_answers_among_those_that_are_at_least_as_sure() -> None:
    """By how sure they are: right, wrong, right, wrong."""
    targets = np.array([0, 1, 2, 2])
    probs = np.array([[0.9, 0.1, 0.0], [0.8, 0.2, 0.0], [0.2, 0.1, 0.7], [0.6, 0.2, 0.2]])
    assert evaluate("gap", targets_of(targets), probs) == pytest.approx((1 + 2 / 3) / 4)
    assert evaluate("gap", targets_of(targets[::-1].copy()), probs[::-1].copy()) == pytest.approx((1 + 2 / 3) / 4)


@pytest.mark.parametrize("k", [3, 5, 10, 12, 20])
def test_a_ranking_counts_the_first_k_places(k: int) -> None:
    targets, probs = np.arange(25), np.tile(np.linspace(1, 0, 25), (25, 1))
    assert evaluate(f"map_at_{k}", targets_of(targets), probs) == pytest.approx(
        sum(1 / place for place in range(1, k + 1)) / 25
    )
    assert METRICS[f"map_at_{k}"]().places == k
    if k <= 5:
        assert evaluate(f"top_{k}_accuracy", targets_of(targets), probs) == k / 25


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("accuracy", 1 / 3),
        ("log_loss", -math.log(0.9 * 0.4 * 0.6 * 0.9 * 0.8 * 0.7 * 0.7 * 0.4 * 0.5) / 9),
        ("brier", 1.37 / 9),
        ("roc_auc", (1 + 1 / 2 + 1) / 3),
        ("average_precision", (1 + 5 / 6 + 1) / 3),
        ("partial_auc_80", (0.2 + 0 + 0.2) / 3),
    ],
)
def test_several_labels_are_scored_as_by_hand(metric: str, expected: float) -> None:
    targets, probs = LABELS
    assert evaluate(metric, targets_of(targets), probs) == pytest.approx(expected)
    assert evaluate(metric, targets_of(targets.astype(np.float32)), probs) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("rmse", math.sqrt((3 + 300) / 2)),
        ("mcrmse", (math.sqrt(3) + math.sqrt(300)) / 2),
        ("mae", (1 + 50 / 3) / 2),
        ("r2", (-7 / 2 + 5 / 14) / 2),
        ("spearman", (1 + math.sqrt(3 / 4)) / 2),
    ],
)
def test_numbers_are_scored_as_by_hand(metric: str, expected: float) -> None:
    assert evaluate(metric, targets_of(VALUES[0]), VALUES[1]) == pytest.approx(expected)


def test_the_lower_part_of_the_curve_counts_twice_in_weighted_auc() -> None:
    """As the organisers of ALASKA2 define it: by areas above many thin strips, with the weight of each."""
    draws = np.random.default_rng(0)
    truth = draws.integers(0, 2, 400)
    score = (0.3 * truth + draws.random(400)).round(2) / 2  # with ties
    rates = [[(score[truth == kind] >= least).mean() for least in [9, *np.unique(score)[::-1]]] for kind in (0, 1)]
    false_rate, rate = np.array(rates)
    heights = (np.arange(20_000) + 0.5) / 20_000
    strips = 1 - np.interp(heights, rate + 1e-12 * np.arange(len(rate)), false_rate)
    expected = np.average(strips, weights=np.where(heights < 0.4, 2, 1))
    probs = np.column_stack([1 - score, score])
    assert evaluate("weighted_auc", targets_of(truth), probs) == pytest.approx(expected, abs=1e-4)
    assert evaluate("weighted_auc", targets_of(truth), np.column_stack([1 - truth, truth]).astype(float)) == 1
    assert evaluate("weighted_auc", targets_of(truth), np.full((400, 2), 0.5)) == pytest.approx((2 * 0.32 + 0.18) / 1.4)


def test_two_classes_are_scored_by_the_probability_of_the_second() -> None:
    targets, probs = two_classes()
    assert evaluate("partial_auc_80", targets_of(targets), probs) == pytest.approx(
        0.1
    )  # 0.2, but for half of the other class
    assert evaluate("roc_auc", targets_of(targets), probs) == pytest.approx(0.9)
    assert evaluate("average_precision", targets_of(targets), probs) == pytest.approx((4 + 5 / 6) / 5)
    assert evaluate("brier", targets_of(targets), probs) == pytest.approx(
        (0.01 + 0.04 + 0.09 + 0.16 + 0.81 + 0.25 + 0) / 7
    )
    precision, recall = 3.1 / 3.6, 3.1 / 5
    assert evaluate("probabilistic_f1", targets_of(targets), probs) == pytest.approx(
        2 * precision * recall / (precision + recall)
    )


def test_a_single_column_of_labels_is_not_two_classes() -> None:
    targets, probs = np.array([[1], [0], [1]]), np.array([[0.9], [0.2], [0.1]])
    for metric in ("macro_f1", "micro_f1", "weighted_f1"):
        assert evaluate(metric, targets_of(targets), probs) == pytest.approx(2 / 3)
    assert evaluate("samples_f1", targets_of(targets), probs) == pytest.approx(1 / 3)


def test_probabilities_need_not_sum_to_one() -> None:
    """Blends are chosen with the sums of several runs."""
    targets, probs = LABEL
    for metric in metrics_of(ONE_LABEL.name):
        assert evaluate(metric, targets_of(targets), 3 * probs) == pytest.approx(
            evaluate(metric, targets_of(targets), probs)
        )


@pytest.mark.parametrize(
    ("task", "arrays"), [(ONE_LABEL.name, LABEL), (SEVERAL_LABELS.name, LABELS), (NUMBERS.name, VALUES)]
)
def test_a_mean_over_images_is_the_mean_of_their_scores(task: str, arrays: Arrays) -> None:
    for metric in metrics_of(task):
        scores = score_per_image(metric, targets_of(arrays[0]), arrays[1])
        if scores is not None:
            assert scores.shape == (len(arrays[0]),)
            assert scores.mean() == pytest.approx(evaluate(metric, targets_of(arrays[0]), arrays[1]))


# --- tasks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "arrays", "problem"),
    [
        ("samples_f1", LABEL, "samples_f1 is not defined for one label an image; choose one of accuracy, log_loss"),
        ("rmse", LABEL, "rmse is not defined for one label an image"),
        ("quadratic_kappa", LABELS, "quadratic_kappa is not defined for several labels an image"),
        ("map_at_5", LABELS, "map_at_5 is not defined for several labels an image"),
        ("accuracy", VALUES, "accuracy is not defined for numbers; choose one of rmse, mcrmse, mae, r2, spearman"),
        ("f3", LABEL, "no metric 'f3'; there are accuracy"),
    ],
)
def test_a_metric_of_another_task_is_refused(metric: str, arrays: Arrays, problem: str) -> None:
    with pytest.raises(PodiumError) as refused:
        evaluate(metric, targets_of(arrays[0]), arrays[1])
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)


def test_numbers_that_are_all_zero_or_one_are_numbers() -> None:
    targets = np.array([[0.0], [1.0]])
    assert evaluate("rmse", targets_of(targets), targets) == 0


def test_every_metric_has_a_task_and_knows_what_a_submission_holds() -> None:
    assert {name for task in TASKS for name in metrics_of(task)} == set(METRICS)
    for name, make in METRICS.items():
        assert make().wants in ("labels", "probs", "ranking", "numbers"), name


# --- odd data ----------------------------------------------------------------------------------------


def perfect(task: str) -> Arrays:
    """Right answers of a task, as sure as can be without a probability of zero."""
    if task == NUMBERS.name:
        return VALUES[0], VALUES[0]
    if task == SEVERAL_LABELS.name:
        return LABELS[0], LABELS[0] * 0.8 + 0.1
    return np.array([0, 1, 2, 2, 1]), np.eye(3)[[0, 1, 2, 2, 1]] * 0.8 + 0.2 / 3


@pytest.mark.parametrize("task", [ONE_LABEL.name, SEVERAL_LABELS.name, NUMBERS.name])
def test_a_right_answer_scores_best_and_a_wrong_one_worse(task: str) -> None:
    targets, right = perfect(task)
    for metric in metrics_of(task):
        score, built = evaluate(metric, targets_of(targets), right), METRICS[metric]()
        asks_how_sure = "log_loss" in metric or metric in ("brier", "kl_divergence", "probabilistic_f1")
        if not asks_how_sure:
            assert score == pytest.approx(built.best), metric
        worse = evaluate(metric, targets_of(targets), right[::-1].copy())
        assert (score - worse) * built.better > 0 or metric == "top_3_accuracy" or worse == built.best, metric


@pytest.mark.parametrize("task", [ONE_LABEL.name, SEVERAL_LABELS.name, NUMBERS.name])
@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 2, 4, 4, 0]])
def test_no_score_lies_outside_the_bounds_of_its_metric(task: str, order: list[int]) -> None:
    targets, right = perfect(task)
    probs = np.resize(right[[row % len(right) for row in order]], right.shape)
    for metric in metrics_of(task):
        score, built = evaluate(metric, targets_of(targets), probs), METRICS[metric]()
        assert built.cut(score) == pytest.approx(score, nan_ok=True), metric
        assert built.cut(-np.inf) == built.lowest, metric
        assert built.cut(np.inf) == built.highest, metric
        assert np.isnan(built.cut(np.nan)), metric


@pytest.mark.parametrize("class_count", [2, 5, 30])
def test_equal_probabilities_have_the_order_of_the_classes(class_count: int) -> None:
    targets, probs = np.arange(class_count), np.full((class_count, class_count), 1 / class_count)
    for metric in metrics_of(ONE_LABEL.name):
        assert np.isfinite(evaluate(metric, targets_of(targets), probs)), metric
    assert evaluate("accuracy", targets_of(targets), probs) == 1 / class_count  # the first class
    assert evaluate("top_3_accuracy", targets_of(targets), probs) == min(3, class_count) / class_count
    assert evaluate("roc_auc", targets_of(targets), probs) == 0.5
    assert evaluate("partial_auc_80", targets_of(targets), probs) == pytest.approx(0.02)  # the corner of the triangle


def test_equal_probabilities_of_several_labels_break_nothing() -> None:
    for metric in metrics_of(SEVERAL_LABELS.name):
        assert np.isfinite(evaluate(metric, targets_of(LABELS[0]), np.full((3, 3), 0.5))), metric
    assert evaluate("samples_f1", targets_of(LABELS[0]), np.full((3, 3), 0.5)) == pytest.approx((0.8 + 0.5 + 0.8) / 3)


def test_equal_numbers_break_nothing() -> None:
    for metric in metrics_of(NUMBERS.name):
        assert np.isfinite(evaluate(metric, targets_of(VALUES[0]), np.ones((3, 2)))), metric
    assert evaluate("spearman", targets_of(VALUES[0]), np.ones((3, 2))) == 0


def test_classes_that_do_not_occur_break_no_metric() -> None:
    targets, probs = np.array([0, 1, 1]), np.full((3, 5), 0.2)
    undefined = {
        metric for metric in metrics_of(ONE_LABEL.name) if not np.isfinite(evaluate(metric, targets_of(targets), probs))
    }
    assert undefined == set()


def test_labels_that_do_not_occur_are_left_out_where_nothing_can_be_ranked() -> None:
    targets, probs = LABELS[0] * [1, 1, 0], LABELS[1]
    for metric in metrics_of(SEVERAL_LABELS.name):
        assert np.isfinite(evaluate(metric, targets_of(targets), probs)), metric
    assert evaluate("roc_auc", targets_of(targets), probs) == pytest.approx((1 + 1 / 2) / 2)
    assert evaluate("average_precision", targets_of(targets), probs) == pytest.approx((1 + 5 / 6) / 2)
    assert evaluate("macro_f1", targets_of(targets), probs) == pytest.approx((1 + 1 / 2 + 0) / 3)  # it does count there


@pytest.mark.parametrize(
    ("arrays", "task", "undefined"),
    [
        ((np.array([1]), np.array([[0.2, 0.7, 0.1]])), ONE_LABEL.name, {"roc_auc", "partial_auc_80", "weighted_auc"}),
        (
            (np.array([[1, 0]]), np.array([[0.7, 0.1]])),
            SEVERAL_LABELS.name,
            {"roc_auc", "partial_auc_80", "weighted_auc"},
        ),
        ((np.array([[1.0, 5.0]]), np.array([[1.0, 5.0]])), NUMBERS.name, {"r2", "spearman"}),
    ],
)
def test_a_single_image_is_scored_if_that_can_be(arrays: Arrays, task: str, undefined: set[str]) -> None:
    names = set(metrics_of(task)) - {"quadratic_kappa", "mcc"}  # the next test
    scores = {metric: evaluate(metric, targets_of(arrays[0]), arrays[1]) for metric in names}
    assert {metric for metric, score in scores.items() if np.isnan(score)} == undefined
    if task == ONE_LABEL.name:
        assert scores["accuracy"] == scores["map_at_5"] == scores["top_5_accuracy"] == scores["macro_f1"] == 1


def test_several_targets_are_scored_as_by_hand() -> None:
    targets = SEVERAL_TARGETS.encode(["a=0|b=x", "a=1|b=x", "a=1|b=y"], ["a=0", "a=1", "a=2", "b=x", "b=y"])
    assert targets.values.tolist() == [[1, 0, 0, 1, 0], [0, 1, 0, 1, 0], [0, 1, 0, 0, 1]]
    assert targets.columns == (1, 1, 1, 2, 2)
    probs = np.array([[0.5, 0.3, 0.2, 0.9, 0.1], [0.6, 0.3, 0.1, 0.2, 0.8], [0.1, 0.8, 0.1, 0.3, 0.7]])
    assert evaluate("accuracy", targets, probs) == pytest.approx(2 / 3)  # of the images, all columns right
    assert evaluate("mean_recall", targets, probs) == pytest.approx(((1 + 1 / 2) / 2 + (1 / 2 + 1) / 2) / 2)
    assert evaluate("log_loss", targets, probs) == pytest.approx(-math.log(0.5 * 0.9 * 0.3 * 0.2 * 0.8 * 0.7) / 6)
    with pytest.raises(PodiumError, match="macro_f1 is not defined for a label in each of several columns"):
        evaluate("macro_f1", targets, probs)


def test_the_first_of_three_columns_counts_twice() -> None:
    classes = ["a=0", "a=1", "b=0", "b=1", "c=0", "c=1"]
    targets = SEVERAL_TARGETS.encode(["a=0|b=0|c=0", "a=1|b=1|c=1"], classes)
    probs = np.array([[1.0, 0, 0, 1, 1, 0], [0, 1, 0, 1, 1, 0]])
    assert evaluate("mean_recall_211", targets, probs) == pytest.approx((2 * 1 + 1 / 2 + 1 / 2) / 4)


def test_unknown_numbers_do_not_count() -> None:
    targets = np.array([[1.0, np.nan], [3.0, 10.0], [np.nan, 30.0]])
    numbers = np.array([[2.0, 99.0], [3.0, 14.0], [99.0, 28.0]])
    assert evaluate("rmse", targets_of(targets), numbers) == pytest.approx(math.sqrt((1 + 0 + 16 + 4) / 4))
    assert evaluate("mcrmse", targets_of(targets), numbers) == pytest.approx((math.sqrt(1 / 2) + math.sqrt(20 / 2)) / 2)
    assert evaluate("mae", targets_of(targets), numbers) == pytest.approx((1 + 0 + 4 + 2) / 4)
    assert evaluate("r2", targets_of(targets), numbers) == pytest.approx((1 - 1 / 2 + 1 - 20 / 200) / 2)
    assert evaluate("spearman", targets_of(targets), numbers) == pytest.approx(1)


@pytest.mark.filterwarnings("ignore")  # of scikit-learn: the metric is not defined
def test_a_correlation_of_one_image_says_nothing() -> None:
    targets, probs = np.array([1]), np.array([[0.2, 0.7, 0.1]])
    assert evaluate("mcc", targets_of(targets), probs) == 0
    assert np.isnan(evaluate("quadratic_kappa", targets_of(targets), probs))


def test_a_probability_of_exactly_zero_is_a_large_loss_not_an_infinite_one() -> None:
    for targets, probs in ((np.array([0]), np.array([[0.0, 1.0]])), (np.array([[1]]), np.array([[0.0]]))):
        assert 30 < evaluate("log_loss", targets_of(targets), probs) < 40


def test_auc_is_that_of_scikit_learn_and_computed_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resamples of hundreds of labels take minutes with scikit-learn."""
    rng = np.random.default_rng(0)
    targets = (rng.random((60, 5)) < 0.3).astype(np.float32)
    probs = rng.random((60, 5)).round(1)  # with ties
    expected = sklearn.metrics.roc_auc_score(targets, probs)
    monkeypatch.delattr(sklearn.metrics, "roc_auc_score")
    assert evaluate("roc_auc", targets_of(targets), probs) == pytest.approx(expected, abs=1e-12)
    probs[3, 2] = np.nan
    with pytest.raises(ValueError, match="must be finite"):
        evaluate("roc_auc", targets_of(targets), probs)


def scores_of_scikit_learn(truth: NDArray[Any], predicted: NDArray[Any], labels: NDArray[Any]) -> dict[str, float]:
    """Returns scores of answers: classes, or a row of 0 and 1 for each image."""
    averages = {"macro_f1": ("macro", 1), "micro_f2": ("micro", 2), "weighted_f1": ("weighted", 1)}
    averages |= {"macro_f2": ("macro", 2), "micro_f1": ("micro", 1)}
    averages |= {"samples_f1": ("samples", 1), "samples_f2": ("samples", 2)} if truth.ndim > 1 else {}
    scores = {
        name: sklearn.metrics.fbeta_score(truth, predicted, average=average, beta=beta, zero_division=0.0)
        for name, (average, beta) in averages.items()
    }
    if truth.ndim == 1:
        kappa = sklearn.metrics.cohen_kappa_score(truth, predicted, labels=labels, weights="quadratic")
        recall = sklearn.metrics.recall_score(truth, predicted, labels=np.unique(truth), average="macro")
        matthews = sklearn.metrics.matthews_corrcoef(truth, predicted)
        scores |= {"quadratic_kappa": kappa, "balanced_accuracy": recall, "mcc": matthews}
    return scores


@pytest.mark.parametrize("seed", range(12))
def test_scores_of_labels_are_those_of_scikit_learn_to_the_last_bit(seed: int) -> None:
    """Also of few images, where classes are neither true nor predicted, and of many."""
    rng, classes = np.random.default_rng(seed), (2, 3, 7)[seed % 3]
    count = (2, 9, 60, 3000)[seed % 4]
    probs = rng.random((count, classes)).round(2)
    labels, marks = rng.integers(classes, size=count), (rng.random((count, classes)) < 0.3).astype(np.int8)
    labels[0] = (probs[0].argmax() + 1) % classes
    for truth, answers in ((labels, probs.argmax(1)), (marks, (probs >= 0.5).astype(np.int8))):
        for metric, score in scores_of_scikit_learn(truth, answers, np.arange(classes)).items():
            assert evaluate(metric, targets_of(truth), probs) == score, metric


def test_kappa_of_a_single_class_is_not_a_number() -> None:
    targets = np.ones(4, np.int64)
    assert np.isnan(evaluate("quadratic_kappa", targets_of(targets), np.eye(3)[targets]))
    assert evaluate("quadratic_kappa", targets_of(targets), np.eye(3)[[1, 1, 1, 2]]) == 0


def test_weighted_log_losses_of_several_labels() -> None:
    """As RSNA has them: the mean over the images of the weighted mean over their labels."""
    truth, probs = np.array([[1, 0, 1], [0, 0, 0]], np.float32), np.array([[0.8, 0.4, 0.9], [0.1, 0.2, 0.3]])
    targets, logs = Targets(SEVERAL_LABELS, truth), -np.log([[0.8, 0.6, 0.9], [0.9, 0.8, 0.7]])
    first, second = logs[0] @ [2, 1, 14] / 17, logs[1] @ [1, 1, 7] / 9
    assert evaluate("fracture_log_loss", targets, probs) == pytest.approx((first + second) / 2)
    assert evaluate("hemorrhage_log_loss", targets, probs) == pytest.approx((logs @ [2, 1, 1] / 4).mean())
    assert evaluate("fracture_log_loss", targets, truth.astype(float)) == pytest.approx(0, abs=1e-12)
