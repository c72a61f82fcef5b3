"""Ids that name folders of slices: which of them make an image, and what is none."""

from pathlib import Path

import pytest

from layouts import IMAGE, LABELS, SLUG, images_by_id, load_error, load_files, raw_path, table, train_labels
from podium.competition.containers.image_place import files_of, folder_of_slices
from podium.competition.find.composed_images import evenly_spaced
from podium.competition.load import load

SCANS = {f"{'train' if name in LABELS else 'test'}/{name}": name for name in "12345"}
TABLES = {
    "train.csv": table("id,target", *(f"{name},{label}" for name, label in LABELS.items())),
    "sample_submission.csv": table("id,target", "5,cat", "4,cat"),
}


def scans(*names: str) -> list[str]:
    return [f"{folder}/{name}" for folder in SCANS for name in names]


def slices_of(image: str) -> list[str]:
    return [file.removeprefix(f"{folder_of_slices(image)}/") for file in files_of(image)]


def test_slices_are_in_natural_order_one_series_after_the_other(tmp_path: Path) -> None:
    images = scans("T1w/Image-10.png", "T1w/Image-9.png", "FLAIR/Image-2.png", "FLAIR/Image-10.png", "T1w/Image-1.png")
    competition = load_files(tmp_path, images, TABLES)
    for place in (*competition.train["image"], *competition.test["image"]):
        flair, t1w = ["FLAIR/Image-2.png", "FLAIR/Image-10.png"], ["Image-1.png", "Image-9.png", "Image-10.png"]
        assert slices_of(place) == [*flair, *(f"T1w/{name}" for name in t1w)]
    assert list(train_labels(competition).values()) == list(LABELS.values())
    assert list(images_by_id(competition)) == ["5", "4"]


@pytest.mark.annex
@pytest.mark.parametrize("kind", [".npy", ".png", ".jpg", ".dcm"])
def test_as_many_slices_are_taken_as_the_card_says(tmp_path: Path, kind: str) -> None:
    if kind == ".dcm":
        pytest.importorskip("pydicom")
    images = scans(*(f"{number}{kind}" for number in range(1, 21)))
    by_default = load_files(tmp_path, images, TABLES)
    assert len(files_of(by_default.train["image"].iloc[0])) == 9
    assert ("slices", 9) in [setting[:2] for setting in by_default.settings]
    assert any("is a guess" in note and "slices = N" in note for note in by_default.notes)
    of_card = load_files(tmp_path, [], {}, card="slices = 4\n")
    assert slices_of(of_card.train["image"].iloc[0]) == [f"{number}{kind}" for number in (3, 8, 13, 18)]
    assert not any("is a guess" in note and "slices" in note for note in of_card.notes)
    assert of_card.train_hash != by_default.train_hash


def test_those_that_are_taken_are_the_middles_of_equal_parts() -> None:
    for length in range(1, 60):
        names = [f"{number}" for number in range(length)]
        for count in range(1, 20):
            chosen = evenly_spaced(names, count)
            assert len(set(chosen)) == len(chosen) == min(count, length)
            assert chosen == sorted(chosen, key=int)
    assert evenly_spaced(["a", "b", "c"], 1) == ["b"]


def test_the_hash_sees_every_slice(tmp_path: Path) -> None:
    before = load_files(tmp_path, scans("1.png", "2.png"), TABLES).train_hash
    raw_path(tmp_path, "train", "3", "2.png").write_bytes(IMAGE * 2)
    assert load(SLUG, tmp_path).train_hash != before


def test_a_folder_with_one_file_is_that_image(tmp_path: Path) -> None:
    competition = load_files(tmp_path, [*scans("scan.png"), "train/1/scan.txt"], TABLES)
    assert list(competition.train["image"]) == [f"train/{name}/scan.png" for name in LABELS]


def test_files_of_a_few_ids_do_not_hide_the_folders(tmp_path: Path) -> None:
    """As the segmentations of some scans of the cervical spine."""
    competition = load_files(tmp_path, [*scans("1.png", "2.png"), "segmentations/2.png"], TABLES)
    assert list(competition.train["image"]) == [f"train/{name}#slices=1.png|2.png" for name in LABELS]


def test_files_that_ids_name_are_images_though_folders_are_called_so(tmp_path: Path) -> None:
    images = [*scans("a.png", "b.png"), *(f"{folder}.png" for folder in SCANS)]
    assert set(train_labels(load_files(tmp_path, images, TABLES))) == {f"train/{name}.png" for name in LABELS}


