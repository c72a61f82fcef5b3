"""Labelled images from elsewhere join the training images: the card's [[extra]]."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import ImageOps

from pictures import photograph, write_image_competition, write_table
from podium.competition.load import load
from podium.folds.folds_csv import folds_path
from podium.training.lessons import make_lessons
from second_round import first_of
from templates import copied
from tiny import Podium, assert_same_fold, assert_says, done, one_line, podium_at, run_of, stop_in_step, write_card
from training.learners import context_of

TRAIN = (
    *("train", "-c", "tiny", "--weights", "none", "--image-size", "32", "--workers", "0", "--device", "cpu"),
    *("--model", "test_vit", "--folds", "0", "--batch-size", "4", "--epochs", "2"),
)
LINEAR = (
    *("train", "-c", "tiny", "--weights", "none", "--image-size", "32", "--workers", "0", "--device", "cpu"),
    *("--model", "test_vit", "--folds", "0", "--linear"),
)
CARD = """
[[extra]]
folder = "data/extra/art"
licence = "CC BY 4.0"
url = "https://example.org/art"
labels = { feline = "cat", sketch = "" }
weight = 0.5

[[extra]]
folder = "data/extra/more"
table = "labels.csv"
"""


def with_extra_images(root: Path) -> None:
    """Makes a project of twelve photographs, six of test images, and two sets from elsewhere with planted copies."""
    labels = ("cat", "dog")
    train = {f"{number:02}": (labels[number % 2], photograph(number)) for number in range(12)}
    write_image_competition(root, train, {f"t{number}": photograph(100 + number) for number in range(6)})
    art, more = (root / "data" / "extra" / name for name in ("art", "more"))
    for folder in ("feline", "dog", "sketch", "horse"):
        (art / folder).mkdir(parents=True)
    for number in range(4):
        photograph(200 + number).save(art / "feline" / f"{number}.png")
        photograph(300 + number).save(art / "dog" / f"{number}.png")
    photograph(400).save(art / "sketch" / "0.png")
    photograph(401).save(art / "horse" / "0.png")
    more.mkdir()
    photograph(500).save(more / "new.png")
    photograph(102).save(more / "resaved.jpg", quality=60)  # of a test image
    photograph(103).resize((60, 45)).save(more / "resized.png")
    ImageOps.mirror(photograph(104)).save(more / "mirrored.png")
    photograph(3).save(more / "of-train.jpg", quality=70)
    photograph(200).save(more / "of-extra.jpg", quality=80)  # allowed: both are from elsewhere
    copies = ("resaved.jpg", "resized.png", "mirrored.png", "of-train.jpg", "of-extra.jpg")
    write_table(more / "labels.csv", [("file", "label"), ("new.png", "dog"), *((name, "cat") for name in copies)])
    podium_at(root, "folds", "-c", "tiny", "--k", "2")
    write_card(root, CARD)


extra = copied(with_extra_images)


def test_every_copy_of_a_test_or_training_image_is_left_out(extra: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with context_of(extra, "run", model="test_vit") as context:
        more = [name for name in context.images.extra["id"] if "more" in name]
        assert more == ["data/extra/more/new.png", "data/extra/more/of-extra.jpg"]
        assert len(context.images.extra) == 8 + 2
    assert "4 extra images left out: copies of the competition's own images" in capsys.readouterr().err
    lines = (extra / "data" / "prepared" / "tiny" / "extra.csv").read_text().splitlines()
    refused = [line.split(",") for line in lines[1:] if line.split(",")[3] == "no"]
    assert {Path(line[0]).name for line in refused} == {"resaved.jpg", "resized.png", "mirrored.png", "of-train.jpg"}
    assert all(line[4].startswith("a copy of ") for line in refused)


def test_labels_are_mapped_and_unknown_ones_counted(extra: Path, podium: Podium) -> None:
    competition = load("tiny", extra)
    assert competition.extra is not None
    by_folder = dict(zip(competition.extra.rows["id"], competition.extra.rows["target"], strict=True))
    assert by_folder["data/extra/art/feline/0.png"] == "cat"
    assert not any("sketch" in name or "horse" in name for name in by_folder)
    assert any("1 image left out, whose labels are no classes: horse" in note for note in competition.notes)
    out, _ = done(podium("data", "-c", "tiny"))
    assert_says(out, "8 images of data/extra/art (0.5 times, CC BY 4.0)", "licence unknown")


def test_they_join_with_their_weights_and_change_neither_folds_nor_held_out_images(extra: Path) -> None:
    before = folds_path("tiny", extra).read_bytes()
    with context_of(extra, "run", model="test_vit", batch_size=4) as context:
        lessons, own = make_lessons(context, 0), len(context.images.training_rows(0))
        sampler = context.batch_sampler(0)
        shown = np.concatenate([sampler._order(epoch) for epoch in range(40)])
        targets = lessons.targets[np.arange(own, own + 10)]
        classes = [context.competition.classes[number] for number in targets.argmax(1)]
    assert classes == [
        {"feline": "cat", "dog": "dog"}[name.split("/")[3]] for name in context.images.extra["id"][:8]
    ] + ["dog", "cat"]
    times = np.bincount(shown, minlength=own + 10) / 40
    assert np.array_equal(times[:own], np.ones(own))
    assert np.allclose(times[own : own + 8], 0.5, atol=0.25)
    assert np.allclose(times[own + 8 :], 1, atol=0.25)
    podium_at(extra, "folds", "-c", "tiny", "--k", "2")
    assert folds_path("tiny", extra).read_bytes() == before


def test_runs_with_and_without_them_blend_and_the_lineage_names_their_licence(extra: Path, podium: Podium) -> None:
    for name, weight in (("with", "1"), ("without", "0")):
        _, err = done(podium(*TRAIN, "--name", name, "--extra-weight", weight))
        assert ("with 10 images from elsewhere" in err) == (name == "with")
    done(podium("compare", "-c", "tiny"))
    out, _ = done(podium("submit", "-c", "tiny", "--blend", "equal", "--anyway"))
    lineage = json.loads(Path(out.strip()).with_suffix(".json").read_text())
    assert lineage["extra"][0] == {
        **{"folder": "data/extra/art", "images": 8, "weight": 0.5},
        **{"licence": "CC BY 4.0", "url": "https://example.org/art"},
    }
    assert lineage["extra"][1]["images"] == 2  # of six: copies are not learned
    out, _ = done(podium("submit", "-c", "tiny", "--runs", "without", "--name", "alone", "--anyway"))
    assert "extra" not in json.loads(Path(out.strip()).with_suffix(".json").read_text())


def test_without_a_weight_the_bits_are_those_without_a_card(extra: Path, podium: Podium) -> None:
    done(podium(*TRAIN, "--name", "off", "--extra-weight", "0"))
    write_card(extra, "")
    done(podium(*TRAIN, "--name", "none"))
    assert_same_fold(run_of(extra, "off"), run_of(extra, "none"))


@pytest.mark.parametrize("head", first_of(["linear"], ["linear", "neighbours"]))
def test_a_fitted_head_learns_them(extra: Path, podium: Podium, head: str) -> None:
    words = (*LINEAR, "--head", head)
    for name, weight in (("with", "1"), ("without", "0")):
        _, err = done(podium(*words, "--name", name, "--extra-weight", weight))
        assert ("with 10 images from elsewhere" in err) == (name == "with")
        assert ("of 16, temperature" if name == "with" else "of 6, temperature") in err or head == "linear"
    given, without = run_of(extra, "with"), run_of(extra, "without")
    assert [source["images"] for source in given.recipe["extra"]] == [8, 2]
    assert given.out_of_fold(0).id.tolist() == without.out_of_fold(0).id.tolist()
    assert not np.array_equal(given.out_of_fold(0).probs, without.out_of_fold(0).probs)
    done(podium(*words, "--name", "again"))  # with the features that are kept
    assert_same_fold(given, run_of(extra, "again"))


def test_a_head_of_many_heavy_images_from_elsewhere_says_what_they_say(extra: Path, podium: Podium) -> None:
    """All of them are cats here; the training images are half and half."""
    write_card(extra, "[[extra]]\nfolder = 'data/extra/art'\nlabels = { feline = 'cat', dog = 'cat', sketch = 'cat' }")
    for weight in ("0", "1", "100"):
        done(podium(*LINEAR, "--name", f"w{weight}", "--extra-weight", weight))
    cats = [run_of(extra, f"w{weight}").out_of_fold(0).probs[:, 0].mean() for weight in ("0", "1", "100")]
    assert cats[0] < cats[1] < cats[2]
    assert cats[2] > 0.9


def test_other_weights_of_images_from_elsewhere_cannot_go_on(extra: Path, podium: Podium) -> None:
    write_card(extra, CARD.replace("0.5", "0.6"))
    stop_in_step(podium, 3, *TRAIN, "--name", "half")
    write_card(extra, CARD)
    assert "the images from elsewhere changed" in one_line(podium(*TRAIN, "--name", "half"))


@pytest.mark.parametrize(
    ("card", "problem"),
    [
        ("[[extra]]\nfolder = 'data/extra/nothing'", "there is no folder"),
        ("[[extra]]\ntable = 'x.csv'", "it has no folder"),
        ("[[extra]]\nfolder = 'data/extra/art'\nwheight = 1", "no setting 'wheight'; did you mean weight?"),
        ("[[extra]]\nfolder = 'data/extra/art'\nweight = 0", "weight must be above 0 and at most 100"),
        ("[[extra]]\nfolder = 'data/extra/art'\nlabels = { feline = 'cta' }", "'cta' is no class of this competition"),
        ("[[extra]]\nfolder = 'data/extra/art'\nlabels = { dog = 1 }", "labels must name classes as texts"),
        ("[[extra]]\nfolder = 'data/extra/more'", "has no images in folders of their classes"),
        ("[[extra]]\nfolder = 'data/extra/more'\ntable = 'no.csv'", "there is no table"),
        ("[[extra]]\nfolder = 'data/extra/more'\ntable = 'labels.csv'\nlabel_column = 'x'", "has no column 'x'"),
        ("extra = ['a']", "it has no folder"),
        ("extra = 'a'", "extra must be a list of tables"),
    ],
)
def test_entries_that_cannot_be_right_are_refused(extra: Path, podium: Podium, card: str, problem: str) -> None:
    write_card(extra, card)
    assert problem in one_line(podium(*TRAIN, "--name", "run"))


def test_a_dry_run_counts_them(extra: Path, podium: Podium) -> None:
    out, _ = done(podium(*TRAIN, "--name", "run", "--dry-run"))
    assert "about 6 images to train on, 10 that join them, and 6 to validate" in out  # copies are not known yet
    assert "that join" not in podium(*TRAIN, "--name", "run", "--extra-weight", "0", "--dry-run")[1]


def test_a_table_with_unknown_images_or_two_labels_is_refused(extra: Path, podium: Podium) -> None:
    path = extra / "data" / "extra" / "more" / "labels.csv"
    text = path.read_text()
    path.write_text(text + "missing.png,cat\n")
    assert f"{path}, line 8: no image 'missing.png'" in one_line(podium(*TRAIN, "--name", "run"))
    path.write_text(text + "new.png,cat\n")
    assert "new.png has two labels" in one_line(podium(*TRAIN, "--name", "run"))


def test_a_name_that_several_images_have_is_refused(extra: Path, podium: Podium) -> None:
    folder = extra / "data" / "extra" / "more"
    (folder / "a").mkdir()
    (folder / "new.png").rename(folder / "a" / "new.png")
    shutil.copytree(folder / "a", folder / "b")
    assert "called 'new.png'; name them by their paths" in one_line(podium(*TRAIN, "--name", "run"))
    text = (folder / "labels.csv").read_text().replace("new.png", "b/new.png")
    (folder / "labels.csv").write_text(text)
    done(podium(*TRAIN, "--name", "run"))


def test_prediction_does_without_the_folder(extra: Path, podium: Podium) -> None:
    done(podium(*TRAIN, "--name", "run"))
    shutil.rmtree(extra / "data" / "extra")
    done(podium("submit", "-c", "tiny", "--anyway"))
    assert "there is no folder" in podium("data", "-c", "tiny")[1]
    one_line(
        podium(*TRAIN, "--name", "other", "--dry-run"),
        "there is no folder",
        "--extra-weight 0 trains without these images",
    )
    done(podium(*TRAIN, "--name", "other", "--extra-weight", "0"))
