"""What a run sees of its images (`--region`): boxes from a file or a column, or all but the borders."""

import csv
import io
import json
import shutil
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from podium.competition.find.csv_files import read_table
from podium.images.examples import Examples
from podium.saved_runs.run_folder import Run
from podium.training.training_images import Draw
from small_objects import BOXES, LABELS, SLUG, plant
from templates import template
from tiny import COLOURS, Podium, assert_same_fold, one_line, podium_at, signal_in_step

FAST = ("-c", SLUG, "--model", "test_resnet", "--weights", "none", "--image-size", "32", "--batch-size", "4")
TRAIN = ("train", *FAST, "--workers", "0", "--device", "cpu", "--folds", "0", "--epochs", "3")


def two_each(root: Path) -> None:
    """Makes a project of images with two objects, but two: one has three, one none."""
    plant(root, objects=lambda number: {0: 3, 1: 0}.get(number, 2))


@pytest.fixture
def objects(tmp_path: Path) -> Path:
    shutil.copytree(template(two_each), tmp_path, dirs_exist_ok=True)
    return tmp_path


def boxes_of(root: Path) -> str:
    return str(root / BOXES)


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
        status, _, err = podium(*TRAIN[:-2], *words, *flags)
        assert status == 0, err
        assert "with 3 images from elsewhere" in err


def test_boxes_show_what_whole_images_hide(objects: Path, podium: Podium) -> None:
    """The backgrounds have all colours; those of the boxes are the labels."""
    for name, words in (("whole", ()), ("boxes", ("--region", boxes_of(objects)))):
        status, _, err = podium(*TRAIN[:-2], "--linear", "--name", name, *words)
        assert status == 0, err
    assert "boxes from " in err
    assert "1 of 24 training images have no box" in err
    whole, boxes = (run_at(objects, name).score(0, "accuracy") for name in ("whole", "boxes"))
    assert whole < 0.9 < boxes


@pytest.mark.annex
@pytest.mark.all
def test_a_run_on_boxes_resumes_to_the_bit_and_can_be_verified(objects: Path, podium: Podium) -> None:
    region = ("--region", boxes_of(objects))
    with pytest.MonkeyPatch.context() as patch:
        signal_in_step(patch, 4, signal.SIGTERM)
        assert podium(*TRAIN, *region, "--name", "interrupted")[0] == 75
    for name in ("interrupted", "undisturbed"):
        status, _, err = podium(*TRAIN, *region, "--name", name)
        assert status == 0, err
    assert_same_fold(run_at(objects, "interrupted"), run_at(objects, "undisturbed"))
    status, out, err = podium("verify", "undisturbed", "-c", SLUG, "--device", "cpu")
    assert status == 0, err
    assert "the same to the bit" in out


def test_workers_and_a_store_without_pixels_see_the_same_boxes(objects: Path, podium: Podium) -> None:
    region = ("--region", boxes_of(objects))
    for name, words in (("here", ()), ("there", ("--workers", "1")), ("decoded", ("--store", "off"))):
        status, _, err = podium(*TRAIN, *region, "--epochs", "1", "--name", name, *words)
        assert status == 0, err
    for name in ("there", "decoded"):
        assert_same_fold(run_at(objects, "here"), run_at(objects, name))


def test_a_column_of_boxes_gives_the_same_run_as_a_file(objects: Path, podium: Podium) -> None:
    write_column(objects, "place")
    for name, region in (("file", boxes_of(objects)), ("column", "place")):
        status, _, err = podium(*TRAIN, "--region", region, "--epochs", "1", "--name", name)
        assert status == 0, err
    file, column = (run_at(objects, name) for name in ("file", "column"))
    assert file.recipe["region_sha256"] == column.recipe["region_sha256"]
    assert (file.out_of_fold(0).probs == column.out_of_fold(0).probs).all()


