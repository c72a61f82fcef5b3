"""timm's Muon, computed faster on a CPU: the same updates, up to rounding.

Muon replaces the momentum of a weight matrix by a nearly orthogonal matrix X, in a few iterations of Newton and Schulz:
X <- aX + (bA + cAA)X with A = XX^T. If X has many more columns than rows, the two products with X are expensive. But X
is only multiplied by polynomials of A, so their order does not matter. Here the iterations multiply the small square
matrices, and X itself is multiplied once in RENEW_AFTER iterations.
"""

from typing import Any

import torch
from timm.optim import Muon
from timm.optim.muon import _COEFFICIENTS, _is_suitable_for_muon, get_lr_scale, resolve_ns_coefficients
from torch import Tensor

# Rounding errors of bfloat16 would hide the small eigenvalues of A. After so many iterations they have grown, and A is
# computed again from X (tests/operators/test_muon.py compares the errors with timm's).
RENEW_AFTER = 3
# In bfloat16, a matrix is updated here if one side is at least so many times as long as the other, which has at least
# so many numbers. Smaller ones take little time, and their rounding errors would be larger than timm's.
LONGER, SHORTEST = 1.5, 64
# What this file computes; all other options of a group may have any value.
SUPPORTED = {"algo": "muon", "nesterov": False, "conv_mode": "flatten", "scale_eps": False}

Coefficients = list[tuple[float, float, float]]


class FasterMuon(Muon):  # type: ignore[misc]
    """Updates the oblong matrices itself and leaves all other weights to timm. The state is that of timm's Muon.

    In float32 it updates all matrices, because timm's products in bfloat16 would be emulated.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        assert closure is None
        gradients: list[tuple[Tensor, Tensor]] = []
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None and self._can_update(weight) and not group.get("use_fallback"):
                    self._update(weight, group)
                    gradients.append((weight, weight.grad))
                    weight.grad = None  # timm passes over it
        super().step()
        for weight, gradient in gradients:
            weight.grad = gradient

    def _can_update(self, weight: Tensor) -> bool:
        if not _is_suitable_for_muon(weight) or not _is_dense(weight):
            return False
        shorter, longer = sorted((len(weight), weight.numel() // len(weight)))
        in_float32 = self.defaults["dtype"] == torch.float32
        return in_float32 or (shorter >= SHORTEST and longer >= LONGER * shorter)

    def _update(self, weight: Tensor, group: dict[str, Any]) -> None:
        state = self.state[weight]
        if "momentum_buffer" not in state:
            state["use_muon"] = True
            state["momentum_buffer"] = torch.zeros_like(weight)
        momentum = state["momentum_buffer"].lerp_(weight.grad, 1 - group["momentum"])
        assert momentum.stride() == weight.stride()
        direction = _as_matrix(momentum).to(self.defaults["dtype"])
        direction = direction / (direction.norm() * group["safety_factor"]).clamp(min=group["eps"])
        is_tall = direction.shape[0] > direction.shape[1]
        update = orthogonalise(direction.mT if is_tall else direction, _coefficients(group))
        matrix = _as_matrix(weight)
        step = group["lr"] * get_lr_scale(matrix.shape, group["adjust_lr_fn"])
        matrix.mul_(1 - group["lr"] * group["weight_decay"]).add_(update.mT if is_tall else update, alpha=-step)


def make_faster(optimizer: torch.optim.Optimizer, dtype: torch.dtype) -> None:
    """Makes a FasterMuon of timm's Muon, in place.

    `dtype` is that of the products. timm's is always bfloat16, which most CPUs emulate.
    """
    assert type(optimizer) is Muon
    assert all(group[name] == value for group in optimizer.param_groups for name, value in SUPPORTED.items())
    optimizer.__class__ = FasterMuon
    optimizer.defaults["dtype"] = dtype


def orthogonalise(wide: Tensor, coefficients: Coefficients) -> Tensor:
    """Returns the matrix after the iterations; its largest singular value must be at most 1."""
    gram = wide @ wide.mT
    # The product of the polynomials so far is factor * I + remainder. The first term is kept apart, without rounding.
    factor, remainder = 1.0, None
    for number, (a, b, c) in enumerate(coefficients, 1):
        polynomial = torch.addmm(gram, gram, gram, beta=b, alpha=c)  # without a * I
        if remainder is None:
            remainder = polynomial
        else:
            remainder = torch.addmm(polynomial, polynomial, remainder, beta=factor).add_(remainder, alpha=a)
        factor *= a
        if number == len(coefficients):
            break
        if number % RENEW_AFTER == 0:
            wide = torch.addmm(wide, remainder, wide, beta=factor)
            gram, factor, remainder = wide @ wide.mT, 1.0, None
        else:  # the next gram is P gram P with P = polynomial + a * I
            once = torch.addmm(gram, gram, polynomial, beta=a)
            gram = torch.addmm(once, polynomial, once, beta=a)
    assert remainder is not None
    return torch.addmm(wide, remainder, wide, beta=factor)


def _coefficients(group: dict[str, Any]) -> Coefficients:
    """Returns those of each iteration; the last ones repeat."""
    known, steps = resolve_ns_coefficients(group["ns_coefficients"], _COEFFICIENTS), group["ns_steps"]
    coefficients: Coefficients = known[:steps] + known[-1:] * (steps - len(known))
    return coefficients


def _as_matrix(weight: Tensor) -> Tensor:
    """Returns a view of a weight as a matrix with a row per output.

    The columns are in the order of the memory, which changes nothing but the order of sums.
    """
    if weight.ndim == 4 and weight.is_contiguous(memory_format=torch.channels_last):
        weight = weight.permute(0, 2, 3, 1)
    return weight.view(len(weight), -1)


def _is_dense(weight: Tensor) -> bool:
    return weight.is_contiguous() or (weight.ndim == 4 and weight.is_contiguous(memory_format=torch.channels_last))
