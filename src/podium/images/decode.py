"""The one decoder: a file's bytes to RGB uint8, height x width x 3.

The policy: what counts is the content (JPEG, PNG, BMP, GIF, WebP or TIFF), not the extension; EXIF
orientation is applied; alpha is laid over white; CMYK, grey, palette and 1-bit images are converted; 16-bit
values are scaled to 8; 32-bit integers and floats are read as values of 0..255 or, where some are larger, of
0..65535, and floats of which none is above 1 as 0..1; of an animation the first frame counts. The header is
read first, and an image of more than 100 megapixels is refused before anything is decoded.

Decoders go on over damage where they can. So what a format has of checksums is checked first (PNG, deflated
TIFF), and so is the coding of a JPEG: one that ends too early is refused, one that merely has bytes too many is
read and `examine` says so. BMP, GIF and WebP have nothing by which damage in the middle could be told.

Training and prediction look at images through `shrink` as well, so that it makes no difference whether they
read a file or the pixel store (store.py), which holds them shrunk.
"""

import io
import re
import stat
import warnings
import zlib
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image, PngImagePlugin, UnidentifiedImageError
from PIL.TiffImagePlugin import STRIPBYTECOUNTS, STRIPOFFSETS

from podium import PodiumError

POLICY = 2  # raise it with every change to the pixels that come out: pixels kept under another number are stale
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF")  # Pillow knows more, and starts other programs for some
READ = "JPEG, PNG, BMP, GIF, WebP or TIFF"
SIGNATURES = {  # what files begin with; these first ones are read unless their header is damaged
    "JPEG": rb"\xff\xd8\xff",
    "PNG": rb"\x89PNG\r\n\x1a\n",
    "BMP": rb"BM",
    "GIF": rb"GIF8[79]a",
    "WebP": rb"RIFF....WEBP",
    "TIFF": rb"II[*+]\0|MM\0[*+]",
    "an AVIF image": rb"....ftypavi",
    "a HEIC image": rb"....ftyp(hei|mif|msf)",
    "a JPEG 2000 image": rb"\0\0\0\x0cjP|\xff\x4f\xff\x51",
    "a JPEG XL image": rb"\0\0\0\x0cJXL|\xff\x0a",
    "a DICOM image": rb".{128}DICM",
    "an SVG drawing": rb"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)?<svg",
    "a web page": rb"(?i)\s*<(!doctype html|html|head)",
    "a PDF document": rb"%PDF",
    "an archive": rb"PK\x03\x04|\x1f\x8b|Rar!|7z\xbc\xaf",
}
MAX_PIXELS = 100_000_000
ORIENTATION = 0x0112  # in EXIF: how the camera was held
UPRIGHT: dict[object, Image.Transpose] = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
TILEOFFSETS, TILEBYTECOUNTS = 324, 325  # tags of TIFF, for which Pillow has no names
MAX_BYTES = 1_000_000_000  # more than the most pixels take in any format, uncompressed
Image.MAX_IMAGE_PIXELS = None  # Pillow warns or refuses at limits of its own; the one above is checked instead
PngImagePlugin.MAX_TEXT_CHUNK = PngImagePlugin.MAX_TEXT_MEMORY = 64 << 20  # some cameras and editors write megabytes
# Of broken EXIF, which spoils no pixel. For good: to catch them around each image is not safe in threads.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")

cv2.setNumThreads(1)  # whoever calls is one of several threads or processes already

Pixels = NDArray[np.uint8]


