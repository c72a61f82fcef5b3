"""What Podium does not do is refused by name, with what to do instead."""

from pathlib import Path

import pytest

from layouts import IMAGES, SAMPLE, TABLES, load_error, load_files, raw_path, table
from tiny import assert_says, write_file


def write_files(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        path = raw_path(tmp_path, name)
        write_file(path, b"in another format")


@pytest.mark.parametrize(
    ("suffix", "kind"),
    [
        *((".dcm", "DICOM"), (".svs", "whole slides"), (".mrxs", "whole slides"), (".ndpi", "whole slides")),
        *((".nii", "NIfTI"), (".nii.gz", "NIfTI"), (".npz", "NumPy"), (".DCM", "DICOM")),
    ],
)
def test_images_in_another_format_are_refused_by_name(
    tmp_path: Path, suffix: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.competition.find.image_names.find_spec", lambda name: None)
    write_files(tmp_path, [image.replace(".jpg", suffix) for image in IMAGES])
    message = load_error(tmp_path, [], TABLES)
    assert f"5 {suffix.lower()} ({kind})" in message
    assert (
        "convert them to PNG or JPEG files with the same names in the folders train_images/ and test_images/" in message
    )
    assert ("podium[medical]" in message) == (kind in ("DICOM", "NIfTI"))


@pytest.mark.parametrize("suffix", [".mp4", ".AVI", ".mov", ".mkv", ".webm"])
def test_films_are_refused_with_the_command_that_extracts_their_frames(tmp_path: Path, suffix: str) -> None:
    write_files(tmp_path, [image.replace(".jpg", suffix) for image in IMAGES])
    message = load_error(tmp_path, [], TABLES)
    assert_says(message, f"5 {suffix.lower()}", "ffmpeg -i")
    assert "convert" not in message


def test_a_film_beside_images_is_no_question(tmp_path: Path) -> None:
    write_files(tmp_path, ["how_it_was_made.mp4"])
    assert not load_files(tmp_path, IMAGES, TABLES).notes


def test_a_few_images_beside_those_in_another_format_do_not_hide_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.competition.find.image_names.find_spec", lambda name: None)
    write_files(tmp_path, [image.replace(".jpg", ".dcm") for image in IMAGES])
    message = load_error(tmp_path, ["train/1.jpg", "preview.png"], TABLES)
    assert_says(message, "train.csv: 2 of 3 rows have no image", "Podium does not read its files 5 .dcm (DICOM)")


def test_images_in_another_format_that_no_image_stands_for_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.competition.find.image_names.find_spec", lambda name: None)
    write_files(tmp_path, ["train/cat/7.heic", "train/cat/8.HEIC", "train/cat/1.dcm"])
    images = ["train/cat/1.jpg", "train/dog/2.jpg", "test/3.jpg"]
    (note,) = [note for note in load_files(tmp_path, images, {}).notes if "HEIC" in note]
    assert "2 .heic (HEIC): train/cat/7.heic, train/cat/8.HEIC" in note
    assert "DICOM" not in note
    assert "pillow-heif" in note


def test_the_card_can_name_the_label_in_a_table_with_boxes(tmp_path: Path) -> None:
    train = table("id,xmin,ymin,kind", "1,2,3,cat", "2,2,3,dog", "3,2,3,cat")
    competition = load_files(tmp_path, IMAGES, TABLES | {"train.csv": train}, 'target_column = "kind"')
    assert competition.classes == ("cat", "dog")
    train = table("id,width,height,target", "1,600,800,cat", "2,600,800,dog", "3,600,800,cat")
    assert load_files(tmp_path, [], {"train.csv": train}, 'id_column = "id"').classes == ("cat", "dog")


@pytest.mark.parametrize(
    ("header", "cell", "kind"),
    [
        (
            "labels",
            "U+306F 1231 3465 133 53 U+304C 275 1652 84 69",
            "boxes of objects (labels) make this a competition",
        ),
        ("EncodedPixels", "1 3 10 5", "outlines of objects (EncodedPixels) make this a competition of segmentation"),
    ],
)
def test_boxes_in_a_cell_and_outlines_are_refused(tmp_path: Path, header: str, cell: str, kind: str) -> None:
    """Kuzushiji recognition, and competitions such as the ships of Airbus."""
    files = {"train.csv": table(f"image_id,{header}", f"1,{cell}", f"2,{cell}"), "sample_submission.csv": SAMPLE}
    assert kind in load_error(tmp_path, IMAGES, files)
