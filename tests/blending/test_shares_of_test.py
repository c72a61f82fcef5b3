"""--decision test-shares: the shares of classes in the test set, estimated without labels, and what they change."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from by_array import targets_of
from podium.basics.errors import PodiumError
from podium.blending.blend import Probs
from podium.blending.choose_decision import decide_by_test_shares
from podium.blending.decision import Decision
from podium.blending.held_out import HeldOut
from podium.blending.shares_of_test import (
    SHARES_KIND,
    estimate_shares,
    fit_test_shares,
    refuse_other_tasks,
    reweigh_by_shares,
    shares_with_interval,
)
from podium.tasks.metrics import evaluate
from podium.tasks.task import NUMBERS, ONE_LABEL, SEVERAL_LABELS

EQUAL = np.full(3, 1 / 3)
SKEWED = np.array([0.7, 0.25, 0.05])


def images(shares: NDArray[np.float64], count: int, seed: int, sharpness: float = 1.0) -> tuple[Probs, NDArray[Any]]:
    """Returns images of these shares, and what a model says that is calibrated on equal ones; or more or less sure."""
    rng = np.random.default_rng(seed)
    targets = rng.choice(len(shares), size=count, p=shares)
    logits = rng.normal(size=(count, len(shares)))
    logits[np.arange(count), targets] += 1.5
    powers = np.exp(sharpness * 1.5 * logits)
    return powers / powers.sum(1, keepdims=True), targets


@pytest.mark.parametrize("sharpness", [1.0, 2.0, 0.5])
def test_the_shares_of_the_test_are_found_and_help(sharpness: float) -> None:
    """Also where the model is too sure, or too cautious: it is calibrated first."""
    known, truth = images(EQUAL, 4_000, 0, sharpness)
    numbers = fit_test_shares(known, targets_of(truth), "log_loss")
    probs, targets = images(SKEWED, 4_000, 1, sharpness)
    found = shares_with_interval(probs, numbers, ("a", "b", "c"))
    true = np.bincount(targets) / len(targets)
    assert np.abs(found.estimated - true).max() < 0.03
    assert (found.low < found.estimated).all()
    assert (found.estimated < found.high).all()
    assert np.abs(found.in_training - EQUAL).max() < 0.02
    weighed = reweigh_by_shares(probs, numbers)
    for metric, better in (("log_loss", -1), ("accuracy", 1)):
        before, after = (evaluate(metric, targets_of(targets), each) for each in (probs, weighed))
        assert better * (after - before) > 0.02


def test_images_of_the_usual_shares_keep_their_probabilities() -> None:
    known, truth = images(SKEWED, 3_000, 0)
    numbers = fit_test_shares(known, targets_of(truth), "log_loss")
    assert np.abs(reweigh_by_shares(known, numbers) - known).max() < 0.03


def test_the_interval_holds_the_shares_of_most_draws() -> None:
    known, truth = images(EQUAL, 5_000, 0)
    numbers, inside = fit_test_shares(known, targets_of(truth), "log_loss"), 0
    for seed in range(20):
        found = shares_with_interval(images(SKEWED, 300, 100 + seed)[0], numbers, ("a", "b", "c"))
        inside += int(((found.low <= SKEWED) & (found.high >= SKEWED)).sum())
    assert inside >= 52  # of 60


def test_a_class_that_no_test_image_shows_keeps_a_probability() -> None:
    known, truth = images(EQUAL, 1_000, 0)
    numbers = fit_test_shares(known, targets_of(truth), "log_loss")
    weighed = reweigh_by_shares(np.array([[0.98, 0.01, 0.01]] * 50), numbers)
    assert weighed.min() > 1e-6
    assert weighed[0, 0] > 0.98


@given(st.integers(1, 40), st.integers(2, 5), st.integers(0, 9))
def test_shares_sum_to_one_whatever_the_images_are(count: int, classes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(classes, 0.1), count)
    numbers = np.append(rng.uniform(0.5, 2), rng.dirichlet(np.ones(classes)).clip(1e-6))
    shares = estimate_shares(probs, numbers)
    assert shares.sum() == pytest.approx(1)
    assert (shares > 0).all()
    assert np.isfinite(reweigh_by_shares(probs, numbers)).all()


def test_it_is_judged_on_held_out_images_and_taken_because_it_is_asked_for() -> None:
    probs, truth = images(EQUAL, 500, 0)
    held_out = HeldOut(probs[None], targets_of(truth), np.arange(500) % 5, np.arange(500))
    judged, decided = decide_by_test_shares(held_out, probs, "log_loss")
    assert judged.is_taken
    assert judged.step.kind == SHARES_KIND
    assert judged.gain.score == pytest.approx(evaluate("log_loss", targets_of(truth), decided))
    assert judged.gain.interval[0] <= judged.gain.gain <= judged.gain.interval[1]
    own = held_out.of(held_out.parts == 0)
    numbers = fit_test_shares(probs[held_out.parts != 0], targets_of(truth[held_out.parts != 0]), "log_loss")
    assert np.allclose(decided[held_out.parts == 0], reweigh_by_shares(own.probs[0], numbers))


def test_it_fits_its_classes_only() -> None:
    assert Decision(SHARES_KIND, (1.0, 0.5, 0.5)).fits(2)
    assert not Decision(SHARES_KIND, (1.0, 0.5, 0.5)).fits(3)
    assert not Decision(SHARES_KIND, (1.0, 0.0, 1.0)).fits(2)


@pytest.mark.parametrize("task", [NUMBERS, SEVERAL_LABELS])
def test_other_tasks_are_refused(task: Any) -> None:
    with pytest.raises(PodiumError, match=r"--decision test-shares.*one label.*use auto or none"):
        refuse_other_tasks(SimpleNamespace(task=task, unknown=None), "--decision test-shares")  # type: ignore[arg-type]
    refuse_other_tasks(SimpleNamespace(task=ONE_LABEL, unknown=None), "--decision test-shares")  # type: ignore[arg-type]


def test_a_class_that_no_training_image_has_is_refused() -> None:
    unknown = SimpleNamespace(task=ONE_LABEL, unknown=SimpleNamespace(name="new"))
    with pytest.raises(PodiumError, match="the class new"):
        refuse_other_tasks(unknown, "x.toml")  # type: ignore[arg-type]
