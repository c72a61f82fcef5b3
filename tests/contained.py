"""Writes competitions in miniature whose images are rows of pixels, or members of larger files, as Kaggle has them."""

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from layouts import raw_path
from pictures import saved

Feature = bytes | int | float


def digits(count: int, side: int = 28, seed: int = 0) -> NDArray[np.uint8]:
    """Returns images whose brightness shows their class, number % 3; no two are alike."""
    noise = np.random.default_rng(seed).integers(0, 60, (count, side * side))
    return (noise + 90 * (np.arange(count) % 3)[:, None]).astype(np.uint8)


def jpegs(count: int) -> list[bytes]:
    return [saved(Image.new("RGB", (20, 16), (10 * number, 40, 200)), "JPEG") for number in range(count)]


def write(root: Path, name: str, header: str, rows: Iterable[Sequence[object]]) -> Path:
    """Writes a table in the competition's folder."""
    path = raw_path(root, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (",".join(map(str, row)) for row in rows)
    path.write_text("\n".join([header, *lines, ""]))
    return path


def pixel_header(*columns: str, count: int = 784) -> str:
    return ",".join([*columns, *(f"pixel{number}" for number in range(count))])


def write_digit_recognizer(root: Path, train: int = 12, test: int = 5) -> None:
    """Digit Recognizer: no ids at all; those of the sample count the rows of test.csv."""
    write(root, "train.csv", pixel_header("label"), ([row % 3, *pixels] for row, pixels in enumerate(digits(train))))
    write(root, "test.csv", pixel_header(), digits(test, seed=1))
    write(root, "sample_submission.csv", "ImageId,Label", ((row, 0) for row in range(1, test + 1)))


def write_bengali(root: Path, count: int = 6, parts: int = 2) -> list[NDArray[np.uint8]]:
    """Bengali.AI: Parquet files with a column for each of 137 x 236 pixels; the labels are in train.csv."""
    import pyarrow
    from pyarrow import parquet

    images = list(np.random.default_rng(0).integers(0, 256, (count, 137 * 236), dtype=np.uint8))
    for part in range(parts):
        own = range(part * count // parts, (part + 1) * count // parts)
        columns = {str(column): [images[row][column] for row in own] for column in range(137 * 236)}
        kinds = [("image_id", pyarrow.string()), *((name, pyarrow.uint8()) for name in columns)]
        table = pyarrow.table({"image_id": [f"Train_{row}" for row in own], **columns}, schema=pyarrow.schema(kinds))
        raw_path(root).mkdir(parents=True, exist_ok=True)
        parquet.write_table(table, raw_path(root, f"train_image_data_{part}.parquet"))
    rows = ((f"Train_{row}", row % 2, row % 3, 0, "x") for row in range(count))
    write(root, "train.csv", "image_id,grapheme_root,vowel_diacritic,consonant_diacritic,grapheme", rows)
    return images


def write_isic(root: Path, train: int = 6, test: int = 2) -> list[bytes]:
    """ISIC 2024: a dataset for each id that holds the bytes of a JPEG."""
    import h5py

    images = jpegs(train + test)
    names = [f"ISIC_{number:07d}" for number in range(train + test)]
    raw_path(root).mkdir(parents=True, exist_ok=True)
    for role, own in (("train", range(train)), ("test", range(train, train + test))):
        with h5py.File(raw_path(root, f"{role}-image.hdf5"), "w") as file:
            for number in own:
                file.create_dataset(names[number], data=np.void(images[number]))
    rows = ((name, number % 2, f"IP_{number % 3}") for number, name in enumerate(names[:train]))
    write(root, "train-metadata.csv", "isic_id,target,patient_id", rows)
    write(root, "test-metadata.csv", "isic_id,patient_id", ((name, "IP_9") for name in names[train:]))
    write(root, "sample_submission.csv", "isic_id,target", ((name, 0.3) for name in names[train:]))
    return images


def write_petals(root: Path, folder: str = "tfrecords-jpeg-192x192") -> list[bytes]:
    """Petals to the Metal: TFRecords in train/, val/ and test/; those for the test have no class."""
    images = jpegs(9)
    parts = {"train/00": [0, 1, 2], "train/01": [3, 4], "val/00": [5, 6], "test/00": [7, 8]}
    for name, numbers in parts.items():
        examples: list[dict[str, Feature]] = [
            {"image": images[number], "id": f"id{number}".encode()} for number in numbers
        ]
        if not name.startswith("test"):
            examples = [example | {"class": number % 2} for example, number in zip(examples, numbers, strict=True)]
        write_tfrecord(raw_path(root, folder, f"{name}-192x192-{len(numbers)}.tfrec"), examples)
    write(root, "sample_submission.csv", "id,label", (("id8", 0), ("id7", 0)))
    return images


def write_tfrecord(path: Path, examples: Iterable[Mapping[str, Feature]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(record(example_of(features)) for features in examples))


def record(data: bytes) -> bytes:
    from podium_annex.formats.tfrecord import masked_crc

    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


def example_of(features: Mapping[str, Feature]) -> bytes:
    """Returns a protobuf message Example, as TensorFlow writes it."""
    entries = (_message(1, _message(1, name.encode()) + _message(2, _feature(v))) for name, v in features.items())
    return _message(1, b"".join(entries))


def _feature(value: Feature) -> bytes:
    if isinstance(value, bytes):
        return _message(1, _message(1, value))
    if isinstance(value, float):
        return _message(2, _message(1, struct.pack("<f", value)))
    return _message(3, _message(1, _varint(value % 2**64)))


def _message(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    head, rest = value & 0x7F, value >> 7
    return bytes([head | 0x80]) + _varint(rest) if rest else bytes([head])


def write_iceberg(root: Path, name: str, count: int, first: int = 0, labelled: bool = True) -> None:
    """Statoil: two radar bands of 75 x 75 decibels for each image."""
    rng = np.random.default_rng(first)
    rows = [
        {
            "id": f"ice{first + number}",
            "band_1": rng.normal(-20, 5, 75 * 75).round(6).tolist(),
            "band_2": rng.normal(-26, 3, 75 * 75).round(6).tolist(),
            "inc_angle": "na" if number == 1 else 38.5,
            **({"is_iceberg": number % 2} if labelled else {}),
        }
        for number in range(count)
    ]
    raw_path(root).mkdir(parents=True, exist_ok=True)
    raw_path(root, name).write_text(json.dumps(rows))


def write_bson(path: Path, documents: Iterable[Mapping[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(map(bson_of, documents)))


def bson_of(fields: Mapping[str, object]) -> bytes:
    """Returns a document as MongoDB writes it."""
    elements = b"".join(_element(name.encode(), value) for name, value in fields.items())
    return struct.pack("<i", len(elements) + 5) + elements + b"\0"


def _element(name: bytes, value: object) -> bytes:
    if isinstance(value, bool):
        return b"\x08" + name + b"\0" + bytes([value])
    if isinstance(value, int):
        kind, form = (b"\x10", "<i") if abs(value) < 2**31 else (b"\x12", "<q")
        return kind + name + b"\0" + struct.pack(form, value)
    if isinstance(value, float):
        return b"\x01" + name + b"\0" + struct.pack("<d", value)
    if isinstance(value, str):
        return b"\x02" + name + b"\0" + struct.pack("<i", len(value.encode()) + 1) + value.encode() + b"\0"
    if isinstance(value, bytes):
        return b"\x05" + name + b"\0" + struct.pack("<i", len(value)) + b"\0" + value
    if isinstance(value, dict):
        return b"\x03" + name + b"\0" + bson_of(value)
    assert isinstance(value, list)
    return b"\x04" + name + b"\0" + bson_of({str(number): item for number, item in enumerate(value)})


def write_cdiscount(root: Path) -> list[list[bytes]]:
    """Cdiscount: products of one to four pictures in a dump of MongoDB; those for the test have no category."""
    pictures = jpegs(20)
    of_product = [pictures[2 * number : 2 * number + 1 + number % 4] for number in range(8)]
    for name, numbers in (("train", range(6)), ("test", range(6, 8))):
        documents = [
            {
                "_id": 10 * number,
                **({"category_id": 1000010653 + number % 2} if name == "train" else {}),
                "imgs": [{"picture": picture} for picture in of_product[number]],
            }
            for number in numbers
        ]
        write_bson(raw_path(root, f"{name}.bson"), documents)
    write(root, "category_names.csv", "category_id,category_level1", [(1000010653, "A"), (1000010654, "B")])
    write(root, "sample_submission.csv", "_id,category_id", [(70, 1000010653), (60, 1000010653)])
    return of_product
