"""What a run sees of its images (`--region`): boxes from a file or a column, or all but the borders."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from podium.competition.find.csv_files import read_table
from podium.images.examples import Examples
from podium.images.tiles import tiles_in
from podium.saved_runs.pooled_parts import best_pooling
from podium.saved_runs.prediction_files import Predictions
from podium.saved_runs.run_folder import Run
from podium.tasks.pool import pool_parts, pooled
from podium.tasks.task import ONE_LABEL, Targets
from podium.training.training_images import Draw
from small_objects import BOXES, LABELS, SLUG, plant
from templates import copied
from tiny import (
    COLOURS,
    Podium,
    assert_rebuilt,
    assert_same_fold,
    assert_says,
    assert_stopped_and_resumed_alike,
    done,
    one_line,
    podium_at,
)

FAST = ("-c", SLUG, "--model", "test_resnet", "--weights", "none", "--image-size", "32", "--batch-size", "4")
TRAIN = ("train", *FAST, "--workers", "0", "--device", "cpu", "--folds", "0", "--epochs", "3")


def two_each(root: Path) -> None:
    """Makes a project of images with two objects, but two: one has three, one none."""
    plant(root, objects=lambda number: {0: 3, 1: 0}.get(number, 2))


def boxes_of(root: Path) -> str:
    return str(root / BOXES)


def with_a_head(root: Path) -> None:
    """Makes that project with a head on the boxes. In bfloat16, batches of other sizes would round otherwise."""
    two_each(root)
    podium_at(root, *TRAIN[:-2], "--region", boxes_of(root), "--name", "head", "--linear", "--precision", "float32")


objects, with_head = copied(two_each), copied(with_a_head)


def run_at(root: Path, name: str) -> Run:
    return Run(root / "runs" / SLUG / name)


def write_column(root: Path, name: str, with_test: bool = True) -> None:
    """Moves the boxes of the file into a column of the tables."""
    boxes: dict[str, list[list[int]]] = {}
    with (root / BOXES).open() as file:
        for row in csv.DictReader(file):
            boxes.setdefault(row["id"], []).append([int(row[key]) for key in ("x", "y", "width", "height")])
    for table in ("train.csv", "test.csv") if with_test else ("train.csv",):
        path = root / "data" / "raw" / SLUG / table
        with path.open() as file:
            rows = list(csv.DictReader(file))
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, [*rows[0], name], lineterminator="\n")
            writer.writeheader()
            writer.writerows({**row, name: json.dumps(boxes.get(row["id"], []))} for row in rows)


# --- whole runs --------------------------------------------------------------------------------------


def test_heads_learn_all_boxes_and_images_from_elsewhere(objects: Path, podium: Podium) -> None:
    folder = objects / "data" / "extra" / "more"
    for colour in LABELS:
        (folder / colour).mkdir(parents=True)
        Image.new("RGB", (96, 96), COLOURS[colour]).save(folder / colour / "0.png")
    cards = objects / "data" / "competitions"
    cards.mkdir(parents=True, exist_ok=True)
    (cards / f"{SLUG}.toml").write_text("[[extra]]\nfolder = 'data/extra/more'\nweight = 0.5\n")
    for name, words in (("fitted", ("--linear",)), ("imprinted", ("--head-first", "--head", "arcface", "--mix", "0"))):
        epochs = () if "--linear" in words else ("--epochs", "1")
        flags = (*epochs, "--region", boxes_of(objects), "--name", name)
        _, err = done(podium(*TRAIN[:-2], *words, *flags))
        assert "with 3 images from elsewhere" in err


def test_boxes_show_what_whole_images_hide(objects: Path, podium: Podium) -> None:
    """The backgrounds have all colours; those of the boxes are the labels."""
    for name, words in (("whole", ()), ("boxes", ("--region", boxes_of(objects)))):
        _, err = done(podium(*TRAIN[:-2], "--linear", "--name", name, *words))
    assert_says(err, "boxes from ", "1 of 24 training images have no box")
    whole, boxes = (run_at(objects, name).score(0, "accuracy") for name in ("whole", "boxes"))
    assert whole < 0.9 < boxes


@pytest.mark.annex
@pytest.mark.all
def test_a_run_on_boxes_resumes_to_the_bit_and_can_be_verified(objects: Path, podium: Podium) -> None:
    assert_stopped_and_resumed_alike(podium, objects, 4, *TRAIN, "--region", boxes_of(objects), slug=SLUG)
    out, _ = done(podium("verify", "undisturbed", "-c", SLUG, "--device", "cpu"))
    assert "the same to the bit" in out


def test_workers_and_a_store_without_pixels_see_the_same_boxes(objects: Path, podium: Podium) -> None:
    region = ("--region", boxes_of(objects))
    for name, words in (("here", ()), ("there", ("--workers", "1")), ("decoded", ("--store", "off"))):
        done(podium(*TRAIN, *region, "--epochs", "1", "--name", name, *words))
    for name in ("there", "decoded"):
        assert_same_fold(run_at(objects, "here"), run_at(objects, name))


def test_a_column_of_boxes_gives_the_same_run_as_a_file(objects: Path, podium: Podium) -> None:
    write_column(objects, "place")
    for name, region in (("file", boxes_of(objects)), ("column", "place")):
        done(podium(*TRAIN, "--region", region, "--epochs", "1", "--name", name))
    file, column = (run_at(objects, name) for name in ("file", "column"))
    assert file.recipe["region_sha256"] == column.recipe["region_sha256"]
    assert (file.out_of_fold(0).probs == column.out_of_fold(0).probs).all()


def test_a_submission_needs_no_table_any_more_and_is_rebuilt(with_head: Path, podium: Podium) -> None:
    """The run keeps its boxes: those of the test images are cut out, and their predictions averaged."""
    (with_head / BOXES).unlink()
    out, _ = done(podium("submit", "-c", SLUG, "--runs", "head", "--device", "cpu"))
    csv_path = Path(out.splitlines()[-1])
    rows = csv_path.read_bytes()
    predicted = [line.split(",")[1] for line in rows.decode().splitlines()[1:]]
    assert predicted == ["red", "green", "blue"] * 2
    csv_path.unlink()
    done(podium("submit", "--from", csv_path.with_suffix(".json"), "--device", "cpu"))
    assert csv_path.read_bytes() == rows


def test_a_finished_head_predicts_held_out_boxes_as_its_model_does(with_head: Path, podium: Podium) -> None:
    """A head is fitted to features; its predictions of several boxes are pooled as those of the model."""
    run = run_at(with_head, "head")
    from podium.basics.machine import Machine
    from podium.competition.load import load
    from podium.training.test_predictions import _compute, open_stores

    competition, machine = load(SLUG, with_head), Machine(device="cpu", workers=0)
    store = open_stores(competition, [run], machine)[run]
    held_out = run.out_of_fold(0)
    rows = competition.train.set_index("id", drop=False).loc[held_out.id.tolist()]
    examples = store.examples(rows)
    probs, _ = _compute(store, examples, run, 0, machine)
    answers = pool_parts(probs, examples.counts, competition.task)
    np.testing.assert_allclose(answers.pooled.get(run.pooling_of(0), answers.probs), held_out.probs, atol=1e-4)


def test_borders_are_cut_off_images_of_ones_own_too(objects: Path, podium: Podium) -> None:
    from PIL import Image, ImageOps

    done(podium(*TRAIN, "--region", "border", "--name", "inside"))
    image = objects / "data" / "raw" / SLUG / "train_image" / "003.png"
    ImageOps.expand(Image.open(image), 30, "white").save(objects / "scan.png")
    out, err = done(podium("predict", "inside", image, objects / "scan.png", "-c", SLUG, "--device", "cpu"))
    assert "note" not in err
    first, second = (line.split()[1:] for line in out.splitlines() if ".png" in line)
    assert first == second


def test_ones_own_images_must_be_cropped_to_their_boxes(with_head: Path, podium: Podium) -> None:
    image = with_head / "data" / "raw" / SLUG / "train_image" / "003.png"
    words = ("predict", "head", image, "-c", SLUG, "--device", "cpu")
    one_line(podium(*words), "head learned from boxes", "--cropped")
    out, _ = done(podium(*words, "--cropped"))
    assert "003.png" in out


def test_boxes_of_ones_own_images_are_seen_as_those_of_the_competition(with_head: Path, podium: Podium) -> None:
    run, folder = run_at(with_head, "head"), with_head / "data" / "raw" / SLUG / "train_image"
    held_out = run.out_of_fold(0)
    words = ("predict", "head", folder, "-c", SLUG, "--device", "cpu", "--csv", "--boxes")
    out, _ = done(podium(*words, own_boxes(with_head, folder)))
    table = pd.read_csv(io.StringIO(out), dtype={"image": str})
    predicted = table.set_index(table["image"].map(lambda path: Path(path).stem))[list(held_out.classes)]
    np.testing.assert_allclose(predicted.loc[held_out.id], held_out.probs, atol=1e-3)
    (with_head / "wrong.csv").write_text("id,x,y,width,height\nnobody,1,2,3,4\n")
    one_line(podium(*words, with_head / "wrong.csv"), "line 2", "nobody")
    done(podium(*TRAIN[:-2], "--name", "whole", "--linear"))
    one_line(podium("predict", "whole", *words[2:], with_head / "wrong.csv"), "whole has not learned from boxes")


def own_boxes(root: Path, folder: Path) -> Path:
    """Writes those boxes of the competition that are of images in this folder."""
    table, names = pd.read_csv(root / BOXES, dtype=str), {path.stem for path in folder.iterdir()}
    path = root / "own.csv"
    table[table["id"].isin(names)].to_csv(path, index=False)
    return path


@pytest.mark.annex
def test_an_explanation_shows_what_the_model_sees(with_head: Path, podium: Podium) -> None:
    from podium_annex.explain.subjects import subject_of_run

    subject = subject_of_run("head", SLUG, with_head, 0, ["002", "003"])
    for image, pixels in zip(subject.chosen, subject.pixels, strict=True):
        middle = pixels[14:18, 14:18].reshape(-1, 3).mean(0)  # of the box, which its margin surrounds
        assert np.abs(middle - COLOURS[image.label]).max() < 2


# --- refusals ----------------------------------------------------------------------------------------


def test_changed_boxes_cannot_resume(objects: Path, podium: Podium) -> None:
    region = ("--region", boxes_of(objects), "--name", "boxes")
    done(podium(*TRAIN, *region))
    lines = (objects / BOXES).read_text().splitlines()
    (objects / BOXES).write_text("\n".join(lines[:-1]) + "\n")
    one_line(podium(*TRAIN[:-4], *region, "--folds", "1", "--epochs", "3"), "the boxes changed", "another name")


def test_boxes_that_were_changed_in_the_run_are_refused(with_head: Path, podium: Podium) -> None:
    path = run_at(with_head, "head").path / "regions.csv"
    path.write_text(path.read_text().replace("train_image/002.png,", "train_image/002.png,1", 1))
    one_line(
        podium("submit", "-c", SLUG, "--runs", "head", "--device", "cpu"),
        f"{path}: it is missing or was changed",
        "restore it",
    )


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--region", "nowhere.csv"), "--region nowhere.csv: there is no such file; give"),
        (("--region", "breed"), "--region: there is no such file, and train.csv has no column 'breed'"),
    ],
)
def test_what_cannot_be_right_is_refused(objects: Path, podium: Podium, words: tuple[str, ...], problem: str) -> None:
    assert problem in one_line(podium(*TRAIN, *words))


def test_a_column_must_be_in_both_tables(objects: Path, podium: Podium) -> None:
    write_column(objects, "place", with_test=False)
    assert "test.csv has no column 'place'" in one_line(podium(*TRAIN, "--region", "place"))


# --- boxes that an earlier run's models have found ----------------------------------------------------


def two_folds_trained(root: Path) -> None:
    """Makes a project of images with one object each, with a run that sees them whole and its boxes."""
    plant(root)
    words = ("-c", SLUG, "--model", "test_resnet", "--weights", "none", "--workers", "0", "--device", "cpu")
    podium_at(root, "train", *words, "--image-size", "64", "--batch-size", "8", "--epochs", "2", "--name", "first")
    podium_at(root, "explain", "first", "-c", SLUG, "--regions")


found = copied(two_folds_trained)


@pytest.mark.annex
def test_every_fold_sees_the_boxes_of_its_own_model(found: Path, podium: Podium) -> None:
    first = run_at(found, "first")
    for fold, place in ((0, 10), (1, 50)):
        path = first.fold_folder(fold) / "regions.csv"
        rows = read_table(path)
        assert len(rows) == 30
        rows.assign(x=place, y=place, width=30, height=30).to_csv(path, index=False)
    done(podium(*TRAIN[:-4], "--epochs", "1", "--region", "attention:first", "--name", "second"))
    second = run_at(found, "second")
    kept = [read_table(second.fold_folder(fold) / "regions.csv") for fold in (0, 1)]
    assert [set(table["x"]) for table in kept] == [{"7"}, {"47"}]  # with the margin
    done(podium("submit", "-c", SLUG, "--runs", "second", "--device", "cpu", "--anyway"))
    done(podium("verify", "second", "-c", SLUG, "--device", "cpu"))


@pytest.mark.annex
def test_the_boxes_of_a_fold_do_not_depend_on_the_labels_that_it_holds_out(found: Path, podium: Podium) -> None:
    """Its model has not learned them; the boxes are those of the class that it predicts."""
    path = run_at(found, "first").fold_folder(0) / "regions.csv"
    before = path.read_bytes()
    held_out = set(run_at(found, "first").out_of_fold(0).id.tolist())
    table = found / "data" / "raw" / SLUG / "train.csv"
    with table.open() as file:
        rows = list(csv.DictReader(file))
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, "target": "red" if row["id"] in held_out else row["target"]} for row in rows)
    path.unlink()
    done(podium("explain", "first", "-c", SLUG, "--regions"))
    assert path.read_bytes() == before


@pytest.mark.annex
def test_the_report_shows_the_boxes_before_they_are_used(found: Path, podium: Podium) -> None:
    done(podium("report", "--runs", "first", "-c", SLUG))
    page = (run_at(found, "first").path / "report.html").read_text()
    assert page.count('<img src="data:image/jpeg') == 12
    assert "--region attention:first" in page


@pytest.mark.annex
def test_what_a_run_on_found_boxes_lacks_is_refused(found: Path, podium: Podium) -> None:
    region = ("--region", "attention:first", "--name", "second")
    assert "no run 'nobody'" in one_line(podium(*TRAIN, "--region", "attention:nobody"))
    path = run_at(found, "first").fold_folder(0) / "regions.csv"
    path.unlink()
    one_line(
        podium(*TRAIN, *region),
        "run first has no boxes for fold 0; find them with: ",
        f"explain first -c {SLUG} --regions",
    )
    assert "leave out the rest" in one_line(podium("explain", "first", "-c", SLUG, "--regions", "--fold", "0"))
    folds = found / "data" / "prepared" / SLUG / "folds.csv"
    folds.write_text(folds.read_text().replace(",0,", ",x,").replace(",1,", ",0,").replace(",x,", ",1,"))
    one_line(podium(*TRAIN, *region), "the run first was trained on other folds", "another --region")


# --- draws -------------------------------------------------------------------------------------------


def test_an_epoch_shows_one_box_of_an_image_and_epochs_show_all_of_them() -> None:
    examples = Examples(np.arange(4), np.array([3, 1]))
    draw = Draw(0, examples)

    def show(row: int, epoch: int) -> int:
        return int(draw(lambda number: np.full((2, 2, 3), number, np.uint8), row, epoch, 7)[0, 0, 0])

    shown = [show(0, epoch) for epoch in range(30)]
    assert set(shown) == {0, 1, 2}
    assert shown == [show(0, epoch) for epoch in range(30)]
    assert show(1, 0) == 3


def test_the_predictions_of_an_images_boxes_are_averaged() -> None:
    examples = Examples(np.arange(3), np.array([2, 1]))
    probs = np.array([[1.0, 0.0], [0.5, 0.5], [0.2, 0.8]], np.float32)
    assert pooled(probs, examples.counts).tolist() == [[0.75, 0.25], probs[2].tolist()]
    assert pooled(probs, examples.counts).dtype == np.float32
    single = Examples(np.arange(3), np.array([1, 1, 1]))
    assert pooled(probs, single.counts) is probs


# --- tiles -------------------------------------------------------------------------------------------


def test_tiles_are_about_square_and_empty_ones_are_left_out() -> None:
    pixels = np.full((60, 120, 3), 200, np.uint8)
    pixels[5:9, 100:104] = 20  # in the tile at the upper right
    assert [tuple(map(float, box[:4])) for box in tiles_in(pixels, 2, "an.jpg")] == [(0.75, 0, 0.25, 0.5)]
    pixels[5:9, 100:104] = 210  # noise
    assert len(list(tiles_in(pixels, 2, "an.jpg"))) == 8


TILES = (*TRAIN[:-4], "--linear", "--region", "tiles:3", "--name", "tiles", "--precision", "float32")


def test_a_run_on_tiles_pools_them_as_other_folds_say_and_is_rebuilt(objects: Path, podium: Podium) -> None:
    """An object is in one or two of nine tiles; the other tiles show patches of all colours."""
    done(podium(*TILES))
    run = run_at(objects, "tiles")
    raw = [Predictions.load(run.fold_folder(fold) / "oof.npz", "") for fold in (0, 1)]
    assert all(one.pooled.keys() == {"max"} for one in raw)
    for fold in (0, 1):
        way = best_pooling([raw[1 - fold]])
        assert run.pooling_of(fold) == way
        expected = raw[fold].pooled.get(way, raw[fold].probs)
        assert np.array_equal(run.out_of_fold(fold).probs, expected)
        assert run.out_of_fold(fold).key == raw[fold].key
    out, _ = done(podium("submit", "-c", SLUG, "--runs", "tiles", "--device", "cpu", "--anyway"))
    assert_rebuilt(podium, Path(out.strip()))
    done(podium("submit", "-c", SLUG, "--runs", "tiles", "--device", "cpu", "--anyway", "--name", "kept"))
    boxes = read_table(run.path / "regions.csv")
    assert len(boxes) == 9 * 30
    done(podium("predict", "tiles", objects / "data/raw" / SLUG / "test_image", "-c", SLUG, "--device", "cpu"))


def test_a_pooling_that_others_find_clearly_better_is_taken() -> None:
    truth = np.arange(40) % 2
    right = np.where(truth[:, None] == np.arange(2), 0.9, 0.1).astype(np.float32)
    unsure = np.full((40, 2), 0.5, np.float32)
    ids, targets = np.arange(40).astype(str), Targets(ONE_LABEL, truth)
    held_out = Predictions(ids, unsure, targets, ("a", "b"), pooled={"max": right})
    assert best_pooling([held_out]) == "max"
    assert best_pooling([]) == "mean"
    assert best_pooling([Predictions(ids, right, targets, ("a", "b"), pooled={"max": unsure})]) == "mean"
    chance = np.where(np.arange(40)[:, None] % 4 < 2, right, right[::-1])
    assert best_pooling([Predictions(ids, chance, targets, ("a", "b"), pooled={"max": chance[::-1]})]) == "mean"


@pytest.mark.parametrize("region", ["tiles:1", "tiles:9", "tiles:", "tiles:x"])
def test_other_numbers_of_tiles_are_refused(objects: Path, podium: Podium, region: str) -> None:
    assert "write tiles:2 to tiles:8" in one_line(podium(*TRAIN, "--region", region))
