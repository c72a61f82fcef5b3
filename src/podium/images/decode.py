"""Decodes the bytes of an image file to RGB: an array of uint8, height x width x 3.

This is the only decoder: the audit, training and prediction all use it.

- The content of a file decides (JPEG, PNG, BMP, GIF, WebP or TIFF), not its extension. HEIC is read if the package
  pillow-heif is installed, AVIF if Pillow can read it.
- EXIF orientation is applied. Transparency is laid over white. CMYK, grey, palette and 1-bit images are
  converted to RGB.
- 16-bit values are scaled to 8 bits. 32-bit integers and floats are read as 0..255, or as 0..65535 if a value is above
  255. Floats are read as 0..1 if no value is above 1. The card's `range` replaces these (competition/value_range.py).
  Of colours of 16 bits, the upper 8 bits are taken.
- Files of numbers (number_files.py) become pixels in the same way; uint8 stays as it is. Slices of one
  series that say no range of their own share one.
- Only the first frame of an animation is read, and the first page of a TIFF.
- The header is read first. An image of more than 100 megapixels is refused before it is decoded.
- Most decoders ignore damage, so Podium checks for it first: by the checksums of PNG and deflated TIFF, and by the
  coding of JPEG. A JPEG that ends too early is refused. A JPEG with extra bytes is read, and its header has a `doubt`.
  BMP, GIF and WebP have no checksums, so damage in the middle of such a file is not detected.

Training and prediction also pass every image through `shrink`. So it makes no difference whether they read a file or
the store (store.py), which holds shrunk images.
"""

import io
import re
import stat
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image, PngImagePlugin, UnidentifiedImageError
from PIL.TiffImagePlugin import STRIPBYTECOUNTS, STRIPOFFSETS

from podium.basics.errors import PodiumError
from podium.basics.extras import remedy_of_extra
from podium.basics.terminal import first_line
from podium.competition.containers.grid import lay_in_grid
from podium.competition.containers.image_place import (
    MAX_BYTES,
    MAX_PIXELS,
    files_of,
    folder_of_slices,
    place_of,
    split_part,
)
from podium.competition.containers.number_files import reader_of
from podium.competition.containers.number_picture import Numbers
from podium.competition.containers.open_container import read_place
from podium.competition.find.image_names import reads_avif, reads_heic
from podium.competition.value_range import ValueRange
from podium.images.cut import cut_out

POLICY = 3  # raise it with every change to the decoded pixels: stores of another policy are stale
NOT_FINITE = "some of its values are not finite numbers"
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF")  # Pillow reads more, and starts other programs for some
READABLE = "JPEG, PNG, BMP, GIF, WebP or TIFF"
SIGNATURES = {  # the first bytes of the formats that are read
    "JPEG": rb"\xff\xd8\xff",
    "PNG": rb"\x89PNG\r\n\x1a\n",
    "BMP": rb"BM",
    "GIF": rb"GIF8[79]a",
    "WebP": rb"RIFF....WEBP",
    "TIFF": rb"II[*+]\0|MM\0[*+]",
}
HEIC = re.compile(rb"....ftyp(hei|hev|mif|msf)", re.DOTALL)
AVIF = re.compile(rb"....ftypavi", re.DOTALL)
AVIF_REMEDY = "Pillow 11.3 and newer versions read such images: pip install --upgrade pillow"
OTHER_SIGNATURES = {  # the first bytes of other files that are often found among images
    "a JPEG 2000 image": rb"\0\0\0\x0cjP|\xff\x4f\xff\x51",
    "a JPEG XL image": rb"\0\0\0\x0cJXL|\xff\x0a",
    "an SVG drawing": rb"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)?<svg",
    "a web page": rb"(?i)\s*<(!doctype html|html|head)",
    "a PDF document": rb"%PDF",
    "an archive": rb"PK\x03\x04|\x1f\x8b|Rar!|7z\xbc\xaf",
}
ORIENTATION = 0x0112  # the EXIF tag that says how the camera was held
UPRIGHT: dict[object, Image.Transpose] = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
SIDEWAYS = (5, 6, 7, 8)  # orientations whose height and width change places
TILEOFFSETS, TILEBYTECOUNTS = 324, 325  # TIFF tags that Pillow has no names for

Image.MAX_IMAGE_PIXELS = None  # Pillow has limits of its own; MAX_PIXELS is checked instead
PngImagePlugin.MAX_TEXT_CHUNK = PngImagePlugin.MAX_TEXT_MEMORY = 64 << 20  # some cameras and editors write megabytes
# Pillow warns about broken EXIF, which does not change a pixel. The filter is global because `catch_warnings` around
# each image is not safe in threads.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")

cv2.setNumThreads(1)  # the callers are already several threads or processes

Pixels = NDArray[np.uint8]


