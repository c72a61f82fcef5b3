"""Finds duplicates: images that were saved again, at another size or quality, or mirrored.

A perceptual hash proposes pairs, and the pixels of the two images decide. The hash of an image is a dozen numbers: how
bright the image is where the images of this competition differ most. An image and its mirror image have the same hash.
The distance of two hashes is never larger than that of the two images, so a tree search around each hash finds every
pair that the pixels can confirm. A million images take 50 s, a hundred thousand 2 s: docs/benchmarks.md.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.terminal import busy_with
from podium.images.store_format import THUMB

# How much two duplicates may differ, in grey levels (root mean square). Saving as JPEG at quality 20 moves a
# 12 x 12 grey thumbnail of a 60 x 80 photograph by 2, whatever its contrast, and one with a quarter of the pixels by
# twice that. Resampling moves it by 3 % of its contrast. docs/benchmarks.md lists which ones are found with these.
NOISE, NOISE_AREA = 2.0, 60 * 80
RESAMPLING = 0.03
CONTENT = 0.3  # share of the contrast: images that differ by more have only the background in common
COLOUR = 2.5  # an 8 x 8 colour thumbnail may differ by this factor more: JPEG stores colour more coarsely
THRESHOLDS = f"noise {NOISE}, resampling {RESAMPLING}, content {CONTENT}, colour {COLOUR}"  # for audit.json

GREY, COARSE = 12, 8  # sides of the grey and of the colour thumbnail
LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # weights of red, green, blue; JPEG keeps this sum best
EVEN, ODD = 8, 4  # numbers in a hash: of the part that is mirror-symmetric, and of the part that is not
# The numbers of a hash that the tree divides by. With more of them its boxes overlap, and a search visits all of them.
SEARCHED = [0, 1, 2, 3, EVEN]
SAMPLE = 20_000  # images from which the directions of the hash are computed
BLOCK = 16_384  # images whose neighbours are searched together
MAX_NEIGHBOURS = 20_000_000  # held in memory
CONFIRMED_AT_ONCE = 65_536  # pairs

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class Pairs(NamedTuple):
    """Pairs of duplicates, by the images' numbers; `first` < `second`."""

    first: Ints
    second: Ints
    distance: Floats  # grey levels
    mirrored: NDArray[np.bool_]


@busy_with("looking for duplicates")
def find_duplicates(thumbs: NDArray[np.uint8], areas: Ints, compared: Ints | None = None) -> Pairs:
    """Returns the pairs of duplicates among images, which are given by their thumbnails and numbers of pixels.

    `compared` holds the indices of the images to compare; None means all. Images with identical thumbnails are paired
    with the first of them only.
    """
    first_identical = _first_identical(thumbs, np.arange(len(thumbs)) if compared is None else compared)
    images = _ComparedImages(thumbs, areas, np.flatnonzero(first_identical == np.arange(len(thumbs))))
    parts = [identical_pairs(first_identical)]
    for first, second in candidate_pairs(perceptual_hashes(images.grey), images.reach):
        for start in range(0, len(first), CONFIRMED_AT_ONCE):
            batch = slice(start, start + CONFIRMED_AT_ONCE)
            parts.append(images.confirm(first[batch], second[batch]))
    first, second, distance, mirrored = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    first, second = np.minimum(first, second), np.maximum(first, second)
    order = np.lexsort((second, first))
    return Pairs(first[order], second[order], distance[order], mirrored[order])


def identical_pairs(first_identical: Ints) -> Pairs:
    """Pairs each image with the first image that is identical to it, unless that is the image itself or -1."""
    repeated = np.flatnonzero((first_identical >= 0) & (first_identical != np.arange(len(first_identical))))
    no_distance, not_mirrored = np.zeros(len(repeated), np.float32), np.zeros(len(repeated), bool)
    return Pairs(first_identical[repeated], repeated, no_distance, not_mirrored)


