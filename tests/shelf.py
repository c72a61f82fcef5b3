"""Runs of earlier versions, with files as those versions wrote them: later ones must read them (test_shelf.py).

    python tests/shelf.py          puts two runs of this version on the shelf, named after today; do so before a release

The folder shelf/ is a project: a competition of 13 training images, its folds, the runs and a submission of each. Their
models are timm's test models with a few thousand weights, so that a run takes 50 kB.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from timm.models import _registry

SHELF = Path(__file__).parent / "shelf"
SLUG = "shelf"
SIZES: dict[str, dict[str, Any]] = {
    "test_vit": {"patch_size": 8, "embed_dim": 8, "depth": 2, "mlp_ratio": 2},
    "test_resnet": {"channels": (4, 4, 4, 6), "stem_width": 4},
}
OPTIONS = ("--weights", "none", "--image-size", "32", "--batch-size", "4", "--workers", "0", "--device", "cpu")
# At a high rate, an option that changes something is seen in the predictions; in float32, processors agree.
LEARNING = ("--epochs", "3", "--lr", "1e-2", "--mix", "0.5", "--precision", "float32")


@contextmanager
def small_models() -> Iterator[None]:
    """Makes timm build the small models under these names."""
    entrypoints = _registry._model_entrypoints
    before = {name: entrypoints[name] for name in SIZES}
    entrypoints.update({name: partial(build, **SIZES[name]) for name, build in before.items()})
    _forget_models()
    try:
        yield
    finally:
        entrypoints.update(before)
        _forget_models()


def _forget_models() -> None:
    """Empties what podium remembers of models by their names."""
    for name, module in list(sys.modules.items()):
        for value in vars(module).values() if name.startswith("podium.models.") else ():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


def put_on_shelf(today: str) -> None:
    from podium.__main__ import main

    def call(*words: str) -> None:
        assert main(["--root", str(SHELF), *words]) == 0

    with small_models():
        for name, model, own in (
            (f"run-{today}", "test_vit", LEARNING),
            (f"head-{today}", "test_resnet", ("--linear",)),
        ):
            call("train", "-c", SLUG, "--model", model, "--name", name, *OPTIONS, *own)
            call("submit", "-c", SLUG, "--runs", name, "--name", name)


if __name__ == "__main__":
    put_on_shelf(*sys.argv[1:] or [date.today().isoformat()])
