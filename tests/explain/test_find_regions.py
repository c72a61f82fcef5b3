"""The box of an image that holds most of what a model looks at."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.basics.image_size import Box
from podium_annex.explain.find_regions import GRID, LEAST, SHARE, box_of_heat


def test_it_is_the_smallest_box_with_the_share_of_the_heat() -> None:
    heat = np.full((10, 10), 0.0005, np.float32)
    heat[3:6, 4:8] = 1.0
    assert box_of_heat(heat, 200, 100) == Box(40, 60, 40, 60)


def test_a_point_becomes_a_quarter_of_the_sides_also_in_a_corner() -> None:
    for place, box in (((5, 5), Box(42, 42, 25, 25)), ((0, 0), Box(0, 0, 25, 25)), ((9, 9), Box(75, 75, 25, 25))):
        heat = np.zeros((10, 10), np.float32)
        heat[place] = 1.0
        found = box_of_heat(heat, 100, 100)
        assert found is not None
        assert np.abs(np.subtract(found, box)).max() <= 1


def test_an_image_that_the_model_looks_at_nowhere_has_no_box() -> None:
    assert box_of_heat(np.zeros((7, 7), np.float32), 100, 100) is None


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 40))
@pytest.mark.parametrize("power", [1, 8])
def test_every_box_lies_inside_and_holds_the_share(power: int, seed: int, rows: int, columns: int) -> None:
    heat = np.random.default_rng(seed).random((rows, columns)).astype(np.float32) ** power
    box = box_of_heat(heat, 10 * rows, 10 * columns)
    assert box is not None
    assert 0 <= box.left < box.left + box.width <= 10 * columns
    assert 0 <= box.top < box.top + box.height <= 10 * rows
    assert box.width >= LEAST * 10 * columns - 1
    if max(rows, columns) <= GRID:  # then a cell of the map is ten pixels
        large = heat.repeat(10, 0).repeat(10, 1)
        inside = large[box.top : box.top + box.height, box.left : box.left + box.width]
        assert inside.sum() >= (SHARE - 1e-4) * large.sum()
