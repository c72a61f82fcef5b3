"""Finding files: folders of images in every layout that Kaggle uses, links, and names that are not images."""

import os
from pathlib import Path
from typing import Any

import pytest

from layouts import (
    IMAGE,
    IMAGES,
    LABELS,
    SLUG,
    TABLES,
    TRAIN,
    images_by_id,
    load_error,
    load_files,
    raw_path,
    table,
    train_labels,
)
from podium.basics.errors import PodiumError
from podium.competition.find.find_files import find_files
from podium.competition.load import load
from tiny import assert_says


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("train", "test"),
        ("train_image", "test_image"),
        ("train_images", "test_images"),
        ("images/train", "images/test"),
        ("images/train_images", "images/test_images"),
        ("jpeg/train", "jpeg/test"),
        ("images", "images"),
        (".", "."),
        ("train/train", "test/test"),
        ("train/images/train", "test/images/test"),
        ("TrainImages", "TestImages"),
        ("imagesTrain", "imagesTest"),
        ("ISIC_2019_Training_Input", "ISIC_2019_Testing_Input"),
        ("TRAIN", "TEST"),
        ("train/00/cat", "test/00"),
    ],
)
@pytest.mark.parametrize("top", ["", "dogs-and-cats", "test-of-skill/training-data"])
def test_images_are_found_in_the_folders_that_competitions_use(tmp_path: Path, top: str, train: str, test: str) -> None:
    images = [f"{train}/{name}.jpg" for name in LABELS] + [f"{test}/4.jpg", f"{test}/5.jpg"]
    competition = load_files(tmp_path, images, TABLES, folder=top)
    train_folder, test_folder = (os.path.normpath(os.path.join(top, folder)) for folder in (train, test))
    assert train_labels(competition) == {
        os.path.normpath(f"{train_folder}/{name}.jpg"): label for name, label in LABELS.items()
    }
    assert list(images_by_id(competition).items()) == [
        (name, os.path.normpath(f"{test_folder}/{name}.jpg")) for name in ("5", "4")
    ]
    assert competition.classes == ("cat", "dog")
    assert competition.notes == ()
    for image in (*competition.train["image"], *competition.test["image"]):
        assert (competition.folder / image).read_bytes() == IMAGE


@pytest.mark.parametrize(("train", "test"), [("train", "test"), ("images/train", "images/test"), ("a/train", "b/test")])
def test_the_same_number_in_train_and_in_test_is_two_images(tmp_path: Path, train: str, test: str) -> None:
    images = [f"{folder}/{name}.png" for folder in (train, test) for name in (1, 2, 3)]
    sample = table("id,target", "3,cat", "1,cat", "2,cat")
    competition = load_files(tmp_path, images, {"train.csv": TRAIN, "sample_submission.csv": sample})
    assert list(competition.train["image"]) == [f"{train}/{name}.png" for name in (1, 2, 3)]
    assert images_by_id(competition) == {"3": f"{test}/3.png", "1": f"{test}/1.png", "2": f"{test}/2.png"}


@pytest.mark.parametrize("suffix", ["jpg", "JPG", "jpeg", "jfif", "png", "bmp", "gif", "webp", "tif", "tiff"])
def test_every_usual_kind_of_image_is_found(tmp_path: Path, suffix: str) -> None:
    competition = load_files(tmp_path, [image.replace("jpg", suffix) for image in IMAGES], TABLES)
    assert competition.train["image"][0] == f"train/1.{suffix}"


def test_hidden_files_and_those_of_macos_and_windows_are_left_out(tmp_path: Path) -> None:
    extra = ["__MACOSX/train/1.jpg", "train/._1.jpg", ".ipynb_checkpoints/1.jpg", "train/Thumbs.db"]
    assert load_files(tmp_path, [*IMAGES, *extra], TABLES).notes == ()


