"""The decision after the blend: its numbers are right in small cases, and it is taken only where it gains."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from by_array import targets_of
from podium.basics.errors import PodiumError
from podium.blending.blend import Probs
from podium.blending.choose_decision import DecisionKind, choose_decision, choose_least_prob, find_kind
from podium.blending.decision import KINDS, Decision
from podium.blending.decision_fits import (
    FIT_NUMBERS,
    best_threshold,
    fit_class_weights,
    fit_clip,
    fit_cut_points,
    fit_thresholds,
    fit_unknown_threshold,
    importance_of_unknown,
    score_confusion,
)
from podium.blending.expected_score import SLOW_RESAMPLES
from podium.blending.held_out import HeldOut
from podium.blending.nested import Judged
from podium.competition.build.grades import are_grades
from podium.competition.build.unknown_class import UnknownClass
from podium.competition.card import Card
from podium.tasks.metrics import evaluate
from podium.tasks.task import NUMBERS, ONE_LABEL, SEVERAL_LABELS, Targets
from second_round import first_of

OF_CONFUSIONS = ("macro_f1", "balanced_accuracy", "mcc", "quadratic_kappa")


@pytest.fixture(autouse=True)
def _fewer_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SLOW_RESAMPLES > 60
    monkeypatch.setattr("podium.blending.expected_score.SLOW_RESAMPLES", 60)


def held_out_of(probs: Probs, targets: NDArray[Any]) -> HeldOut:
    return HeldOut(probs[None], targets_of(targets), np.arange(len(targets)) % 5, np.arange(len(targets)))


def judge(probs: Probs, targets: NDArray[Any], metric: str, kind: str) -> Judged[Decision]:
    judged, _ = choose_decision(held_out_of(probs, targets), probs, metric, DecisionKind(kind))
    return judged


def imbalanced(count: int, seed: int, strength: float = 1.5) -> tuple[Probs, NDArray[Any]]:
    """Returns calibrated probabilities of four classes, of which one has 70 % of the images."""
    rng, shares = np.random.default_rng(seed), np.array([0.7, 0.15, 0.1, 0.05])
    targets = rng.choice(4, size=count, p=shares)
    logits = rng.normal(size=(count, 4))
    logits[np.arange(count), targets] += strength
    powers = shares * np.exp(strength * logits)
    return powers / powers.sum(1, keepdims=True), targets


def several_labels(count: int, seed: int, strength: float = 1.5) -> tuple[Probs, NDArray[Any]]:
    rng, shares = np.random.default_rng(seed), np.array([0.1, 0.15, 0.2, 0.5])
    targets = (rng.random((count, 4)) < shares).astype(np.float32)
    logits = strength * (rng.normal(size=(count, 4)) + strength * (targets - 0.5)) + np.log(shares / (1 - shares))
    return 1 / (1 + np.exp(-logits)), targets


def grades(count: int, seed: int) -> tuple[Probs, NDArray[Any]]:
    """Returns five grades, of which the first is frequent, with probabilities that spread over the neighbours."""
    rng = np.random.default_rng(seed)
    targets = rng.choice(5, size=count, p=[0.6, 0.1, 0.15, 0.1, 0.05])
    seen = targets + rng.normal(0, 1.0, count)
    powers = np.array([0.6, 0.1, 0.15, 0.1, 0.05]) * np.exp(-((seen[:, None] - np.arange(5)) ** 2) / 2)
    return powers / powers.sum(1, keepdims=True), targets


@pytest.mark.parametrize("metric", OF_CONFUSIONS)
def test_the_score_of_a_confusion_is_the_metric(metric: str) -> None:
    probs, targets = imbalanced(300, 0)
    probs[:, 3] = 0  # this class is never predicted
    confusion = np.zeros((4, 4))
    np.add.at(confusion, (targets, probs.argmax(1)), 1)
    assert score_confusion(metric, confusion) == pytest.approx(evaluate(metric, targets_of(targets), probs))


@pytest.mark.parametrize("metric", ["macro_f1", "balanced_accuracy", "mcc"])
def test_class_weights_gain_where_classes_are_of_different_sizes(metric: str) -> None:
    judged = judge(*imbalanced(5000, 1), metric, "class_weights")
    if metric != "mcc":  # whose best decision is near the most probable class
        assert judged.is_taken
        assert judged.gain.interval[0] > 0
        assert judged.step.numbers[3] > judged.step.numbers[0]
    new_probs, new_targets = imbalanced(20_000, 2)
    tables, truth = (judged.step.apply(new_probs), new_probs), targets_of(new_targets)
    after, before = (evaluate(metric, truth, probs) for probs in tables)
    gain = after - before
    assert gain > (-0.01 if metric == "mcc" else 0.005)
    assert gain == pytest.approx(judged.gain.gain, abs=0.05)


def test_calibrated_probabilities_are_weighed_by_one_over_the_share() -> None:
    probs, targets = imbalanced(8000, 3)
    weights = fit_class_weights(probs, targets_of(targets), "balanced_accuracy")
    expected = 1 / np.array([0.7, 0.15, 0.1, 0.05])
    assert weights / weights[0] == pytest.approx(expected / expected[0], rel=0.45)


def test_a_class_with_few_images_keeps_a_weight_near_1() -> None:
    targets = np.array([0] * 60 + [1] * 2)
    probs = np.where(targets[:, None] == 1, [[0.7, 0.3]], [[0.9, 0.1]])
    weights = fit_class_weights(probs, targets_of(targets), "balanced_accuracy")
    assert 1 < weights[1] < 1.3
    assert (
        fit_class_weights(np.hstack([probs, 0 * probs[:, :1]]), targets_of(targets), "macro_f1")[2] == 1
    )  # it does not occur


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("metric", "kind"),
    [
        ("macro_f1", "class_weights"),
        ("mcc", "class_weights"),
        ("quadratic_kappa", "cut_points"),
        ("macro_f1", "thresholds"),
        ("samples_f1", "thresholds"),
        ("map_at_3", "unknown_threshold"),
    ],
)
def test_nothing_is_taken_where_the_answers_are_right_as_they_are(metric: str, kind: str, seed: int) -> None:
    """The classes are equally frequent, and the probabilities nearly sure: only chance could gain."""
    rng = np.random.default_rng(seed)
    targets: Any = rng.integers(4, size=200)
    shown = np.where(rng.random(200) < 0.1, rng.integers(4, size=200), targets)
    probs = 0.9 * np.eye(4)[shown] + 0.1 * rng.dirichlet(np.ones(4), 200)
    if kind == "thresholds":
        targets = np.eye(4, dtype=np.float32)[targets]
    held_out = held_out_of(probs, targets)
    judged, decided = choose_decision(held_out, probs, metric, DecisionKind(kind, unknown=3))
    assert not judged.is_taken
    assert judged.gain.gain < 0.03
    assert "not taken" in judged.describe(metric)
    assert np.isfinite(decided).all()


def test_random_labels_give_no_decision_of_their_own() -> None:
    """Fitted and scored on the same images, noise gains; on others it does not."""
    taken = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        probs, targets = rng.dirichlet(np.ones(4), 300), rng.integers(4, size=300)
        taken += judge(probs, targets, "macro_f1", "class_weights").is_taken
    assert taken <= 1  # of 12: the interval is of 95 %


def test_numbers_are_never_fitted_to_the_images_that_are_scored() -> None:
    """Each half needs the other threshold: numbers that were fitted to the scored half would score 1."""
    parts, truth = np.arange(80) % 2, (np.arange(80) // 2 % 2).astype(np.float32)[:, None]
    probs = np.where(parts[:, None] == 0, 0.1 + 0.1 * truth, 0.8 + 0.1 * truth)
    held_out = HeldOut(probs[None], targets_of(truth), parts, np.arange(80))
    _, decided = choose_decision(held_out, probs, "macro_f1", DecisionKind("thresholds"))
    assert evaluate("macro_f1", targets_of(truth), decided) < 0.7
    assert (decided[parts == 0] < 0.5).all()  # the threshold of the other half is higher than all of these


def test_the_best_threshold_of_a_label_is_found_exactly() -> None:
    probs = np.array([0.9, 0.6, 0.4, 0.35, 0.3, 0.2, 0.1, 0.05])
    targets = np.array([1, 1, 1, 0, 1, 1, 0, 0])
    assert best_threshold(probs, targets, 1) == pytest.approx(0.15)  # 5 found of 6 chosen: F1 10/11
    scores = [
        evaluate("macro_f1", targets_of(targets[:, None].astype(np.float32)), (probs >= cut).astype(float)[:, None])
        for cut in (*probs, 0.15)
    ]
    assert scores[-1] == max(scores) == pytest.approx(10 / 11)
    assert best_threshold(probs, np.array([1, 1, 1, 1, 0, 0, 0, 0]), 1) == 0.5  # too few positives


def test_a_threshold_becomes_a_half_and_the_order_stays() -> None:
    probs = np.linspace(0, 1, 101)[:, None]
    moved = Decision("thresholds", (0.2,)).apply(probs)
    assert moved[20, 0] == 0.5
    assert (np.diff(moved[:, 0]) > 0).all()
    assert (moved[0, 0], moved[-1, 0]) == (0, 1)


THRESHOLD_METRICS = ("macro_f1", "micro_f1", "samples_f1", "weighted_f1", "macro_f2", "samples_f2")


@pytest.mark.parametrize("metric", first_of(["macro_f1", "samples_f2"], THRESHOLD_METRICS))
def test_thresholds_gain_where_labels_are_rare(metric: str) -> None:
    judged = judge(*several_labels(5000, 4), metric, "thresholds")
    assert judged.is_taken
    new_probs, new_targets = several_labels(10_000, 5)
    tables, truth = (judged.step.apply(new_probs), new_probs), targets_of(new_targets)
    after, before = (evaluate(metric, truth, probs) for probs in tables)
    gain = after - before
    assert gain > 0.01
    assert gain == pytest.approx(judged.gain.gain, abs=0.04)
    assert max(fit_thresholds(new_probs, targets_of(new_targets), metric)) < 0.5


def test_cut_points_gain_for_grades_and_decide_the_most_probable_one() -> None:
    probs, targets = grades(1500, 6)
    judged = judge(probs, targets, "quadratic_kappa", "cut_points")
    assert judged.is_taken
    decided = judged.step.apply(probs)
    by_hand = (probs @ np.arange(5) >= np.array(judged.step.numbers)[:, None]).sum(0)
    assert (decided.argmax(1) == by_hand).all()
    assert decided.sum(1) == pytest.approx(np.ones(1500))
    new_probs, new_targets = grades(10_000, 7)
    scores = [
        evaluate("quadratic_kappa", targets_of(new_targets), p) for p in (new_probs, judged.step.apply(new_probs))
    ]
    assert scores[1] > scores[0] + 0.01


def test_a_sure_wrong_grade_is_decided_all_the_same() -> None:
    decided = Decision("cut_points", (0.5, 2.5)).apply(np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]))
    assert decided.argmax(1).tolist() == [1, 0]


def test_cut_points_of_separate_grades_stand_between_them() -> None:
    targets = np.arange(90) % 3
    probs = np.eye(3)[targets] * 0.8 + np.array([0.2, 0, 0])  # the expected grades are 0, 0.8 and 1.6
    low, high = fit_cut_points(probs, targets_of(targets), "quadratic_kappa")
    assert 0 < low <= 0.8 < high <= 1.6


def test_only_numbers_in_order_are_grades() -> None:
    assert are_grades({}, ("0", "1", "2", "10"))
    assert are_grades({}, ("-1", "0", "3"))
    assert are_grades({}, ("0", "0.5", "1.0"))
    for classes in (("0", "1", "10", "2"), ("low", "high"), ("1.0", "10.0", "9.0"), ("1", "01")):
        assert not are_grades({}, classes)
        assert find_kind("quadratic_kappa", ONE_LABEL, classes, Card(Path("x.toml"), {})) is None


def test_the_class_for_unknown_ones_gets_its_best_place() -> None:
    """The unknown class, 2, has probability 0 everywhere. Known images are sure, unknown ones are not."""
    targets = np.array([0, 1, 2, 2] * 15)
    known = {0: [0.9, 0.1, 0.0], 1: [0.2, 0.8, 0.0], 2: [0.55, 0.45, 0.0]}
    probs = np.array([known[target] for target in targets.tolist()])
    (threshold,) = fit_unknown_threshold(probs, targets_of(targets), "map_at_3", 2)
    assert 0.55 < threshold < 0.8
    decided = Decision("unknown_threshold", (threshold,), unknown=2).apply(probs)
    assert evaluate("map_at_3", targets_of(targets), decided) == 1 > evaluate("map_at_3", targets_of(targets), probs)


@pytest.mark.parametrize("unknown_times", [1, 4])
@pytest.mark.parametrize(
    "metric", ["map_at_3", "accuracy", "macro_f1", "weighted_f1", "balanced_accuracy", "mcc", "top_3_accuracy"]
)
def test_the_threshold_of_unknown_ones_is_the_best_for_each_metric(metric: str, unknown_times: int) -> None:
    """Images of importance 4 count as four images do; what cannot be weighed counts once."""
    rng, unknown, classes = np.random.default_rng(3), 5, 6
    targets = np.where(rng.random(300) < 0.2, unknown, rng.integers(5, size=300))
    logits = rng.normal(size=(300, classes)) + 3 * np.eye(classes)[targets] * (targets != unknown)[:, None]
    logits[:, unknown] = -np.inf
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    importance = np.where(targets == unknown, float(unknown_times), 1.0)
    (threshold,) = fit_unknown_threshold(probs, targets_of(targets), metric, unknown, importance)
    times = np.ones(300, int) if metric == "top_3_accuracy" else importance.astype(int)
    shown, truth = np.repeat(probs, times, 0), targets_of(np.repeat(targets, times))

    def score(at: float) -> float:
        return evaluate(metric, truth, Decision("unknown_threshold", (at,), unknown).apply(shown))

    assert score(threshold) >= max(map(score, np.quantile(probs.max(1), np.linspace(0, 1, 101)) * (1 - 1e-9)))
    assert metric == "top_3_accuracy" or score(threshold) > score(1e-9) + 0.02


def test_importance_gives_the_unknown_ones_their_share() -> None:
    targets = targets_of(np.array([0, 1, 1, 2, 2, 2, 2, 2]))
    importance = importance_of_unknown(targets, 2, 0.25)
    assert importance is not None
    assert importance[3:].sum() / importance.sum() == pytest.approx(0.25)
    assert importance_of_unknown(targets, 0, 0.125) == pytest.approx(np.ones(8))  # as it is
    assert importance_of_unknown(targets, 3, 0.5) is None  # no image could carry that share


def test_no_probability_is_rarer_than_the_held_out_images_can_show() -> None:
    """A model that was right 50 times may still be wrong once: a probability of 1e-24 would cost 55."""
    targets = np.arange(50) % 2
    probs = np.where(np.eye(2)[targets] > 0, 1.0, 1e-24)
    held_out = HeldOut(probs[None], targets_of(targets), np.arange(50) % 5, np.arange(50))
    judged, _ = choose_decision(held_out, probs, "log_loss", DecisionKind("clip_one_label"))
    assert not judged.is_taken
    judged, decided = choose_least_prob(held_out, probs, "log_loss", judged)
    assert judged.is_taken
    assert judged.step.numbers == (0.001,)
    assert decided.min() == pytest.approx(0.001, rel=0.01)
    assert judged.gain.score == pytest.approx(0.001, rel=0.1)  # what the guard costs
    assert judged.step.apply(probs).tolist() == decided.tolist()


def test_sure_errors_are_clipped_for_the_log_loss() -> None:
    targets = np.arange(200) % 2
    probs = np.where(np.eye(2)[targets] > 0, 1 - 1e-9, 1e-9)
    probs[:2] = probs[:2, ::-1]  # one image of a hundred is wrong
    assert fit_clip(probs, targets_of(targets), "log_loss").tolist() == [0.01]
    decided = Decision("clip_one_label", (0.01,)).apply(probs)
    assert decided.min() == pytest.approx(0.01)
    assert decided.sum(1) == pytest.approx(np.ones(200))
    several = np.stack([targets, 1 - targets], 1).astype(np.float32)
    assert fit_clip(probs[:, ::-1], targets_of(several), "log_loss").tolist() == [0.01]
    assert not judge(imbalanced(400, 8)[0], imbalanced(400, 8)[1], "log_loss", "clip_one_label").is_taken


def test_odds_are_raised_where_labels_that_are_there_count_twice() -> None:
    """The last label has most of an image's weight, so that it gains less by being there than the others."""
    rng = np.random.default_rng(3)
    probs = rng.uniform(0.02, 0.6, (8000, 8))
    targets = Targets(SEVERAL_LABELS, (rng.uniform(size=probs.shape) < probs).astype(np.float32))
    held_out = HeldOut(probs[None], targets, np.arange(8000) % 5, np.arange(8000))
    judged, decided = choose_decision(held_out, probs, "fracture_log_loss", DecisionKind("raised_odds"))
    assert judged.is_taken
    assert judged.step.fits(8)
    *others, last = judged.step.numbers[1:]
    assert min(others) >= 1.75
    assert 1 < last < min(others)
    before, after = (evaluate("fracture_log_loss", targets, some) for some in (probs, decided))
    assert after < before