def test_folders_win_where_files_in_each_of_them_are_called_like_the_ids(tmp_path: Path) -> None:
    competition = load_files(tmp_path, scans("1.png", "2.png", "3.png", "4.png", "5.png"), TABLES)
    assert [folder_of_slices(image) for image in competition.train["image"]] == ["train/1", "train/2", "train/3"]


def test_folders_of_classes_are_no_images(tmp_path: Path) -> None:
    tables = {"train.csv": table("file,label,age", *(f"x{number},{'ab'[number % 2]},7" for number in range(8)))}
    problem = load_error(tmp_path, [f"train/{label}/{number}.jpg" for label in "ab" for number in (1, 2)], tables)
    assert "no column names images" in problem


def test_an_id_of_two_folders_is_refused(tmp_path: Path) -> None:
    folders = ["train/a/1", "train/a/2", "train/b/2", "train/b/3", "test/4", "test/5"]
    problem = load_error(tmp_path, [f"{folder}/{name}.png" for folder in folders for name in "xy"], TABLES)
    assert "train.csv, line 3: id '2' could be train/a/2 or train/b/2; delete one of them" in problem


@pytest.mark.parametrize("value", ["0", "101", "true", '"9"', "9.5"])
def test_a_number_of_slices_that_makes_no_sense_is_refused(tmp_path: Path, value: str) -> None:
    problem = load_error(tmp_path, scans("1.png", "2.png"), TABLES, card=f"slices = {value}\n")
    assert "slices must be a whole number from 1 to 100" in problem


def test_a_number_of_slices_without_folders_changes_nothing_and_is_named(tmp_path: Path) -> None:
    competition = load_files(tmp_path, [f"{folder}.png" for folder in SCANS], TABLES, card="slices = 4\n")
    assert any("slices = 4" in note and "changes nothing" in note for note in competition.notes)


def test_long_rows_may_hold_all_images_of_one_label_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first rows of test.csv then name each folder once; a mark, 1, is called like a slice."""
    monkeypatch.setattr("podium.competition.decide.long_tables.FIRST_ROWS", 2)
    rows = [(f"{scan}_{name}", scan, name) for name in ("any", "C1") for scan in "45"]
    tables = {
        "train.csv": table("scan,any,C1", "1,1,1", "2,0,0", "3,1,0"),
        "test.csv": table("scan,kind,row_id", *(f"{scan},{name},{row}" for row, scan, name in rows)),
        "sample_submission.csv": table("row_id,broken", *(f"{row},0.5" for row, _, _ in rows)),
    }
    competition = load_files(tmp_path, scans("1.png", "2.png"), tables)
    assert competition.task.name == "several_labels"
    assert competition.classes == ("any", "C1")
    assert list(competition.test["image"]) == [f"test/{scan}#slices=1.png|2.png" for scan in "45"]
    assert competition.submission_format.header == ("row_id", "broken")


def test_a_mark_is_no_slice_of_that_name(tmp_path: Path) -> None:
    """The label 1 is called like the file 1.png of every scan."""
    tables = {
        "train.csv": table("scan,broken", "x7,1", "x8,0", "x9,1"),
        "sample_submission.csv": table("scan,broken", "x5,0.5", "x6,0.5"),
    }
    folders = ["train/x7", "train/x8", "train/x9", "test/x5", "test/x6"]
    competition = load_files(tmp_path, [f"{folder}/{number}.png" for folder in folders for number in (1, 2)], tables)
    assert list(competition.train["image"]) == [f"{folder}#slices=1.png|2.png" for folder in folders[:3]]


@pytest.mark.parametrize("folder", ["", "later/unknown"])
def test_without_a_sample_submission_the_test_images_are_folders_too(tmp_path: Path, folder: str) -> None:
    images = [image.replace("test/", f"{folder or 'test'}/") for image in scans("a.png", "b.png")]
    card = 'id_column = "id"\n' + (f'test_images = "{folder}"\ntrain_images = "train"\n' if folder else "")
    competition = load_files(tmp_path, images, {"train.csv": TABLES["train.csv"]}, card=card)
    assert images_by_id(competition) == {name: f"{folder or 'test'}/{name}#slices=a.png|b.png" for name in "45"}