def test_a_submission_needs_no_table_any_more_and_is_rebuilt(objects: Path, podium: Podium) -> None:
    """The run keeps its boxes: those of the test images are cut out, and their predictions averaged."""
    assert podium(*TRAIN[:-2], "--region", boxes_of(objects), "--name", "boxes", "--linear")[0] == 0
    (objects / BOXES).unlink()
    status, out, err = podium("submit", "-c", SLUG, "--runs", "boxes", "--device", "cpu")
    assert status == 0, err
    csv_path = Path(out.splitlines()[-1])
    rows = csv_path.read_bytes()
    predicted = [line.split(",")[1] for line in rows.decode().splitlines()[1:]]
    assert predicted == ["red", "green", "blue"] * 2
    csv_path.unlink()
    status, _, err = podium("submit", "--from", csv_path.with_suffix(".json"), "--device", "cpu")
    assert status == 0, err
    assert csv_path.read_bytes() == rows


def test_a_finished_head_predicts_held_out_boxes_as_its_model_does(objects: Path, podium: Podium) -> None:
    """A head is fitted to features; its predictions of several boxes are pooled as those of the model."""
    exact = ("--precision", "float32")  # bfloat16 rounds batches of other sizes otherwise
    assert podium(*TRAIN[:-2], "--region", boxes_of(objects), "--name", "head", "--linear", *exact)[0] == 0
    run = run_at(objects, "head")
    from podium.basics.machine import Machine
    from podium.competition.load import load
    from podium.training.test_predictions import _compute, open_stores

    competition, machine = load(SLUG, objects), Machine(device="cpu", workers=0)
    store = open_stores(competition, [run], machine)[run]
    held_out = run.out_of_fold(0)
    rows = competition.train.set_index("id", drop=False).loc[held_out.id.tolist()]
    probs, _ = _compute(store, store.examples(rows), run, 0, machine)
    np.testing.assert_allclose(probs, held_out.probs, atol=1e-4)


def test_borders_are_cut_off_images_of_ones_own_too(objects: Path, podium: Podium) -> None:
    from PIL import Image, ImageOps

    status, _, err = podium(*TRAIN, "--region", "border", "--name", "inside")
    assert status == 0, err
    image = objects / "data" / "raw" / SLUG / "train_image" / "003.png"
    ImageOps.expand(Image.open(image), 30, "white").save(objects / "scan.png")
    status, out, err = podium("predict", "inside", image, objects / "scan.png", "-c", SLUG, "--device", "cpu")
    assert status == 0, err
    assert "note" not in err
    first, second = (line.split()[1:] for line in out.splitlines() if ".png" in line)
    assert first == second


def test_ones_own_images_must_be_cropped_to_their_boxes(objects: Path, podium: Podium) -> None:
    assert podium(*TRAIN[:-2], "--region", boxes_of(objects), "--name", "head", "--linear")[0] == 0
    image = objects / "data" / "raw" / SLUG / "train_image" / "003.png"
    words = ("predict", "head", image, "-c", SLUG, "--device", "cpu")
    message = one_line(podium(*words))
    assert "head learned from boxes" in message
    assert "--cropped" in message
    status, out, err = podium(*words, "--cropped")
    assert status == 0, err
    assert "003.png" in out


def test_boxes_of_ones_own_images_are_seen_as_those_of_the_competition(objects: Path, podium: Podium) -> None:
    exact = ("--precision", "float32")
    assert podium(*TRAIN[:-2], "--region", boxes_of(objects), "--name", "head", "--linear", *exact)[0] == 0
    run, folder = run_at(objects, "head"), objects / "data" / "raw" / SLUG / "train_image"
    held_out = run.out_of_fold(0)
    words = ("predict", "head", folder, "-c", SLUG, "--device", "cpu", "--csv", "--boxes")
    status, out, err = podium(*words, own_boxes(objects, folder))
    assert status == 0, err
    table = pd.read_csv(io.StringIO(out), dtype={"image": str})
    predicted = table.set_index(table["image"].map(lambda path: Path(path).stem))[list(held_out.classes)]
    np.testing.assert_allclose(predicted.loc[held_out.id], held_out.probs, atol=1e-3)
    (objects / "wrong.csv").write_text("id,x,y,width,height\nnobody,1,2,3,4\n")
    message = one_line(podium(*words, objects / "wrong.csv"))
    assert "line 2" in message
    assert "nobody" in message
    status, _, err = podium(*TRAIN[:-2], "--name", "whole", "--linear")
    assert status == 0, err
    message = one_line(podium("predict", "whole", *words[2:], objects / "wrong.csv"))
    assert "whole has not learned from boxes" in message


