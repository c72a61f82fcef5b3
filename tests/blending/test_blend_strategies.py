"""Fitting a blend: weights and temperatures are correct in cases where the correct ones are known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blending.simulated_runs import simulate_runs
from by_array import targets_of
from podium.blending.blend_strategies import FIT_WEIGHTS, fit_blend, fit_convex, fit_greedy, list_strategies
from podium.blending.decision import sum_to_one
from podium.blending.strategy_names import STRATEGIES, WEIGHTINGS
from podium.tasks.metrics import evaluate
from podium.tasks.task import ONE_LABEL, SEVERAL_LABELS, Targets
from podium.tasks.temperature import apply_temperature, fit_temperature


def test_the_weights_of_the_least_log_loss_are_found() -> None:
    held_out = simulate_runs((2.0, 1.0), 4000, 4)
    weights = fit_convex(held_out.probs, held_out.targets, "log_loss")
    losses = {
        share: evaluate("log_loss", held_out.targets, share * held_out.probs[0] + (1 - share) * held_out.probs[1])
        for share in np.linspace(0, 1, 101)
    }
    assert weights.sum() == pytest.approx(1)
    assert weights[0] == pytest.approx(min(losses, key=lambda share: losses[share]), abs=0.011)
    greedy_weights = fit_greedy(held_out.probs, held_out.targets, "log_loss")
    assert greedy_weights[0] == pytest.approx(weights[0], abs=0.05)


def test_weights_and_temperature_fit_the_shares_of_votes() -> None:
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(3), 400)
    targets = Targets(ONE_LABEL, shares.argmax(1)).with_votes(shares)
    assert targets.votes is not None
    noise = [sum_to_one(shares * np.exp(rng.normal(0, spread, shares.shape))) for spread in (0.3, 0.5)]
    probs = np.array(noise)
    found = fit_convex(probs, targets, "kl_divergence")[0]
    scores = [evaluate("kl_divergence", targets, w * probs[0] + (1 - w) * probs[1]) for w in np.linspace(0, 1, 101)]
    assert found == pytest.approx(int(np.argmin(scores)) / 100, abs=0.011)
    assert fit_greedy(probs, targets, "kl_divergence")[0] == pytest.approx(found, abs=0.1)
    sharp = apply_temperature(shares, 0.5)
    assert fit_temperature(sharp, targets.values, targets.votes) == pytest.approx(2, rel=0.05)


@given(st.floats(0.6, 2.5), st.integers(0, 99))
@settings(max_examples=20)
def test_a_temperature_that_was_applied_is_found_and_undone(temperature: float, seed: int) -> None:
    held_out = simulate_runs((2.0,), 3000, seed, shared_noise=0.0)
    changed = apply_temperature(held_out.probs[0], temperature)
    assert fit_temperature(changed, held_out.targets.values) == pytest.approx(1 / temperature, rel=0.1)
    assert np.allclose(apply_temperature(changed, 1 / temperature), held_out.probs[0], atol=1e-5)
    assert np.allclose(changed.sum(1), 1)


@pytest.mark.parametrize("count", [10, 100, 10_000])
def test_images_that_are_all_right_make_probabilities_only_as_sure_as_so_many_can_show(count: int) -> None:
    targets = np.arange(count) % 2
    probs = np.where(np.arange(2) == targets[:, None], 0.99, 0.01)
    calibrated = apply_temperature(probs, fit_temperature(probs, targets))
    assert 1 - calibrated[0, 0] == pytest.approx(0.5 / (count + 1), rel=0.01)


def test_only_strategies_that_can_differ_are_listed() -> None:
    assert list_strategies(1, "accuracy", ONE_LABEL) == ("equal",)
    assert list_strategies(1, "log_loss", ONE_LABEL) == ("equal", "shrunk")
    assert list_strategies(2, "accuracy", ONE_LABEL) == ("equal", "best", "shrunk")
    assert list_strategies(2, "log_loss", ONE_LABEL) == ("equal", "best", "shrunk")
    assert list_strategies(2, "log_loss", SEVERAL_LABELS) == ("equal", "best", "shrunk")
    assert STRATEGIES[0] == "equal"


def test_every_named_strategy_can_be_fitted() -> None:
    assert tuple(FIT_WEIGHTS) == WEIGHTINGS


def test_a_mean_of_ranks_knows_no_scale() -> None:
    rng = np.random.default_rng(0)
    second = rng.random((2, 50))
    probs = np.stack([1 - second, second], -1)
    squeezed = np.stack([np.stack([1 - second[0] ** 9, second[0] ** 9], -1), probs[1]])  # the same order
    for targets in (np.zeros(1, np.int64), np.zeros((1, 2), np.float32)):
        blend = fit_blend("rank", probs, targets_of(targets), "roc_auc")
        blended = blend.apply(probs)
        assert np.allclose(blended, blend.apply(squeezed))
        mean_rank = (second[0].argsort().argsort() + second[1].argsort().argsort() + 1) / 100
        assert np.allclose(blended[:, 1], mean_rank)
        assert ((blended > 0) & (blended < 1)).all()
    assert np.allclose(fit_blend("rank", probs, targets_of(np.zeros(1, np.int64)), "roc_auc").apply(probs).sum(1), 1)


def test_the_power_that_scores_best_is_chosen() -> None:
    """A small power lets a run that is against a class count, a large one a run that is for it."""
    vetoed, wished = np.array([[[0.5, 0.5]], [[0.95, 0.05]]]), np.array([[[0.5, 0.3, 0.2]], [[0.01, 0.3, 0.69]]])
    for probs, power in ((vetoed, 0.5), (wished, 4)):
        blend = fit_blend("power", probs, targets_of(np.array([0])), "log_loss")
        assert blend.mean.kind == f"power {power:g} of one"
        means = ((probs**power).mean(0)) ** (1 / power)
        assert blend.apply(probs) == pytest.approx(means / means.sum())
        assert f"powers {power:g}" in blend.describe()
    several = fit_blend("power", wished, targets_of(np.array([[1, 0, 0]], np.float32)), "log_loss")
    assert several.mean.kind.startswith("power")
    assert "of one" not in several.mean.kind


def test_the_geometric_mean_is_that_of_the_odds() -> None:
    one_label = np.array([[[0.8, 0.2]], [[0.2, 0.8]], [[0.8, 0.2]]])
    blend = fit_blend("geometric", one_label, targets_of(np.zeros(1, np.int64)), "log_loss")
    odds = (4 * 0.25 * 4) ** (1 / 3)
    assert blend.apply(one_label)[0] == pytest.approx([odds / (1 + odds), 1 / (1 + odds)])
    several = fit_blend("geometric", one_label, targets_of(np.zeros((1, 2), np.float32)), "log_loss").apply(one_label)
    assert several[0] == pytest.approx([odds / (1 + odds), 1 / (1 + odds)])
    assert np.isfinite(blend.apply(np.array([[[1.0, 0.0]]] * 3))).all()
