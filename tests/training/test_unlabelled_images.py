"""Images without labels beside the test images: the card's [[unlabelled]], for --pseudo and podium pretrain."""

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import ImageOps

from pictures import photograph, write_image_competition
from podium.folds.folds_csv import folds_path
from podium.saved_runs.prediction_files import Predictions
from podium.training.lessons import make_lessons
from podium.training.pseudo_labels import pseudo_labels
from templates import copied
from tiny import Podium, assert_same_fold, assert_says, done, one_line, podium_at, run_of, stop_in_step, write_card
from training.learners import context_of

TRAIN = (
    *("train", "-c", "tiny", "--weights", "none", "--image-size", "32", "--workers", "0", "--device", "cpu"),
    *("--model", "test_vit", "--folds", "0", "--batch-size", "4", "--epochs", "2"),
)
CARD = """
[[unlabelled]]
folder = "data/extra/wild"
licence = "CC BY 4.0"
url = "https://example.org/wild"
"""
COPIES = ("resaved.jpg", "resized.png", "mirrored.png", "of-train.jpg")


def with_unlabelled_images(root: Path) -> None:
    """Makes a project of twelve photographs, six test images, a run, and images without labels with planted copies."""
    labels = ("cat", "dog")
    train = {f"{number:02}": (labels[number % 2], photograph(number)) for number in range(12)}
    write_image_competition(root, train, {f"t{number}": photograph(100 + number) for number in range(6)})
    wild = root / "data" / "extra" / "wild"
    (wild / "deep").mkdir(parents=True)
    for number in range(10):
        photograph(200 + number).save(wild / "deep" / f"{number}.png")
    photograph(102).save(wild / "resaved.jpg", quality=60)  # of a test image
    photograph(103).resize((60, 45)).save(wild / "resized.png")
    ImageOps.mirror(photograph(104)).save(wild / "mirrored.png")
    photograph(3).save(wild / "of-train.jpg", quality=70)
    (wild / "broken.png").write_bytes(b"no image")
    podium_at(root, "folds", "-c", "tiny", "--k", "2")
    podium_at(root, *TRAIN, "--folds", "0,1", "--name", "first")
    write_card(root, CARD)


wild = copied(with_unlabelled_images)


