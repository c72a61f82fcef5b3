"""Duplicates are found however they were saved, and other images are not paired with them."""

import io
from collections.abc import Callable

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageOps

from pictures import photograph
from podium.images import duplicates
from podium.images.decode import decode
from podium.images.duplicates import Pairs, candidate_pairs, find_duplicates, perceptual_hashes
from podium.images.store_format import THUMB

Floats = NDArray[np.float32]
Change = Callable[[Image.Image], Image.Image]


def find_duplicates_among(images: list[Image.Image], numbers: list[int] | None = None) -> Pairs:
    thumbs = [cv2.resize(np.asarray(image), (THUMB, THUMB), interpolation=cv2.INTER_AREA) for image in images]
    return find_duplicates(
        np.stack(thumbs).astype(np.uint8),
        np.array([image.width * image.height for image in images]),
        None if numbers is None else np.array(numbers),
    )


def as_list(pairs: Pairs) -> list[tuple[int, int, bool]]:
    """Returns the two images of each pair, and whether one is mirrored."""
    return list(zip(pairs.first.tolist(), pairs.second.tolist(), pairs.mirrored.tolist(), strict=True))


# --- duplicates and other images ---------------------------------------------------------------------


def jpeg(quality: int) -> Change:
    def save_and_decode(image: Image.Image) -> Image.Image:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=quality)
        return Image.fromarray(decode(file.getvalue(), "x"))

    return save_and_decode


def resized(factor: float) -> Change:
    return lambda image: image.resize(
        (round(image.width * factor), round(image.height * factor)), Image.Resampling.BICUBIC
    )


def darker_by_one(image: Image.Image) -> Image.Image:
    return image.point([max(0, value - 1) for value in range(256)] * 3)


COPIES: dict[str, Change] = {
    **{f"JPEG of quality {quality}": jpeg(quality) for quality in (30, 50, 75, 95)},
    "half the size": resized(0.5),
    "one and a half times the size": resized(1.5),
    "a JPEG of half the size": lambda image: jpeg(70)(resized(0.5)(image)),
    "squashed to a square": lambda image: image.resize((60, 60), Image.Resampling.BILINEAR),
    "darker by one level": darker_by_one,
}


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("change", COPIES)
def test_copies_and_mirrored_copies_are_found_among_other_images(change: str, mirror: bool) -> None:
    originals = [photograph(seed) for seed in range(30)]
    copies = [COPIES[change](ImageOps.mirror(image) if mirror else image) for image in originals]
    expected = [(number, 30 + number, mirror) for number in range(30)]
    assert as_list(find_duplicates_among([*originals, *copies])) == expected


def test_a_copy_of_a_copy_is_paired_with_both() -> None:
    image = photograph(0)
    pairs = find_duplicates_among([image, photograph(1), ImageOps.mirror(image), jpeg(60)(image)])
    assert as_list(pairs) == [(0, 2, True), (0, 3, False), (2, 3, True)]


def test_the_distance_of_a_mirror_image_is_almost_zero_and_grows_as_quality_falls() -> None:
    image = photograph(0)
    copies = (ImageOps.mirror(image), jpeg(95)(image), jpeg(60)(image), jpeg(30)(image))
    distances = [find_duplicates_among([image, copy]).distance.item() for copy in copies]
    assert distances == sorted(distances)
    assert distances[0] < 0.1
    assert 0.1 < distances[1] < distances[-1] < 4


def test_different_images_are_not_paired() -> None:
    assert as_list(find_duplicates_among([photograph(seed) for seed in range(200)])) == []


def test_images_that_differ_in_colour_by_a_shape_or_by_a_shift_are_not_paired() -> None:
    image = photograph(0)
    red, green, blue = image.split()
    other_colours = Image.merge("RGB", (blue, red, green))
    shifted = Image.fromarray(np.roll(np.asarray(image), 12, axis=1))
    with_a_shape = image.copy()
    ImageDraw.Draw(with_a_shape).rectangle((30, 20, 50, 40), fill=(255, 255, 255))
    upside_down = ImageOps.flip(image)
    for other in (other_colours, shifted, with_a_shape, upside_down):
        assert as_list(find_duplicates_among([image, other])) == []


def test_images_with_the_same_background_and_a_faint_content_are_not_paired() -> None:
    """As digits or scans: dark, and each with another faint content."""
    contents = [np.asarray(photograph(seed).convert("L"), dtype=np.float32) for seed in range(40)]
    scans = [Image.fromarray((20 + (grey - grey.mean()) * 0.1).clip(0, 255).astype(np.uint8)) for grey in contents]
    assert as_list(find_duplicates_among([scan.convert("RGB") for scan in scans])) == []


# --- identical images, few images --------------------------------------------------------------------


def test_identical_images_are_paired_with_the_first_of_them_only() -> None:
    image, other = photograph(0), photograph(1)
    pairs = find_duplicates_among([other, image, other, image, image])
    assert as_list(pairs) == [(0, 2, False), (1, 3, False), (1, 4, False)]


def test_only_the_given_images_are_compared() -> None:
    image, other = photograph(0), photograph(1)
    copy = jpeg(60)(image)
    assert as_list(find_duplicates_among([image, image, other, copy], [1, 2, 3])) == [(1, 3, False)]
    assert as_list(find_duplicates_among([image, image, other, copy], [2, 3])) == []