def own_boxes(root: Path, folder: Path) -> Path:
    """Writes those boxes of the competition that are of images in this folder."""
    table, names = pd.read_csv(root / BOXES, dtype=str), {path.stem for path in folder.iterdir()}
    path = root / "own.csv"
    table[table["id"].isin(names)].to_csv(path, index=False)
    return path


@pytest.mark.annex
def test_an_explanation_shows_what_the_model_sees(objects: Path, podium: Podium) -> None:
    from podium_annex.explain.subjects import subject_of_run

    assert podium(*TRAIN[:-2], "--region", boxes_of(objects), "--name", "head", "--linear")[0] == 0
    subject = subject_of_run("head", SLUG, objects, 0, ["002", "003"])
    for image, pixels in zip(subject.chosen, subject.pixels, strict=True):
        middle = pixels[14:18, 14:18].reshape(-1, 3).mean(0)  # of the box, which its margin surrounds
        assert np.abs(middle - COLOURS[image.label]).max() < 2


# --- refusals ----------------------------------------------------------------------------------------


def test_changed_boxes_cannot_resume(objects: Path, podium: Podium) -> None:
    region = ("--region", boxes_of(objects), "--name", "boxes")
    assert podium(*TRAIN, *region)[0] == 0
    lines = (objects / BOXES).read_text().splitlines()
    (objects / BOXES).write_text("\n".join(lines[:-1]) + "\n")
    message = one_line(podium(*TRAIN[:-4], *region, "--folds", "1", "--epochs", "3"))
    assert "the boxes changed" in message
    assert "another name" in message


def test_boxes_that_were_changed_in_the_run_are_refused(objects: Path, podium: Podium) -> None:
    assert podium(*TRAIN[:-2], "--region", boxes_of(objects), "--name", "head", "--linear")[0] == 0
    path = run_at(objects, "head").path / "regions.csv"
    path.write_text(path.read_text().replace("train_image/002.png,", "train_image/002.png,1", 1))
    message = one_line(podium("submit", "-c", SLUG, "--runs", "head", "--device", "cpu"))
    assert f"{path}: it is missing or was changed" in message
    assert "restore it" in message


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--region", "nowhere.csv"), "--region nowhere.csv: there is no such file; give"),
        (("--region", "breed"), "--region: there is no such file, and train.csv has no column 'breed'"),
        (("--region-margin", "0.2"), "there is no such option any more: a tenth of a box's sides is added"),
        (("--region-jitter", "0.2"), "there is no such option any more: --crop moves and scales"),
    ],
)
def test_what_cannot_be_right_is_refused(objects: Path, podium: Podium, words: tuple[str, ...], problem: str) -> None:
    assert problem in one_line(podium(*TRAIN, *words))


def test_a_column_must_be_in_both_tables(objects: Path, podium: Podium) -> None:
    write_column(objects, "place", with_test=False)
    assert "test.csv has no column 'place'" in one_line(podium(*TRAIN, "--region", "place"))


def test_a_gpu_that_holds_the_pixels_does_not_cut_boxes() -> None:
    from podium.training.drawn_changes import can_be_drawn
    from training.test_augment import recipe

    assert can_be_drawn(recipe(augment="none", ops=0))
    assert not can_be_drawn(recipe(augment="none", ops=0, region="border"))


# --- boxes that an earlier run's models have found ----------------------------------------------------


def two_folds_trained(root: Path) -> None:
    """Makes a project of images with one object each, with a run that sees them whole and its boxes."""
    plant(root)
    words = ("-c", SLUG, "--model", "test_resnet", "--weights", "none", "--workers", "0", "--device", "cpu")
    podium_at(root, "train", *words, "--image-size", "64", "--batch-size", "8", "--epochs", "2", "--name", "first")
    podium_at(root, "explain", "first", "-c", SLUG, "--regions")