def test_quotas_are_filled() -> None:
    probs, _ = imbalanced(1000, 9)
    shares = (0.25, 0.25, 0.3, 0.2)
    predicted = Decision("quotas", shares).apply(probs).argmax(1)
    assert np.bincount(predicted) / 1000 == pytest.approx(shares, abs=0.02)


def test_the_shares_of_the_card_decide_and_are_checked() -> None:
    def kind_for(**settings: Any) -> DecisionKind | None:
        return find_kind("accuracy", ONE_LABEL, ("cat", "dog"), Card(Path("x.toml"), settings))

    assert kind_for() is None
    kind = kind_for(shares={"dog": 0.3, "cat": 0.7})
    assert kind == DecisionKind("quotas", shares=(0.7, 0.3))
    probs, targets = imbalanced(400, 10)
    two = np.stack([probs[:, 0], 1 - probs[:, 0]], 1)
    judged, _ = choose_decision(held_out_of(two, (targets > 0).astype(np.int64)), two, "accuracy", kind)
    assert judged.step == Decision("quotas", (0.7, 0.3))
    for shares, problem in (({"cat": 1.0}, "the classes are"), ({"cat": 0.7, "dog": 0.7}, "sum to 1.4")):
        with pytest.raises(PodiumError, match=rf"x\.toml: .*{problem}.*write .*shares"):
            kind_for(shares=shares)


