"""Reads images that belong to no competition: files, folders, arrays of pixels, or images of Pillow."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import PIL.Image
import torch
from numpy.typing import NDArray
from torch import Tensor

from podium.basics.disk import check_utf8
from podium.basics.errors import PodiumError
from podium.basics.machine import usable_cores
from podium.basics.terminal import first_few, plural, say
from podium.competition.find.find_files import find_files
from podium.competition.find.unsupported import find_unread
from podium.competition.value_range import ValueRange
from podium.images.decode import BadImage, Pixels, read_image, to_rgb
from podium.models.build import ModelSpec
from podium.models.device import CPU
from podium.models.normalise import Normaliser
from podium.saved_runs.run_folder import Run
from podium.training.fold_model import FoldModel, prepare

Image = Any  # a path, an array, or an image of Pillow
BLOCK = 256  # images that are in memory at once


class Block(NamedTuple):
    readable: NDArray[np.int64]  # numbers of its readable images
    prepared: dict[ModelSpec, Tensor]  # these images as models of this spec see them, uint8
    unreadable: dict[int, str]  # numbers of the others, and why


def list_images(images: Any) -> list[Image]:
    """Returns the images one by one; a folder becomes all images below it. A single image needs no list."""
    is_array = isinstance(images, PIL.Image.Image) or (isinstance(images, np.ndarray) and images.ndim < 4)
    if isinstance(images, str | Path) or is_array:
        images = [images]
    elif not isinstance(images, Iterable) or isinstance(images, pd.DataFrame):
        raise PodiumError(f"images must be files, folders or arrays, not a {type(images).__name__}")
    listed: list[Image] = []
    for image in images:
        listed += _list_path(Path(image)) if isinstance(image, str | Path) else [image]
    if not listed:
        raise PodiumError("there are no images to predict; name files, or a folder of images")
    return listed


def read_blocks(images: Sequence[Image], specs: Sequence[ModelSpec]) -> Iterator[Block]:
    """Yields the images as models of these specs see them; reads the next block while the caller uses the last."""
    with ThreadPoolExecutor(usable_cores()) as pool:

        def start_reading(start: int) -> list[Future[dict[ModelSpec, Pixels] | str]]:
            return [pool.submit(_prepare, image, specs) for image in images[start : start + BLOCK]]

        reading = start_reading(0)
        for start in range(0, len(images), BLOCK):
            finished = [future.result() for future in reading]
            reading = start_reading(start + BLOCK)
            yield _make_block(start, finished, specs)


def features_of_images(run: Run, fold: int, images: Any, device: str) -> NDArray[np.float32]:
    """Returns what the last layer of a fold's model gets, a row per image; not a number where one cannot be read."""
    listed = list_images(images)
    model = FoldModel.load(run, fold, device)
    rows = np.full((len(listed), 0), np.nan, np.float32)
    for block in read_blocks(listed, [model.spec]):
        if len(block.readable):
            features = model.features(block.prepared[model.spec])
            if not rows.shape[1]:
                rows = np.full((len(listed), features.shape[1]), np.nan, np.float32)
            rows[block.readable] = features
    return rows


def read_for_model(images: Any, spec: ModelSpec) -> Tensor:
    """Returns the images as the model takes them: normalised, [n, 3, height, width], on the CPU."""
    listed, normalise = list_images(images), Normaliser(spec, CPU)
    parts = []
    for block in read_blocks(listed, [spec]):
        for number, reason in block.unreadable.items():
            raise PodiumError(f"{listed[number]} cannot be read ({reason}); leave it out")
        parts.append(normalise(block.prepared[spec]))
    return torch.cat(parts)


def _list_path(path: Path) -> list[Path]:
    check_utf8(str(path), "the file name")
    if not path.exists():
        raise PodiumError(f"{path}: no such file or folder")
    if not path.is_dir():
        return [path]
    files = find_files(path)
    for note in files.notes:
        say(f"podium: note: {note}")
    unread = find_unread(files.others)
    if not files.images and unread:
        problem = f"no images that can be read, but {unread.counts}: {unread.names}"
        raise PodiumError(f"{path}: {problem}; {unread.remedy()}")
    if not files.images:
        raise PodiumError(f"{path}: no images below it; name files, or a folder of images")
    if unread:
        problem = f"{unread.counts} cannot be read and are left out: {unread.names}"
        say(f"podium: warning: {path}: {problem}; {unread.remedy()}")
    if files.numbers:
        left_out = f"{plural(len(files.numbers), 'file')} of numbers beside images left out: {first_few(files.numbers)}"
        say(f"podium: warning: {path}: {left_out}; to predict them, name them, or a folder of their own")
    return [path / name for name in files.images]


def _prepare(image: Image, specs: Sequence[ModelSpec]) -> dict[ModelSpec, Pixels] | str:
    """Returns the image as models of each spec see it, or why it cannot be read."""
    try:
        pixels = {value_range: _pixels_of(image, value_range) for value_range in {spec.value_range for spec in specs}}
    except BadImage as bad:
        return bad.reason
    return {spec: prepare(pixels[spec.value_range], spec) for spec in specs}


def _pixels_of(image: Image, value_range: ValueRange | None) -> Pixels:
    if isinstance(image, str | Path):
        return read_image(Path(image), value_range)
    pixels = np.asarray(to_rgb(image, value_range) if isinstance(image, PIL.Image.Image) else image)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
        raise PodiumError(
            f"an image must be an array of uint8, height x width x 3 (RGB), not {pixels.dtype} of shape {pixels.shape}"
        )
    return pixels


def _make_block(start: int, finished: Sequence[dict[ModelSpec, Pixels] | str], specs: Sequence[ModelSpec]) -> Block:
    readable = {start + number: views for number, views in enumerate(finished) if isinstance(views, dict)}
    unreadable = {start + number: reason for number, reason in enumerate(finished) if isinstance(reason, str)}
    prepared = {
        spec: torch.from_numpy(np.stack([views[spec] for views in readable.values()])) for spec in specs if readable
    }
    return Block(np.array(list(readable), np.int64), prepared, unreadable)
