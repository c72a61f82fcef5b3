"""Reads a NIfTI file, a volume, with nibabel: evenly spaced slices across the body (axial) in a grid, one picture.

The patient's front is at the top. Of a series of volumes, the first one is read.
"""

import io
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.basics.extras import import_package
from podium.competition.containers.grid import lay_in_grid, shape_of_grid
from podium.competition.containers.image_place import MAX_BYTES, MAX_PIXELS
from podium.competition.containers.number_picture import Numbers

SLICES = 16
GZIP = b"\x1f\x8b"
HEADER = 540  # bytes, of version 2; version 1 has 348


def is_nifti(start: bytes) -> bool:
    try:
        start = _unpack(start, HEADER) if start.startswith(GZIP) else start
    except zlib.error:
        return False
    return start[344:348] == b"n+1\0" or start[4:8] == b"n+2\0"


def read_picture(data: bytes) -> Numbers:
    """Returns the picture; raises an error that says what is wrong."""
    if data.startswith(GZIP):
        data = _unpack(data, MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"it unpacks to more than {MAX_BYTES / 1e9:.0f} GB")
    image = _image_of(data)
    if image.get_data_dtype().kind not in "iuf":
        raise ValueError(f"it holds {image.get_data_dtype()}, not plain numbers")
    slices = [_slice_of(image, position) for position in _positions(image)]
    lowest = min(float(one.min()) for one in slices)
    return Numbers("NIfTI", lay_in_grid(slices, lowest), "image")


def size_of_picture(start: bytes) -> tuple[int, int]:
    image = _image_of(_unpack(start, len(start) * 10) if start.startswith(GZIP) else start)
    rows, columns = shape_of_grid(len(_positions(image)))
    width, height, _ = _shape_in_patient(image)
    return rows * height, columns * width


def describe(start: bytes) -> str:
    image = _image_of(_unpack(start, len(start) * 10) if start.startswith(GZIP) else start)
    depth, count = _shape_in_patient(image)[2], len(_positions(image))
    rows, columns = shape_of_grid(count)
    series = int(np.prod(image.shape[3:]))
    of_series = f" of the first of {series} volumes" if series > 1 else ""
    return f"{count} of its {depth} slices{of_series} in a grid of {rows} x {columns}" if depth > 1 else ""


def _unpack(data: bytes, most: int) -> bytes:
    return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data, most)


def _image_of(data: bytes) -> Any:
    """Returns nibabel's image, whose numbers are not yet read; raises if there are none, or too many."""
    nibabel = import_package("nibabel", "medical", "reading NIfTI")
    kind = nibabel.Nifti2Image if data[4:8] == b"n+2\0" else nibabel.Nifti1Image
    names = kind.make_file_map({"image": io.BytesIO(data)})
    image = kind.from_file_map(names)
    if len(image.shape) < 2 or min(image.shape) < 1:
        raise ValueError(f"its shape, {' x '.join(map(str, image.shape))}, is none of a volume")
    height, width, _ = _shape_in_patient(image)
    if height * width * len(_positions(image)) > MAX_PIXELS:
        raise ValueError(f"it has slices of {height} x {width} pixels, more than {MAX_PIXELS // 10**6} million in all")
    return image


def _axes_in_patient(image: Any) -> NDArray[np.int64]:
    """Returns which of the patient's axes (across, to the front, up) each axis of the volume is, and its direction."""
    orientation = import_package("nibabel", "medical", "reading NIfTI").io_orientation(image.affine)
    axes = np.nan_to_num(orientation, nan=-1).astype(np.int64)
    usable = sorted(axes[:, 0].tolist()) == [0, 1, 2]
    return axes if usable else np.array([[0, 1], [1, 1], [2, 1]])


def _shape_in_patient(image: Any) -> tuple[int, int, int]:
    """Returns the size of the volume across, to the front and up."""
    shape = (*image.shape[:3], 1)[:3]
    sizes = dict(zip(_axes_in_patient(image)[:, 0].tolist(), shape, strict=True))
    return sizes[0], sizes[1], sizes[2]


def _positions(image: Any) -> list[int]:
    """Returns which slices are taken: at equal distances, without the outermost ones, which show little."""
    depth = _shape_in_patient(image)[2]
    if depth <= SLICES:
        return list(range(depth))
    return [int(position) for position in np.linspace(0, depth - 1, SLICES + 2)[1:-1].round()]


def _slice_of(image: Any, position: int) -> NDArray[Any]:
    axes = _axes_in_patient(image)
    up = axes[:, 0].tolist().index(2)
    if len(image.shape) == 2:
        values, across = np.asarray(image.dataobj), 0
    else:
        index: list[object] = [slice(None)] * 3 + [0] * (len(image.shape) - 3)
        index[up] = position if axes[up, 1] > 0 else image.shape[up] - 1 - position
        values = np.asarray(image.dataobj[tuple(index)])
        left = [axis for axis in range(3) if axis != up]
        across = int(axes[left[0], 0] == 1)
        for number, axis in enumerate(left):
            values = np.flip(values, number) if axes[axis, 1] < 0 else values
    return np.rot90(values.T if across else values)
