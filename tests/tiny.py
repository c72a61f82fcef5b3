"""A competition small enough to train on in seconds: plain colours, with everything that a real one has."""

import contextlib
import csv
import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from podium.basics.disk import sha256
from templates import template

if TYPE_CHECKING:
    from torch import Tensor

    from podium.options.recipe import Recipe
    from podium.saved_runs.run_folder import Run
    from podium.training.learner import Learner

COLOURS = {"red": (200, 30, 30), "green": (30, 180, 40), "blue": (40, 40, 210), "lonely": (120, 120, 120)}
# An epoch is one step: each of two folds trains on 13 images.
FAST = ("-c", "tiny", "--weights", "none", "--image-size", "32", "--batch-size", "8", "--workers", "0")
Podium = Callable[..., tuple[int, str, str]]


def write_image(path: Path, colour: tuple[int, int, int], seed: int, size: tuple[int, int] = (30, 40)) -> None:
    noise = np.random.default_rng(seed).normal(0, 25, (size[1], size[0], 3))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)).save(path, quality=95)


def write_competition(root: Path, slug: str = "tiny", per_class: int = 8, test_images: int = 7) -> Path:
    """Writes `per_class` training images of three colours, one of a fourth, and test images of the three.

    Images are named by numbers with leading zeros. The sample submission has its own order of rows.
    """
    folder = root / "data" / "raw" / slug
    labels = [name for name in ("red", "green", "blue") for _ in range(per_class)] + ["lonely"]
    rows, solution = [], []
    for number, label in enumerate(labels):
        write_image(folder / "train_image" / f"{number:03d}.jpg", COLOURS[label], number)
        rows.append((f"{number:03d}", label))
    for number in range(test_images):
        label = ("red", "green", "blue")[number % 3]
        write_image(folder / "test_image" / f"{number:03d}.jpg", COLOURS[label], 1000 + number)
        solution.append((f"{number:03d}", label))
    solution.reverse()
    for name, header, lines in (
        ("train.csv", ("id", "target"), rows),
        ("sample_submission.csv", ("id", "predict"), [(number, "red") for number, _ in solution]),
    ):
        with (folder / name).open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *lines])
    with (root / "solution.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "target"), *solution])
    return folder


def tiny_with_folds(root: Path) -> None:
    """Makes a project of the tiny competition with two folds."""
    write_competition(root)
    podium_at(root, "folds", "-c", "tiny", "--k", "2")


def two_trained_runs(root: Path) -> None:
    """Makes a project with the runs `good` and `idle` of two folds each. `idle` has learned nothing."""
    write_competition(root, per_class=12, test_images=9)
    podium_at(root, "folds", "-c", "tiny", "--k", "2")
    for name, epochs, rate in (("good", "8", "3e-3"), ("idle", "1", "1e-9")):
        words = ("--model", "test_convnext", "--name", name, "--epochs", epochs, "--lr", rate, "--image-size", "64")
        podium_at(root, "train", *FAST, *words)


def with_a_submission(root: Path) -> None:
    """Makes that project with a submission of `good`."""
    shutil.copytree(template(two_trained_runs), root, dirs_exist_ok=True)
    podium_at(root, "submit", "-c", "tiny", "--runs", "good")


def recipe_of(model: str, weights: str = "none", image_size: int | str = 64, **options: object) -> "Recipe":
    """Returns the whole recipe of a model."""
    from podium.models.build import resolve_recipe

    return resolve_recipe({"model": model, "weights": weights, "image_size": image_size, **options}, {})


def podium_at(root: Path, *words: object) -> None:
    """Runs a command that must succeed, for fixtures that several tests share."""
    from podium.__main__ import main
    from podium.basics import terminal

    before = terminal.root
    try:
        assert main(["--root", str(root), *map(str, words)]) == 0
    finally:
        terminal.root = before


def one_line(result: tuple[int, str, str]) -> str:
    """Returns the one line with which a command refused."""
    status, _, err = result
    assert status == 1, err
    line = err.splitlines()[-1]
    assert line.startswith("podium: error: ")
    return line


def train_three(root: Path, train: tuple[object, ...], fast: tuple[object, ...]) -> None:
    """Trains the runs a, b (another seed) and head (linear); a.log keeps what is said about the first one."""
    with (root / "a.log").open("w") as log, contextlib.redirect_stderr(log):
        podium_at(root, *train, "--name", "a")
    podium_at(root, *train, "--name", "b", "--seed", "1", "--epochs", "2")
    podium_at(root, "train", *fast, "--model", "test_resnet", "--linear", "--name", "head")


def compared_scores(podium: Podium, slug: str) -> dict[str, float]:
    """Returns the scores of all runs from `podium compare`."""
    status, out, err = podium("compare", "-c", slug, "--json")
    assert status == 0, err
    return {row["run"]: row["score"] for row in json.loads(out)}


# --- runs --------------------------------------------------------------------------------------------


def run_of(root: Path, name: str = "test_vit") -> "Run":
    from podium.saved_runs.run_folder import Run

    return Run(root / "runs" / "tiny" / name)


def weights_hash(root: Path, run: str, fold: int = 0) -> str:
    return sha256(run_of(root, run).fold_folder(fold) / "model.safetensors")


def assert_same_fold(first: "Run", second: "Run", fold: int = 0) -> None:
    """Two runs of one recipe computed the same bits."""
    assert sha256(first.fold_folder(fold) / "model.safetensors") == sha256(
        second.fold_folder(fold) / "model.safetensors"
    )
    assert first.out_of_fold(fold).probs.tobytes() == second.out_of_fold(fold).probs.tobytes()
    losses = [[record.loss for record in run.history(fold)] for run in (first, second)]
    assert losses[0] == losses[1]


def signal_in_step(monkeypatch: pytest.MonkeyPatch, step: int, number: signal.Signals) -> None:
    """Sends this process a signal in the middle of a training step, as Ctrl-C and a scheduler do."""
    from podium.training.learner import Learner

    original = Learner.step

    def signalled(learner: "Learner", images: "Tensor", labels: "Tensor") -> "Tensor":
        if learner.progress.step == step:
            signal.raise_signal(number)
        return original(learner, images, labels)

    monkeypatch.setattr(Learner, "step", signalled)
