"""What wins elsewhere works together: boxes, pseudo-labels, clean labels, extra images, further columns, soups."""

import csv
import shutil
import signal
from pathlib import Path

import pytest

from podium.saved_runs.fold_names import WHOLE
from podium.saved_runs.run_folder import Run
from small_objects import BOXES, SLUG, plant
from templates import template
from tiny import Podium, assert_same_fold, podium_at, signal_in_step

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
    card = root / "data" / "competitions" / f"{SLUG}.toml"
    card.parent.mkdir(parents=True, exist_ok=True)
    card.write_text(CARD)
    podium_at(root, *TRAIN, "--model", "test_resnet", "--region", root / BOXES, "--name", "first")


@pytest.fixture
def everything(tmp_path: Path) -> Path:
    shutil.copytree(template(with_everything), tmp_path, dirs_exist_ok=True)
    return tmp_path


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
    with pytest.MonkeyPatch.context() as patch:
        signal_in_step(patch, 5, signal.SIGTERM)
        assert podium(*command, "--name", "interrupted")[0] == 75
    for name in ("interrupted", "undisturbed"):
        status, _, err = podium(*command, "--name", name)
        assert status == 0, err
    first, second = (Run(everything / "runs" / SLUG / name) for name in ("interrupted", "undisturbed"))
    assert_same_fold(first, second)
    status, _, err = podium("submit", "-c", SLUG, "--runs", "interrupted", "--anyway")
    assert status == 0, err


@pytest.mark.annex
@pytest.mark.all
def test_models_of_all_images_and_soups_of_boxes_submit(everything: Path, podium: Podium) -> None:
    boxes = ("--model", "test_resnet", "--region", everything / BOXES)
    for words in (("--name", "own"), ("--folds", "all", "--name", "own"), ("--seed", "1", "--name", "second")):
        status, _, err = podium(*TRAIN, *boxes, "--epochs", "1", *words)
        assert status == 0, err
    assert Run(everything / "runs" / SLUG / "own").models() == [0, 1, WHOLE]
    status, _, err = podium("soup", "own", "second", "-c", SLUG, "--name", "mixed", "--workers", "0")
    assert status == 0, err
    for name in ("mixed", "own"):
        status, _, err = podium("submit", "--runs", name, "--anyway", "-c", SLUG)
        assert status == 0, err
    assert podium("compare", "-c", SLUG)[0] == 0