def test_links_that_lead_back_are_followed_once(tmp_path: Path) -> None:
    load_files(tmp_path, IMAGES, TABLES)
    raw_path(tmp_path, "train", "again").symlink_to("..")
    raw_path(tmp_path, "zz").symlink_to("train")
    assert load(SLUG, tmp_path).notes == ()


def test_images_of_a_linked_folder_count(tmp_path: Path) -> None:
    other_disk = tmp_path / "disk" / "images"
    other_disk.mkdir(parents=True)
    for name in LABELS:
        (other_disk / f"{name}.jpg").write_bytes(IMAGE)
    raw_path(tmp_path).mkdir(parents=True)
    raw_path(tmp_path, "train").symlink_to(other_disk)
    competition = load_files(tmp_path, IMAGES[3:], TABLES)
    assert competition.train["image"][0] == "train/1.jpg"
    assert f"{raw_path(tmp_path, 'train')} -> {other_disk}" in competition.notes[0]


def test_the_competitions_folder_may_be_a_link_itself(tmp_path: Path) -> None:
    load_files(tmp_path, IMAGES, TABLES)
    raw_path(tmp_path).rename(tmp_path / "disk")
    raw_path(tmp_path).symlink_to(tmp_path / "disk")
    assert load(SLUG, tmp_path).notes == ()