def test_thousands_of_identical_images_make_one_pair_each() -> None:
    thumb = np.asarray(photograph(0).resize((THUMB, THUMB)))
    pairs = find_duplicates(np.repeat(thumb[None], 2000, axis=0), np.full(2000, 4800))
    assert as_list(pairs) == [(0, number, False) for number in range(1, 2000)]


def plain(*colours: tuple[int, int, int]) -> list[Image.Image]:
    return [Image.new("RGB", (80, 60), colour) for colour in colours]


@pytest.mark.parametrize(
    ("images", "pairs"),
    [
        ([photograph(0)], []),
        ([photograph(0), photograph(1)], []),
        ([photograph(0), photograph(0)], [(0, 1, False)]),
        (plain((9, 9, 9)), []),
        (plain((9, 9, 9), (9, 9, 9)), [(0, 1, False)]),
        (plain((0, 0, 0), (255, 255, 255), (250, 0, 0), (0, 250, 0), (0, 0, 250), (128, 128, 128)), []),
        ([photograph(0), *plain((9, 9, 9), (90, 90, 90))], []),
        ([Image.new("RGB", size, (7, 7, 7)) for size in ((1, 1), (1, 500), (500, 1))], [(0, 1, False), (0, 2, False)]),
    ],
)
def test_few_images_and_plain_images_are_compared_too(
    images: list[Image.Image], pairs: list[tuple[int, int, bool]]
) -> None:
    assert as_list(find_duplicates_among(images)) == pairs


def test_every_pair_is_returned_once_and_in_order() -> None:
    images = [change(photograph(seed)) for seed in range(12) for change in (jpeg(50), resized(0.5), ImageOps.mirror)]
    shuffled = [images[number] for number in np.random.default_rng(0).permutation(len(images))]
    copies = find_duplicates_among(shuffled)
    pairs = list(zip(copies.first.tolist(), copies.second.tolist(), strict=True))
    assert pairs == sorted(set(pairs))
    assert len(pairs) == 3 * 12
    assert (copies.first < copies.second).all()


# --- the hashes and the search -----------------------------------------------------------------------


@given(
    st.one_of(
        arrays(np.uint8, st.tuples(st.integers(1, 8), st.just(12), st.just(12))),
        st.builds(
            lambda count, seed, contrast: np.random.default_rng(seed).normal(128, contrast, (count, 12, 12)),
            st.integers(1, 40),
            st.integers(0, 10**6),
            st.sampled_from([0.1, 5, 60]),
        ),
    )
)
def test_hashes_never_lie_farther_apart_than_the_images_or_their_mirror_images(images: NDArray[np.float64]) -> None:
    grey = np.concatenate([images, images[:1, :, ::-1], images[:1] / 2]).clip(0, 255).astype(np.float32)
    rows = perceptual_hashes(grey)
    assert rows.shape == (len(grey), 12)
    between_hashes = np.sqrt(np.square(rows[:, None] - rows).sum(2))
    between_images, between_mirrored = (
        np.sqrt(np.square(grey[:, None] - other).mean((2, 3))) for other in (grey, grey[:, :, ::-1])
    )
    assert (between_hashes <= np.minimum(between_images, between_mirrored) * 12 + 0.01).all()
    assert between_hashes[0, len(images)] < 0.01  # a mirror image has the same hash


def compare_all(rows: NDArray[np.float64], reach: Floats) -> set[tuple[int, int]]:
    """Returns the pairs that `candidate_pairs` should find."""
    distances = np.sqrt(np.square(rows[:, None] - rows).sum(2))
    near = np.triu(distances <= np.maximum(reach[:, None], reach), 1)
    return set(zip(*(side.tolist() for side in near.nonzero()), strict=True))


@given(
    count=st.integers(1, 90),
    seed=st.integers(0, 10**6),
    spread=st.sampled_from([0, 1, 3, 8]),
    same_reach=st.booleans(),
    block=st.sampled_from([1, 2, 7, duplicates.BLOCK]),
    max_neighbours=st.sampled_from([1, 40, duplicates.MAX_NEIGHBOURS]),
)
def test_the_search_proposes_the_pairs_that_a_comparison_of_all_rows_finds(
    count: int, seed: int, spread: int, same_reach: bool, block: int, max_neighbours: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(-spread, spread + 1, (count, 12)).astype(np.float64)  # so distances are roots of integers
    reach = (rng.integers(0, 1 if same_reach else 9, count) + 0.5).astype(np.float32)  # never equal to a distance
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "BLOCK", block)
        patch.setattr(duplicates, "MAX_NEIGHBOURS", max_neighbours)
        proposed = [pair for first, second in candidate_pairs(rows, reach) for pair in zip(first, second, strict=True)]
    pairs = [(int(min(pair)), int(max(pair))) for pair in proposed]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == compare_all(rows, reach)


@pytest.mark.parametrize(("block", "max_neighbours"), [(1, 1), (5, 3), (64, 10**9)])
def test_the_size_of_a_block_changes_no_pair(monkeypatch: pytest.MonkeyPatch, block: int, max_neighbours: int) -> None:
    images = [change(photograph(seed)) for seed in range(20) for change in (jpeg(40), resized(0.5))]
    expected = find_duplicates_among(images)
    monkeypatch.setattr(duplicates, "BLOCK", block)
    monkeypatch.setattr(duplicates, "MAX_NEIGHBOURS", max_neighbours)
    pairs = find_duplicates_among(images)
    assert len(expected.first) == 20
    assert np.array_equal(np.column_stack(pairs), np.column_stack(expected))