class BadImage(PodiumError):
    """A file that is not a usable image."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name} cannot be read: {reason}; download it again or replace it")
        self.name, self.reason = name, reason

    def __reduce__(self) -> tuple[type, tuple[str, str]]:  # it crosses from a loader's process
        return BadImage, (self.name, self.reason)


class Header(NamedTuple):
    """What a file says of itself."""

    format: str
    mode: str  # Pillow's name for its colours: RGB, L, CMYK, P, ...
    doubt: str  # what is wrong with it, though it can be read; or nothing


def read_image(path: Path) -> Pixels:
    return decode(read_file(path), str(path))


def read_file(path: Path) -> bytes:
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):  # a pipe would be waited for
            raise BadImage(str(path), "it is a folder" if stat.S_ISDIR(about.st_mode) else "it is no regular file")
        if about.st_size > MAX_BYTES:
            raise BadImage(str(path), f"it has {about.st_size / 1e9:.1f} GB, more than {MAX_BYTES / 1e9:.0f}")
        return path.read_bytes()
    except OSError as error:
        raise BadImage(str(path), error.strerror or "it cannot be opened") from None


def decode(data: bytes, name: str) -> Pixels:
    return examine(data, name)[0]


def examine(data: bytes, name: str) -> tuple[Pixels, Header]:
    """The pixels, and what the file said they were."""
    if not data:
        raise BadImage(name, "the file is empty")
    try:
        image, doubt = _open(data)
        header = Header(image.format or "", image.mode, doubt)
        return np.asarray(_to_rgb(image)), header
    except UnidentifiedImageError:
        raise BadImage(name, _what(data)) from None
    except MemoryError:
        raise BadImage(name, "it needs more memory than there is") from None
    except Exception as error:  # nobody has written down what a broken file makes Pillow raise
        raise BadImage(name, str(error) or type(error).__name__) from None


def shrink(image: Pixels, side: int) -> Pixels:
    """The image with a shorter side of at most `side` pixels; never enlarged."""
    height, width = image.shape[:2]
    if min(height, width) <= side:
        return image
    scale = side / min(height, width)
    size = max(side, round(width * scale)), max(side, round(height * scale))
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA)  # type: ignore[return-value]


def _open(data: bytes) -> tuple[Image.Image, str]:
    """The image, its data checked and not yet decoded, and what is wrong with it nevertheless."""
    image = Image.open(io.BytesIO(data), formats=FORMATS)
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise ValueError(f"it has {width} x {height} pixels, more than {MAX_PIXELS // 10**6} million")
    doubt = ""
    if image.format in ("JPEG", "MPO"):  # which is several JPEGs, the first of which counts
        doubt = _damage(data)
        if "premature end" in doubt:
            raise ValueError(f"part of it is missing or damaged ({doubt})")
    elif image.format == "PNG":
        image.verify()
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    elif image.format == "TIFF" and image.info.get("compression") in ("tiff_deflate", "tiff_adobe_deflate"):
        _inflate(data, image)
    return image, doubt


def _damage(data: bytes) -> str:
    """What the decoder of JPEGs would warn about. A small grey image takes it a tenth of the time."""
    try:
        simplejpeg.decode_jpeg(data, colorspace="GRAY", min_height=1, min_width=1, min_factor=8)
    except ValueError as warning:
        if str(warning).startswith("Corrupt JPEG data: "):  # else a kind of JPEG that it does not know
            return str(warning).removeprefix("Corrupt JPEG data: ")
    return ""


def _inflate(data: bytes, image: Image.Image) -> None:
    """Raises where a strip or tile of a deflated TIFF is not what its checksum says."""
    tags = image.tag_v2  # type: ignore[attr-defined]
    most = 8 * MAX_PIXELS
    for places, lengths in ((STRIPOFFSETS, STRIPBYTECOUNTS), (TILEOFFSETS, TILEBYTECOUNTS)):
        for place, length in zip(tags.get(places, ()), tags.get(lengths, ()), strict=True):
            stream, rest = zlib.decompressobj(), data[place : place + length]
            while rest and not stream.eof:
                most -= len(stream.decompress(rest, 1 << 20))
                rest = stream.unconsumed_tail
                if most < 0:
                    raise ValueError("it unpacks to more than its header says")


def _what(data: bytes) -> str:
    """Why a file that Pillow cannot open is no image."""
    start = data[:1024]
    for kind, signature in SIGNATURES.items():
        if re.match(signature, start, re.DOTALL):
            return f"it is {kind}, no {READ}" if " " in kind else f"it is an unusual {kind}, or its header is damaged"
    return f"it is no {READ}"


def _to_rgb(image: Image.Image) -> Image.Image:
    image = _upright(image)
    if image.mode.startswith("I") or image.mode == "F":
        return Image.fromarray(_to_8_bit(image)).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def _upright(image: Image.Image) -> Image.Image:
    image.load()  # some formats keep it behind the pixels
    try:
        orientation = image.getexif().get(ORIENTATION)
    except Exception:  # broken EXIF, which spoils no pixel and can raise anything
        orientation = None
    turn = UPRIGHT.get(orientation)
    return image if turn is None else image.transpose(turn)


def _to_8_bit(image: Image.Image) -> Pixels:
    values = np.array(image, dtype=np.float32)
    if not np.isfinite(values).all():
        raise ValueError("some of its values are not numbers")
    if image.mode.startswith("I;16") or values.max() > 255:
        values /= 257  # 65535 becomes 255
    elif image.mode == "F" and values.max() <= 1:
        values *= 255
    values += 0.5
    return values.clip(0, 255).astype(np.uint8)
