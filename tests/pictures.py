"""Synthetic photographs, image files, and competitions made of them."""

import csv
import io
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageDraw

from podium.competition.find.csv_files import read_table
from tiny import write_card as write_card

LabelledImages = dict[str, tuple[str, Image.Image]]  # id -> label and image
WHITE, BLACK, RED, BLUE = (255, 255, 255), (0, 0, 0), (250, 10, 20), (10, 20, 250)


def photograph(seed: int, size: tuple[int, int] = (80, 60)) -> Image.Image:
    """Draws soft fields and a few shapes. They differ in brightness more than in colour, as in real photographs.

    No two seeds give similar images.
    """
    rng = np.random.default_rng([seed, 1])
    field = np.zeros((size[1], size[0], 3))
    for cells, strength in ((3, 50), (6, 25), (12, 12)):
        grid = rng.normal(0, strength, (cells, cells, 1)) + rng.normal(0, strength / 3, (cells, cells, 3))
        field += cv2.resize(grid.astype(np.float32), size, interpolation=cv2.INTER_CUBIC)
    image = Image.fromarray(np.clip(field + rng.uniform(60, 190), 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for shape in (draw.ellipse, draw.rectangle, draw.ellipse):
        left, top = rng.uniform(0, 0.7, 2) * size
        width, height = rng.uniform(0.15, 0.5, 2) * size
        red, green, blue = (rng.uniform(20, 235) + rng.uniform(-20, 20, 3)).astype(int).tolist()
        shape((left, top, left + width, top + height), fill=(red, green, blue))
    return image


def two_colours(left: tuple[int, ...], right: tuple[int, ...], mode: str = "RGB") -> Image.Image:
    """Returns an image, 16 wide and 8 high, with a colour in each half."""
    image = Image.new(mode, (16, 8), left if len(left) > 1 else left[0])
    image.paste(right if len(right) > 1 else right[0], (8, 0, 16, 8))
    return image


def two_values(dtype: str, left: float, right: float) -> Image.Image:
    """Returns an image, 16 wide and 8 high, with a value in each half."""
    return Image.fromarray(np.repeat(np.array([[left] * 8 + [right] * 8], dtype=dtype), 8, axis=0))


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    """Returns the bytes of the image's file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png(*chunks: tuple[bytes, bytes]) -> bytes:
    """Returns a PNG file of these chunks, each a type and a body."""
    packed = (
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def bomb(kind: str, side: int) -> bytes:
    """Returns a small file whose header claims an image of `side` x `side` pixels."""
    if kind == "PNG":
        header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
        return png((b"IHDR", header), (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b""))
    data = bytearray(saved(Image.new("L", (8, 8)), kind))
    if kind == "JPEG":
        start = data.index(b"\xff\xc0") + 5
        data[start : start + 4] = struct.pack(">HH", side, side)
    elif kind == "BMP":
        data[18:26] = struct.pack("<ii", side, side)
    elif kind == "GIF":
        data[6:10] = struct.pack("<HH", side, side)
    return bytes(data)


def write_table(path: Path, rows: list[tuple[str, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)


def write_image_competition(
    root: Path, train: LabelledImages, test: dict[str, Image.Image], slug: str = "tiny"
) -> Path:
    """Writes a competition of these training and test images; returns its folder."""
    folder = root / "data" / "raw" / slug
    for role, images in (("train", {name: image for name, (_, image) in train.items()}), ("test", test)):
        (folder / role).mkdir(parents=True)
        for name, image in images.items():
            image.save(folder / role / f"{name}.png", compress_level=1)
    write_table(folder / "train.csv", [("id", "label"), *((name, label) for name, (label, _) in train.items())])
    write_table(folder / "sample_submission.csv", [("id", "label"), *((name, "a") for name in test)])
    return folder


def add_scenes(folder: Path, scenes: dict[str, str]) -> None:
    """Adds the column `scene` to the training table; it is empty for images without a scene."""
    rows = read_table(folder / "train.csv")
    cells = zip(rows["id"], rows["label"], strict=True)
    write_table(folder / "train.csv", [("id", "label", "scene"), *((*row, scenes.get(row[0], "")) for row in cells)])
