"""The embedded competition: scikit-learn's handwritten digits, in the layout Kaggle delivers.

    podium sample

Writes data/raw/sample/ (train.csv, sample_submission.csv, train_image/, test_image/ and, as Kaggle never
would, solution.csv) and its card. A machine with no network at all can go the whole way on it.
The same bytes every time.
"""

import shutil
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from podium.competition.load import load
from podium.disk import explain_full_disk, write_text
from podium.terminal import command_for, progress_bar, say, show

DIGITS_SLUG = "sample"
SIDE = 32  # pixels: four for each of the scan's
CARD = """\
title = "Handwritten digits"
url = "https://archive.ics.uci.edu/dataset/80"
metric = "accuracy"

[recipe]
image_size = 32
mirror = 0.0      # a mirrored digit is another shape
crop = 0.7
colour = 0.0      # grey scans under one light
erase = 0.0
"""


def write_digits(root: Path) -> Path:
    folder = root / "data" / "raw" / DIGITS_SLUG
    unfinished = folder.with_name(f".{DIGITS_SLUG}")  # the folder appears whole or not at all
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        with explain_full_disk(folder):
            _write(unfinished)
        if folder.exists():
            shutil.rmtree(folder)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    card = root / "data" / "competitions" / f"{DIGITS_SLUG}.toml"
    if card.exists() and card.read_bytes() != CARD.encode():
        say(f"podium: {card} is your own and stays as it is")
    else:
        write_text(card, CARD)
    show(load(DIGITS_SLUG, root).describe())
    say(f"podium: wrote {folder}\nnext: {command_for('folds', DIGITS_SLUG)}")
    return folder


def _write(folder: Path) -> None:
    from sklearn.datasets import load_digits

    scans, digits = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(digits))  # RandomState: its stream is frozen for good
    seen = dict.fromkeys(range(10), 0)
    rows: dict[str, list[tuple[int, int]]] = {"train": [], "test": []}
    for role in rows:
        (folder / f"{role}_image").mkdir(parents=True)
    for number in progress_bar(range(len(order)), desc="sample", unit="image"):
        scan, digit = scans[order[number]], int(digits[order[number]])
        role = "test" if seen[digit] % 5 == 0 else "train"  # a fifth of every class
        seen[digit] += 1
        rows[role].append((number, digit))
        small = np.round(scan.reshape(8, 8) * (255 / 16)).astype(np.uint8)
        large = cv2.resize(small, (SIDE, SIDE), interpolation=cv2.INTER_LINEAR_EXACT)
        (folder / f"{role}_image" / f"{number}.png").write_bytes(_png(large))
    tables = {
        "train.csv": ["id,target", *(f"{number},{digit}" for number, digit in rows["train"])],
        "solution.csv": ["id,target", *(f"{number},{digit}" for number, digit in rows["test"])],
        "sample_submission.csv": ["id,predict", *(f"{number},0" for number, _ in rows["test"])],
    }
    for name, lines in tables.items():
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _png(grey: NDArray[np.uint8]) -> bytes:
    """A PNG without compression: no library's version changes its bytes."""
    height, width = grey.shape
    lines = b"".join(b"\0" + row.tobytes() for row in grey)
    stored = b"\x78\x01\x01" + struct.pack("<HH", len(lines), len(lines) ^ 0xFFFF) + lines
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", stored + struct.pack(">I", zlib.adler32(lines))), (b"IEND", b""))
    packed = (
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)
