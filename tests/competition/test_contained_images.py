"""Competitions whose images are not files of their own are understood without a card."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from contained import (
    digits,
    jpegs,
    pixel_header,
    write,
    write_bengali,
    write_digit_recognizer,
    write_iceberg,
    write_isic,
    write_petals,
    write_tfrecord,
)
from layouts import SLUG, card_path, images_by_id, load_error, load_files, raw_path, table, train_labels
from podium.basics.errors import PodiumError
from podium.competition.describe import describe
from podium.competition.load import Competition, load
from podium.images.decode import BadImage, read_file, read_image
from tiny import assert_says


def image_of(competition: Competition, image: str) -> Any:
    return read_file(competition.folder / image)


def test_digit_recognizer(tmp_path: Path) -> None:
    write_digit_recognizer(tmp_path)
    competition = load(SLUG, tmp_path)
    assert competition.classes == ("0", "1", "2")
    assert train_labels(competition) == {f"train.csv#{row}": str((row - 1) % 3) for row in range(1, 13)}
    assert images_by_id(competition) == {str(row): f"test.csv#{row}" for row in range(1, 6)}
    assert competition.submission_format.columns == ("ImageId", "Label")
    assert not competition.notes
    assert "train    12 rows of train.csv, 28 x 28 pixels, grey\n" in describe(competition)
    expected = digits(12)[6].reshape(28, 28)
    assert np.array_equal(read_image(competition.folder / "train.csv#7"), np.dstack([expected] * 3))


def test_kannada_mnist(tmp_path: Path) -> None:
    rows = ([number % 2, *pixels] for number, pixels in enumerate(digits(6)))
    write(tmp_path, "train.csv", pixel_header("label"), rows)
    write(tmp_path, "Dig-MNIST.csv", pixel_header("label"), ([1, *pixels] for pixels in digits(4)))
    write(tmp_path, "test.csv", pixel_header("id"), ([number, *pixels] for number, pixels in enumerate(digits(3))))
    write(tmp_path, "sample_submission.csv", "id,label", ((number, 0) for number in range(3)))
    competition = load(SLUG, tmp_path)
    assert images_by_id(competition) == {"0": "test.csv#1", "1": "test.csv#2", "2": "test.csv#3"}
    assert len(competition.train) == 6
    assert competition.notes[1:] == ("1 more file of images left out: Dig-MNIST.csv",)
    assert "not probabilities, is a guess" in competition.notes[0]  # of ten digits, this copy has two


@pytest.mark.parametrize("quote", ['"', ""])
def test_fer2013(tmp_path: Path, quote: str) -> None:
    faces = digits(4, side=48)
    cells = [quote + " ".join(map(str, face)) + quote for face in faces]
    write(tmp_path, "train.csv", "emotion,pixels", ((number % 2, cell) for number, cell in enumerate(cells)))
    write(tmp_path, "test.csv", "pixels", ([cell] for cell in cells[:2]))
    competition = load(SLUG, tmp_path)
    assert train_labels(competition) == {f"train.csv#{row}": str((row - 1) % 2) for row in range(1, 5)}
    assert images_by_id(competition) == {"1": "test.csv#1", "2": "test.csv#2"}
    assert "4 rows of train.csv, 48 x 48 pixels" in describe(competition)
    assert np.array_equal(image_of(competition, "test.csv#2"), faces[1].reshape(48, 48))


def test_the_table_of_all_faces_is_refused_with_what_to_do(tmp_path: Path) -> None:
    cell = " ".join(map(str, digits(1, side=48)[0]))
    rows = ((number % 2, usage, cell) for number, usage in enumerate(["Training", "Training", "PublicTest"]))
    write(tmp_path, "icml_face_data.csv", "emotion, Usage, pixels", rows)
    message = load_error(tmp_path, [], {}, 'train_table = "icml_face_data.csv"')
    assert_says(message, "icml_face_data.csv: its column 'Usage'", "write the rows of Training in train.csv")


def test_the_images_of_facial_keypoints(tmp_path: Path) -> None:
    """Their targets are numbers; here only the cells of 96 x 96 pixels count."""
    faces = [" ".join(map(str, face)) for face in digits(3, side=96)]
    names = [f"eye_{number}_x" for number in range(30)]
    numbers = [66.03 + column for column in range(30)]
    rows = ([*numbers, "cat" if row else "dog", face] for row, face in enumerate(faces))
    write(tmp_path, "training.csv", ",".join([*names, "kind", "Image"]), rows)
    write(tmp_path, "test.csv", "ImageId,Image", ((row + 1, face) for row, face in enumerate(faces)))
    competition = load(SLUG, tmp_path, target_column="kind")
    assert images_by_id(competition) == {str(row): f"test.csv#{row}" for row in (1, 2, 3)}
    assert "3 rows of training.csv, 96 x 96 pixels" in describe(competition)
    assert np.array_equal(image_of(competition, "training.csv#3"), digits(3, side=96)[2].reshape(96, 96))


BENGALI = 'target_column = "grapheme_root"\nsample_submission = ""\ntest_table = ""\n'


def test_bengali(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    images = write_bengali(tmp_path)
    competition = load_files(tmp_path, [], {}, BENGALI)
    assert train_labels(competition) == {
        f"train_image_data_{row // 3}.parquet#{row % 3 + 1}": str(row % 2) for row in range(6)
    }
    assert "6 rows of 2 files (train_image_data_0.parquet, train_image_data_1.parquet), 137 x 236 pixels, grey" in (
        describe(competition)
    )
    assert np.array_equal(image_of(competition, "train_image_data_1.parquet#2"), images[4].reshape(137, 236))


@pytest.mark.annex
def test_isic_2024(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    images = write_isic(tmp_path)
    competition = load(SLUG, tmp_path, target_column="target", group_column="patient_id")
    assert competition.train["id"].iloc[1] == "ISIC_0000001"
    assert competition.train["image"].iloc[1] == "train-image.hdf5#ISIC_0000001"
    assert images_by_id(competition)["ISIC_0000007"] == "test-image.hdf5#ISIC_0000007"
    assert competition.groups is not None
    assert image_of(competition, "test-image.hdf5#ISIC_0000007") == images[7]
    assert "6 images in train-image.hdf5" in describe(competition)


@pytest.mark.annex
def test_image_files_come_before_the_same_images_in_a_container(tmp_path: Path) -> None:
    """ISIC 2024 has the training images twice, and the test images only in test-image.hdf5."""
    pytest.importorskip("h5py")
    write_isic(tmp_path)
    files = [f"train-image/image/ISIC_{number:07d}.jpg" for number in range(6)]
    competition = load_files(tmp_path, files, {}, 'target_column = "target"')
    assert list(competition.train["image"]) == files
    assert list(competition.test["image"]) == [f"test-image.hdf5#ISIC_{number:07d}" for number in (6, 7)]
    assert competition.notes == ("1 more file of images left out: train-image.hdf5",)


@pytest.mark.annex
def test_an_id_that_the_file_lacks_is_refused_with_its_line(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    write_isic(tmp_path)
    with raw_path(tmp_path, "train-metadata.csv").open("a") as file:
        file.write("ISIC_0000099,0,IP_1\n")
    message = load_error(tmp_path, [], {}, 'target_column = "target"')
    assert_says(message, "train-metadata.csv: 1 of 7 rows have no image", "(ids ISIC_0000099), the first on line 8")


@pytest.mark.annex
@pytest.mark.parametrize(("package", "name"), [("h5py", "train-image.hdf5"), ("pyarrow", "train.parquet")])
def test_a_missing_package_is_named_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, name: str
) -> None:
    pd.Series(["a"]).factorize()  # pandas imports a part of pyarrow when it needs it
    monkeypatch.setitem(__import__("sys").modules, package, None)
    tables = {name: "never read", "train.csv": table("id,label", "1,a", "2,b")}
    message = load_error(tmp_path, [], tables)
    assert_says(message, f"{name}: reading it needs {package}", "pip install 'podium[formats]'")
    message = load_error(tmp_path, ["train/1.jpg"], tables)
    assert_says(message, "train.csv: 1 of 2 rows have no image", "pip install 'podium[formats]'")


@pytest.mark.parametrize("is_struct", [False, True])
@pytest.mark.parametrize("kind", ["binary", "large_binary", "binary_view", "dictionary", "large_dictionary"])
def test_image_files_in_a_parquet_file(tmp_path: Path, is_struct: bool, kind: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    images = jpegs(12)
    if kind.endswith("dictionary"):
        values = pyarrow.array(images, pyarrow.large_binary() if kind.startswith("large") else pyarrow.binary())
        cells = values.dictionary_encode()
    else:
        cells = pyarrow.array(images, getattr(pyarrow, kind)())
    if is_struct:
        cells = pyarrow.StructArray.from_arrays([cells, [f"{number}.jpg" for number in range(12)]], ["bytes", "path"])
    columns = {"image": cells, "label": [number % 2 for number in range(12)]}
    raw_path(tmp_path, "data").mkdir(parents=True)
    path = raw_path(tmp_path, "data", "train-00000-of-00001.parquet")
    group_size = None if is_struct and kind == "binary_view" else 5  # pyarrow cannot write groups of these yet
    parquet.write_table(pyarrow.table(columns), path, row_group_size=group_size)
    competition = load(SLUG, tmp_path)
    name = "data/train-00000-of-00001.parquet"
    assert train_labels(competition) == {f"{name}#{row:02d}": str((row - 1) % 2) for row in range(1, 13)}
    assert [image_of(competition, image) for image in competition.train["image"]] == images


@pytest.mark.annex
def test_petals_to_the_metal(tmp_path: Path) -> None:
    images = write_petals(tmp_path)
    competition = load(SLUG, tmp_path)
    assert dict(zip(competition.train["id"], competition.train["target"], strict=True)) == {
        f"id{number}": str(number % 2) for number in range(7)
    }
    folder = "tfrecords-jpeg-192x192"
    assert images_by_id(competition) == {
        "id8": f"{folder}/test/00-192x192-2.tfrec#2",
        "id7": f"{folder}/test/00-192x192-2.tfrec#1",
    }
    assert [image_of(competition, image) for image in competition.train["image"]] == images[:7]
    assert tuple(note for note in competition.notes if "probabilities" not in note) == (
        f"1 file for validation, {folder}/val/00-192x192-2.tfrec first, join the training images",
    )
    assert "7 images in 3 files" in describe(competition)


@pytest.mark.annex
def test_of_several_sizes_the_largest_is_taken_unless_the_card_names_one(tmp_path: Path) -> None:
    for size in ("192x192", "512x512", "331x331"):
        write_petals(tmp_path, f"tfrecords-jpeg-{size}")
    competition = load(SLUG, tmp_path)
    assert competition.train["image"].str.startswith("tfrecords-jpeg-512x512/").all()
    assert "8 more files of images left out" in competition.notes[-1]
    folder = "tfrecords-jpeg-331x331"
    competition = load(SLUG, tmp_path, train_images=f"{folder}/train", test_images=f"{folder}/test")
    assert len(competition.train) == 5
    assert competition.train["image"].str.startswith(folder).all()
    assert competition.test["image"].str.startswith(folder).all()


@pytest.mark.annex
def test_a_record_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    write_petals(tmp_path)
    path = raw_path(tmp_path, "tfrecords-jpeg-192x192", "train", "00-192x192-3.tfrec")
    data = path.read_bytes()
    path.write_bytes(data[:-100])
    with pytest.raises(PodiumError, match=r"00-192x192-3\.tfrec, record 3: the file ends in it; download it again"):
        load(SLUG, tmp_path)
    path.write_bytes(b"\1" + data[1:])
    with pytest.raises(PodiumError, match=r"00-192x192-3\.tfrec, record 1: its length is damaged"):
        load(SLUG, tmp_path)
    write_tfrecord(path, [{"class": 1, "id": b"id0"}])
    with pytest.raises(PodiumError, match=r"record 1: not an Example with an image"):
        load(SLUG, tmp_path)


def test_pixels_that_are_no_square_need_the_card(tmp_path: Path) -> None:
    rows = [[number % 2, *range(96)] for number in range(4)]
    write(tmp_path, "train.csv", pixel_header("label", count=96), rows)
    message = load_error(tmp_path, [], {})
    assert "train.csv, line 2: 96 pixels are not those of a square; " in message
    assert f'write pixels = "HEIGHTxWIDTH" in {card_path(tmp_path)}' in message
    competition = load_files(tmp_path, [], {}, 'pixels = "8x12"')
    assert list(competition.train["image"]) == [f"train.csv#{row}:8x12" for row in range(1, 5)]
    assert read_image(competition.folder / "train.csv#3:8x12").shape == (8, 12, 3)
    assert "the card's 8x11 are 88" in load_error(tmp_path, [], {}, 'pixels = "8x11"')
    assert "pixels must be height x width, as in 137x236, not '96'" in load_error(tmp_path, [], {}, 'pixels = "96"')


def test_a_row_with_a_pixel_too_few_is_refused_with_its_line(tmp_path: Path) -> None:
    write_digit_recognizer(tmp_path)
    path = raw_path(tmp_path, "train.csv")
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:3], lines[3].rpartition(",")[0], *lines[4:]]))
    assert "train.csv, line 4: 784 fields, but the header has 785; correct that line" in load_error(tmp_path, [], {})


@pytest.mark.parametrize("pixel", ["300", "-1", "1.5", "", "x"])
@pytest.mark.parametrize("is_cell", [False, True])
def test_a_wrong_pixel_is_refused_with_its_row_when_the_image_is_read(
    tmp_path: Path, pixel: str, is_cell: bool
) -> None:
    images = [list(map(str, image)) for image in digits(4)]
    images[2][9] = pixel
    header = "label,pixels" if is_cell else pixel_header("label")
    rows = ([row % 2, *([" ".join(image)] if is_cell else image)] for row, image in enumerate(images))
    write(tmp_path, "train.csv", header, rows)
    competition = load(SLUG, tmp_path)
    assert read_image(competition.folder / "train.csv#2").shape == (28, 28, 3)
    with pytest.raises(BadImage) as refused:
        read_image(competition.folder / "train.csv#3")
    problem = f"pixel 10 is '{pixel}', not a whole number from 0 to 255"
    if is_cell and not pixel:
        problem = "line 4 has 783 pixels, but the first row has 784"
    assert f"train.csv#3 cannot be read: {problem if 'line' in problem else f'line 4: {problem}'}" in str(refused.value)


def test_whole_numbers_may_have_a_point(tmp_path: Path) -> None:
    write(tmp_path, "train.csv", pixel_header("label", count=64), ([row, "7.0", *[3] * 63] for row in (0, 1)))
    assert read_image(load(SLUG, tmp_path).folder / "train.csv#2")[0, :2, 0].tolist() == [7, 3]


def test_columns_of_classes_are_not_taken_for_pixels(tmp_path: Path) -> None:
    names = ",".join(map(str, range(100)))
    rows = (f"{image}," + ",".join("1" if column == image else "0" for column in range(100)) for image in range(3))
    competition = load_files(
        tmp_path,
        [f"train/{i}.jpg" for i in range(3)],
        {"train.csv": table(f"id,{names}", *rows)},
        'target_column = "1"',
    )
    assert list(competition.train["image"]) == ["train/0.jpg", "train/1.jpg", "train/2.jpg"]


def test_the_hash_of_the_files_changes_with_the_size_of_the_container(tmp_path: Path) -> None:
    write_digit_recognizer(tmp_path)
    before = load(SLUG, tmp_path)
    write_digit_recognizer(tmp_path, test=6)
    after = load(SLUG, tmp_path)
    assert after.train_hash == before.train_hash
    assert after.test_hash != before.test_hash


@pytest.mark.annex
def test_records_without_ids_are_called_by_their_file_and_row(tmp_path: Path) -> None:
    images = jpegs(4)
    for part in (0, 1):
        examples = [{"image": images[2 * part + row], "class": row} for row in (0, 1)]
        write_tfrecord(raw_path(tmp_path, f"train/{part}.tfrec"), examples)
    competition = load(SLUG, tmp_path)
    assert list(competition.train["id"]) == [f"train/{part}.tfrec/{row}" for part in (0, 1) for row in (1, 2)]
    assert [image_of(competition, image) for image in competition.train["image"]] == images
    assert not len(competition.test)


def test_statoil_iceberg(tmp_path: Path) -> None:
    write_iceberg(tmp_path, "train.json", 4)
    write_iceberg(tmp_path, "test.json", 2, first=10, labelled=False)
    write(tmp_path, "sample_submission.csv", "id,is_iceberg", (("ice11", 0.5), ("ice10", 0.5)))
    competition = load(SLUG, tmp_path)
    assert train_labels(competition) == {f"train.json#{row}": str((row - 1) % 2) for row in range(1, 5)}
    assert images_by_id(competition) == {"ice11": "test.json#2", "ice10": "test.json#1"}
    assert competition.submission_format.wants == "probs"
    assert "4 rows of train.json, 75 x 75 pixels, two radar bands" in describe(competition)
    row = json.loads(raw_path(tmp_path, "train.json").read_text())[2]
    first, second = (np.array(row[band]).reshape(75, 75) for band in ("band_1", "band_2"))
    expected = np.stack([first, second, (first + second) / 2], axis=2)
    decibels = read_image(competition.folder / "train.json#3") / 255 * 50 - 40
    assert np.abs(decibels - expected.clip(-40, 10)).max() < 0.11  # half a step


def test_radar_images_that_are_cut_off_are_refused(tmp_path: Path) -> None:
    write_iceberg(tmp_path, "train.json", 3)
    path = raw_path(tmp_path, "train.json")
    path.write_text(path.read_text()[:-1000])
    assert "train.json, image 3: not a JSON object; download it again" in load_error(tmp_path, [], {})


def test_an_id_that_appears_twice_in_a_table_of_pixels_is_refused(tmp_path: Path) -> None:
    rows = ([number, label, *[0] * 64] for number, label in ((1, 0), (2, 1), (1, 1)))
    write(tmp_path, "train.csv", pixel_header("id", "label", count=64), rows)
    assert "train.csv, line 4: id '1' appears twice" in load_error(tmp_path, [], {})


@pytest.mark.annex
def test_numbered_columns_of_a_sample_submission_are_not_pixels_beside_records(tmp_path: Path) -> None:
    write_petals(tmp_path)
    classes = ",".join(map(str, range(100)))
    zeros = ",".join(["0.01"] * 100)
    raw_path(tmp_path, "sample_submission.csv").write_text(table(f"id,{classes}", f"id7,{zeros}", f"id8,{zeros}"))
    competition = load(SLUG, tmp_path)
    assert len(competition.classes) == 100
    assert list(competition.test["id"]) == ["id7", "id8"]