def linked_groups(first: Ints, second: Ints, count: int) -> Ints:
    """Returns, for each of `count` items, the first item that it is linked to, directly or through others.

    `first` and `second` are the two ends of the links. An item without links is its own first.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    links = coo_array((np.ones(len(first), bool), (first, second)), (count, count))
    group = connected_components(links, directed=False)[1]
    leader: Ints = np.unique(group, return_index=True)[1][group]
    return leader


def merge_groupings(groupings: Sequence["pd.Series[str]"]) -> Ints:
    """Returns, for each image, the first image of its group.

    Each grouping names a group for each image, or "" for none. Two images share a group if a grouping names the same
    group for both, or if other images link them in that way.
    """
    first, second = [], []
    for grouping in groupings:
        named = np.flatnonzero((grouping != "").to_numpy())
        codes = pd.factorize(grouping.to_numpy()[named])[0]
        first.append(named[np.unique(codes, return_index=True)[1]][codes])
        second.append(named)
    return linked_groups(np.concatenate(first), np.concatenate(second), len(groupings[0]))


# --- proposing pairs ---------------------------------------------------------------------------------


def perceptual_hashes(grey: Floats) -> NDArray[np.float64]:
    """Returns a row of EVEN + ODD numbers for each 12 x 12 image.

    The distance of two rows is at most that of the two images, also after one of them is mirrored.
    """
    sample = grey[np.random.default_rng(0).permutation(len(grey))[:SAMPLE]]
    even, odd = (_directions(part, count) for part, count in zip(_mirror_parts(sample), (EVEN, ODD), strict=True))
    hashes = np.empty((len(grey), EVEN + ODD))
    for start in range(0, len(grey), BLOCK):
        symmetric, antisymmetric = _mirror_parts(grey[start : start + BLOCK])
        hashes[start : start + BLOCK] = np.hstack([symmetric @ even, np.abs(antisymmetric @ odd)])
    return hashes


def _mirror_parts(grey: Floats) -> tuple[Floats, Floats]:
    """Splits each image into the part that it shares with its mirror image, and the rest; their sum is the image."""
    mirrored = grey[:, :, ::-1]
    half = np.float32(0.5)
    return (half * (grey + mirrored)).reshape(len(grey), -1), (half * (grey - mirrored)).reshape(len(grey), -1)


def _directions(images: Floats, count: int) -> Floats:
    """Returns the `count` directions in which the images differ most (principal components)."""
    centred = images - images.mean(0)
    directions: Floats = np.linalg.eigh(centred.T @ centred)[1][:, : -count - 1 : -1]
    return directions


def candidate_pairs(rows: NDArray[np.float64], reach: Floats) -> Iterator[tuple[Ints, Ints]]:
    """Yields, in blocks, every pair of rows whose distance is within the larger reach of the two; each pair once."""
    from scipy.spatial import cKDTree

    searched = np.ascontiguousarray(rows[:, SEARCHED])
    tree = cKDTree(searched, leafsize=16, balanced_tree=False)
    order = np.asarray(tree.indices, dtype=np.int64)  # near rows are close to each other in this order
    order = order[np.argsort(np.log(reach[order] + 1) // 0.15, kind="stable")]  # rows of similar reach come together
    waiting = [order[start : start + BLOCK] for start in range(0, len(order), BLOCK)]
    while waiting:
        block = waiting.pop()
        farthest = float(reach[block].max())
        sample = block[:: max(1, len(block) // 64)]
        estimate = cKDTree(searched[sample]).count_neighbors(tree, farthest) / len(sample) * len(block)
        if len(block) > 1 and estimate > MAX_NEIGHBOURS:
            waiting += [block[: len(block) // 2], block[len(block) // 2 :]]
            continue
        block_tree = cKDTree(searched[block], leafsize=16, balanced_tree=False)
        near = block_tree.sparse_distance_matrix(tree, farthest, output_type="ndarray")
        first, second = block[near["i"]], near["j"].astype(np.int64)
        is_once = (reach[first] > reach[second]) | ((reach[first] == reach[second]) & (first < second))
        is_once &= near["v"] <= reach[first]
        first, second = first[is_once], second[is_once]
        is_near = np.square(rows[first] - rows[second]).sum(1) <= np.square(reach[first])
        yield first[is_near], second[is_near]


# --- confirming them ---------------------------------------------------------------------------------


class _ComparedImages:
    """The images that are compared, and how much each may differ from a duplicate; indices are into `numbers`."""

    def __init__(self, thumbs: NDArray[np.uint8], areas: Ints, numbers: Ints) -> None:
        self.thumbs, self.numbers = thumbs, numbers
        self.grey = np.empty((len(numbers), GREY, GREY), np.float32)
        for start in range(0, len(numbers), BLOCK):
            self.grey[start : start + BLOCK] = _cell_means(thumbs[numbers[start : start + BLOCK]], GREY) @ LUMA
        self.contrast = self.grey.std((1, 2))
        noise = NOISE * np.sqrt(NOISE_AREA / np.maximum(areas[numbers], 1)).clip(0.5, 2)
        self.noise = noise.astype(np.float32)
        self.reach = (self.noise + RESAMPLING * self.contrast) * GREY  # between hashes

    def confirm(self, first: Ints, second: Ints) -> Pairs:
        """Returns those of the proposed pairs whose pixels agree."""
        contrast = np.minimum(self.contrast[first], self.contrast[second])
        noise = np.maximum(self.noise[first], self.noise[second])
        allowed = np.minimum(noise + RESAMPLING * contrast, CONTENT * contrast)
        grey_a, grey_b = self.grey[first], self.grey[second]
        plain, turned = _distance(grey_a, grey_b), _distance(grey_a, grey_b[:, :, ::-1])
        mirrored = turned < plain
        distance = np.minimum(plain, turned)
        near = np.flatnonzero(distance <= allowed)
        first, second = self.numbers[first[near]], self.numbers[second[near]]
        mirrored, distance = mirrored[near], distance[near]
        colour_a, colour_b = _cell_means(self.thumbs[first], COARSE), _cell_means(self.thumbs[second], COARSE)
        colour_b = np.where(mirrored[:, None, None, None], colour_b[:, :, ::-1], colour_b)
        agrees = _distance(colour_a, colour_b) <= COLOUR * noise[near] + RESAMPLING * contrast[near]
        return Pairs(first[agrees], second[agrees], distance[agrees], mirrored[agrees])


def _first_identical(thumbs: NDArray[np.uint8], compared: Ints) -> Ints:
    """Returns, for each image, the first image with the same thumbnail: for most, itself; -1 if not compared."""
    first: dict[bytes, int] = {}
    first_identical = np.full(len(thumbs), -1)
    for number in compared.tolist():
        digest = hashlib.blake2b(thumbs[number], digest_size=16).digest()
        first_identical[number] = first.setdefault(digest, number)
    return first_identical


def _cell_means(thumbs: NDArray[np.uint8], side: int) -> Floats:
    """Returns thumbnails of `side` x `side` cells."""
    step = THUMB // side
    means: Floats = thumbs.reshape(len(thumbs), side, step, side, step, 3).mean((2, 4), dtype=np.float32)
    return means


def _distance(images_a: Floats, images_b: Floats) -> Floats:
    """Returns the root mean square difference of each pair of images, in grey levels."""
    distance: Floats = np.sqrt(np.square(images_a - images_b).mean(tuple(range(1, images_a.ndim))))
    return distance
