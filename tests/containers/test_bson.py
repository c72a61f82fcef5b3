"""A dump of MongoDB is read without its packages: products of several pictures, and damage that is named."""

import re
import struct
from pathlib import Path

import numpy as np
import pytest

from contained import bson_of, jpegs, write_bson, write_cdiscount
from layouts import SLUG, images_by_id, load_error, load_files, raw_path, train_labels
from podium.basics.errors import PodiumError
from podium.competition.describe import describe
from podium.competition.load import load
from podium.images.audit import load_audit
from podium.images.decode import BadImage, decode, read_image
from podium.images.store import open_store
from podium_annex.formats.bson import BsonFile
from tiny import assert_says

PICTURE = jpegs(1)[0]


def document(number: int, *pictures: bytes) -> bytes:
    return bson_of({"_id": number, "imgs": [{"picture": picture} for picture in pictures]})


def test_cdiscount(tmp_path: Path) -> None:
    pictures = write_cdiscount(tmp_path)
    competition = load(SLUG, tmp_path)
    assert train_labels(competition) == {f"train.bson#{row}": str(1000010653 + (row - 1) % 2) for row in range(1, 7)}
    assert competition.train["id"].tolist() == ["0", "10", "20", "30", "40", "50"]
    assert images_by_id(competition) == {"70": "test.bson#2", "60": "test.bson#1"}
    assert "6 images in train.bson" in describe(competition)
    (note,) = competition.notes
    assert_says(note, "train.bson", "4 at most", "2 x 2")
    assert np.array_equal(read_image(competition.folder / "train.bson#1"), decode(pictures[0][0], ""))


def test_an_extract_of_a_dump_is_left_out(tmp_path: Path) -> None:
    write_cdiscount(tmp_path)
    whole = load(SLUG, tmp_path)
    raw_path(tmp_path, "train_example.bson").write_bytes(raw_path(tmp_path, "train.bson").read_bytes()[:-9])
    competition = load(SLUG, tmp_path)
    assert competition.train.equals(whole.train)
    assert "train_example.bson" in competition.notes[-1]


def test_the_pictures_of_a_product_are_a_grid(tmp_path: Path) -> None:
    of_product = write_cdiscount(tmp_path)
    store = open_store(load(SLUG, tmp_path), 128)
    assert not store.bad(np.arange(len(store.names))).any()
    one, two, three, four = ([decode(picture, "") for picture in of_product[number]] for number in range(4))
    white = np.full_like(three[0], 255)
    expected = [one[0], np.hstack(two), np.vstack([np.hstack(three[:2]), np.hstack([three[2], white])])]
    expected.append(np.vstack([np.hstack(four[:2]), np.hstack(four[2:])]))
    read = store.reader(store.positions([f"train.bson#{row}" for row in range(1, 5)]))
    assert all(np.array_equal(read(number), pixels) for number, pixels in enumerate(expected))


def test_a_broken_picture_of_a_product_is_named(tmp_path: Path) -> None:
    write_cdiscount(tmp_path)
    path = raw_path(tmp_path, "train.bson")
    path.write_bytes(path.read_bytes() + document(60, PICTURE, b"no picture") + document(70))
    with pytest.raises(BadImage, match=r"train\.bson#7 .*picture 2 of its 2"):
        read_image(Path(f"{path}#7"))
    with pytest.raises(BadImage, match=r"train\.bson#8 .*byte [\d,]+ has no picture"):
        read_image(Path(f"{path}#8"))


def test_products_go_through_the_audit(tmp_path: Path) -> None:
    write_cdiscount(tmp_path)
    audit = load_audit(load(SLUG, tmp_path)).set_index("image")
    assert audit.loc["train.bson#2", ["width", "height"]].tolist() == ["40", "16"]


def test_fields_of_every_kind_become_text(tmp_path: Path) -> None:
    write_bson(
        tmp_path / "a.bson",
        [
            {"_id": 2**40, "price": 1.5, "new": True, "name": "Stühle", "imgs": [{"picture": PICTURE}]},
            {"colour": "red", "_id": -3, "story": "x" * 2000, "photo": PICTURE},
        ],
    )
    bson = BsonFile(tmp_path / "a.bson", "")
    assert bson.names == [str(2**40), "-3"]
    assert bson.rows["name"].tolist() == ["Stühle", ""]
    assert bson.rows["colour"].tolist() == ["", "red"]
    assert bson.rows["price"].tolist() == ["1.5", ""]
    assert "story" not in bson.rows
    assert bson.read("1") == bson.read("2") == PICTURE


GOOD = document(1, PICTURE)
LONG = struct.pack("<i", 2**31 - 1)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (GOOD[:-7], "ends 7 bytes too early"),
        (GOOD[:3], "ends too early"),
        (LONG + GOOD[4:], "2,147,483,647 bytes"),
        (struct.pack("<i", -5) + GOOD[4:], "-5 bytes"),
        (GOOD[:-1] + b"x", "damaged"),
        (GOOD[:4] + b"\x7e" + GOOD[5:], "damaged"),
        (GOOD.replace(b"imgs\0", b"imgs\0" + LONG)[: len(GOOD)], "damaged"),
        (bson_of({f"field{number}": 1 for number in range(101)}), "more than 100 fields"),
    ],
)
def test_damage_is_named_with_its_place(tmp_path: Path, data: bytes, problem: str) -> None:
    path = tmp_path / "train.bson"
    path.write_bytes(GOOD + data)
    with pytest.raises(PodiumError) as refused:
        BsonFile(path, "")
    assert str(path) in str(refused.value)
    assert f"byte {len(GOOD)}" in str(refused.value)
    assert problem in str(refused.value)
    assert "download it again" in str(refused.value)


def test_damage_inside_a_picture_makes_one_bad_image(tmp_path: Path) -> None:
    path = tmp_path / "train.bson"
    place = re.search(b"picture\0", GOOD)
    assert place
    bad = GOOD[: place.end()] + LONG + GOOD[place.end() + 4 :]
    path.write_bytes(GOOD + bad)
    bson = BsonFile(path, "")
    assert bson.read("1") == PICTURE
    with pytest.raises(ValueError, match=f"byte {len(GOOD)} is damaged"):
        bson.read("2")


@pytest.mark.parametrize("documents", [[], [{"_id": 1, "label": "a"}]])
def test_a_dump_without_pictures_holds_no_images(tmp_path: Path, documents: list[dict[str, object]]) -> None:
    write_bson(tmp_path / "a.bson", documents)
    assert BsonFile(tmp_path / "a.bson", "").keys == []
    write_bson(raw_path(tmp_path, "train.bson"), documents)
    assert "\n" not in load_error(tmp_path, [], {})


def test_a_dump_beside_images_changes_nothing(tmp_path: Path) -> None:
    write_bson(raw_path(tmp_path, "labels.bson"), [{"_id": 1, "label": "a"}])
    competition = load_files(tmp_path, [f"train/{kind}/{i}.jpg" for kind in "ab" for i in range(2)], {})
    assert len(competition.train) == 4
    assert not competition.notes
