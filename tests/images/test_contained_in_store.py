"""Images in containers go through the store and the audit like files, and from a table of pixels to a submission."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from contained import (
    digits,
    jpegs,
    pixel_header,
    write,
    write_bengali,
    write_digit_recognizer,
    write_isic,
    write_petals,
)
from layouts import SLUG, card_path, raw_path
from podium.competition.load import Competition, load
from podium.images.audit import load_audit
from podium.images.decode import BadImage, decode, read_image
from podium.images.store import Store, open_store
from stores import pixels_in
from tiny import FAST, Podium, done, write_file

BENGALI = {"target_column": "grapheme_root", "sample_submission": "", "test_table": ""}


def store_of(root: Path, **settings: str) -> tuple[Competition, Store]:
    competition = load(SLUG, root, **settings)
    return competition, open_store(competition, 256)


def test_rows_of_pixels_reach_the_store(tmp_path: Path) -> None:
    write_digit_recognizer(tmp_path)
    competition, store = store_of(tmp_path)
    read = store.reader(store.positions(competition.train["image"]))
    images = digits(12).reshape(12, 28, 28)
    for number in range(12):
        assert np.array_equal(read(number), np.dstack([images[number]] * 3))
    record = store.files[store.positions(["train.csv#3"])[0]]
    assert (record.width, record.height, record.bytes, record.format, record.mode) == (28, 28, 784, "pixels", "L")


def test_the_pixels_of_parquet_files_reach_the_store(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    images = write_bengali(tmp_path, count=3, parts=1)
    competition, store = store_of(tmp_path, **BENGALI)
    read = store.reader(store.positions(competition.train["image"]))
    assert all(np.array_equal(read(row)[..., 1], image.reshape(137, 236)) for row, image in enumerate(images))


@pytest.mark.annex
@pytest.mark.parametrize("layout", ["hdf5", "tfrecord", "parquet"])
def test_the_bytes_of_image_files_reach_the_store(tmp_path: Path, layout: str) -> None:
    if layout == "hdf5":
        pytest.importorskip("h5py")
        images = write_isic(tmp_path)
    elif layout == "tfrecord":
        images = write_petals(tmp_path)
    else:
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        images = jpegs(12)
        raw_path(tmp_path).mkdir(parents=True)
        columns = {"image": images, "label": [number % 2 for number in range(12)]}
        parquet.write_table(pyarrow.table(columns), raw_path(tmp_path, "train.parquet"), row_group_size=5)
    competition, store = store_of(tmp_path, **({"target_column": "target"} if layout == "hdf5" else {}))
    read = store.reader(store.positions(competition.train["image"]))
    assert all(np.array_equal(read(row), decode(images[row], "")) for row in range(len(competition.train)))


def test_identical_rows_are_duplicates_and_a_wrong_row_is_a_bad_image(tmp_path: Path) -> None:
    images = digits(6).astype(int).tolist()
    images[4] = images[1]
    images[5][3] = 300
    write(tmp_path, "train.csv", pixel_header("label"), ([row % 2, *image] for row, image in enumerate(images)))
    audit = load_audit(load(SLUG, tmp_path, copies="exact")).set_index("image")
    assert audit.loc["train.csv#2", "group"] == audit.loc["train.csv#5", "group"] == "train.csv#2"
    assert (audit.loc[["train.csv#1", "train.csv#3", "train.csv#4"], "group"] == "").all()
    assert "line 7: pixel 4 is '300'" in audit.loc["train.csv#6", "reason"]


def test_a_changed_table_gives_another_store(tmp_path: Path) -> None:
    write_digit_recognizer(tmp_path)
    before = store_of(tmp_path)[1]
    path = raw_path(tmp_path, "test.csv")
    path.write_text(path.read_text() + ",".join(["7"] * 784) + "\n")
    after = store_of(tmp_path)[1]
    assert after.path != before.path
    assert len(pixels_in(after)) == 17  # the sample submission does not ask for the new row


def test_without_a_store_rows_are_read_from_the_table(tmp_path: Path) -> None:
    write_digit_recognizer(tmp_path)
    competition = load(SLUG, tmp_path)
    kept, read_again = (open_store(competition, 256, keep) for keep in (True, False))
    assert all(np.array_equal(a, b) for a, b in zip(pixels_in(kept), pixels_in(read_again), strict=True))


def test_a_table_of_pixels_goes_all_the_way_to_a_submission(tmp_path: Path, podium: Podium) -> None:
    write_digit_recognizer(tmp_path, train=24)
    write_file(card_path(tmp_path), "[recipe]\nmirror = 0.0\n")
    words = ["-c", SLUG, *FAST[2:]]
    done(podium("folds", "-c", SLUG, "--k", "2"))
    done(podium("train", *words, "--model", "test_vit", "--epochs", "1", "--name", "a"))
    out, _ = done(podium("submit", "-c", SLUG, "--runs", "a"))
    lines = Path(out.strip().splitlines()[-1]).read_text().splitlines()
    assert lines[0] == "ImageId,Label"
    assert [line.partition(",")[0] for line in lines[1:]] == ["1", "2", "3", "4", "5"]
    assert {line.partition(",")[2] for line in lines[1:]} <= {"0", "1", "2"}


def test_channels_in_files_of_their_own_become_one_image(tmp_path: Path) -> None:
    rng, expected = np.random.default_rng(0), {}
    for number in range(6):
        pixels = rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)
        expected[f"a{number}"] = pixels
        for place, channel in enumerate(("red", "green", "blue")):
            path = raw_path(tmp_path, "train", f"a{number}_{channel}.png")
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels[:, :, place]).save(path)
    write(tmp_path, "train.csv", "Id,Target", ((f"a{number}", number % 2) for number in range(6)))
    competition, store = store_of(tmp_path)
    read = store.reader(store.positions(competition.train["image"]))
    for number, image_id in enumerate(competition.train["id"]):
        assert np.array_equal(read(number), expected[image_id])
    Image.fromarray(np.zeros((5, 5), np.uint8)).save(raw_path(tmp_path, "train", "a3_green.png"))
    with pytest.raises(BadImage, match="its channels have different sizes"):
        read_image(competition.folder / competition.train["image"].iloc[3])