class BadImage(PodiumError):
    """A file that is not a usable image."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name} cannot be read: {reason}; download it again or replace it")
        self.name, self.reason = name, reason

    def __reduce__(self) -> tuple[type, tuple[str, str]]:  # a loader's process sends it to the main process
        return BadImage, (self.name, self.reason)


class Header(NamedTuple):
    """What a file says about itself."""

    format: str
    mode: str  # Pillow's name of the colour mode: RGB, L, CMYK, P, ...
    doubt: str  # damage in a file that can be read; "" if none
    values: tuple[float, float] | None = None  # the lowest and the highest, if it has more than 8 bits
    pages: int = 1  # of a TIFF, of which the first is read


def read_image(path: Path, value_range: ValueRange | None = None) -> Pixels:
    """Returns the pixels of an image, or of the part that its place names."""
    name, part = split_part(str(path))
    return cut_out(decode(read_file(Path(name), value_range), name, value_range), part)


def read_file(path: Path, value_range: ValueRange | None = None) -> bytes | Pixels:
    """Returns the bytes of an image's file. For a place in a container: those that it holds there, or pixels.

    An image in several files, or of several pictures, is pixels, too; these are decoded in this range of values.
    """
    files = files_of(str(path))
    if folder := folder_of_slices(str(path)):
        return _lay_slices(folder, files, value_range)
    if len(files) > 1:
        return _stack([read_image(Path(channel), value_range) for channel in files], str(path))
    place = place_of(str(path))
    try:
        if place:
            content = read_place(place)
            return _lay_out(content, str(path), value_range) if isinstance(content, list) else content
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # reading a pipe would block
            raise BadImage(str(path), "it is a folder" if stat.S_ISDIR(status.st_mode) else "it is not a regular file")
        if status.st_size > MAX_BYTES:
            raise BadImage(str(path), f"it has {status.st_size / 1e9:.1f} GB, more than {MAX_BYTES / 1e9:.0f} GB")
        return path.read_bytes()
    except OSError as error:
        raise BadImage(str(path), error.strerror or "it cannot be opened") from None
    except ValueError as error:
        if place is None:
            raise
        raise BadImage(str(path), str(error)) from None


def _stack(images: list[Pixels], name: str) -> Pixels:
    """Returns one image of the grey images of its channels."""
    if len({image.shape for image in images}) > 1:
        raise BadImage(name, "its channels have different sizes")
    return np.ascontiguousarray(np.stack([image[:, :, 0] for image in images], axis=-1))


def _lay_slices(folder: str, files: list[str], value_range: ValueRange | None) -> Pixels:
    """Returns one image of the slices in a folder, in a grid."""
    slices, height, width = list[Slice](), 0, 0
    for file in files:
        try:
            slices.append(_read_slice(file, value_range))
        except BadImage as bad:
            raise BadImage(folder, f"its slice {file.removeprefix(f'{folder}/')}: {bad.reason}") from None
        height, width = (max(pair) for pair in zip((height, width), slices[-1].picture.shape, strict=False))
        if height * width * len(files) > MAX_PIXELS:
            what = f"{len(files)} slices of {width} x {height} pixels, more than {MAX_PIXELS // 10**6} million in all"
            raise BadImage(folder, f"it has {what}, for which the card needs a smaller number of slices")
    for series in {one.series for one in slices} - {""}:
        own = [one.picture for one in slices if one.series == series]
        ends = float(min(values.min() for values in own)), float(max(values.max() for values in own))
        slices = [one.shown_in(ends) if one.series == series else one for one in slices]
    return lay_in_grid([one.picture for one in slices], empty=0)


class Slice(NamedTuple):
    picture: NDArray[Any]  # pixels, or the values of a slice that says no range of its own
    series: str = ""  # its folder, if these are values: slices of one series share a range
    is_inverse: bool = False

    def shown_in(self, ends: tuple[float, float]) -> "Slice":
        return Slice(_picture_of(Numbers("DICOM", self.picture, ends, self.is_inverse), None)[0])


def _read_slice(file: str, value_range: ValueRange | None) -> Slice:
    data = read_file(Path(file), value_range)
    if value_range or isinstance(data, np.ndarray):
        return Slice(decode(data, file, value_range))
    reader = reader_of(data)
    if reader is None or not reader.is_slice:
        return Slice(decode(data, file, value_range))
    with _naming(file, data):
        numbers = reader.read(data)
        if numbers.shown == "image" and numbers.greys is None and numbers.values.dtype not in (np.uint8, np.bool_):
            if not np.isfinite(numbers.values).all():
                raise ValueError(NOT_FINITE)
            return Slice(numbers.values, file.rpartition("/")[0], numbers.is_inverse)
        return Slice(_picture_of(numbers, None)[0])


def _lay_out(files: list[bytes], name: str, value_range: ValueRange | None) -> Pixels:
    """Returns one image of several of the same thing, in a grid."""
    pictures = []
    for number, data in enumerate(files, 1):
        try:
            pictures.append(decode(data, name, value_range))
        except BadImage as bad:
            raise BadImage(name, f"picture {number} of its {len(files)}: {bad.reason}") from None
    return lay_in_grid(pictures, empty=255)


def decode(data: bytes | Pixels, name: str, value_range: ValueRange | None = None) -> Pixels:
    """Returns the pixels; raises `BadImage`, which calls the file `name`, if it cannot be read."""
    return decode_with_header(data, name, value_range)[0]


def decode_with_header(data: bytes | Pixels, name: str, value_range: ValueRange | None = None) -> tuple[Pixels, Header]:
    """Returns the pixels, like `decode`, and what the file says about itself."""
    if isinstance(data, np.ndarray):
        if data.ndim == 3:
            return data, Header("pixels", "RGB", "")
        return np.repeat(data[:, :, None], 3, axis=2), Header("pixels", "L", "")
    if not data:
        raise BadImage(name, "the file is empty")
    with _naming(name, data):
        if reader := reader_of(data):
            return _picture_of(reader.read(data), value_range)
        image, doubt = _open(data)
        pixels = np.asarray(to_rgb(image, value_range))
        return pixels, Header(image.format or "", image.mode, doubt, _values_of(image), _pages_of(data, image))


@contextmanager
def _naming(name: str, data: bytes) -> Iterator[None]:
    """Raises `BadImage`, which calls the file `name`, if its data cannot be read."""
    try:
        yield
    except UnidentifiedImageError:
        raise BadImage(name, _describe_unknown(data)) from None
    except MemoryError:
        raise BadImage(name, "there is not enough memory to decode it") from None
    except Exception as error:  # Pillow does not document what it raises for a broken file
        raise BadImage(name, first_line(error)) from None


def shrink(image: Pixels, side: int) -> Pixels:
    """Returns the image with a shorter side of at most `side` pixels; it is never enlarged."""
    height, width = image.shape[:2]
    if min(height, width) <= side:
        return image
    scale = side / min(height, width)
    size = max(side, round(width * scale)), max(side, round(height * scale))
    if image.shape[2] == 3:
        return cv2.resize(image, size, interpolation=cv2.INTER_AREA)  # type: ignore[return-value]
    parts = [cv2.resize(part, size, interpolation=cv2.INTER_AREA) for part in in_threes(image)]
    shrunk: Pixels = np.ascontiguousarray(np.concatenate(parts, -1)[..., : image.shape[2]], np.uint8)
    return shrunk


def in_threes(image: Pixels) -> list[Pixels]:
    """Returns an image of many channels as images of three, for what knows no others; its last one fills them up."""
    count = image.shape[2]
    return [
        np.ascontiguousarray(image[..., [min(start + place, count - 1) for place in range(3)]])
        for start in range(0, count, 3)
    ]


def _picture_of(numbers: Numbers, value_range: ValueRange | None) -> tuple[Pixels, Header]:
    """Returns the picture of a file of numbers, in RGB of 8 bits."""
    values, mode, bounds = numbers.values, "", None
    if numbers.greys is not None and not value_range:
        values = numbers.greys
    if values.dtype == np.bool_:
        values = values * np.uint8(255)
    if values.dtype != np.uint8:
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            wide = values.astype(np.float32)
        mode = "I;16" if values.dtype == np.uint16 else "F" if values.dtype.kind == "f" else "I"
        bounds = (float(wide.min()), float(wide.max())) if value_range or not numbers.shown else None
        values = to_8_bits(wide, mode, value_range or numbers.shown)
    if numbers.is_inverse:
        values = 255 - values
    image = Image.fromarray(np.ascontiguousarray(values))
    return np.asarray(to_rgb(image)), Header(numbers.format, mode or image.mode, "", bounds)


def _open(data: bytes) -> tuple[Image.Image, str]:
    """Checks the data; returns the image, not yet decoded, and its `doubt`."""
    image = Image.open(io.BytesIO(data), formats=_formats_of(data))
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise ValueError(f"it has {width} x {height} pixels, more than {MAX_PIXELS // 10**6} million")
    doubt = ""
    if image.format in ("JPEG", "MPO"):  # an MPO holds several JPEGs; the first one is read
        doubt = _jpeg_damage(data)
        if "premature end" in doubt:
            raise ValueError(f"part of it is missing or damaged ({doubt})")
    elif image.format == "PNG":
        image.verify()
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    elif image.format == "TIFF" and image.info.get("compression") in ("tiff_deflate", "tiff_adobe_deflate"):
        _check_deflated_tiff(data, image)
    return image, doubt


def _formats_of(data: bytes) -> tuple[str, ...]:
    """Returns the formats that the data may have."""
    if AVIF.match(data) and reads_avif():
        return (*FORMATS, "AVIF")
    if not HEIC.match(data) or not reads_heic():
        return FORMATS
    import pillow_heif

    pillow_heif.register_heif_opener()
    return (*FORMATS, "HEIF")


def _jpeg_damage(data: bytes) -> str:
    """Returns the decoder's warning, or "". Decoding to a small grey image takes a tenth of the time."""
    try:
        simplejpeg.decode_jpeg(data, colorspace="GRAY", min_height=1, min_width=1, min_factor=8)
    except ValueError as warning:
        if str(warning).startswith("Corrupt JPEG data: "):  # otherwise a kind of JPEG that this decoder cannot read
            return str(warning).removeprefix("Corrupt JPEG data: ")
    return ""


