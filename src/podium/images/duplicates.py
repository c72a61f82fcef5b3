"""Which images show the same picture: copies saved anew, at another size or quality, or mirrored.

A perceptual hash proposes pairs, the pixels of both decide. The hash is a dozen numbers: how bright the image is
where the images of this competition differ most, folded such that an image and its mirror image have the same
ones. It never lies farther apart than the images do, so a tree search around each finds every pair that the
pixels can confirm. A million images take 24 times as long as a hundred thousand: docs/benchmarks.md.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.images.store import THUMB

# What two versions of one picture may differ by, in grey levels (root mean square). Saving as JPEG at quality 20
# moves a 12 x 12 grey thumbnail of a 60 x 80 photograph by 2, whatever its contrast, and one with a quarter of the
# pixels by twice that; resampling moves it by 3 % of its contrast. What is found so: docs/benchmarks.md.
NOISE, NOISE_AREA = 2.0, 60 * 80
RESAMPLING = 0.03
CONTENT = 0.3  # of an image's contrast: what differs by more has nothing in common but the background
COLOUR = 2.5  # how much more an 8 x 8 thumbnail in colour may differ: JPEG is coarser there

GREY, COARSE = 12, 8
LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # what JPEG keeps best
EVEN, ODD = 8, 4  # numbers in a hash: of the image's mirror-symmetric part, and of the rest
SEARCHED = [0, 1, 2, 3, EVEN]  # those that the tree divides by: with more its boxes overlap, and it looks everywhere
SAMPLE = 20_000  # images from which the directions of the hash are computed
BLOCK = 16_384  # images whose neighbours are searched together
MOST = 20_000_000  # neighbours held in memory

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class Pairs(NamedTuple):
    """Images that show the same picture, by their number; `first` < `second`."""

    first: Ints
    second: Ints
    distance: Floats  # grey levels
    mirrored: NDArray[np.bool_]


def find_copies(thumbs: NDArray[np.uint8], areas: Ints) -> Pairs:
    """Pairs among images given by their thumbnails and how many pixels they had. Of images with the very same
    thumbnail each is paired with the first only."""
    same = _same(thumbs)
    kept = np.flatnonzero(same == np.arange(len(thumbs)))
    grey = _grey(thumbs, kept)
    contrast = grey.std((1, 2))
    noise = (NOISE * np.sqrt(NOISE_AREA / np.maximum(areas[kept], 1)).clip(0.5, 2)).astype(np.float32)
    found = []
    for first, second in candidate_pairs(perceptual_hashes(grey), (noise + RESAMPLING * contrast) * GREY):
        for at in range(0, len(first), 1 << 16):
            some = first[at : at + (1 << 16)], second[at : at + (1 << 16)]
            found.append(_confirm(thumbs, kept, grey, contrast, noise, *some))
    copies = np.flatnonzero(same != np.arange(len(thumbs)))
    equal = Pairs(same[copies], copies, np.zeros(len(copies), np.float32), np.zeros(len(copies), bool))
    first, second, distance, mirrored = (np.concatenate(parts) for parts in zip(equal, *found, strict=True))
    order = np.lexsort((np.maximum(first, second), np.minimum(first, second)))
    first, second = np.minimum(first, second)[order], np.maximum(first, second)[order]
    return Pairs(first, second, distance[order], mirrored[order])


def linked_groups(first: Ints, second: Ints, count: int) -> Ints:
    """For each of `count` things the first one that it is linked to, through however many others; else itself."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    links = coo_array((np.ones(len(first), bool), (first, second)), (count, count))
    group = connected_components(links, directed=False)[1]
    leader: Ints = np.unique(group, return_index=True)[1][group]
    return leader


def merge_groupings(groupings: Sequence["pd.Series[str]"]) -> Ints:
    """For every image the first one of its group, where several columns name groups; nothing names none."""
    first, second = [], []
    for grouping in groupings:
        named = np.flatnonzero((grouping != "").to_numpy())
        codes = pd.factorize(grouping.to_numpy()[named])[0]
        first.append(named[np.unique(codes, return_index=True)[1]][codes])
        second.append(named)
    return linked_groups(np.concatenate(first), np.concatenate(second), len(groupings[0]))


def perceptual_hashes(grey: Floats) -> NDArray[np.float64]:
    """A row of EVEN + ODD numbers for each 12 x 12 image. Two images' rows lie no farther apart than the images,
    nor than one and the mirror image of the other."""
    some = grey[np.random.default_rng(0).permutation(len(grey))[:SAMPLE]]
    even, odd = (_directions(part, count) for part, count in zip(_halves(some), (EVEN, ODD), strict=True))
    found = np.empty((len(grey), EVEN + ODD))
    for at in range(0, len(grey), BLOCK):
        alike, unlike = _halves(grey[at : at + BLOCK])
        found[at : at + BLOCK] = np.hstack([alike @ even, np.abs(unlike @ odd)])
    return found


