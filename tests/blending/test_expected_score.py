"""The expected score: its interval covers the score of a test set as often as it claims."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from blending.simulated_runs import simulate_runs
from by_array import targets_of
from podium.blending.blend import Probs, equal_blend
from podium.blending.choose_blend import BlendChoice, choose_blend
from podium.blending.decision import Decision
from podium.blending.expected_score import Estimate, add_fold_gain, best_score, clip_to_reachable, estimate_score
from podium.blending.held_out import HeldOut
from podium.tasks.metrics import METRICS, evaluate, score_per_image
from podium.tasks.temperature import apply_temperature
from second_round import first_of


def estimate_of(choice: BlendChoice) -> Estimate:
    return choice.estimate


def with_fold_gain(choice: BlendChoice, metric: str, fold_probs: Sequence[Sequence[Probs]]) -> Estimate:
    return add_fold_gain(estimate_of(choice), choice.blend, metric, fold_probs)


@pytest.mark.slow
@pytest.mark.parametrize("times", first_of([20], [20, 60]))
def test_the_interval_covers_the_test_score_about_as_often_as_it_claims(times: int) -> None:
    covered = 0
    for seed in range(times):
        choice = choose_blend(simulate_runs((2.0, 1.5), 400, seed), "accuracy", 300, "equal")
        test = simulate_runs((2.0, 1.5), 300, 999 + seed)
        low, high = estimate_of(choice).interval
        covered += low <= evaluate("accuracy", test.targets, choice.blend.apply(test.probs)) <= high
    assert covered >= 0.9 * times  # 0.95 are expected


@pytest.mark.slow
@pytest.mark.parametrize("times", first_of([10], [10, 40]))
def test_the_interval_covers_the_score_of_a_mean_over_folds_too(times: int) -> None:
    covered = covered_without_gain = 0
    for seed in range(times):
        held_out = simulate_runs((2.0,), 1500, seed, shared_noise=0.9)
        models = simulate_runs((2.0,) * 5, 1000, 999 + seed, shared_noise=0.9)
        choice = choose_blend(held_out, "accuracy", 1000)
        score = evaluate("accuracy", models.targets, models.probs.mean(0))
        low, high = with_fold_gain(choice, "accuracy", [list(models.probs)]).interval
        covered += low <= score <= high
        low, high = estimate_of(choice).interval
        covered_without_gain += low <= score <= high
    assert covered >= 0.9 * times  # 0.95 are expected
    assert covered_without_gain < 0.5 * times


@pytest.mark.slow
@pytest.mark.parametrize("metric", first_of(["accuracy", "log_loss"], ["accuracy", "log_loss", "macro_f1"]))
@pytest.mark.parametrize("temperature", first_of([2.0], [1.0, 2.0]))
def test_the_gain_of_a_mean_over_folds_is_estimated_without_labels(metric: str, temperature: float) -> None:
    """Five models make partly different errors. At temperature 2 each is less confident than it should be."""
    models = simulate_runs((2.0,) * 5, 4000, 11, shared_noise=0.8)
    probs = apply_temperature(models.probs.reshape(-1, 8), temperature).reshape(models.probs.shape)
    choice = choose_blend(replace(models, probs=probs[:1]), metric, 4000, "equal")
    estimate = with_fold_gain(choice, metric, [list(probs)])
    single_score = np.mean([evaluate(metric, models.targets, model_probs) for model_probs in probs])
    true_gain = evaluate(metric, models.targets, probs.mean(0)) - single_score
    assert METRICS[metric]().better * true_gain > 0.02
    assert estimate.fold_gain == pytest.approx(true_gain, rel=0.3)
    bounds = [bound + estimate.fold_gain for bound in estimate_of(choice).interval]
    assert estimate.interval == pytest.approx(bounds)
    assert with_fold_gain(choice, metric, [[probs[0]]]) == choice.estimate  # one fold has no mean
    two_runs = choose_blend(replace(models, probs=probs[:2]), metric, 4000, "equal")
    gain_of_two_runs = with_fold_gain(two_runs, metric, [list(probs[:3]), list(probs[3:])]).fold_gain
    assert abs(gain_of_two_runs) < abs(estimate.fold_gain)


@pytest.mark.parametrize("metric", first_of(["accuracy"], ["accuracy", "log_loss"]))
def test_images_in_groups_tell_less_than_independent_images(metric: str) -> None:
    """Ten copies of each image, in one group, give the interval of the images without copies."""
    single = simulate_runs((2.0, 1.0), 400, 5)
    targets, parts, groups = (np.repeat(array, 10) for array in (single.targets.values, single.parts, single.groups))
    grouped = HeldOut(np.repeat(single.probs, 10, axis=1), targets_of(targets), parts, groups)
    independent = replace(grouped, groups=np.arange(4000))
    widths, gain_widths = [], []
    for held_out, test_count in ((single, 300), (grouped, 3000), (independent, 3000)):
        choice = choose_blend(held_out, metric, test_count, "convex")
        widths.append(np.ptp(estimate_of(choice).interval))
        (gain_interval,) = (tried.gain.interval for tried in choice.candidates if tried.strategy == "convex")
        gain_widths.append(np.ptp(gain_interval))
    for single_width, grouped_width, independent_width in (widths, gain_widths):
        assert grouped_width == pytest.approx(single_width, rel=0.15)
        assert independent_width < 0.5 * single_width


@pytest.mark.parametrize(
    ("metric", "lowest", "highest"),
    [("gap", 0, 1), ("quadratic_kappa", -1, 1), ("log_loss", 0, np.inf), ("brier", 0, 2), ("r2", -np.inf, 1)],
)
def test_the_interval_ends_where_the_scores_of_the_metric_end(metric: str, lowest: float, highest: float) -> None:
    best = METRICS[metric]().best
    for low, high in ((-4.9, 0.9), (0.1, 5.1), (-4.9, 5.1)):
        estimate = clip_to_reachable(Estimate(0.5, (low, high), 4, 1.0), metric, best)
        assert estimate.interval == (max(lowest, low), min(high, highest))


def test_without_a_single_error_the_interval_still_allows_errors() -> None:
    flawless = simulate_runs((20.0,), 1000, 0)
    fifty_groups = replace(flawless, groups=np.arange(1000) // 20)
    low, _ = estimate_of(choose_blend(fifty_groups, "accuracy", 1000)).interval
    assert low < 0.97  # as fifty groups allow, not as a thousand images would
    low, high = estimate_of(choose_blend(simulate_runs((20.0,), 200, 0), "accuracy", 100)).interval
    assert low < 0.99 < high == 1


@pytest.mark.parametrize("metric", ["log_loss", "brier", "macro_f1", "top_3_accuracy"])
def test_without_a_single_error_every_metrics_interval_has_a_width(metric: str) -> None:
    """Sure predictions that are all right score the same in every resample."""
    targets = np.arange(100) % 4
    probs = Decision("clip_one_label", (0.001,)).apply(np.eye(4)[targets])
    low, high = estimate_score(
        HeldOut(probs[None], targets_of(targets), targets, np.arange(100)), probs, metric, 60
    ).interval
    best = best_score(metric, probs, targets_of(probs.argmax(1)))
    better, worse = (low, high) if METRICS[metric]().better < 0 else (high, low)
    assert better == pytest.approx(best)
    assert abs(worse - best) > 0.01


def test_without_a_single_error_the_interval_of_several_labels_has_a_width() -> None:
    labels = np.eye(3, dtype=np.float32)[np.arange(100) % 3]
    probs = labels.astype(np.float64).clip(0.001, 0.999)
    held_out = HeldOut(probs[None], targets_of(labels), np.arange(100) % 5, np.arange(100))
    low, high = estimate_score(held_out, probs, "log_loss", 60).interval
    assert low == pytest.approx(best_score("log_loss", probs, targets_of(labels))) == pytest.approx(0.001, rel=0.01)
    assert high > 0.02


def test_no_expected_score_is_better_than_the_predictions_can_be() -> None:
    """Fold models disagree on some test images, so that the mean would gain more than the held-out images lose."""
    rng = np.random.default_rng(0)
    sure = np.eye(2)[rng.integers(2, size=60)].clip(1e-9, 1 - 1e-9)
    unsure = [sure.copy(), sure.copy()]
    unsure[0][:6], unsure[1][:6] = (0.9, 0.1), (0.3, 0.7)
    clip = Decision("clip_one_label", (0.0004,))
    estimate = Estimate(score=0.0004, interval=(0.0004, 0.0004), image_count=120, loss=4e-10)
    expected = add_fold_gain(estimate, replace(equal_blend(1), decision=clip), "log_loss", [unsure])
    mean = clip.apply((unsure[0] + unsure[1]) / 2)
    best = best_score("log_loss", mean, targets_of(mean.argmax(1)))
    assert expected.fold_gain == 0.0  # nothing is left to gain
    assert min(expected.interval) >= best > 0.01


def test_an_interval_out_of_reach_moves_and_one_partly_out_of_reach_is_cut() -> None:
    estimate = Estimate(score=0.2, interval=(0.1, 0.3), image_count=9, loss=0.2)
    assert clip_to_reachable(estimate, "log_loss", 0.2).interval == (0.2, 0.3)
    assert clip_to_reachable(estimate, "log_loss", 0.5).interval == pytest.approx((0.5, 0.7))
    assert clip_to_reachable(estimate, "accuracy", 0.2).interval == (0.1, 0.2)
    assert clip_to_reachable(estimate, "log_loss", 0.0) == estimate


@pytest.mark.parametrize("metric", ["accuracy", "log_loss"])
def test_the_mean_of_the_images_scores_is_the_score(metric: str) -> None:
    held_out = simulate_runs((1.0,), 500, 5)
    image_scores = score_per_image(metric, held_out.targets, held_out.probs[0])
    assert image_scores is not None
    assert image_scores.mean() == pytest.approx(evaluate(metric, held_out.targets, held_out.probs[0]))
    assert score_per_image("macro_f1", held_out.targets, held_out.probs[0]) is None


@pytest.mark.parametrize("metric", ["roc_auc", "average_precision", "accuracy", "macro_f1"])
@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_a_perfect_score_on_few_images_does_not_promise_another(metric: str, shift: float) -> None:
    """Of n images without a mistake, one in n/3 may still be wrong; where the threshold lies makes no difference."""
    truth = np.arange(60) % 2
    positive = np.linspace(0.1, 0.4, 60) + 0.5 * truth - shift
    probs = np.column_stack([1 - positive, positive])
    held_out = HeldOut(probs[None], targets_of(truth), np.arange(60) % 5, np.arange(60))
    estimate = estimate_score(held_out, probs, metric, 200)
    low, high = estimate.interval
    assert low < 0.99
    assert high <= 1
