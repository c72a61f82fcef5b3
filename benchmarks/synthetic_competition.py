"""Writes a competition of made-up photographs, of any number, for the measurements in this folder."""

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import cv2
import numpy as np

CHUNK = 2000  # images that a process writes at a time


def write_competition(
    root: Path, slug: str, train: int, test: int, classes: int, size: tuple[int, int] = (60, 80)
) -> None:
    """Writes JPEGs of `size` (width, height). Every class has stripes of its own width, over random patches of colour.

    One image of a thousand is a copy of the one before it, saved again.
    """
    folder = root / "data" / "raw" / slug
    with ProcessPoolExecutor() as pool:
        for name, count in (("train_image", train), ("test_image", test)):
            (folder / name).mkdir(parents=True)
            write = partial(_write_images, folder / name, classes, size, count)
            list(pool.map(write, range(0, count, CHUNK)))
    with (folder / "train.csv").open("w") as file:
        file.write("id,target\n")
        file.writelines(f"{number},{_class_of(number, classes)}\n" for number in range(train))
    with (folder / "sample_submission.csv").open("w") as file:
        file.write("id,predict\n")
        file.writelines(f"{number},0\n" for number in range(test))


def _is_copy(number: int) -> bool:
    return number % 1000 == 999


def _class_of(number: int, classes: int) -> int:
    """Returns the class; the larger its number, the rarer it is."""
    original = number - _is_copy(number)
    share = (original * 7919 % 100_003) / 100_003
    return int(classes * share**2)


def _write_images(folder: Path, classes: int, size: tuple[int, int], count: int, start: int) -> None:
    cv2.setNumThreads(1)
    height = size[1]
    for number in range(start, min(start + CHUNK, count)):
        original = number - _is_copy(number)
        rng = np.random.default_rng([original, folder.name == "test_image"])
        patches = rng.integers(0, 256, (5, 4, 3), dtype=np.uint8)
        image = cv2.resize(patches, size, interpolation=cv2.INTER_CUBIC).astype(np.float32)
        stripes = np.sin(np.arange(height) * (0.3 + 2.5 * _class_of(number, classes) / classes) + rng.uniform(0, 6))
        image += 60 * stripes[:, None, None].astype(np.float32)
        quality = 80 if number == original else 70
        cv2.imwrite(f"{folder}/{number}.jpg", image.clip(0, 255).astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, quality])
