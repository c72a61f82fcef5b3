"""Options that earlier versions had: what every run does now in their place.

A run that was begun with another value predicts as always, and cannot be resumed.
"""

from typing import Any, NamedTuple


class Removed(NamedTuple):
    value: Any  # that every run has now, and had without the option
    instead: str
    also_called: tuple[str, ...] = ()  # by other programs


REMOVED = {
    "head_rate": Removed(1.0, "the head learns at the backbone's rate; --layer-decay holds the backbone back"),
    "skip_bad": Removed(False, "podium audit --drop-bad leaves out what cannot be read, for every later command"),
    "swa": Removed(
        0.0,
        "the moving average of the weights (--ema) is as good; podium soup averages those of several runs",
        ("use_swa", "stochastic_weight_avg"),
    ),
    "also_weight": Removed(
        0.3, "the card's further columns have 0.3 of the weight of the answers; without `also` in the card, none"
    ),
    "clip": Removed(
        1.0,
        "gradients are clipped to a norm of 1",
        ("clip_grad", "max_grad_norm", "gradient_clip_val", "grad_clip"),
    ),
    "cap": Removed(0, "--balance shows images of rare classes more often"),
    "distil": Removed(0.5, "a teacher has half of the loss"),
    "sharpen": Removed(0.0, "held-out images choose the power"),
    "region_margin": Removed(0.1, "a tenth of a box's sides is added on each side; larger boxes belong into the table"),
    "region_jitter": Removed(0.0, "--crop moves and scales what is seen of a box"),
}


def why_gone(name: str) -> str:
    """Returns what became of an option, for the message of a refusal; nothing if there was none of that name."""
    word = name.lstrip("-").replace("-", "_")
    gone = next((gone for known, gone in REMOVED.items() if word in (known, *gone.also_called)), None)
    return f"there is no such option any more: {gone.instead}" if gone else ""
