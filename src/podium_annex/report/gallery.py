"""Chooses the images that a report shows, and makes their thumbnails.

A page of some megabytes cannot hold all images of a competition. The most telling come first: images whose label is
probably wrong, the most confident mistakes, then mistakes of every cell of the confusion matrix in turn, then
duplicates. What does not fit into the page is left out; the page says how many.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from podium.basics.terminal import progress_bar
from podium.competition.value_range import ValueRange
from podium.images.decode import BadImage, Pixels, read_image
from podium_annex.report.numbers import HeldOutImages

SIDE = 112  # pixels of the longer side of a thumbnail: enough to see what the image shows
QUALITY = 75  # of its JPEG
MOST_IMAGES = 4_000
MOST_CORRECT = 4  # correct images of each class, to compare the others with


@dataclass
class ImageCard:
    """An image in the gallery."""

    id: str
    image: str  # its file, relative to the competition's folder
    label: str  # "" for a test image
    predicted: str = ""
    confidence: float = 0.0  # probability of the predicted class
    label_prob: float = 0.0
    fold: int = -1
    suspect: int = 0  # place among the images whose label is probably wrong, from 1; 0: it is none
    suggested: str = ""  # label of a suspect
    pair: int = 0  # number of its pair of duplicates, from 1
    thumbnail: str = ""
    heat: str = ""  # where the model looks

    def as_json(self) -> dict[str, Any]:
        values = {**vars(self), "confidence": round(self.confidence, 4), "label_prob": round(self.label_prob, 4)}
        return {name: value for name, value in values.items() if value not in ("", 0) or name in ("label", "fold")}


@dataclass
class Gallery:
    cards: list[ImageCard] = field(default_factory=list)
    left_out: int = 0  # mistakes that did not fit


def choose_mistakes(images: HeldOutImages) -> list[int]:
    """Returns the positions of all mistakes: by turns the most confident of all, and the next of each confusion."""
    wrong = np.flatnonzero(images.is_wrong)
    by_confidence = wrong[np.argsort(-images.confidence[wrong], kind="stable")]
    cells: dict[tuple[int, int], list[int]] = {}
    for position in by_confidence.tolist():
        cells.setdefault((int(images.targets[position]), int(images.predicted[position])), []).append(position)
    largest_first = sorted(cells.values(), key=len, reverse=True)
    chosen = dict.fromkeys(_alternate(by_confidence.tolist(), _in_turn(largest_first)))
    return list(chosen)


def choose_correct(images: HeldOutImages) -> list[int]:
    """Returns a few of the most confident correct images of each class."""
    right = np.flatnonzero(~images.is_wrong)
    right = right[np.argsort(-images.confidence[right], kind="stable")]
    counts: dict[int, int] = {}
    chosen = []
    for position in right.tolist():
        target = int(images.targets[position])
        counts[target] = counts.get(target, 0) + 1
        if counts[target] <= MOST_CORRECT:
            chosen.append(position)
    return chosen


def _alternate(first: Sequence[int], second: Iterable[int]) -> Iterator[int]:
    others = iter(second)
    for position in first:
        yield position
        yield next(others, position)


def _in_turn(lists: Sequence[Sequence[int]]) -> Iterator[int]:
    for place in range(max(map(len, lists), default=0)):
        yield from (members[place] for members in lists if place < len(members))


def card_of(images: HeldOutImages, position: int, file_of: Mapping[str, str]) -> ImageCard:
    image_id = str(images.ids[position])
    return ImageCard(
        id=image_id,
        image=file_of.get(image_id, ""),
        label=images.classes[images.targets[position]],
        predicted=images.classes[images.predicted[position]],
        confidence=float(images.confidence[position]),
        label_prob=float(images.target_probs[position]),
        fold=int(images.folds[position]),
    )


# --- thumbnails --------------------------------------------------------------------------------------


def add_thumbnails(
    cards: Sequence[ImageCard], folder: Path, most_bytes: int, value_range: ValueRange | None = None
) -> Gallery:
    """Returns the cards that fit into so many bytes of the page with their thumbnails, the first ones first."""
    gallery, size = Gallery(), 0
    with ThreadPoolExecutor() as pool:
        thumbnails = pool.map(lambda card: _thumbnail_of(folder / card.image, value_range), cards[:MOST_IMAGES])
        bar = progress_bar(zip(cards, thumbnails, strict=False), total=min(len(cards), MOST_IMAGES), desc="thumbnails")
        for card, thumbnail in bar:
            card.thumbnail = base64.b64encode(thumbnail).decode()
            size += len(json.dumps(card.as_json(), ensure_ascii=False).encode())
            if size > most_bytes:
                break
            gallery.cards.append(card)
        pool.shutdown(cancel_futures=True)
    gallery.left_out = len(cards) - len(gallery.cards)
    return gallery


def _thumbnail_of(path: Path, value_range: ValueRange | None) -> bytes:
    """Returns a small JPEG, or nothing if the image cannot be read."""
    try:
        return jpeg_of(shrink_to(read_image(path, value_range)[..., :3], SIDE))
    except (BadImage, OSError):
        return b""


def shrink_to(image: Pixels, side: int) -> Pixels:
    """Returns the image with a longer side of `side` pixels; a smaller image stays as it is."""
    height, width = image.shape[:2]
    scale = side / max(height, width)
    if scale >= 1:
        return image
    size = max(1, round(width * scale)), max(1, round(height * scale))
    shrunk: Pixels = cv2.resize(image, size, interpolation=cv2.INTER_AREA)  # type: ignore[assignment]
    return shrunk


def jpeg_of(image: Pixels) -> bytes:
    done, data = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    assert done
    return data.tobytes()
