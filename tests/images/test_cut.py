"""Parts of images: boxes, and what borders of one colour leave."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from podium.basics.image_size import BORDER, Box
from podium.competition.containers.image_place import files_of, parse_box, place_of_part, split_part
from podium.images.cut import cut_out, find_border

Image = NDArray[np.uint8]


def photograph(height: int, width: int, seed: int = 0) -> Image:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def on_paper(image: Image, edges: tuple[int, int, int, int], colour: int = 255, noise: int = 0) -> Image:
    """Returns the image with borders of so many pixels: left, top, right, bottom."""
    left, top, right, bottom = edges
    sides = image.shape[0] + top + bottom, image.shape[1] + left + right
    grain = np.random.default_rng(1).integers(-noise, noise + 1, (*sides, 3))
    paper = np.clip(colour + grain, 0, 255).astype(np.uint8)
    paper[top : sides[0] - bottom, left : sides[1] - right] = image
    return paper


@pytest.mark.parametrize("colour", [255, 0, 130])
@pytest.mark.parametrize("edges", [(5, 7, 11, 13), (0, 9, 0, 0), (20, 0, 20, 0)])
def test_borders_of_any_colour_are_cut_off_to_the_pixel(edges: tuple[int, int, int, int], colour: int) -> None:
    image = photograph(40, 50)
    assert (cut_out(on_paper(image, edges, colour), BORDER) == image).all()


def test_the_noise_of_a_scan_does_not_hide_its_border() -> None:
    image = photograph(40, 50)
    scan = on_paper(image, (6, 6, 6, 6), 240, noise=5)
    assert (cut_out(scan, BORDER) == image).all()


@pytest.mark.parametrize(
    "image",
    [
        photograph(40, 50),
        np.full((40, 50, 3), 255, np.uint8),
        on_paper(photograph(4, 4), (40, 40, 40, 40)),  # what would remain is a speck
        on_paper(photograph(1, 1), (0, 0, 0, 0)),
    ],
)
def test_without_a_border_or_with_nothing_else_an_image_stays_whole(image: Image) -> None:
    assert find_border(image) == (0, 0, image.shape[1], image.shape[0])
    assert (cut_out(image, BORDER) == image).all()


def test_a_box_is_cut_as_far_as_the_image_goes() -> None:
    image = photograph(40, 50)
    assert (cut_out(image, "10,20,30,15") == image[20:35, 10:40]).all()
    assert (cut_out(image, "30,30,40,40") == image[30:40, 30:50]).all()
    assert cut_out(image, "") is image


@given(
    box=st.builds(Box, *[st.integers(0, 10**5)] * 4),
    image=st.sampled_from(
        [
            "train/1.jpg",
            "a#b.png",
            "train.csv#12:137x236",
            "r_red.png#channels=red+green+blue",
            "a/0#slices=b/1.dcm|2.dcm",
        ]
    ),
)
def test_the_place_of_a_part_is_read_back(box: Box, image: str) -> None:
    name, text = split_part(place_of_part(image, box))
    assert (name, parse_box(text)) == (image, box)
    assert split_part(place_of_part(image, "")) == (image, "")
    assert split_part(image) == (image, "")
    assert files_of(name) == files_of(image)
