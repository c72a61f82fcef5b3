"""The losses and the weights of classes: cases computed by hand, and what does not depend on the split of a batch."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from by_array import targets_of
from podium.models.build import ModelSpec
from podium.models.predict import scaled
from podium.options.moves.loss_functions import BUILT_IN, asymmetric, class_weights, focal, poly
from podium.options.moves.losses import LOSSES, OF_NUMBERS, PLAIN
from podium.tasks.number_scale import fit_scale
from podium.training.fold_loss import make_label_loss
from tiny import recipe_of

PROBS = torch.tensor([[0.5, 0.3, 0.2]])
HARD, SOFT = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[0.8, 0.2, 0.0]])
LN5, LN3 = math.log(0.5), math.log(0.3)


def random_batch() -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    return torch.randn(9, 4, generator=rng), torch.rand(9, 4, generator=rng).softmax(1)


@pytest.mark.parametrize(
    ("loss", "targets", "expected"),
    [
        (focal, HARD, -(0.5**2) * LN5),
        (focal, SOFT, -0.8 * 0.5**2 * LN5 - 0.2 * 0.7**2 * LN3),
        (asymmetric, HARD, -LN5),
        (asymmetric, SOFT, -0.8 * (0.8 + 0.2 * 0.5**4) * LN5 - 0.2 * (0.2 + 0.8 * 0.3**4) * LN3),
        (poly, HARD, -LN5 + 0.5),
        (poly, SOFT, -0.8 * LN5 - 0.2 * LN3 + 1 - (0.8 * 0.5 + 0.2 * 0.3)),
    ],
)
def test_a_loss_is_that_of_its_paper(loss: object, targets: Tensor, expected: float) -> None:
    assert callable(loss)
    assert loss(PROBS.log(), targets).tolist() == pytest.approx([expected], rel=1e-5)


def test_without_their_own_terms_the_losses_are_the_cross_entropy() -> None:
    logits, targets = random_batch()
    expected = F.cross_entropy(logits, targets, reduction="none")
    others = focal(logits, targets, gamma=0.0), asymmetric(logits, targets, 0.0, 0.0), poly(logits, targets, 0.0)
    for losses in others:
        assert torch.allclose(losses, expected, atol=1e-6)


def test_every_name_has_a_function_and_every_loss_a_finite_gradient() -> None:
    assert set(LOSSES) == {*BUILT_IN, *OF_NUMBERS}
    for function in BUILT_IN.values():
        logits = torch.tensor([[60.0, -60.0], [0.0, 0.0]], requires_grad=True)
        function(logits, torch.tensor([[1.0, 0.0], [0.3, 0.7]])).sum().backward()
        assert logits.grad is not None
        assert logits.grad.isfinite().all()


@pytest.mark.parametrize("kind", ["none", "balanced", "effective"])
def test_the_mean_weight_of_the_training_images_is_one(kind: str) -> None:
    counts = np.array([5000, 100, 1, 0])
    weights = class_weights(kind, counts)
    assert counts @ weights / counts.sum() == pytest.approx(1)
    assert weights[3] == weights[2]  # a class without images counts as one with one


def test_class_weights_are_those_of_their_formulas() -> None:
    assert class_weights("balanced", np.array([30, 10])).tolist() == pytest.approx([40 / 60, 40 / 20])
    effective = class_weights("effective", np.array([3000, 10]))
    numbers = [(1 - 0.999**count) / (1 - 0.999) for count in (3000, 10)]
    assert effective[1] / effective[0] == pytest.approx(numbers[0] / numbers[1])


def test_the_default_loss_is_torchs_to_the_bit_and_weighted_ones_agree_with_it() -> None:
    logits, targets = random_batch()
    labels, device = np.array([0] * 6 + [1, 2]), torch.device("cpu")
    plain = make_label_loss(recipe_of("test_vit", smoothing=0.1), targets_of(labels), 4, device)
    expected = F.cross_entropy(logits, targets, label_smoothing=0.1)
    assert torch.equal(plain(logits, targets), expected)
    weighted = make_label_loss(
        recipe_of("test_vit", smoothing=0.1, class_weights="balanced"), targets_of(labels), 4, device
    )
    weights = torch.from_numpy(class_weights("balanced", np.array([6, 1, 1, 0]))).float()
    per_image = F.cross_entropy(logits, targets, label_smoothing=0.1, reduction="none")
    assert torch.allclose(weighted(logits, targets), (per_image * (targets * weights).sum(1)).mean())


# --- numbers -----------------------------------------------------------------------------------------

SPEC = ModelSpec("test_vit", ("a",), 48, 48, (0.5,) * 3, (0.5,) * 3, "bicubic", 1.0, "crop", "none", task="numbers")
SKEWED = np.random.default_rng(0).lognormal(1, 1, (999, 1)).round(3)


def best_answer(**options: Any) -> float:
    """Returns the number that has the lowest loss if it is the answer for all images."""
    targets, recipe = targets_of(SKEWED), recipe_of("test_vit", **options)
    spec = replace(SPEC, **next((dict(move.spec()) for move in recipe.moves if "target_scale" in move.spec()), {}))
    spec = replace(spec, scales=fit_scale(SKEWED, spec.target_scale)[0])
    loss, taught = make_label_loss(recipe, targets, 1, torch.device("cpu")), torch.from_numpy(SKEWED).float()
    answers = torch.linspace(0.5, 15, 2901)[:, None]
    losses = [loss(scaled(answer.expand(len(taught), 1), spec), scaled(taught, spec)).item() for answer in answers]
    return answers[int(np.argmin(losses))].item()


def test_each_loss_of_numbers_has_its_own_best_answer() -> None:
    mean, median = SKEWED.mean(), np.median(SKEWED)
    assert best_answer() == pytest.approx(mean, abs=0.01)
    assert best_answer(loss="absolute") == pytest.approx(median, abs=0.01)
    assert best_answer(loss="quantile", quantile=0.9) == pytest.approx(np.quantile(SKEWED, 0.9), abs=0.1)
    assert median + 0.1 < best_answer(loss="huber") < mean - 0.1
    assert best_answer(loss="poisson") == pytest.approx(mean, abs=0.01)  # and not that of the logarithms
    assert best_answer(target_scale="log1p") == pytest.approx(np.expm1(np.log1p(SKEWED).mean()), abs=0.01)


@pytest.mark.parametrize("loss", [PLAIN, *OF_NUMBERS])
def test_unknown_numbers_teach_nothing_and_break_no_gradient(loss: str) -> None:
    numbers = np.array([[1.0, np.nan], [2.0, 5.0], [3.0, np.nan], [9.0, 7.0]])
    recipe = recipe_of("test_vit", loss=loss, quantile=0.3 if loss == "quantile" else 0.0)
    function = make_label_loss(recipe, targets_of(numbers), 2, torch.device("cpu"))
    outputs = torch.zeros(4, 2, requires_grad=True)
    function(outputs, torch.from_numpy(numbers).float()).backward()
    assert outputs.grad is not None
    assert outputs.grad[[0, 2], 1].tolist() == [0, 0]
    assert (outputs.grad[[1, 3]] < 0).all()  # all are below their number


def test_the_default_loss_of_numbers_is_the_squared_error_to_the_bit() -> None:
    numbers = torch.tensor([[0.3, torch.nan], [-1.2, 0.7]])
    outputs = torch.tensor([[0.1, 0.2], [0.4, -0.9]])
    function = make_label_loss(recipe_of("test_vit"), targets_of(numbers.double().numpy()), 2, torch.device("cpu"))
    known = torch.where(numbers.isnan(), 0.0, outputs - numbers)
    assert torch.equal(function(outputs, numbers), known.square().mean() / 0.75)


@pytest.mark.parametrize("loss", [PLAIN, "absolute"])
def test_a_column_counts_as_much_as_its_weight(loss: str) -> None:
    rng, names = torch.Generator().manual_seed(0), ("height", "width", "depth")
    outputs, numbers = torch.randn(50, 3, generator=rng), torch.randn(50, 3, generator=rng)
    targets, device = targets_of(numbers.double().numpy()), torch.device("cpu")
    plain, even, uneven = (
        make_label_loss(recipe_of("test_vit", loss=loss, target_weights=weights), targets, 3, device, names)
        for weights in ("", "height:2+width:2+depth:2", "width:7")
    )
    assert torch.equal(plain(outputs, numbers), even(outputs, numbers))
    errors = (outputs - numbers).square() if loss == PLAIN else (outputs - numbers).abs()
    expected = (errors.mean(0) @ torch.tensor([1.0, 7.0, 1.0])) / 9
    assert uneven(outputs, numbers).item() == pytest.approx(expected.item(), rel=1e-5)
