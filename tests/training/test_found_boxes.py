"""--region box:SLUG/RUN: a run that predicts where an object is says what the next run looks at."""

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest

from podium.competition.find.csv_files import read_table
from podium.competition.load import load
from podium.saved_runs.run_folder import Run
from podium.training.finder import finder_of
from small_objects import BOXES, SIZE, SLUG, TEST, TRAIN, plant
from templates import copied
from tiny import Podium, assert_rebuilt, assert_says, done, one_line, podium_at

FAST = ("--model", "test_resnet", "--weights", "none", "--workers", "0", "--device", "cpu")
LOOK = ("train", "-c", SLUG, *FAST, "--image-size", "32", "--batch-size", "4", "--epochs", "1", "--name", "look")
FORMS = {"point": ("x", "y"), "box": ("left", "top", "right", "bottom")}


def with_a_finder(root: Path, form: str = "point") -> None:
    """Makes a project of images with an object each, and a run that predicts its corner, or its box."""
    planted = plant(root)
    raw = root / "data" / "raw"
    shutil.copytree(raw / SLUG, raw / "places", ignore=shutil.ignore_patterns("*.csv"))
    names = FORMS[form]
    corners = [(x, y, x + width, y + height) for ((x, y, width, height),) in (one.boxes for one in planted)]
    rows = [
        (one.id, *(f"{number}.5" for number in own[: len(names)])) for one, own in zip(planted, corners, strict=True)
    ]
    for table, lines in (("train.csv", rows[:TRAIN]), ("sample_submission.csv", rows[TRAIN:])):
        with (raw / "places" / table).open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([("id", *names), *lines])
    podium_at(root, "folds", "-c", "places", "--k", "2")
    train = ("train", "-c", "places", *FAST, "--image-size", "64", "--batch-size", "4", "--epochs", "2")
    podium_at(root, *train, "--name", "find")
    (root / BOXES).unlink()


finder = copied(with_a_finder)


def test_each_image_has_the_box_of_the_model_that_held_it_out(finder: Path, podium: Podium) -> None:
    _, err = done(podium(*LOOK, "--region", "box:places/find"))
    assert_says(err, "boxes from find: 24 images by the model that held them out")
    found = finder_of(load(SLUG, finder), "places/find")
    assert found.is_point
    table = read_table(found.path(load(SLUG, finder))).set_index("id").astype({"x": int, "width": int})
    run = Run(finder / "runs" / "places" / "find")
    for fold in (0, 1):
        held_out = run.out_of_fold(fold)
        for image, (x, _) in zip(held_out.id, held_out.probs.tolist(), strict=True):
            left, right = int(table.loc[image, "x"]), int(table.loc[image, "x"] + table.loc[image, "width"])
            if left > 0 and right < SIZE:  # else it was cut off at an edge
                assert abs((left + right) / 2 - x) <= 1
    done(podium("submit", "-c", "places", "--runs", "find", "--anyway", "--device", "cpu"))
    tests = [np.load(run.fold_folder(fold) / "test.npz")["probs"] for fold in (0, 1)]
    assert len(tests[0]) == TEST
    rows = table.loc[load(SLUG, finder).test["id"]]
    middle = rows["x"] + rows["width"] / 2
    inside = ((rows["x"] > 0) & (rows["x"] + rows["width"] < SIZE)).to_numpy()
    assert np.abs(middle - np.mean(tests, 0)[:, 0])[inside].to_numpy().max(initial=0) <= 1


def test_the_run_needs_the_finder_no_more(finder: Path, podium: Podium) -> None:
    done(podium(*LOOK, "--region", "box:places/find"))
    shutil.rmtree(finder / "runs" / "places")
    for path in (finder / "data" / "prepared" / SLUG).glob("boxes-*"):
        path.unlink()
    out, _ = done(podium("submit", "-c", SLUG, "--runs", "look", "--anyway", "--device", "cpu"))
    assert_rebuilt(podium, Path(out.strip()))


def test_a_box_may_be_predicted_too(tmp_path: Path, podium: Podium) -> None:
    with_a_finder(tmp_path, "box")
    done(podium(*LOOK, "--region", "box:places/find"))
    assert not finder_of(load(SLUG, tmp_path), "places/find").is_point


def test_what_finds_nothing_is_refused(finder: Path, podium: Podium) -> None:
    region = ("--region",)
    assert "name the competition of the run, too: box:SLUG/RUN" in one_line(podium(*LOOK, *region, "box:find"))
    assert "no run 'nobody'" in one_line(podium(*LOOK, *region, "box:places/nobody", "--dry-run"))
    done(podium(*LOOK, "--folds", "0"))
    line = one_line(podium(*LOOK[:-1], "next", *region, f"box:{SLUG}/look"))
    assert "it predicts blue, green, red; a run that finds a place predicts the numbers x and y" in line


@pytest.mark.annex
def test_a_new_image_needs_its_box(finder: Path, podium: Podium) -> None:
    done(podium(*LOOK, "--region", "box:places/find"))
    images = finder / "data" / "raw" / SLUG / "test_image"
    assert "--boxes" in one_line(podium("predict", "look", images, "-c", SLUG))