def test_copies_and_what_cannot_be_read_are_left_out(wild: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = folds_path("tiny", wild).read_bytes()
    with context_of(wild, "run", model="test_vit", pseudo="first") as context:
        assert context.images.unlabelled["id"].tolist() == [
            f"data/extra/wild/deep/{number}.png" for number in range(10)
        ]
    err = capsys.readouterr().err
    assert_says(
        err, "4 unlabelled images left out: copies of the competition's own", "1 unlabelled image cannot be read"
    )
    lines = (wild / "data" / "prepared" / "tiny" / "unlabelled.csv").read_text().splitlines()[1:]
    refused = {Path(line.split(",")[0]).name: line.split(",")[4] for line in lines if line.split(",")[3] == "no"}
    assert refused.keys() == {*COPIES, "broken.png"}
    assert all(refused[name].startswith("a copy of ") for name in COPIES)
    podium_at(wild, "folds", "-c", "tiny", "--k", "2")
    assert folds_path("tiny", wild).read_bytes() == before


def test_a_fold_learns_what_its_own_model_answers_for_them(wild: Path) -> None:
    with context_of(wild, "student", model="test_vit", pseudo="first", batch_size=4) as context:
        lessons, sampler = make_lessons(context, 0), context.batch_sampler(0)
        own = len(context.images.training_rows(0))
        held_out = set(context.competition.train["image"].iloc[context.images.held_out_rows(0)])
        taught = lessons.targets[np.arange(own, own + 16)]
        expected = pseudo_labels(context, 0).targets
        shown = np.concatenate([sampler._order(epoch) for epoch in range(40)])
    folder = run_of(wild, "first").fold_folder(0)
    answers = [Predictions.load(folder / file, "") for file in ("test.npz", "unlabelled.npz")]
    assert [len(answer.id) for answer in answers] == [6, 10]
    assert answers[1].id.tolist() == [f"data/extra/wild/deep/{number}.png" for number in range(10)]
    assert not (run_of(wild, "first").fold_folder(1) / "unlabelled.npz").exists()  # no other fold's model was asked
    assert np.array_equal(taught, expected)
    order = np.argsort(np.concatenate([answer.probs[:, 0] for answer in answers]))
    assert (np.diff(taught[order, 0]) >= 0).all()  # sharpened, in the same order
    assert [Path(image).name for image in lessons.table["image"][own + 6 :]] == [
        f"{number}.png" for number in range(10)
    ]
    assert not set(lessons.table["image"]) & held_out
    assert len(set(lessons.rows.tolist())) == own + 16  # each image has random draws of its own
    assert len(shown) == 40 * 2 * own  # in all as many as there are training images


def test_what_was_answered_is_not_asked_again_unless_the_images_change(wild: Path, podium: Podium) -> None:
    done(podium(*TRAIN, "--name", "one", "--pseudo", "first"))
    _, err = done(podium(*TRAIN, "--name", "two", "--pseudo", "first"))
    assert_says(err, "first fold 0: already predicted", "6 test images and 10 unlabelled images")
    assert_same_fold(run_of(wild, "one"), run_of(wild, "two"))
    photograph(300).save(wild / "data" / "extra" / "wild" / "deep" / "3.png")
    _, err = done(podium(*TRAIN, "--name", "three", "--pseudo", "first"))
    assert not np.array_equal(run_of(wild, "one").out_of_fold(0).probs, run_of(wild, "three").out_of_fold(0).probs)


def test_without_pseudo_labels_the_bits_are_those_without_a_card(wild: Path, podium: Podium) -> None:
    done(podium(*TRAIN, "--name", "off"))
    assert_same_fold(run_of(wild, "off"), run_of(wild, "first"))
    write_card(wild, "")
    done(podium(*TRAIN, "--name", "test-only", "--pseudo", "first"))
    write_card(wild, CARD)
    done(podium(*TRAIN, "--name", "both", "--pseudo", "first"))
    assert run_of(wild, "test-only").recipe.get("unlabelled_sha256") is None
    assert len(run_of(wild, "both").recipe["unlabelled_sha256"]) == 64
    off, test_only, both = (run_of(wild, name).out_of_fold(0).probs for name in ("off", "test-only", "both"))
    assert not np.array_equal(off, test_only)
    assert not np.array_equal(test_only, both)


def test_they_go_along_with_their_licence(wild: Path, podium: Podium) -> None:
    done(podium(*TRAIN, "--name", "both", "--pseudo", "first"))
    source = {"folder": "data/extra/wild", "images": 10, "licence": "CC BY 4.0", "url": "https://example.org/wild"}
    assert run_of(wild, "both").recipe["extra"] == [source]
    out, _ = done(podium("submit", "-c", "tiny", "--runs", "both", "--anyway"))
    assert json.loads(Path(out.strip()).with_suffix(".json").read_text())["extra"] == [source]
    assert "elsewhere    10 images of data/extra/wild (CC BY 4.0)" in podium("lineage", out.strip())[1]
    assert (
        "images without labels" in podium("compare", "-c", "tiny", "--verbose")[1] + podium("compare", "-c", "tiny")[1]
    )


def test_other_images_cannot_go_on(wild: Path, podium: Podium) -> None:
    train = (*TRAIN, "--name", "half", "--pseudo", "first")
    stop_in_step(podium, 2, *train)
    (wild / "data" / "extra" / "wild" / "deep" / "3.png").unlink()
    assert "the images without labels changed" in one_line(podium(*train))


def test_a_competition_may_have_no_test_images(wild: Path, podium: Podium) -> None:
    folder = wild / "data" / "raw" / "tiny"
    shutil.rmtree(folder / "test")
    (folder / "sample_submission.csv").unlink()
    _, err = done(podium(*TRAIN, "--name", "student", "--pseudo", "first"))
    assert "fold 0 also learns from 13 unlabelled images" in err  # three were copies of test images


@pytest.mark.parametrize(
    ("card", "problem"),
    [
        ("[[unlabelled]]\nlicence = 'x'", 'write folder = "data/extra/NAME" below [[unlabelled]]'),
        ("[[unlabelled]]\nfolder = 'data/extra/wild'\nweight = 1", "no setting 'weight'"),
        ("[[unlabelled]]\nfolder = 'data/extra/nothing'", "there is no folder"),
        ("[[unlabelled]]\nfolder = 'data/extra/empty'", "has no images that can be read; correct `folder`"),
        ("unlabelled = 'a'", "unlabelled must be a list of tables"),
        (f"{CARD}\n{CARD}", "two [[unlabelled]] entries hold"),
    ],
)
def test_entries_that_cannot_be_right_are_refused(wild: Path, podium: Podium, card: str, problem: str) -> None:
    (wild / "data" / "extra" / "empty").mkdir()
    write_card(wild, card)
    assert problem in one_line(podium(*TRAIN, "--name", "run", "--pseudo", "first"))


def test_a_dry_run_counts_them(wild: Path, podium: Podium) -> None:
    out, _ = done(podium(*TRAIN, "--name", "run", "--pseudo", "first", "--dry-run"))
    assert "about 6 images to train on, 6 that join them, and 6 to validate" in out  # at most as many
    out, _ = done(podium("data", "-c", "tiny"))
    assert "15 images of data/extra/wild (CC BY 4.0)" in out


def test_all_but_pseudo_labels_do_without_the_folder(wild: Path, podium: Podium) -> None:
    shutil.rmtree(wild / "data" / "extra")
    done(podium("submit", "-c", "tiny", "--anyway"))
    done(podium(*TRAIN, "--name", "other"))
    one_line(podium(*TRAIN, "--name", "run", "--pseudo", "first"), "there is no folder", "delete this entry")


def test_an_archive_is_unpacked_by_podium_data(wild: Path, podium: Podium) -> None:
    folder = wild / "data" / "extra" / "wild"
    with zipfile.ZipFile(folder.with_suffix(".zip"), "w") as archive:
        for path in sorted(folder.rglob("*.png")):
            archive.write(path, path.relative_to(folder))
    shutil.rmtree(folder)
    write_card(wild, CARD.replace("wild", "wild.zip"))
    one_line(podium(*TRAIN, "--name", "run", "--pseudo", "first"), "wild.zip is not unpacked", "data -c tiny")
    out, err = done(podium("data", "-c", "tiny"))
    assert_says(out + err, "unpacked", "13 images of data/extra/wild.zip (CC BY 4.0)")
    done(podium(*TRAIN, "--name", "run", "--pseudo", "first"))
    assert run_of(wild, "run").recipe["extra"][0]["images"] == 10


@pytest.mark.annex
def test_a_pretraining_sees_them_and_names_them(wild: Path, podium: Podium) -> None:
    pretrain = (
        *("pretrain", "-c", "tiny", "--model", "test_vit", "--image-size", "64", "--epochs", "1", "--batch-size", "8"),
        *("--local-crops", "2", "--outputs", "32", "--device", "cpu", "--workers", "0"),
    )
    _, err = done(podium(*pretrain))
    assert "on 32 images without labels" in err  # 12, 6 and 14 that can be read
    recorded = json.loads((wild / "runs" / "tiny" / "dino-test_vit" / "pretrain.json").read_text())
    assert recorded["images"] == 32
    assert recorded["extra"][0]["licence"] == "CC BY 4.0"
    shutil.rmtree(wild / "data" / "extra")
    one_line(podium(*pretrain, "--name", "again"), "there is no folder")


@pytest.mark.annex
def test_competing_at_kaggle_does_without_them_or_not_at_all(wild: Path, podium: Podium) -> None:
    one_line(
        podium("kaggle-train", "-c", "tiny", "--budget", "1h"),
        *("[[unlabelled]] images are not on Kaggle's machines", "run podium compete here"),
    )
