"""Synthetic photographs, image files and competitions made of them."""

import csv
import io
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageDraw

from podium.competition.csv_files import read_table

Pictures = dict[str, tuple[str, Image.Image]]


def photograph(seed: int, size: tuple[int, int] = (80, 60)) -> Image.Image:
    """Soft fields and a few shapes, of brightness more than of colour, as in photographs; no two alike."""
    draws = np.random.default_rng([seed, 1])
    field = np.zeros((size[1], size[0], 3))
    for cells, strength in ((3, 50), (6, 25), (12, 12)):
        grid = draws.normal(0, strength, (cells, cells, 1)) + draws.normal(0, strength / 3, (cells, cells, 3))
        field += cv2.resize(grid.astype(np.float32), size, interpolation=cv2.INTER_CUBIC)
    image = Image.fromarray(np.clip(field + draws.uniform(60, 190), 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for shape in (draw.ellipse, draw.rectangle, draw.ellipse):
        left, top = draws.uniform(0, 0.7, 2) * size
        width, height = draws.uniform(0.15, 0.5, 2) * size
        red, green, blue = (draws.uniform(20, 235) + draws.uniform(-20, 20, 3)).astype(int).tolist()
        shape((left, top, left + width, top + height), fill=(red, green, blue))
    return image


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png(*chunks: tuple[bytes, bytes]) -> bytes:
    packed = (
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def bomb(kind: str, side: int) -> bytes:
    """A small image whose header says that it is large."""
    if kind == "PNG":
        header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
        return png((b"IHDR", header), (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b""))
    data = bytearray(saved(Image.new("L", (8, 8)), kind))
    if kind == "JPEG":
        at = data.index(b"\xff\xc0") + 5
        data[at : at + 4] = struct.pack(">HH", side, side)
    elif kind == "BMP":
        data[18:26] = struct.pack("<ii", side, side)
    elif kind == "GIF":
        data[6:10] = struct.pack("<HH", side, side)
    return bytes(data)


def write_table(path: Path, rows: list[tuple[str, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)


def write_pictures(root: Path, train: Pictures, test: dict[str, Image.Image], slug: str = "tiny") -> Path:
    """A competition of these images: id -> label and image to train on, id -> image to answer."""
    folder = root / "data" / "raw" / slug
    for role, pictures in (("train", {name: image for name, (_, image) in train.items()}), ("test", test)):
        (folder / role).mkdir(parents=True)
        for name, image in pictures.items():
            image.save(folder / role / f"{name}.png", compress_level=1)
    write_table(folder / "train.csv", [("id", "label"), *((name, label) for name, (label, _) in train.items())])
    write_table(folder / "sample_submission.csv", [("id", "label"), *((name, "a") for name in test)])
    return folder


def card(root: Path, text: str) -> None:
    (root / "data" / "competitions").mkdir(parents=True, exist_ok=True)
    (root / "data" / "competitions" / "tiny.toml").write_text(text)


def with_scenes(folder: Path, scenes: dict[str, str]) -> None:
    """Adds a column to the training table; images that are not named are of no scene."""
    rows = read_table(folder / "train.csv")
    cells = zip(rows["id"], rows["label"], strict=True)
    write_table(folder / "train.csv", [("id", "label", "scene"), *((*row, scenes.get(row[0], "")) for row in cells)])