def _check_deflated_tiff(data: bytes, image: Image.Image) -> None:
    """Raises unless the checksum of every strip and tile is right."""
    tags = image.tag_v2  # type: ignore[attr-defined]
    bytes_left = 8 * MAX_PIXELS
    for offset_tag, length_tag in ((STRIPOFFSETS, STRIPBYTECOUNTS), (TILEOFFSETS, TILEBYTECOUNTS)):
        for offset, length in zip(tags.get(offset_tag, ()), tags.get(length_tag, ()), strict=True):
            stream, compressed = zlib.decompressobj(), data[offset : offset + length]
            while compressed and not stream.eof:
                bytes_left -= len(stream.decompress(compressed, 1 << 20))
                compressed = stream.unconsumed_tail
                if bytes_left < 0:
                    raise ValueError("it unpacks to more than its header says")


def _describe_unknown(data: bytes) -> str:
    """Returns why Pillow cannot open a file."""
    start = data[:1024]
    for kind, signature in SIGNATURES.items():
        if re.match(signature, start, re.DOTALL):
            return f"it is an unusual {kind}, or its header is damaged"
    remedies = {"HEIC": remedy_of_extra(["pillow-heif"], "formats"), "AVIF": AVIF_REMEDY}
    for kind, pattern, is_read in (("HEIC", HEIC, reads_heic()), ("AVIF", AVIF, reads_avif())):
        if pattern.match(start):
            article = "an" if kind == "AVIF" else "a"
            damage = f"it is an unusual {kind}, or its header is damaged"
            return damage if is_read else f"it is {article} {kind} image; {remedies[kind]}"
    for kind, signature in OTHER_SIGNATURES.items():
        if re.match(signature, start, re.DOTALL):
            return f"it is {kind}, not a {READABLE}"
    return f"it is not a {READABLE}"


