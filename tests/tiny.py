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
import pandas as pd
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
CAMERAS = ("0", "1", "3")  # of classes, but for the one of a single image, which no model has held out
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


def one_trained_run(root: Path) -> None:
    """Makes a project with the run `test_vit`, of one epoch and fold 0."""
    tiny_with_folds(root)
    podium_at(root, "train", *FAST, "--model", "test_vit", "--epochs", "1", "--folds", "0")


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


def done(result: tuple[int, str, str]) -> tuple[str, str]:
    """Returns what a command that succeeded wrote: its output, and its messages."""
    status, out, err = result
    assert status == 0, err
    return out, err


def one_line(result: tuple[int, str, str], *parts: str) -> str:
    """Returns the one line with which a command refused, which has these parts: what, where, the remedy."""
    status, _, err = result
    assert status == 1, err
    line = err.splitlines()[-1]
    assert line.startswith("podium: error: ")
    assert_says(line, *parts)
    return line


def assert_says(text: str, *parts: str) -> None:
    """All these parts are in a text: what happened, where, and the remedy."""
    missing = [part for part in parts if part not in text]
    assert not missing, f"{missing} not in:\n{text}"


def train_three(root: Path, train: tuple[object, ...], fast: tuple[object, ...]) -> None:
    """Trains the runs a, b (another seed) and head (linear); a.log keeps what is said about the first one."""
    with (root / "a.log").open("w") as log, contextlib.redirect_stderr(log):
        podium_at(root, *train, "--name", "a")
    podium_at(root, *train, "--name", "b", "--seed", "1", "--epochs", "2")
    podium_at(root, "train", *fast, "--model", "test_resnet", "--linear", "--name", "head")


def write_file(path: Path, content: str | bytes) -> Path:
    """Writes a file, and the folders that it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_card(root: Path, text: str, slug: str = "tiny") -> Path:
    """Writes the card of a competition."""
    return write_file(root / "data" / "competitions" / f"{slug}.toml", text)


def tell_classes(root: Path, slug: str = "tiny") -> None:
    """Adds a column to both tables that tells the class as a number, camera, which the card names as a feature."""
    folder = root / "data/raw" / slug
    train = pd.read_csv(folder / "train.csv", dtype=str)
    classes = sorted(set(train["target"]))
    cameras = [str(classes.index(label)) for label in train["target"]]
    train.assign(camera=cameras).to_csv(folder / "train.csv", index=False)
    test = pd.read_csv(folder / "sample_submission.csv", dtype=str)[["id"]]
    test.assign(camera=[CAMERAS[int(number) % 3] for number in test["id"]]).to_csv(folder / "test.csv", index=False)
    write_card(root, 'features = ["camera"]\n', slug)


def assert_rebuilt(podium: Podium, csv: Path) -> None:
    """A submission that is deleted is made again from its record, to the byte."""
    content = csv.read_bytes()
    csv.unlink()
    done(podium("submit", "--from", csv.with_suffix(".json")))
    assert csv.read_bytes() == content


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


def stop_in_step(podium: Podium, step: int, *words: object, number: signal.Signals = signal.SIGTERM) -> tuple[str, str]:
    """Runs a command that a signal stops in the middle of a training step, with all saved; returns what it wrote."""
    with pytest.MonkeyPatch.context() as patch:
        signal_in_step(patch, step, number)
        status, out, err = podium(*words)
    assert status == 75, err
    return out, err


def assert_stopped_and_resumed_alike(
    podium: Podium, root: Path, step: int, *command: object, slug: str = "tiny", fold: int = 0
) -> str:
    """Stops a run in this step, resumes it, and compares it with an undisturbed one; returns what that one said."""
    from podium.saved_runs.run_folder import Run

    stop_in_step(podium, step, *command, "--name", "interrupted")
    for name in ("interrupted", "undisturbed"):
        _, err = done(podium(*command, "--name", name))
    interrupted, undisturbed = (Run(root / "runs" / slug / name) for name in ("interrupted", "undisturbed"))
    assert_same_fold(interrupted, undisturbed, fold)
    return err
