"""Choosing a blend: the choice is right where the strength of the runs is known, and odd data does not break it."""

from dataclasses import replace

import numpy as np
import pytest

from blending.simulated_runs import simulate_runs
from by_array import targets_of
from podium.basics.errors import PodiumError
from podium.blending.blend import equal_blend
from podium.blending.blend_strategies import fit_blend
from podium.blending.choose_blend import BlendChoice, choose_blend
from podium.blending.expected_score import Interval
from podium.blending.held_out import HeldOut
from podium.tasks.metrics import METRICS, Metric, evaluate
from podium.tasks.temperature import apply_temperature
from second_round import first_of


def interval_of(choice: BlendChoice) -> Interval:
    return choice.estimate.interval


@pytest.mark.slow
def test_equal_runs_get_equal_weights_and_a_useless_run_gets_almost_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.blending.choose_blend.MOST_STACKED", 0)
    alike = choose_blend(simulate_runs((2.0, 2.0, 2.0), 1500, 0), "accuracy", 1000)
    assert alike.blend.weights == pytest.approx((1 / 3,) * 3, abs=0.05)
    unlike = choose_blend(simulate_runs((3.0, 2.5, 0.2), 1500, 1), "accuracy", 1000)
    assert alike.blend.strategy == unlike.blend.strategy == "shrunk"
    assert unlike.blend.weights[2] < 0.1
    candidates = {candidate.strategy: candidate for candidate in unlike.candidates}
    assert candidates["shrunk"].gain.interval[0] > 0  # better than the best single run by more than chance


def test_a_stack_is_taken_if_it_is_clearly_better_than_all_others() -> None:
    """A run that confuses two classes: only a stack can exchange them."""
    right, new = simulate_runs((3.0, 2.0), 1500, 4), simulate_runs((3.0, 2.0), 20_000, 5)
    swapped, swapped_new = (
        replace(one, probs=one.probs[:, :, [1, 0, *range(2, one.probs.shape[2])]]) for one in (right, new)
    )
    choice = choose_blend(swapped, "accuracy", 1000)
    assert choice.blend.strategy == "stacked-linear"
    plain = fit_blend("convex", swapped.probs, swapped.targets, "accuracy")
    scores = [evaluate("accuracy", new.targets, blend.apply(swapped_new.probs)) for blend in (plain, choice.blend)]
    assert scores[1] > scores[0] + 0.05


@pytest.mark.parametrize("times", first_of([3], [3, 10]))
def test_a_stack_is_not_taken_for_a_gain_that_may_be_chance(times: int) -> None:
    """Labels that are drawn from the mean of the runs: no blend can be better than that mean."""
    taken = []
    for seed in range(times):
        rng = np.random.default_rng(seed)
        runs = simulate_runs((1.0, 1.0), 600, seed)
        sums = runs.probs.mean(0).cumsum(1)
        labels = (rng.random((len(sums), 1)) > sums[:, :-1]).sum(1)
        drawn = replace(runs, targets=replace(runs.targets, values=labels))
        taken.append(choose_blend(drawn, "log_loss", 1000).blend.strategy.startswith("stacked"))
    assert sum(taken) <= times // 10


@pytest.mark.parametrize("seed", first_of([0], range(3)))
def test_a_blend_that_hurts_loses_against_the_best_single_run(seed: int) -> None:
    """Eight runs that make the same errors outvote a strong one where weights are equal."""
    strengths = (3.0, *(0.6,) * 8)
    choice = choose_blend(simulate_runs(strengths, 400, seed, shared_noise=0.9), "accuracy", 1000)
    scores = {candidate.strategy: candidate.gain.score for candidate in choice.candidates}
    assert scores["equal"] < scores["best"] <= scores[choice.blend.strategy]
    new = simulate_runs(strengths, 20_000, 100 + seed, shared_noise=0.9)
    score = evaluate("accuracy", new.targets, choice.blend.apply(new.probs))
    assert score > evaluate("accuracy", new.targets, new.probs[0]) - 0.003


