"""Reads a DICOM file with pydicom, as the picture that a viewer shows first; GDCM reads what is compressed.

Grey values are rescaled by the file's slope and intercept. From black to white they go through the file's first table
of greys (VOI LUT), else through its first window, straight or a sigmoid, else through all values of the image, or of
the slices of its series (images/decode.py); the card's `range` replaces all that. MONOCHROME1 is inverted. Of several
frames, the middle one is read.
"""

import io
import re
import warnings
import zlib
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.basics.extras import MissingPackage, import_package
from podium.competition.containers.image_place import MAX_BYTES, MAX_PIXELS
from podium.competition.containers.number_picture import Numbers

EXTRA = "medical"
WINDOW = ("WindowCenter", "WindowWidth")
HEADER = 1024  # bytes, in which a file says how it is written
DEFLATED = b"1.2.840.10008.1.2.1.99\0"
JPEG_2000 = b"\xff\x4f\xff\x51"  # the first bytes of a frame; its width and height follow
# Of a JPEG or JPEG-LS: the start of a frame, whose height and width lie behind a length and the bits of a value.
JPEG_SIZE = re.compile(rb"\xff[\xc0-\xc3\xc5-\xc7\xc9-\xcb\xcd-\xcf\xf7]\0.[\x02-\x10](..)(..)", re.DOTALL)
DECODER = ("gdcm", "python-gdcm")  # its module and its package; pydicom itself reads what is run-length coded

# pydicom warns about values that break a rule and are read. Global, as that of images/decode.py.
warnings.filterwarnings("ignore", category=UserWarning, module=r"pydicom\.")


def is_dicom(start: bytes) -> bool:
    return start[128:132] == b"DICM"