def to_rgb(image: Image.Image, value_range: ValueRange | None = None) -> Image.Image:
    """Returns the image upright, in RGB, over white where it is transparent."""
    image = _upright(image)
    if _is_deep(image):
        return Image.fromarray(to_8_bits(np.array(image, np.float32), image.mode, value_range)).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def _upright(image: Image.Image) -> Image.Image:
    image.load()  # some formats store the EXIF data behind the pixels
    try:
        orientation = image.getexif().get(ORIENTATION)
    except Exception:  # broken EXIF does not change a pixel, and Pillow can raise anything for it
        orientation = None
    turn = UPRIGHT.get(orientation)
    return image if turn is None else image.transpose(turn)


def _is_deep(image: Image.Image) -> bool:
    """Returns whether the image has more than 8 bits a value."""
    return image.mode.startswith("I") or image.mode == "F"


def _values_of(image: Image.Image) -> tuple[float, float] | None:
    """Returns the lowest and the highest value of an image of more than 8 bits."""
    if not _is_deep(image):
        return None
    values = np.asarray(image)
    return float(values.min()), float(values.max())


def _pages_of(data: bytes, image: Image.Image) -> int:
    if image.format != "TIFF":
        return 1
    try:
        return int(getattr(Image.open(io.BytesIO(data), formats=("TIFF",)), "n_frames", 1))
    except Exception:  # damage behind the first page does not change it
        return 1


def to_8_bits(values: NDArray[np.float32], mode: str, value_range: ValueRange | None) -> Pixels:
    """Returns the values of an image of this mode, which may be changed, as 0 to 255."""
    if not np.isfinite(values).all():
        raise ValueError(NOT_FINITE)
    if value_range:
        low, high = (values.min(), values.max()) if value_range == "image" else value_range
        values -= low
        values *= 255 / ((high - low) or 1)  # an image of one value becomes black
    elif mode.startswith("I;16") or values.max() > 255:
        values /= 257  # 65535 becomes 255
    elif mode == "F" and values.max() <= 1:
        values *= 255
    values += 0.5
    return values.clip(0, 255).astype(np.uint8)
