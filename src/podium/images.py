"""The one decoder: a file's bytes to RGB uint8, height x width x 3.

The policy: what counts is the content (JPEG, PNG, BMP, GIF, WebP or TIFF), not the extension; EXIF
orientation is applied; alpha is laid over white; CMYK, grey, palette and 1-bit images are converted; 16-bit
values are scaled to 8; 32-bit integers and floats are read as values of 0..255 or, where some are larger, of
0..65535, and floats of which none is above 1 as 0..1; of an animation the first frame counts. The header is
read first, and an image of more than 100 megapixels is refused before anything is decoded.
"""

import io
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from podium import PodiumError

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF")  # Pillow knows more, and starts other programs for some
MAX_PIXELS = 100_000_000
Image.MAX_IMAGE_PIXELS = None  # Pillow warns or refuses at limits of its own; the one above is checked instead

Pixels = NDArray[np.uint8]


class BadImage(PodiumError):
    """A file that is not a usable image."""


def read_image(path: Path) -> Pixels:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _bad(str(path), error.strerror or "it cannot be opened") from None
    return decode(data, str(path))


def decode(data: bytes, name: str) -> Pixels:
    if not data:
        raise _bad(name, "the file is empty")
    try:
        with warnings.catch_warnings(action="ignore"):  # of broken EXIF, which spoils no pixel
            return np.asarray(_to_rgb(_open(data)))
    except UnidentifiedImageError:
        raise _bad(name, "it is no JPEG, PNG, BMP, GIF, WebP or TIFF") from None
    except Exception as error:  # nobody has written down what a broken file makes Pillow raise
        raise _bad(name, str(error) or type(error).__name__) from None


def _bad(name: str, reason: str) -> BadImage:
    return BadImage(f"{name} cannot be read: {reason}; download it again or replace it")


def _open(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data), formats=FORMATS)
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise ValueError(f"it has {width} x {height} pixels, more than {MAX_PIXELS // 10**6} million")
    ImageOps.exif_transpose(image, in_place=True)
    return image


def _to_rgb(image: Image.Image) -> Image.Image:
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