def _halves(grey: Floats) -> tuple[Floats, Floats]:
    """What an image has in common with its mirror image, and what not: their sum is the image."""
    mirrored = grey[:, :, ::-1]
    half = np.float32(0.5)
    return (half * (grey + mirrored)).reshape(len(grey), -1), (half * (grey - mirrored)).reshape(len(grey), -1)


def _directions(images: Floats, count: int) -> Floats:
    """The directions in which images differ most."""
    some = images - images.mean(0)
    directions: Floats = np.linalg.eigh(some.T @ some)[1][:, : -count - 1 : -1]
    return directions


def candidate_pairs(rows: NDArray[np.float64], reach: Floats) -> Iterator[tuple[Ints, Ints]]:
    """Pairs of rows within reach of the one that reaches farther: every such pair once, in blocks."""
    from scipy.spatial import cKDTree

    searched = np.ascontiguousarray(rows[:, SEARCHED])
    tree = cKDTree(searched, leafsize=16, balanced_tree=False)
    order = np.asarray(tree.indices, dtype=np.int64)  # neighbours stand near one another in it
    order = order[np.argsort(np.log(reach[order] + 1) // 0.15, kind="stable")]  # and those that reach alike
    waiting = [order[at : at + BLOCK] for at in range(0, len(order), BLOCK)]
    while waiting:
        block = waiting.pop()
        farthest = float(reach[block].max())
        some = block[:: max(1, len(block) // 64)]
        if len(block) > 1 and cKDTree(searched[some]).count_neighbors(tree, farthest) / len(some) * len(block) > MOST:
            waiting += [block[: len(block) // 2], block[len(block) // 2 :]]
            continue
        around = cKDTree(searched[block], leafsize=16, balanced_tree=False)
        near = around.sparse_distance_matrix(tree, farthest, output_type="ndarray")
        first, second = block[near["i"]], near["j"].astype(np.int64)
        once = (reach[first] > reach[second]) | ((reach[first] == reach[second]) & (first < second))
        once &= near["v"] <= reach[first]
        first, second = first[once], second[once]
        within = np.square(rows[first] - rows[second]).sum(1) <= np.square(reach[first])
        yield first[within], second[within]


def _same(thumbs: NDArray[np.uint8]) -> Ints:
    """For each image the first with the very same thumbnail: itself, for most."""
    first: dict[bytes, int] = {}
    digests = (hashlib.blake2b(thumb, digest_size=16).digest() for thumb in thumbs)
    return np.array([first.setdefault(digest, number) for number, digest in enumerate(digests)], dtype=np.int64)


def _grey(thumbs: NDArray[np.uint8], kept: Ints) -> Floats:
    found = np.empty((len(kept), GREY, GREY), np.float32)
    for at in range(0, len(kept), BLOCK):
        found[at : at + BLOCK] = _means(thumbs[kept[at : at + BLOCK]], GREY) @ LUMA
    return found


def _means(thumbs: NDArray[np.uint8], side: int) -> Floats:
    """Thumbnails of thumbnails."""
    step = THUMB // side
    means: Floats = thumbs.reshape(len(thumbs), side, step, side, step, 3).mean((2, 4), dtype=np.float32)
    return means


def _confirm(
    thumbs: NDArray[np.uint8], kept: Ints, grey: Floats, contrast: Floats, noise: Floats, first: Ints, second: Ints
) -> Pairs:
    """Those of the proposed pairs whose pixels say so too."""
    shade = np.minimum(contrast[first], contrast[second])
    worst = np.maximum(noise[first], noise[second])
    allowed = np.minimum(worst + RESAMPLING * shade, CONTENT * shade)
    one, other = grey[first], grey[second]
    plain, turned = _distance(one, other), _distance(one, other[:, :, ::-1])
    mirrored = turned < plain
    distance = np.minimum(plain, turned)
    near = np.flatnonzero(distance <= allowed)
    first, second, mirrored, distance = kept[first[near]], kept[second[near]], mirrored[near], distance[near]
    one, other = _means(thumbs[first], COARSE), _means(thumbs[second], COARSE)
    other = np.where(mirrored[:, None, None, None], other[:, :, ::-1], other)
    like = _distance(one, other) <= COLOUR * worst[near] + RESAMPLING * shade[near]
    return Pairs(first[like], second[like], distance[like], mirrored[like])


def _distance(one: Floats, other: Floats) -> Floats:
    """Root mean square, in grey levels, image by image."""
    between: Floats = np.sqrt(np.square(one - other).mean(tuple(range(1, one.ndim))))
    return between
