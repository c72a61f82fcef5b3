"""The one decoder: a file's bytes to RGB uint8, height x width x 3.

The policy: EXIF orientation is applied; alpha is laid over white; 16-bit values are scaled to 8;
CMYK, grey, palette and 1-bit images are converted; of an animation the first frame counts; the
extension is not believed, the content is. The header is read first, and an image of more than
100 megapixels is refused before anything is decoded.
"""

import io
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from podium import PodiumError

MAX_PIXELS = 100_000_000
Image.MAX_IMAGE_PIXELS = None  # Pillow warns or refuses at limits of its own; the one above is checked instead

Pixels = NDArray[np.uint8]


class BadImage(PodiumError):
    """A file that is not a usable image."""


def read_image(path: Path) -> Pixels:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadImage(f"{path}: {error.strerror}") from None
    return decode(data, str(path))


def decode(data: bytes, name: str) -> Pixels:
    if not data:
        raise BadImage(f"{name}: the file is empty")
    try:
        with Image.open(io.BytesIO(data)) as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise BadImage(f"{name}: {width} x {height} pixels; at most {MAX_PIXELS // 10**6} megapixels are read")
            return np.asarray(_to_rgb(ImageOps.exif_transpose(image)))
    except UnidentifiedImageError:
        raise BadImage(f"{name}: not an image") from None
    except (OSError, ValueError, SyntaxError, EOFError, IndexError, KeyError, struct.error) as error:
        raise BadImage(f"{name}: cannot be decoded ({error})") from None


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I") or image.mode == "F":
        values = np.asarray(image, dtype=np.float64)
        if values.size and (values.max() > 255 or image.mode.startswith("I;16")):
            values = values / 257  # 65535 becomes 255
        image = Image.fromarray(np.clip(values + 0.5, 0, 255).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")