@pytest.mark.parametrize("place", ["more", "train/more"])
@pytest.mark.parametrize("target", ["/", "..", "~", "elsewhere/on"])
def test_links_to_much_more_are_named_and_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, target: str
) -> None:
    """Such as one to the whole disk, or one that leads on from a folder elsewhere."""
    load_files(tmp_path, IMAGES, TABLES)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for folder in ("home", "elsewhere", "third"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "6.jpg").write_bytes(IMAGE)
    (tmp_path / "elsewhere" / "on").symlink_to(tmp_path / "third")
    link, followed = raw_path(tmp_path, *place.split("/")), 0
    if target == "elsewhere/on":
        link.symlink_to(tmp_path / "elsewhere")
        link, unfollowed, followed = link / "on", str(tmp_path / "third"), 1
    else:
        unfollowed = {"..": str(raw_path(tmp_path).parent), "~": str(tmp_path / "home")}.get(target, target)
        link.symlink_to(unfollowed)
    asked: list[str] = []
    scan = os.scandir

    def scan_and_note(path: str) -> Any:
        asked.append(os.path.realpath(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", scan_and_note)
    files = find_files(raw_path(tmp_path))
    assert len(files.images) == len(IMAGES) + followed
    assert unfollowed not in asked
    assert f"{link} -> {unfollowed}" in files.notes[-1]
    assert "not followed" in files.notes[-1]
    assert "link the folder of the images" in files.notes[-1]


def test_a_note_of_a_link_can_be_written_whatever_its_name(tmp_path: Path) -> None:
    load_files(tmp_path, IMAGES, TABLES)
    Path(os.fsdecode(os.fsencode(raw_path(tmp_path)) + b"/all\xff")).symlink_to("/")
    (note,) = find_files(raw_path(tmp_path)).notes
    assert "all\\udcff -> /" in note
    assert note.encode().isascii()


def test_a_linked_file_counts_wherever_it_is(tmp_path: Path) -> None:
    load_files(tmp_path, IMAGES, TABLES)
    raw_path(tmp_path, "train", "1.jpg").rename(tmp_path / "1.jpg")
    raw_path(tmp_path, "train", "1.jpg").symlink_to(tmp_path / "1.jpg")
    assert load(SLUG, tmp_path).train["image"][0] == "train/1.jpg"


def test_a_folder_named_like_an_image_counts_only_if_it_is_empty(tmp_path: Path) -> None:
    """An empty one counts as an image; reading it gives an error."""
    folder = raw_path(tmp_path, "train", "1.jpg")
    folder.mkdir(parents=True)
    assert load_files(tmp_path, IMAGES[1:], TABLES).train["image"][0] == "train/1.jpg"
    (folder / "readme.txt").touch()
    assert "1 of 3 rows have no image" in load_error(tmp_path, IMAGES[1:], TABLES)


def test_a_dangling_link_counts_as_an_image(tmp_path: Path) -> None:
    """Reading the image reports it."""
    raw_path(tmp_path, "train").mkdir(parents=True)
    raw_path(tmp_path, "train", "1.jpg").symlink_to("nowhere")
    competition = load_files(tmp_path, IMAGES[1:], TABLES)
    assert competition.train["image"][0] == "train/1.jpg"
    assert competition.train_hash


def test_a_file_name_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    load_files(tmp_path, IMAGES, TABLES)
    Path(os.fsdecode(os.fsencode(raw_path(tmp_path, "train")) + b"/caf\xe9.jpg")).write_bytes(IMAGE)
    message = load_error(tmp_path, [], {})
    assert_says(message, "b'train/caf\\xe9.jpg' is not UTF-8", "rename it")
    assert message.isascii()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_refused(tmp_path: Path) -> None:
    load_files(tmp_path, [*IMAGES, "more/1.jpg"], TABLES)
    locked = raw_path(tmp_path, "more")
    locked.chmod(0)
    try:
        with pytest.raises(PodiumError, match="more: Permission denied; fix its permissions"):
            load(SLUG, tmp_path)
    finally:
        locked.chmod(0o755)


@pytest.mark.parametrize("folder", ["train_and_test", "train-test-images", "test-of-skill", "all_images"])
def test_one_folder_may_hold_all_images(tmp_path: Path, folder: str) -> None:
    competition = load_files(tmp_path, [f"{folder}/{name}.jpg" for name in "12345"], TABLES)
    assert list(competition.test["image"]) == [f"{folder}/5.jpg", f"{folder}/4.jpg"]
    assert not competition.notes


@pytest.mark.parametrize(("missing", "ids"), [("train", "12345"), ("test", "45")])
def test_the_folder_of_one_role_does_not_serve_the_other(tmp_path: Path, missing: str, ids: str) -> None:
    """Even if it has an image for every id: the other folder is more likely missing."""
    folder = "test_image" if missing == "train" else "train_image"
    train = table("id,target", *(f"{name},{'cat' if name == '4' else 'dog'}" for name in ids))
    images = [f"{folder}/{name}.jpg" for name in "12345"]
    message = load_error(tmp_path, images, TABLES | {"train.csv": train})
    assert f"{folder} is the only folder of images" in message
    assert "2 of them would be in both the training and the test rows" in message
    assert "download again" in message
    card = f'train_images = "{folder}"\ntest_images = "{folder}"'
    assert card.replace("\n", " and ") in message
    assert "2 images in both the training and the test rows" in load_files(tmp_path, [], {}, card).notes[0]


def test_a_pipe_is_not_read_as_json(tmp_path: Path) -> None:
    load_files(tmp_path, IMAGES, TABLES)
    os.mkfifo(raw_path(tmp_path, "notes.json"))
    assert load(SLUG, tmp_path).classes == ("cat", "dog")


def test_json_of_another_form_is_refused(tmp_path: Path) -> None:
    tables = {**TABLES, "train.json": '{"annotations": [{"image_id": 1}], "images": 7}'}
    del tables["train.csv"]
    assert "train.json: not a list of images with their labels" in load_error(tmp_path, IMAGES, tables)


def test_the_hash_sees_every_file_of_an_image_of_several_channels(tmp_path: Path) -> None:
    images = [f"{image.removesuffix('.jpg')}_{colour}.png" for image in IMAGES for colour in ("red", "green", "blue")]
    competition = load_files(tmp_path, images, TABLES)
    before = competition.train_hash
    assert competition.train["image"].iloc[0] == "train/1_red.png#channels=red+green+blue"
    raw_path(tmp_path, "train", "1_green.png").write_bytes(IMAGE * 2)
    assert load(SLUG, tmp_path).train_hash != before
