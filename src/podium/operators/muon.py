"""timm's Muon, computed faster on a CPU: the same updates, up to rounding.

Muon replaces the momentum of a weight matrix by a nearly orthogonal matrix: a few iterations of Newton and Schulz, each
with three products. X <- aX + (bA + cAA)X with A = XX^T. If X is much wider than high, two of them are expensive. But X
only ever is multiplied by polynomials of A, and they commute. So the iterations here multiply the small square
matrices A and P, the product of the polynomials so far, and X is multiplied once in RENEW_AFTER iterations.
"""

from typing import Any

import torch
from timm.optim import Muon
from timm.optim.muon import _COEFFICIENTS, _is_suitable_for_muon, get_lr_scale, resolve_ns_coefficients
from torch import Tensor

# A is computed anew after so many iterations: by then its small eigenvalues have grown, which would drown in the
# rounding errors of bfloat16 (tests/operators/test_muon.py compares the errors with timm's).
RENEW_AFTER = 3
# Fewer products are computed from this ratio of width and height. Lower matrices take little time, and their rounding
# errors would be larger than timm's.
WIDE, LOWEST = 1.5, 64


class FasterMuon(Muon):  # type: ignore[misc]
    """Updates the wide matrices itself and leaves all other weights to timm. The state is that of timm's Muon."""

    dtype: torch.dtype  # of the products; timm's is always bfloat16, which most CPUs emulate

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        own: list[tuple[Tensor, Tensor]] = []
        for group in self.param_groups:
            if group["algo"] != "muon" or group["nesterov"] or group.get("use_fallback"):
                continue
            for weight in group["params"]:
                if weight.grad is not None and _is_wide(weight):
                    self._update(weight, group)
                    own.append((weight, weight.grad))
                    weight.grad = None  # timm passes over it
        loss = super().step(closure)
        for weight, gradient in own:
            weight.grad = gradient
        return loss

    def _update(self, weight: Tensor, group: dict[str, Any]) -> None:
        state = self.state[weight]
        if "momentum_buffer" not in state:
            state["use_muon"] = True
            state["momentum_buffer"] = torch.zeros_like(weight)
        state["momentum_buffer"].lerp_(weight.grad, 1 - group["momentum"])
        coefficients = resolve_ns_coefficients(group["ns_coefficients"], _COEFFICIENTS)
        steps = group["ns_steps"]
        coefficients = coefficients[:steps] + coefficients[-1:] * (steps - len(coefficients))
        # For a convolution: the order in memory. The order of the columns changes nothing but the order of sums.
        momentum = _matrix_of(state["momentum_buffer"])
        scaled = momentum.to(self.dtype)
        scaled = scaled / (scaled.norm() * group["safety_factor"]).clamp(min=group["eps"])
        update = orthogonalise(scaled, coefficients)
        scale = get_lr_scale(momentum.shape, group["adjust_lr_fn"])
        matrix = _matrix_of(weight)
        matrix.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"] * scale)


def make_faster(optimizer: torch.optim.Optimizer, dtype: torch.dtype) -> None:
    """Makes a FasterMuon of timm's Muon, in place."""
    assert type(optimizer) is Muon
    optimizer.__class__ = FasterMuon
    optimizer.dtype = dtype  # type: ignore[attr-defined]


def orthogonalise(wide: Tensor, coefficients: list[tuple[float, float, float]]) -> Tensor:
    """Returns the matrix after the iterations; its largest singular value must be at most 1."""
    square, own, others = wide @ wide.mT, 1.0, None  # the product of the polynomials so far is own * I + others
    for number, (a, b, c) in enumerate(coefficients, 1):
        polynomial = torch.addmm(square, square, square, beta=b, alpha=c)  # and a * I, which is added without rounding
        if others is None:
            others = polynomial
        else:
            others = torch.addmm(polynomial, polynomial, others, beta=own).add_(others, alpha=a)
        own *= a
        if number == len(coefficients) or number % RENEW_AFTER == 0:
            wide = torch.addmm(wide, others, wide, beta=own)
            square, own, others = wide @ wide.mT if number < len(coefficients) else square, 1.0, None
        else:
            half = torch.addmm(square, square, polynomial, beta=a)
            square = torch.addmm(half, polynomial, half, beta=a)
    return wide


def _matrix_of(weight: Tensor) -> Tensor:
    """Returns a view of a weight as a matrix with a row per output."""
    if weight.ndim == 4 and weight.is_contiguous(memory_format=torch.channels_last):
        return weight.permute(0, 2, 3, 1).flatten(1)
    return weight.flatten(1)


def _is_wide(weight: Tensor) -> bool:
    height = len(weight)
    if height < LOWEST or weight.numel() < WIDE * height**2 or not _is_suitable_for_muon(weight):
        return False
    layouts = (torch.contiguous_format, torch.channels_last) if weight.ndim == 4 else (torch.contiguous_format,)
    return any(weight.is_contiguous(memory_format=layout) for layout in layouts)
