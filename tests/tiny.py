"""A competition small enough to train on in seconds: plain colours, with everything a real one has."""

import csv
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from podium.disk import sha256

if TYPE_CHECKING:
    from podium.recipe import Recipe

COLOURS = {"red": (200, 30, 30), "green": (30, 180, 40), "blue": (40, 40, 210), "lonely": (120, 120, 120)}
FAST = ("-c", "tiny", "--weights", "none", "--image-size", "32", "--batch-size", "8", "--workers", "0")
Podium = Callable[..., tuple[int, str, str]]


def write_image(path: Path, colour: tuple[int, int, int], seed: int, size: tuple[int, int] = (30, 40)) -> None:
    noise = np.random.default_rng(seed).normal(0, 25, (size[1], size[0], 3))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)).save(path, quality=95)


def write_competition(root: Path, slug: str = "tiny", each: int = 8, test: int = 7) -> Path:
    """`each` images of three colours and one of a fourth, named by numbers with leading zeros."""
    folder = root / "data" / "raw" / slug
    labels = [name for name in ("red", "green", "blue") for _ in range(each)] + ["lonely"]
    rows, answers = [], []
    for number, label in enumerate(labels):
        write_image(folder / "train_image" / f"{number:03d}.jpg", COLOURS[label], number)
        rows.append((f"{number:03d}", label))
    for number in range(test):
        label = ("red", "green", "blue")[number % 3]
        write_image(folder / "test_image" / f"{number:03d}.jpg", COLOURS[label], 1000 + number)
        answers.append((f"{number:03d}", label))
    answers.reverse()  # the sample decides the order, not the names
    for name, header, lines in (
        ("train.csv", ("id", "target"), rows),
        ("sample_submission.csv", ("id", "predict"), [(number, "red") for number, _ in answers]),
    ):
        with (folder / name).open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *lines])
    with (root / "solution.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "target"), *answers])
    return folder


def recipe_of(model: str, weights: str = "none", image_size: int = 64, **given: object) -> "Recipe":
    """The whole recipe of a model."""
    from podium.models.build import family_and_sizes
    from podium.recipe import resolve

    knobs = {"model": model, "weights": weights, "image_size": image_size, **given}
    return resolve(knobs, {}, *family_and_sizes(model))


def podium_at(root: Path, *words: object) -> None:
    """A command that has to go well, for what several tests begin with."""
    from podium import terminal
    from podium.__main__ import main

    before = terminal.root
    try:
        assert main(["--root", str(root), *map(str, words)]) == 0
    finally:
        terminal.root = before


def one_line(answer: tuple[int, str, str]) -> str:
    """What a command refused with."""
    status, _, err = answer
    assert status == 1, err
    last = err.splitlines()[-1]
    assert last.startswith("podium: error: ")
    return last


def weights(root: Path, run: str, fold: int = 0) -> str:
    return sha256(root / "runs" / "tiny" / run / f"fold{fold}" / "model.safetensors")


class Stopper:
    """Sends this process a signal in the middle of a training step, as Ctrl-C and a scheduler do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, number: signal.Signals) -> None:
        from podium.training.loop import Fold

        step = Fold.step

        def interrupted(fold: Fold, *batch: Any) -> None:
            if fold.state.step == at:
                signal.raise_signal(number)
            step(fold, *batch)

        monkeypatch.setattr(Fold, "step", interrupted)
