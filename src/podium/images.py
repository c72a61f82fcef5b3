"""The one decoder: a file's bytes to RGB uint8, height x width x 3.

The policy: what counts is the content (JPEG, PNG, BMP, GIF, WebP or TIFF), not the extension; EXIF
orientation is applied; alpha is laid over white; CMYK, grey, palette and 1-bit images are converted; 16-bit
values are scaled to 8; 32-bit integers and floats are read as values of 0..255 or, where some are larger, of
0..65535, and floats of which none is above 1 as 0..1; of an animation the first frame counts. The header is
read first, and an image of more than 100 megapixels is refused before anything is decoded.

Training and prediction look at images through `shrink` as well, so that it makes no difference whether they
read a file or the pixel store (store.py), which holds them shrunk.
"""

import io
import stat
import warnings
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from podium import PodiumError

POLICY = 1  # raise it with every change to the pixels that come out: pixels kept under another number are stale
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF")  # Pillow knows more, and starts other programs for some
MAX_PIXELS = 100_000_000
MAX_BYTES = 1_000_000_000  # more than the most pixels take in any format, uncompressed
Image.MAX_IMAGE_PIXELS = None  # Pillow warns or refuses at limits of its own; the one above is checked instead
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
        image = _open(data)
        header = Header(image.format or "", image.mode)
        return np.asarray(_to_rgb(image)), header
    except UnidentifiedImageError:
        raise BadImage(name, "it is no JPEG, PNG, BMP, GIF, WebP or TIFF") from None
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


def _open(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data), formats=FORMATS)
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise ValueError(f"it has {width} x {height} pixels, more than {MAX_PIXELS // 10**6} million")
    if image.format == "PNG":  # which carries checksums that decoding does not look at
        image.verify()
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    return image


def _to_rgb(image: Image.Image) -> Image.Image:
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode.startswith("I") or image.mode == "F":
        return Image.fromarray(_to_8_bit(image)).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


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