@pytest.mark.parametrize("metric", ["map_at_5", "accuracy", "macro_f1"])
def test_a_class_that_training_images_lack_gets_a_threshold_for_every_metric(metric: str) -> None:
    for unknown, share in ((UnknownClass("u"), None), (UnknownClass("u", 0.3, is_share_known=True), 0.3)):
        kind = find_kind(metric, ONE_LABEL, ("a", "b", "u"), Card(Path("x.toml"), {}), unknown)
        assert kind == DecisionKind("unknown_threshold", 2, share)


@pytest.mark.parametrize(
    ("metric", "task", "classes", "name"),
    [
        ("macro_f1", ONE_LABEL, ("a", "b"), "class_weights"),
        ("macro_f1", SEVERAL_LABELS, ("a", "b"), "thresholds"),
        ("samples_f2", SEVERAL_LABELS, ("a", "b"), "thresholds"),
        ("quadratic_kappa", ONE_LABEL, ("0", "1", "2"), "cut_points"),
        ("map_at_5", ONE_LABEL, ("a", "new_whale"), "unknown_threshold"),
        ("map_at_5", ONE_LABEL, ("a", "b"), None),
        ("log_loss", ONE_LABEL, ("a", "b"), "clip_one_label"),
        ("log_loss", SEVERAL_LABELS, ("a", "b"), "clip_several_labels"),
        ("hemorrhage_log_loss", SEVERAL_LABELS, ("a", "b"), "clip_several_labels"),
        ("fracture_log_loss", SEVERAL_LABELS, ("a", "b"), "raised_odds"),
        ("own_log_loss", SEVERAL_LABELS, ("a", "b"), None),  # a user's: nothing is known of it but its name
        ("accuracy", ONE_LABEL, ("a", "b"), None),
        ("roc_auc", SEVERAL_LABELS, ("a", "b"), None),
    ],
)
def test_the_metric_and_the_task_say_which_kind(metric: str, task: Any, classes: Sequence[str], name: str) -> None:
    kind = find_kind(metric, task, classes, Card(Path("x.toml"), {}))
    assert (kind.name if kind else None) == name
    assert name is None or name in KINDS