@pytest.fixture
def found(tmp_path: Path) -> Path:
    shutil.copytree(template(two_folds_trained), tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.mark.annex
def test_every_fold_sees_the_boxes_of_its_own_model(found: Path, podium: Podium) -> None:
    first = run_at(found, "first")
    for fold, place in ((0, 10), (1, 50)):
        path = first.fold_folder(fold) / "regions.csv"
        rows = read_table(path)
        assert len(rows) == 30
        rows.assign(x=place, y=place, width=30, height=30).to_csv(path, index=False)
    status, _, err = podium(*TRAIN[:-4], "--epochs", "1", "--region", "attention:first", "--name", "second")
    assert status == 0, err
    second = run_at(found, "second")
    kept = [read_table(second.fold_folder(fold) / "regions.csv") for fold in (0, 1)]
    assert [set(table["x"]) for table in kept] == [{"7"}, {"47"}]  # with the margin
    status, _, err = podium("submit", "-c", SLUG, "--runs", "second", "--device", "cpu", "--anyway")
    assert status == 0, err
    assert podium("verify", "second", "-c", SLUG, "--device", "cpu")[0] == 0


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
    status, _, err = podium("explain", "first", "-c", SLUG, "--regions")
    assert status == 0, err
    assert path.read_bytes() == before


@pytest.mark.annex
def test_the_report_shows_the_boxes_before_they_are_used(found: Path, podium: Podium) -> None:
    status, _, err = podium("report", "--runs", "first", "-c", SLUG)
    assert status == 0, err
    page = (run_at(found, "first").path / "report.html").read_text()
    assert page.count('<img src="data:image/jpeg') == 12
    assert "--region attention:first" in page


@pytest.mark.annex
def test_what_a_run_on_found_boxes_lacks_is_refused(found: Path, podium: Podium) -> None:
    region = ("--region", "attention:first", "--name", "second")
    assert "no run 'nobody'" in one_line(podium(*TRAIN, "--region", "attention:nobody"))
    path = run_at(found, "first").fold_folder(0) / "regions.csv"
    path.unlink()
    message = one_line(podium(*TRAIN, *region))
    assert "run first has no boxes for fold 0; find them with: " in message
    assert f"explain first -c {SLUG} --regions" in message
    assert "leave out the rest" in one_line(podium("explain", "first", "-c", SLUG, "--regions", "--fold", "0"))
    folds = found / "data" / "prepared" / SLUG / "folds.csv"
    folds.write_text(folds.read_text().replace(",0,", ",x,").replace(",1,", ",0,").replace(",x,", ",1,"))
    message = one_line(podium(*TRAIN, *region))
    assert "the run first was trained on other folds" in message
    assert "another --region" in message


# --- draws -------------------------------------------------------------------------------------------


def test_an_epoch_shows_one_box_of_an_image_and_epochs_show_all_of_them() -> None:
    examples = Examples(np.arange(4), np.array([3, 1]))
    draw = Draw(0, examples)
    shown = [draw(lambda number: np.full((2, 2, 3), number, np.uint8), 0, epoch, 7)[0, 0, 0] for epoch in range(30)]
    assert set(shown) == {0, 1, 2}
    again = [draw(lambda number: np.full((2, 2, 3), number, np.uint8), 0, epoch, 7)[0, 0, 0] for epoch in range(30)]
    assert shown == again
    assert draw(lambda number: np.full((2, 2, 3), number, np.uint8), 1, 0, 8)[0, 0, 0] == 3


def test_the_predictions_of_an_images_boxes_are_averaged() -> None:
    examples = Examples(np.arange(3), np.array([2, 1]))
    probs = np.array([[1.0, 0.0], [0.5, 0.5], [0.2, 0.8]], np.float32)
    assert examples.pooled(probs).tolist() == [[0.75, 0.25], probs[2].tolist()]
    assert examples.pooled(probs).dtype == np.float32
    single = Examples(np.arange(3), np.array([1, 1, 1]))
    assert single.pooled(probs) is probs