@pytest.mark.slow
@pytest.mark.parametrize("metric", first_of(["accuracy"], ["accuracy", "log_loss", "macro_f1", "quadratic_kappa"]))
def test_the_choice_is_near_the_best_on_new_images(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.blending.expected_score.SLOW_RESAMPLES", 60)
    strengths = (3.0, 2.0, 0.5)
    choice = choose_blend(simulate_runs(strengths, 1500, 2), metric, 50_000)
    new, better = simulate_runs(strengths, 50_000, 3), METRICS[metric]().better
    scores = {}
    for strategy in ("equal", "convex"):
        blend = fit_blend(strategy, new.probs, new.targets, metric)
        scores[strategy] = better * evaluate(metric, new.targets, blend.apply(new.probs))
    score = better * evaluate(metric, new.targets, choice.blend.apply(new.probs))
    assert score >= scores["equal"]
    assert score > scores["convex"] - 0.02
    low, high = sorted(better * bound for bound in interval_of(choice))
    assert low - 0.01 <= score <= high + 0.01  # a 95 % interval alone would fail for one seed of twenty


@pytest.mark.filterwarnings("ignore")  # of scikit-learn: the metric is not defined
def test_a_metric_that_is_not_a_number_keeps_equal_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.blending.expected_score.SLOW_RESAMPLES", 20)
    one_class = replace(simulate_runs((2.0, 1.0), 60, 0), targets=targets_of(np.zeros(60, np.int64)))
    assert choose_blend(one_class, "roc_auc", 10).blend.strategy == "equal"


def test_weights_are_never_scored_on_the_images_they_were_fitted_to() -> None:
    """Each part needs other weights than the rest. Weights fitted to the scored part would score 1."""
    correct = np.eye(2)[np.zeros(100, int)] * 0.8 + 0.1
    parts = np.arange(100) % 2
    probs = np.array([np.where(parts[:, None] == part, correct, correct[:, ::-1]) for part in range(2)])
    choice = choose_blend(HeldOut(probs, targets_of(np.zeros(100, np.int64)), parts, np.arange(100)), "accuracy", 10)
    scores = {candidate.strategy: candidate.gain.score for candidate in choice.candidates}
    assert scores["shrunk"] == 0


def test_the_single_run_is_taken_if_no_blend_scores_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's metric that the loss does not lead to."""
    held_out = simulate_runs((3.0, 1.0), 300, 0)
    mistakes = Metric("labels", 1, lambda targets, probs: 1 - evaluate("accuracy", targets, probs))
    monkeypatch.setitem(METRICS, "mistakes", lambda: mistakes)
    monkeypatch.setattr("podium.blending.expected_score.SLOW_RESAMPLES", 20)
    choice = choose_blend(held_out, "mistakes", 100)
    scores = {candidate.strategy: candidate.gain.score for candidate in choice.candidates}
    assert scores["shrunk"] < scores["best"]
    assert choice.blend.strategy == "best"
    assert choice.blend.weights == (0, 1)


@pytest.mark.parametrize("metric", ["log_loss", "brier"])
def test_a_single_run_is_calibrated_where_probabilities_count(metric: str) -> None:
    held_out = simulate_runs((2.0,), 400, 0)
    unsure = replace(held_out, probs=apply_temperature(held_out.probs[0], 2.0)[None])
    choice = choose_blend(unsure, metric, 100)
    assert choice.blend.calibration.temperatures[0] == pytest.approx(0.5, abs=0.1)
    assert choose_blend(unsure, "accuracy", 100).blend == equal_blend(1)


def test_few_images_get_equal_weights() -> None:
    held_out = simulate_runs((2.0, 2.0), 10, 0)
    assert choose_blend(held_out, "accuracy", 10).blend == equal_blend(2)
    with pytest.raises(PodiumError, match=r"cannot be fitted to 10 images .* use --blend equal"):
        choose_blend(held_out, "accuracy", 10, "greedy")


@pytest.mark.parametrize("group_count", [1, 2])
def test_few_groups_get_equal_weights(group_count: int) -> None:
    groups = np.arange(100) % group_count
    held_out = replace(simulate_runs((2.0, 1.0), 100, 0), parts=groups, groups=groups)
    for metric in ("accuracy", "log_loss", "macro_f1"):
        choice = choose_blend(held_out, metric, 50)
        assert choice.blend.strategy == "equal"
        low, high = interval_of(choice)
        if group_count == 1 and metric != "accuracy":
            assert np.isnan(low)
        else:
            assert low < high
    with pytest.raises(PodiumError, match=rf"--blend convex: .* 100 images of {group_count} group"):
        choose_blend(held_out, "accuracy", 50, "convex")


@pytest.mark.slow
def test_probabilities_of_exactly_zero_break_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.blending.expected_score.SLOW_RESAMPLES", 20)
    correct = np.eye(4)[np.arange(40) % 4]
    wrong = np.roll(correct, 1, 1)
    held_out = HeldOut(np.array([correct, wrong]), targets_of(np.arange(40) % 4), np.arange(40) % 2, np.arange(40))
    of_labels = ("accuracy", "macro_f1", "balanced_accuracy", "quadratic_kappa", "mcc")
    for metric in (*of_labels, "log_loss", "roc_auc", "map_at_3"):
        choice = choose_blend(held_out, metric, 10)
        assert np.isfinite(choice.blend.apply(held_out.probs)).all()
        assert choice.blend.weights[0] >= 0.5


@pytest.mark.slow
def test_a_rare_class_that_a_resample_lacks_breaks_nothing() -> None:
    targets = np.array([1] * 2 + [0] * 58)
    probs = np.random.default_rng(0).dirichlet((1, 1), (2, 60))
    choice = choose_blend(HeldOut(probs, targets_of(targets), np.arange(60) % 5, np.arange(60)), "roc_auc", 30)
    assert sum(choice.blend.weights) == pytest.approx(1)