def test_numbers_stay_in_the_range_of_training() -> None:
    targets = Targets(NUMBERS, np.array([[1.0, 20.0], [100.0, np.nan], [50.0, 40.0]]))
    numbers = FIT_NUMBERS["clip_numbers"](np.zeros((3, 2)), targets, "rmse")
    assert numbers.tolist() == [1, 20, 100, 40]
    clipped = Decision("clip_numbers", tuple(numbers.tolist())).apply(np.array([[-3.0, 41.0], [7.0, 30.0]]))
    assert clipped.tolist() == [[1, 40], [7, 30]]


# --- sums --------------------------------------------------------------------------------------------

TOTAL = (1.0, 1.0, -1.0)  # of three columns, the last is the sum of the others


def held(values: np.ndarray, ends: Sequence[Sequence[float]], variances: Sequence[float]) -> np.ndarray:
    numbers = (*ends[0], *ends[1], *variances, *TOTAL)
    decision = Decision("sums", numbers)
    assert [decision.fits(count) for count in (3, 4)] == [True, False]
    return decision.apply(values)


def test_a_sum_is_held_by_what_is_predicted_worst() -> None:
    moved = held(np.array([[1.0, 2.0, 6.0]]), [[-99] * 3, [99] * 3], [1e-9, 1.0, 2.0])
    assert moved.tolist() == [pytest.approx([1, 3, 4], abs=1e-6)]  # 3 are missing: two thirds of them in the sum
    assert held(moved, [[-99] * 3, [99] * 3], [1, 1, 1]) == pytest.approx(moved, abs=1e-6)


