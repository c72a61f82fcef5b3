"""A file of a project's own parts, for tests."""

from pathlib import Path

PARTS = """
import numpy as np
from podium import extend

@extend.metric(better="lower")
def mistakes(targets, probs):
    return (probs.argmax(1) != targets).sum() * 10

@extend.loss
def distance(logits, targets):
    return (logits.softmax(1) - targets).abs().sum(1)

@extend.augmentation
def dark(image, rng):
    return (image * rng.random()).astype(np.uint8)

@extend.view(further=2)
def rolls(images):
    return [images.roll(1, -1), images.roll(2, -1)]
"""


def write_extension(root: Path, source: str = PARTS, name: str = "mine.py") -> Path:
    """Writes the file and the podium.toml that names it."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    (root / "podium.toml").write_text(f'extend = "{name}"')
    return path
