"""Decoding: an image has the same RGB pixels in every format, mode, depth and orientation."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from pictures import BLACK, BLUE, RED, WHITE, png, saved, two_colours, two_values
from podium.competition.find.image_names import reads_avif
from podium.images.decode import Pixels, decode, decode_with_header, read_image

IMAGE = two_colours(RED, BLUE)


def colours_of_halves(pixels: Pixels) -> tuple[tuple[int, ...], tuple[int, ...]]:
    assert pixels.dtype == np.uint8
    assert pixels.shape == (8, 16, 3)
    return tuple(pixels[4, 2].tolist()), tuple(pixels[4, 13].tolist())


def is_close(colour: tuple[int, ...], expected: tuple[int, ...], within: int) -> bool:
    return all(abs(value - expected_value) <= within for value, expected_value in zip(colour, expected, strict=True))


@pytest.mark.parametrize("is_deep", [False, True])
def test_the_pages_of_a_tiff_are_counted_and_the_first_is_read(is_deep: bool) -> None:
    pages = [IMAGE, IMAGE.rotate(180), IMAGE]
    if is_deep:
        pages = [Image.fromarray(np.full((8, 16), 257 * number, np.uint16)) for number in (9, 50, 70)]
    pixels, header = decode_with_header(saved(pages[0], "TIFF", save_all=True, append_images=pages[1:]), "a.tif")
    assert header.pages == 3
    assert np.array_equal(pixels, decode(saved(pages[0], "TIFF"), "a.tif"))
    assert decode_with_header(saved(pages[0], "TIFF"), "a.tif")[1].pages == 1


# --- formats and modes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "within"),
    [
        (saved(IMAGE, "JPEG", quality=95), 6),
        (saved(IMAGE, "JPEG", quality=95, progressive=True), 6),
        (saved(IMAGE, "PNG"), 0),
        (saved(IMAGE, "BMP"), 0),
        (saved(IMAGE, "GIF"), 0),
        (saved(IMAGE, "WEBP", lossless=True), 0),
        (saved(IMAGE, "WEBP", quality=95), 12),
        *((saved(IMAGE, "TIFF", compression=kind), 0) for kind in (None, "tiff_lzw", "packbits", "tiff_deflate")),
        pytest.param(
            saved(IMAGE, "AVIF", quality=95) if reads_avif() else b"",
            12,
            marks=pytest.mark.skipif(not reads_avif(), reason="this Pillow reads no AVIF"),
        ),
        (saved(IMAGE.quantize(4), "PNG"), 0),
        (saved(IMAGE.quantize(4), "BMP"), 0),
        (saved(IMAGE.convert("RGBA"), "PNG"), 0),
        (saved(IMAGE.convert("RGBA"), "TIFF"), 0),
        (saved(IMAGE.convert("CMYK"), "TIFF"), 1),
        (saved(IMAGE.convert("CMYK"), "JPEG", quality=95), 40),
        (saved(IMAGE.convert("YCbCr"), "TIFF"), 3),
    ],
)
def test_an_image_has_its_colours_in_every_format(data: bytes, within: int) -> None:
    left, right = colours_of_halves(decode(data, "x"))
    assert is_close(left, RED, within)
    assert is_close(right, BLUE, within)


@pytest.mark.parametrize("name", ["a.jpg", "a.tif", "a", "a.csv"])
def test_the_content_decides_and_not_the_extension(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(saved(IMAGE, "PNG"))
    assert colours_of_halves(read_image(tmp_path / name)) == (RED, BLUE)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "BMP", "GIF"])
@pytest.mark.parametrize(
    ("image", "left", "right"), [(two_colours((30,), (200,), "L"), 30, 200), (two_colours((0,), (1,), "1"), 0, 255)]
)
def test_grey_and_1_bit_images_are_grey(kind: str, image: Image.Image, left: int, right: int) -> None:
    assert colours_of_halves(decode(saved(image, kind), "x")) == ((left,) * 3, (right,) * 3)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_the_first_frame_of_an_animation_is_read(kind: str) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    second = two_colours(BLUE, RED)
    data = saved(IMAGE, kind, save_all=True, append_images=[second, second.rotate(180)], **options)
    with Image.open(io.BytesIO(data)) as animation:
        assert getattr(animation, "n_frames", 1) == 3
    assert colours_of_halves(decode(data, "x")) == (RED, BLUE)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (4000, 2), (2, 4000), (1, 60)])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF"])
def test_odd_sizes_are_read(kind: str, width: int, height: int) -> None:
    assert decode(saved(Image.new("RGB", (width, height), RED), kind), "x").shape == (height, width, 3)


def test_a_png_with_megabytes_of_text_is_read() -> None:
    metadata = PngInfo()
    metadata.add_text("comment", "".join(map(str, range(400_000))), zip=True)
    assert decode(saved(IMAGE, "PNG", pnginfo=metadata), "7.png").shape == (IMAGE.height, IMAGE.width, 3)


# --- transparency ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "left", "right"),
    [
        (saved(two_colours((*RED, 255), (*BLUE, 0), "RGBA"), "PNG"), RED, WHITE),
        (saved(two_colours((*RED, 255), (*BLUE, 0), "RGBA"), "WEBP", lossless=True, exact=True), RED, WHITE),
        (saved(two_colours((*RED, 255), (*BLUE, 0), "RGBA"), "TIFF"), RED, WHITE),
        (saved(two_colours((0, 0, 0, 51), (0, 0, 0, 102), "RGBA"), "PNG"), (204,) * 3, (153,) * 3),
        (saved(two_colours((40, 255), (40, 0), "LA"), "PNG"), (40,) * 3, WHITE),
        (saved(IMAGE, "PNG", transparency=BLUE), RED, WHITE),
        (saved(two_colours((40,), (90,), "L"), "PNG", transparency=90), (40,) * 3, WHITE),
        (saved(two_colours((0,), (1,), "1"), "PNG", transparency=1), BLACK, WHITE),
        (saved(two_colours((0,), (1,), "1"), "PNG", transparency=0), WHITE, WHITE),
    ],
)
def test_transparent_pixels_are_laid_over_white(data: bytes, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    assert colours_of_halves(decode(data, "x")) == (left, right)


@pytest.mark.parametrize("kind", ["PNG", "GIF"])
@pytest.mark.parametrize("hidden", [0, 1])
def test_the_transparent_colour_of_a_palette_is_white(kind: str, hidden: int) -> None:
    image = two_colours((0,), (1,), "P")
    image.putpalette([*RED, *BLUE])
    for transparency in (hidden, bytes([0 if i == hidden else 255 for i in range(2)])):
        if kind == "GIF" and isinstance(transparency, bytes):
            continue
        left, right = colours_of_halves(decode(saved(image, kind, transparency=transparency), "x"))
        assert left == (WHITE if hidden == 0 else RED)
        assert right == (WHITE if hidden == 1 else BLUE)


# --- more than 8 bits --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "kind", "left", "right"),
    [
        (two_values("uint16", 0, 65535), "PNG", 0, 255),
        (two_values("uint16", 257 * 30, 257 * 200), "PNG", 30, 200),
        (two_values("uint16", 0, 255), "PNG", 0, 1),  # a dark image stays dark
        (two_values("uint16", 257 * 30, 257 * 200), "TIFF", 30, 200),
        (two_values("int32", 30, 200), "TIFF", 30, 200),
        (two_values("int32", 257 * 30, 257 * 200), "TIFF", 30, 200),
        (two_values("int32", -5, 10**6), "TIFF", 0, 255),
        (two_values("float32", 0.0, 1.0), "TIFF", 0, 255),
        (two_values("float32", 0.2, 0.6), "TIFF", 51, 153),
        (two_values("float32", 30.0, 200.0), "TIFF", 30, 200),
        (two_values("float32", 257.0 * 30, 257.0 * 200), "TIFF", 30, 200),
        (two_values("float32", -3.0, 0.0), "TIFF", 0, 0),
    ],
)
def test_deeper_values_are_scaled_to_8_bits(image: Image.Image, kind: str, left: int, right: int) -> None:
    assert colours_of_halves(decode(saved(image, kind), "x")) == ((left,) * 3, (right,) * 3)


def test_16_bit_colours_are_scaled_to_8_bits() -> None:
    line = b"\0" + struct.pack(">3H", *(257 * value for value in RED)) * 8
    line += struct.pack(">3H", *(257 * value for value in BLUE)) * 8
    header = struct.pack(">IIBBBBB", 16, 8, 16, 2, 0, 0, 0)
    data = png((b"IHDR", header), (b"IDAT", zlib.compress(line * 8)), (b"IEND", b""))
    assert colours_of_halves(decode(data, "x")) == (RED, BLUE)


# --- orientation -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_of_the_camera_is_applied(kind: str, orientation: int) -> None:
    upright = np.zeros((16, 32, 3), dtype=np.uint8)
    upright[:8, :16] = RED
    upright[8:, 16:] = BLUE
    as_stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: upright.transpose(1, 0, 2)[::-1],
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: upright.transpose(1, 0, 2)[:, ::-1],
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = Image.fromarray(np.ascontiguousarray(as_stored))
    pixels = decode(saved(image, kind, exif=exif, quality=95), "x")
    assert pixels.shape == upright.shape
    assert np.abs(pixels.astype(int) - upright).mean() < 6


def test_broken_exif_changes_no_pixel() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = saved(IMAGE, "JPEG", exif=exif, quality=95)
    start = data.index(b"MM\0*") if b"MM\0*" in data else data.index(b"II*\0")
    assert decode(data[: start + 8] + b"\xff" * 4 + data[start + 12 :], "x").shape == (8, 16, 3)


def exif_with_text_tag(tag: int) -> bytes:
    """Returns EXIF of a camera that was held sideways; the tag is text, where a number should be."""
    entries = sorted([(0x0112, 3, 1, struct.pack("<HH", 6, 0)), (tag, 2, 4, b"six\0")])
    packed = b"".join(struct.pack("<HHI", *entry[:3]) + entry[3] for entry in entries)
    return b"Exif\0\0II*\0" + struct.pack("<IH", 8, len(entries)) + packed + bytes(4)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("tag", [0x0100, 0x0102, 0x011A, 0x0128, 0x013E])
def test_an_exif_tag_of_the_wrong_type_does_not_hide_the_orientation(kind: str, tag: int) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    plain = decode(saved(IMAGE, kind, **options), "7")
    turned = decode(saved(IMAGE, kind, exif=exif_with_text_tag(tag), **options), "7")
    assert turned.shape == (IMAGE.width, IMAGE.height, 3)
    assert np.abs(np.rot90(turned).astype(int) - plain).max() <= (0 if kind == "PNG" else 30)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("junk", [b"junk", b"\0", b"Exif\0\0junk", b"II*\0\xff\xff\xff\xff"])
def test_junk_in_the_place_of_exif_is_ignored(kind: str, junk: bytes) -> None:
    assert decode(saved(IMAGE, kind, exif=junk), "7").shape == (IMAGE.height, IMAGE.width, 3)
