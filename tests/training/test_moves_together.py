"""What wins elsewhere works together: boxes, pseudo-labels, clean labels, extra images, further columns, soups."""

import csv
import shutil
from pathlib import Path

import pytest

from podium.saved_runs.fold_names import WHOLE
from podium.saved_runs.run_folder import Run
from small_objects import BOXES, SLUG, plant
from templates import copied
from tiny import Podium, assert_stopped_and_resumed_alike, done, podium_at, write_card

FAST = ("-c", SLUG, "--weights", "none", "--image-size", "32", "--batch-size", "4", "--workers", "0", "--device", "cpu")
TRAIN = ("train", *FAST, "--epochs", "2")
CARD = 'also = ["size"]\n[[extra]]\nfolder = "data/extra/more"\n'


def with_everything(root: Path) -> None:
    """Makes a project of small objects, a column that only training has, images from elsewhere, and a first run."""
    plant(root)
    table = root / "data" / "raw" / SLUG / "train.csv"
    with table.open(newline="") as file:
        header, *rows = csv.reader(file)
    lines = [[*header, "size"], *([*row, ("small", "large", "")[number % 3]] for number, row in enumerate(rows))]
    with table.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)
    elsewhere = root / "elsewhere"
    plant(elsewhere, write_table=False)
    for number, label in enumerate(("red", "green", "blue")):
        folder = root / "data" / "extra" / "more" / label
        folder.mkdir(parents=True)
        image = elsewhere / "data" / "raw" / SLUG / "test_image" / f"{24 + number:03d}.png"
        shutil.copy(image, folder / "x.png")
    shutil.rmtree(elsewhere)
    write_card(root, CARD, SLUG)
    podium_at(root, *TRAIN, "--model", "test_resnet", "--region", root / BOXES, "--name", "first")


everything = copied(with_everything)


MOVES = (
    *("--pseudo", "first", "--clean", "soften", "--balance", "0.5", "--teacher", "first"),
    *("--finish", "48:1", "--mix", "0.5", "--head-first", "--keep", "0.3"),
)


@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("test_resnet", ("--pool", "gem")),
        pytest.param("test_vit", ("--lora", "4", "--pool", "both", "--drop-path", "0"), marks=pytest.mark.all),
        pytest.param("test_convnext", ("--checkpointing",), marks=pytest.mark.all),
    ],
)
def test_all_moves_train_resume_and_submit(everything: Path, podium: Podium, model: str, more: tuple[str, ...]) -> None:
    command = (*TRAIN, "--model", model, "--region", everything / BOXES, *MOVES, *more, "--folds", "0")
    assert_stopped_and_resumed_alike(podium, everything, 5, *command, slug=SLUG)
    done(podium("submit", "-c", SLUG, "--runs", "interrupted", "--anyway"))


@pytest.mark.annex
@pytest.mark.all
def test_models_of_all_images_and_soups_of_boxes_submit(everything: Path, podium: Podium) -> None:
    boxes = ("--model", "test_resnet", "--region", everything / BOXES)
    for words in (("--name", "own"), ("--folds", "all", "--name", "own"), ("--seed", "1", "--name", "second")):
        done(podium(*TRAIN, *boxes, "--epochs", "1", *words))
    assert Run(everything / "runs" / SLUG / "own").models() == [0, 1, WHOLE]
    done(podium("soup", "own", "second", "-c", SLUG, "--name", "mixed", "--workers", "0"))
    for name in ("mixed", "own"):
        done(podium("submit", "--runs", name, "--anyway", "-c", SLUG))
    done(podium("compare", "-c", SLUG))