def read_picture(data: bytes) -> Numbers:
    """Returns the picture; raises an error that says what is wrong."""
    dataset = _dataset_of(data)
    size_of(dataset)
    _check_coded_size(dataset)
    pixels = import_package("pydicom.pixels", EXTRA, "reading DICOM")
    try:
        values = pixels.pixel_array(dataset, index=_frames(dataset) // 2)
    except RuntimeError as error:
        module, package = DECODER
        if find_spec(module) is None and dataset.file_meta.TransferSyntaxUID.is_compressed:
            raise MissingPackage("reading a compressed DICOM file", [package], EXTRA) from None
        raise ValueError(" ".join(str(error).split())[:200]) from None  # a line for each decoder that was tried
    kind = str(dataset.PhotometricInterpretation)
    if kind == "PALETTE COLOR":
        values = pixels.apply_color_lut(values, dataset)
        return Numbers("DICOM", values, None if values.dtype == np.uint8 else (0.0, 65535.0))
    if int(dataset.BitsStored) == 1:
        values = values.astype(np.bool_)
    if values.ndim == 3:
        return Numbers("DICOM", values, (0.0, 2.0 ** int(dataset.BitsStored) - 1))
    values = pixels.apply_rescale(values, dataset)
    window, greys = _window_of(dataset), _greys_of(dataset, values)
    if (window or greys is not None) and values.dtype == np.uint8:
        values = values.astype(np.int16)  # 8 bits alone would stay as they are
    return Numbers("DICOM", values, window or "image", is_inverse=kind == "MONOCHROME1", greys=greys)


def size_of_picture(start: bytes) -> tuple[int, int]:
    return size_of(_dataset_of(start, stop_before_pixels=True))


def describe(start: bytes) -> str:
    """Returns which frame is read, in words; "" if there is one."""
    frames = _frames(_dataset_of(start, stop_before_pixels=True))
    return f"the middle one of its {frames} frames" if frames > 1 else ""


def size_of(dataset: Any) -> tuple[int, int]:
    """Returns height and width; raises if there is no image, or a larger one than memory should hold."""
    height, width = int(dataset.get("Rows") or 0), int(dataset.get("Columns") or 0)
    if not height or not width:
        raise ValueError("it holds no image")
    _refuse_large(height, width)
    return height, width


def _check_coded_size(dataset: Any) -> None:
    """Raises if the compressed frame says that it is larger than memory should hold, whatever the header says."""
    uid = dataset.file_meta.TransferSyntaxUID
    if not uid.is_encapsulated or "JPEG" not in uid.name:
        return
    encaps, frames = import_package("pydicom.encaps", EXTRA, "reading DICOM"), _frames(dataset)
    data: bytes = encaps.get_frame(dataset.PixelData, frames // 2, number_of_frames=frames)
    if data.startswith(JPEG_2000):
        _refuse_large(int.from_bytes(data[12:16], "big"), int.from_bytes(data[8:12], "big"))
    elif start := JPEG_SIZE.search(data):
        _refuse_large(int.from_bytes(start[1], "big"), int.from_bytes(start[2], "big"))


def _refuse_large(height: int, width: int) -> None:
    if height * width > MAX_PIXELS:
        raise ValueError(f"it has {width} x {height} pixels, more than {MAX_PIXELS // 10**6} million")


def _dataset_of(data: bytes, stop_before_pixels: bool = False) -> Any:
    pydicom = import_package("pydicom", EXTRA, "reading DICOM")
    if DEFLATED in data[:HEADER] and not stop_before_pixels:
        start = 144 + int.from_bytes(data[140:144], "little")  # behind the group that says how the file is written
        if len(zlib.decompressobj(-zlib.MAX_WBITS).decompress(data[start:], MAX_BYTES + 1)) > MAX_BYTES:
            raise ValueError(f"it unpacks to more than {MAX_BYTES / 1e9:.0f} GB")
    return pydicom.dcmread(io.BytesIO(data), stop_before_pixels=stop_before_pixels)


def _frames(dataset: Any) -> int:
    return max(1, int(dataset.get("NumberOfFrames") or 1))


def _greys_of(dataset: Any, values: NDArray[Any]) -> NDArray[np.uint8] | None:
    """Returns the greys of the file's first table, or of a window that is a sigmoid; None if it has neither."""
    if dataset.get("VOILUTSequence"):
        table, first = _table_of(dataset)
        places = (np.rint(values) - first).clip(0, len(table) - 1).astype(np.int64)
        return np.asarray(table[places])
    centre, width = (_first(dataset.get(name)) for name in WINDOW)
    if centre is None or width is None or not width > 0 or _shape_of_window(dataset) != "SIGMOID":
        return None
    powers = np.exp((-4 * (values.astype(np.float64) - centre) / width).clip(-50, 50))
    return np.asarray(np.rint(255 / (1 + powers)), np.uint8)


def _table_of(dataset: Any) -> tuple[NDArray[np.uint8], int]:
    """Returns the greys of the file's first table, and the value of its first one."""
    item = dataset.VOILUTSequence[0]
    count, first, bits = (int(number) for number in item.LUTDescriptor)
    count = count or 1 << 16  # which a number of 16 bits cannot hold
    entries = item.LUTData
    if isinstance(entries, bytes):
        is_little = dataset.file_meta.TransferSyntaxUID.is_little_endian
        entries = np.frombuffer(entries, np.uint8 if len(entries) < 2 * count else "<u2" if is_little else ">u2")
    table = np.atleast_1d(np.asarray(entries, np.float64))[:count]
    if len(table) < count:
        raise ValueError(f"its table of greys has {len(table)} of {count} entries")
    return np.rint(table * (255 / max(2.0**bits - 1, table.max()))).astype(np.uint8), first


def _shape_of_window(dataset: Any) -> str:
    return str(dataset.get("VOILUTFunction") or "LINEAR").upper()


def _window_of(dataset: Any) -> tuple[float, float] | None:
    """Returns the values that are black and white in the file's first window; None if it has none."""
    centre, width = (_first(dataset.get(name)) for name in WINDOW)
    if centre is None or width is None:
        return None
    if _shape_of_window(dataset) == "LINEAR_EXACT" and width > 0:
        return centre - width / 2, centre + width / 2
    if not width > 1:
        return None
    middle = centre - 0.5  # as the standard has it: the values of a width of 256 are 256 whole numbers
    return middle - (width - 1) / 2, middle + (width - 1) / 2


def _first(value: Any) -> float | None:
    values = value if isinstance(value, list | tuple) or hasattr(value, "append") else [value]
    return None if not values or values[0] in (None, "") else float(values[0])
