"""The faster Muon makes timm's updates."""

import copy
from pathlib import Path

import pytest
import timm
import torch
from timm.optim import Muon
from timm.optim.muon import _COEFFICIENTS, zeropower_via_newtonschulz
from torch import Tensor

from podium.models.operators.muon import FasterMuon, make_faster, orthogonalise
from podium.training.learner import Learner
from training.learners import a_batch, context_of

COEFFICIENTS = _COEFFICIENTS["quintic"]


def matrix_with(singular_values: Tensor, width: int) -> Tensor:
    """Returns a random matrix with these singular values, in float64."""
    height = len(singular_values)
    left, right = (torch.linalg.qr(torch.randn(side, height, dtype=torch.float64)).Q for side in (height, width))
    matrix: Tensor = (left * singular_values.double()) @ right.mT
    return matrix


def relative_error(actual: Tensor, expected: Tensor) -> float:
    return float((actual.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 7])
def test_the_iterations_are_those_of_newton_and_schulz(steps: int) -> None:
    torch.manual_seed(0)
    wide = matrix_with(torch.linspace(0, 0.3, 8), 40)
    coefficients = (COEFFICIENTS + COEFFICIENTS)[:steps]
    expected = wide
    for a, b, c in coefficients:
        square = expected @ expected.mT
        expected = a * expected + (b * square + c * square @ square) @ expected
    assert orthogonalise(wide, coefficients).allclose(expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shape", [(64, 128), (64, 576), (128, 1152)])
@pytest.mark.parametrize("smallest", [1.0, 1e-2, 1e-4], ids="smallest {}".format)
def test_bfloat16_rounds_about_as_much_as_timms_iterations(shape: tuple[int, int], smallest: float) -> None:
    torch.manual_seed(0)
    height, width = shape
    values = torch.logspace(0, torch.tensor(smallest).log10().item(), height)
    gradient = matrix_with(values, width)
    exact = zeropower_via_newtonschulz(gradient, 5, COEFFICIENTS, dtype=torch.float64)
    timms = zeropower_via_newtonschulz(gradient.float(), 5, COEFFICIENTS)
    ours = orthogonalise((gradient / gradient.norm()).bfloat16(), COEFFICIENTS)
    assert relative_error(ours, exact) < 0.03 + 1.3 * relative_error(timms, exact)


@pytest.mark.parametrize("name", ["test_resnet", "test_vit"])
@pytest.mark.parametrize("weight_decay", [0.0, 20.0])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_steps_are_those_of_timm(dtype: torch.dtype, weight_decay: float, name: str) -> None:
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=4).to(memory_format=torch.channels_last)
    twin, before = copy.deepcopy(model), copy.deepcopy(model)
    timms, ours = (Muon(m.parameters(), lr=0.01, weight_decay=weight_decay) for m in (model, twin))
    make_faster(ours, dtype)
    for _ in range(3):
        for weight, other in zip(model.parameters(), twin.parameters(), strict=True):
            weight.grad = torch.randn_like(weight)
            other.grad = weight.grad.clone()
        timms.step()
        ours.step()
    for weight, other, old in zip(model.parameters(), twin.parameters(), before.parameters(), strict=True):
        assert other.grad is not None
        assert (other - weight).norm() <= 0.05 * (weight - old).norm()
    # Without this, the test would also pass if all weights were left to timm.
    assert not all(weight.equal(other) for weight, other in zip(model.parameters(), twin.parameters(), strict=True))
    theirs, own = (
        {index: set(slots) for index, slots in optimizer.state_dict()["state"].items()} for optimizer in (timms, ours)
    )
    assert own == theirs  # so that a checkpoint of one serves the other


def test_training_uses_it_unless_operators_are_timms(tiny: Path) -> None:
    for operators, kind in (("fast", FasterMuon), ("timm", Muon)):
        with context_of(tiny, model="test_resnet", optimizer="muon", operators=operators) as context:
            learner = Learner(context, fold=0)
            learner.step(*a_batch())
            assert type(learner.optimizer) is kind
