"""The long tail: rare classes are shown more often, common ones less, or the loss allows for their numbers."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from podium.options.layers.heads import output_layers
from podium.options.moves.balancing import ClassBalance
from podium.options.moves.loss_functions import log_shares
from podium.training.head_start import start_head
from tiny import FAST, Podium, assert_stopped_and_resumed_alike, done
from training.learners import learner_of

TRAIN = ("train", *FAST, "--device", "cpu", "--model", "test_vit", "--folds", "0", "--batch-size", "4", "--epochs", "3")
LONG_TAIL = np.repeat([0, 1, 2, 3], [80, 20, 5, 1])
COUNTS = np.bincount(LONG_TAIL)


@given(st.floats(0, 1), st.integers(0, 9))
def test_classes_are_shown_as_often_as_the_power_asks_for(power: float, seed: int) -> None:
    balance = ClassBalance(LONG_TAIL, power)
    shown = balance.draw(np.random.default_rng(seed))
    assert len(shown) == len(balance) == len(LONG_TAIL)
    wanted = COUNTS.astype(float) ** (1 - power)
    expected = len(shown) * wanted / wanted.sum()
    assert np.abs(np.bincount(LONG_TAIL[shown], minlength=4) - expected).max() < 1 + 1e-6
    times = np.bincount(shown, minlength=len(LONG_TAIL))
    for number in range(4):  # images of one class are shown about equally often
        own = times[number == LONG_TAIL]
        assert own[own > 0].max() - own[own > 0].min() <= 1


def test_without_a_power_every_image_is_shown_once() -> None:
    assert sorted(ClassBalance(LONG_TAIL, 0.0).draw(np.random.default_rng(0))) == list(range(len(LONG_TAIL)))


def test_another_epoch_shows_other_images_of_a_common_class() -> None:
    balance = ClassBalance(LONG_TAIL, 1.0)
    epochs = [set(balance.draw(np.random.default_rng(epoch))) for epoch in range(40)]
    assert all(len(epoch) < 60 for epoch in epochs)
    assert set.union(*epochs) == set(range(len(LONG_TAIL)))  # none is left out for ever


def test_an_interrupted_run_resumes_to_the_same_bits(tiny: Path, podium: Podium) -> None:
    assert "adjust 1" in assert_stopped_and_resumed_alike(podium, tiny, 4, *TRAIN, "--adjust", "1")


def test_adjusted_logits_are_those_of_equally_frequent_classes(tiny: Path) -> None:
    plain, adjusted = (
        learner_of(tiny, model="test_resnet", adjust=value, mix=0.0, smoothing=0.0) for value in (0.0, 1.0)
    )
    for learner in (plain, adjusted):
        learner.recipe.__dict__["weights"] = "pretrained"  # a new head on known features
        start_head(learner)
    rows = plain.context.images.training_rows(0)
    labels = plain.context.images.targets[rows]
    shares = torch.from_numpy(log_shares(labels, len(plain.spec.classes)))
    (before,), (after,) = (output_layers(learner.model, len(shares)) for learner in (plain, adjusted))
    assert before.bias is not None
    assert after.bias is not None
    assert torch.allclose(before.bias - after.bias, shares, atol=1e-5)
    images = torch.zeros(8, 3, 32, 32)
    targets = torch.eye(len(shares))[torch.arange(8) % len(shares)]
    assert adjusted.loss(images, targets).item() == pytest.approx(plain.loss(images, targets).item(), abs=1e-4)


def test_a_run_that_goes_on_takes_the_shares_away(tiny: Path, podium: Podium) -> None:
    """Before its first step; what was adjusted already stays as it is."""
    done(podium(*TRAIN, "--name", "first"))
    done(podium(*TRAIN, "--adjust", "1", "--name", "adjusted"))
    for source, strength in (("first", 1.0), ("adjusted", 0.0)):
        learner = learner_of(tiny, name="more", start=source, adjust=1.0)
        (layer,) = output_layers(learner.model, len(learner.spec.classes))
        assert layer.bias is not None
        before = layer.bias.detach().clone()
        start_head(learner)
        labels = learner.context.images.targets[learner.context.images.training_rows(0)]
        shares = strength * torch.from_numpy(log_shares(labels, len(before)))
        assert torch.allclose(before - layer.bias, shares, atol=1e-5)