def test_sums_and_ranges_hold_at_the_nearest_place() -> None:
    from scipy.optimize import minimize

    rng = np.random.default_rng(0)
    values, lowest, highest, variances = rng.normal(0, 4, (40, 3)), [-1, 0, 0], [2, 3, 4], np.array([1.0, 0.2, 3.0])
    moved = held(values, [lowest, highest], variances.tolist())
    assert (moved >= lowest).all()
    assert (moved <= highest).all()
    assert moved @ TOTAL == pytest.approx(np.zeros(40), abs=1e-6)
    for start, end in zip(values, moved, strict=True):

        def distance(place: np.ndarray, start: np.ndarray = start) -> float:
            return float(((place - start) ** 2 / variances).sum())

        bounds, holds = list(zip(lowest, highest, strict=True)), {"type": "eq", "fun": lambda place: place @ TOTAL}
        best = minimize(distance, np.array([0.5, 0.5, 1]), bounds=bounds, constraints=[holds], method="SLSQP")
        assert distance(end) <= best.fun + 1e-4


def test_the_expected_score_includes_the_sums() -> None:
    """The whole is predicted badly, its parts well: from these it is known better."""
    rng = np.random.default_rng(1)
    parts = rng.uniform(0, 10, (300, 2))
    truth = np.column_stack([parts, parts.sum(1)])
    predicted = truth + rng.normal(0, [0.1, 0.1, 3], truth.shape)
    held_out = HeldOut(predicted[None], targets_of(truth), np.arange(300) % 5, np.arange(300))
    kind = find_kind("rmse", NUMBERS, ("a", "b", "all"), Card(Path("x.toml"), {"sums": ["all = a + b"]}))
    assert kind == DecisionKind("sums", sums=TOTAL)
    judged, decided = choose_decision(held_out, predicted, "rmse", kind)
    assert judged.is_taken
    assert judged.gain.interval[0] > 1
    assert evaluate("rmse", targets_of(truth), decided) == judged.gain.score < 0.3
    assert judged.step.fits(3)
