"""A competition small enough to train on in seconds: plain colours, with everything a real one has."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # tiny models: threads that wait for each other cost more than they compute
os.environ["HF_HUB_OFFLINE"] = "1"  # no test may reach for the real hub; the tests of the hub bring their own


import csv
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from PIL import Image

if TYPE_CHECKING:
    from podium.recipe import Recipe

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")  # how long an example takes says more of the machine than of the code

COLOURS = {"red": (200, 30, 30), "green": (30, 180, 40), "blue": (40, 40, 210), "lonely": (120, 120, 120)}
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
    from podium.models import family_and_sizes
    from podium.recipe import resolve

    knobs = {"model": model, "weights": weights, "image_size": image_size, **given}
    return resolve(knobs, {}, *family_and_sizes(model))


@pytest.fixture
def podium(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Podium:
    """The command line in this process: podium("folds", "-c", "tiny") -> exit status, stdout, stderr."""
    from podium.__main__ import main

    monkeypatch.setattr("podium.console.root", Path())  # and so put back after the test

    def run(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(["--root", str(tmp_path), *map(str, words)])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return status, out, err

    return run


def podium_at(root: Path, *words: object) -> None:
    """A command that has to go well, for what several tests begin with."""
    from podium import console
    from podium.__main__ import main

    before = console.root
    try:
        assert main(["--root", str(root), *map(str, words)]) == 0
    finally:
        console.root = before


def one_line(answer: tuple[int, str, str]) -> str:
    """What a command refused with."""
    status, _, err = answer
    assert status == 1, err
    last = err.splitlines()[-1]
    assert last.startswith("podium: error: ")
    return last
