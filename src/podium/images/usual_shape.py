"""The shape that nearly all training images of a competition have, from the headers of some of them.

It decides defaults, so it depends on the files alone, not on whether they were audited. Writes nothing.
"""

import contextlib
import math

import numpy as np
from PIL import Image

from podium.competition.containers.grid import shape_of_grid
from podium.competition.containers.image_place import file_of, files_of, folder_of_slices, place_of
from podium.competition.containers.number_files import size_in_header
from podium.competition.load import Competition
from podium.images.decode import FORMATS, ORIENTATION, SIDEWAYS

MOST_IMAGES = 200  # whose headers are read, in a twentieth of a second
NEARLY_ALL = 0.9
SAME_SHAPE = 0.1  # relative difference


def usual_shape(competition: Competition) -> float:
    """Returns the width of nearly all training images in units of their height; 1 if they have several shapes.

    Images that are not files of their own, such as rows of pixels, count as squares.
    """
    names = competition.train_in_files["image"].to_numpy(dtype=str)
    sample = names[np.unique(np.linspace(0, len(names) - 1, MOST_IMAGES).astype(int))]
    shapes = [shape for name in sample if (shape := _shape_of(competition, name))]
    if not shapes:
        return 1.0
    usual = float(np.median(shapes))
    alike = np.abs(np.log(np.array(shapes) / usual)) < math.log1p(SAME_SHAPE)
    return usual if alike.mean() >= NEARLY_ALL else 1.0


def _shape_of(competition: Competition, name: str) -> float | None:
    """Returns None for an image without a header that can be read. Slices have the shape of the first, in a grid."""
    if folder_of_slices(name):
        files = files_of(name)
        (rows, columns), shape = shape_of_grid(len(files)), _shape_of(competition, files[0])
        return shape and shape * columns / rows
    path = competition.folder / file_of(name)
    if place_of(name) or not path.is_file():  # opening a pipe would block, and a device may have no end
        return None
    if size := size_in_header(path):
        return size[1] / size[0]
    with contextlib.suppress(Exception):  # Pillow does not document what it raises for a broken file
        with Image.open(path, formats=FORMATS) as image:
            width, height = image.size
            if image.getexif().get(ORIENTATION) in SIDEWAYS:
                width, height = height, width
        return width / height
    return None
