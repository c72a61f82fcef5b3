"""The built-in competition: scikit-learn's handwritten digits, in the layout that Kaggle delivers.

    podium sample

Writes data/raw/sample/ (train.csv, sample_submission.csv, train_image/, test_image/ and, unlike Kaggle,
solution.csv) and its card. It needs no network, and writes the same bytes every time.
"""

import shutil
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from podium.basics.disk import explain_full_disk, write_text
from podium.basics.project_root import DIGITS_SLUG
from podium.basics.terminal import command_for, progress_bar, say, show
from podium.competition.card import read_card
from podium.competition.describe import describe
from podium.competition.load import load

SIDE = 32  # pixels; the scans have 8
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


def write_digits(root: str | Path) -> Path:
    """Writes the competition and its card, and prints what it holds; returns its folder."""
    root = Path(root)
    read_card(DIGITS_SLUG, root)  # a mistake in it is found before the files are replaced
    folder = root / "data" / "raw" / DIGITS_SLUG
    unfinished = folder.with_name(f".{DIGITS_SLUG}")  # renamed at the end: the folder is never half written
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        with explain_full_disk(folder):
            _write_files(unfinished)
        if folder.exists():
            shutil.rmtree(folder)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    card_path = root / "data" / "competitions" / f"{DIGITS_SLUG}.toml"
    if card_path.exists() and card_path.read_bytes() != CARD.encode():
        say(f"podium: {card_path} was changed by you and is kept")
    else:
        write_text(card_path, CARD)
    show(describe(load(DIGITS_SLUG, root)))
    say(f"podium: wrote {folder}\nnext: {command_for('folds', DIGITS_SLUG)}")
    return folder


def _write_files(folder: Path) -> None:
    from sklearn.datasets import load_digits

    scans, digits = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(digits))  # RandomState: its stream never changes
    digit_counts = dict.fromkeys(range(10), 0)
    rows: dict[str, list[tuple[int, int]]] = {"train": [], "test": []}
    for role in rows:
        (folder / f"{role}_image").mkdir(parents=True)
    for number in progress_bar(range(len(order)), desc="digits", unit="image"):
        scan, digit = scans[order[number]], int(digits[order[number]])
        role = "test" if digit_counts[digit] % 5 == 0 else "train"  # a fifth of every class is held out
        digit_counts[digit] += 1
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
    """Encodes a PNG without compression, so that its bytes do not depend on the version of a library."""
    height, width = grey.shape
    lines = b"".join(b"\0" + row.tobytes() for row in grey)
    stored = b"\x78\x01\x01" + struct.pack("<HH", len(lines), len(lines) ^ 0xFFFF) + lines
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", stored + struct.pack(">I", zlib.adler32(lines))), (b"IEND", b""))
    packed = (
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)
