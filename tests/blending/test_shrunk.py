"""The shrunk blend: near the best weights where there are many images, and near equal ones where there are few."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from blending.simulated_runs import simulate_runs
from by_array import targets_of
from podium.blending import shrunk
from podium.blending.blend import Blend, Probs, blend_from_json
from podium.blending.blend_strategies import fit_blend
from podium.blending.held_out import HeldOut
from podium.blending.shrunk import fit_mean, fit_shrunk
from podium.blending.strategy_names import STRATEGIES
from podium.tasks.metrics import evaluate
from podium.tasks.task import SEVERAL_TARGETS, Targets
from podium.tasks.temperature import apply_temperature
from second_round import first_of


def loss_of(blend: Blend, held_out: HeldOut) -> float:
    return evaluate(held_out.targets.task.loss, held_out.targets, blend.apply(held_out.probs))


def scaled(held_out: HeldOut, temperatures: tuple[float, ...]) -> HeldOut:
    tables = [apply_temperature(*pair) for pair in zip(held_out.probs, temperatures, strict=True)]
    return replace(held_out, probs=np.array(tables))


@pytest.mark.parametrize("seed", first_of([0], range(4)))
@pytest.mark.parametrize("strengths", [(2.0, 2.0, 2.0), (2.5, 1.0, 1.0, 0.5)])
def test_no_fixed_strategy_is_clearly_better_on_new_images(strengths: tuple[float, ...], seed: int) -> None:
    temperatures = (2.0, 0.5, 1.0, 1.5)[: len(strengths)]
    seen, new = (scaled(simulate_runs(strengths, count, seed + count), temperatures) for count in (300, 8000))
    losses = {
        strategy: loss_of(fit_blend(strategy, seen.probs, seen.targets, "log_loss"), new)
        for strategy in ("shrunk", *STRATEGIES)
    }
    assert losses.pop("shrunk") < min(losses.values()) + 0.005


def test_the_fewer_images_the_nearer_to_equal_are_the_weights() -> None:
    many = simulate_runs((2.0, 1.0, 1.0), 4000, 0)
    few = many.of(np.arange(4000) < 40)
    first = [fit_mean(some.probs, some.targets, "geometric", 30.0).weights[0] for some in (few, many)]
    assert 1 / 3 < first[0] < first[1] - 0.05


def test_equal_runs_have_nearly_equal_weights_on_few_images() -> None:
    held_out = simulate_runs((2.0,) * 4, 100, 0)
    shares = fit_shrunk(held_out.probs, held_out.targets).weights
    convex = fit_blend("convex", held_out.probs, held_out.targets, "log_loss").weights
    assert np.std(shares) < 0.5 * np.std(convex)


def test_a_run_that_adds_nothing_costs_no_predictions() -> None:
    held_out = simulate_runs((3.0, 2.5, 0.3), 2000, 0)
    assert fit_shrunk(held_out.probs, held_out.targets).weights[2] == 0


def test_the_mean_of_probabilities_is_taken_where_runs_are_sure_and_wrong() -> None:
    held_out, rng = simulate_runs((2.0, 2.0, 2.0), 900, 0, shared_noise=0.0), np.random.default_rng(0)
    assert fit_shrunk(held_out.probs, held_out.targets).mean.kind == "geometric"
    fails = rng.random(held_out.probs.shape[:2]) < 0.15
    probs = np.where(fails[..., None], np.roll(held_out.probs, 1, 2), held_out.probs)
    assert fit_shrunk(probs, held_out.targets).mean.kind == "arithmetic"


def test_few_mistakes_leave_the_temperatures_near_1() -> None:
    """One image of forty is wrong: the least log loss of these would make each run far more sure."""
    targets = np.arange(40) % 2
    probs = np.full((2, 40, 2), 0.1)
    probs[:, np.arange(40), targets] = 0.9
    probs[:, 0] = [0.55, 0.45] if targets[0] else [0.45, 0.55]
    blend = fit_shrunk(probs, targets_of(targets))
    free = fit_blend("equal-calibrated", probs, targets_of(targets), "log_loss")
    assert free.calibration.temperatures[0] < blend.calibration.temperatures[0] - 0.1
    assert blend.calibration.temperatures[0] > 0.6


def several_labels(count: int, seed: int, strengths: NDArray[np.float64]) -> tuple[Probs, Targets]:
    rng = np.random.default_rng(seed)
    labels = (rng.random((count, 5)) < 0.3).astype(np.float32)
    noise = rng.normal(size=(len(strengths), count, 5))
    logits = strengths[:, None, None] * (noise + strengths[:, None, None] * (labels - 0.5)) + np.log(0.3 / 0.7)
    return 1 / (1 + np.exp(-logits)), targets_of(labels)


def several_targets(count: int, seed: int, strengths: NDArray[np.float64]) -> tuple[Probs, Targets]:
    halves = [simulate_runs(tuple(strengths), count, seed + n, class_count=3) for n in range(2)]
    truth = np.hstack([np.eye(3)[half.targets.values] for half in halves]).astype(np.int8)
    return np.concatenate([half.probs for half in halves], 2), Targets(SEVERAL_TARGETS, truth, (1, 1, 1, 2, 2, 2))


def numbers(count: int, seed: int, strengths: NDArray[np.float64]) -> tuple[Probs, Targets]:
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(count, 2))
    truth[::7, 1] = np.nan
    noise = rng.normal(size=(len(strengths), count, 2))
    return np.nan_to_num(truth) + noise / strengths[:, None, None], targets_of(truth)


@pytest.mark.parametrize("draw", [several_labels, several_targets, numbers])
@pytest.mark.parametrize("metric_strengths", [(2.0, 2.0, 2.0), (3.0, 0.7, 0.7)])
def test_all_tasks_have_weights_between_equal_ones_and_the_best(draw, metric_strengths: tuple[float, ...]) -> None:  # type: ignore[no-untyped-def]
    strengths = np.array(metric_strengths)
    (probs, targets), (new, truth) = draw(200, 0, strengths), draw(4000, 50, strengths)
    losses = [
        evaluate(targets.task.loss, truth, fit_blend(strategy, probs, targets, targets.task.loss).apply(new))
        for strategy in ("shrunk", "equal", "convex")
    ]
    assert losses[0] < min(losses[1:]) + 0.004


@pytest.mark.parametrize("draw", [several_labels, numbers])
def test_a_lineage_gives_the_same_answers_to_the_bit(draw) -> None:  # type: ignore[no-untyped-def]
    probs, targets = draw(200, 0, np.array([2.0, 1.0, 0.01]))
    blend, kept = fit_shrunk(probs, targets).without_unused()
    assert len(kept) == 2
    again = blend_from_json(blend.as_json(), len(kept))
    assert (again.apply(probs[kept]) == fit_shrunk(probs, targets).apply(probs)).all()


def test_several_labels_have_a_temperature_of_the_mean() -> None:
    """Three runs of independent errors know more together than each is sure of."""
    probs, targets = several_labels(2000, 0, np.array([1.5, 1.5, 1.5]))
    mean = fit_shrunk(probs, targets).mean
    assert mean.kind == "logit"
    assert mean.temperature < 0.6
    new, truth = several_labels(2000, 1, np.array([1.5, 1.5, 1.5]))
    means = replace(mean, temperature=1.0), mean
    before, after = (evaluate("log_loss", truth, one.apply(list(new))) for one in means)
    assert after < before - 0.01


def test_a_large_table_is_fitted_to_some_of_its_images(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def count(probs: Probs, *_: object) -> float:
        counts.append(len(probs))
        return 1.0

    monkeypatch.setattr(shrunk, "fit_temperature", count)
    held_out = simulate_runs((1.0, 1.0), 6000, 0, class_count=300)
    fit_shrunk(held_out.probs, held_out.targets)
    assert max(counts) == 2_000_000 // 600
