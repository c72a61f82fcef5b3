"""Images: one policy for every kind of file, and a named refusal for what is no image."""

import io
import os
import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from pictures import bomb, png, saved
from podium.images.decode import BadImage, Pixels, decode, examine, read_image

WHITE, BLACK, RED, BLUE = (255, 255, 255), (0, 0, 0), (250, 10, 20), (10, 20, 250)


def halves(left: tuple[int, ...], right: tuple[int, ...], mode: str = "RGB") -> Image.Image:
    """16 wide, 8 high, of two colours."""
    image = Image.new(mode, (16, 8), left if len(left) > 1 else left[0])
    image.paste(right if len(right) > 1 else right[0], (8, 0, 16, 8))
    return image


def values(array: NDArray[np.generic]) -> Image.Image:
    return Image.fromarray(array)


def colours(pixels: Pixels) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of the left and of the right half."""
    assert pixels.dtype == np.uint8
    assert pixels.shape == (8, 16, 3)
    return tuple(pixels[4, 2].tolist()), tuple(pixels[4, 13].tolist())


def alike(a: tuple[int, ...], b: tuple[int, ...], within: int) -> bool:
    return all(abs(x - y) <= within for x, y in zip(a, b, strict=True))


def refusal(data: bytes) -> str:
    with pytest.raises(BadImage) as refused:
        decode(data, "photos/7.jpg")
    said = str(refused.value)
    assert said.startswith("photos/7.jpg cannot be read: ")
    assert said.endswith("; download it again or replace it")
    assert "\n" not in said
    return said


# --- every kind is one of RGB ----------------------------------------------------------------------------

LAP = halves(RED, BLUE)


@pytest.mark.parametrize(
    ("data", "within"),
    [
        (saved(LAP, "JPEG", quality=95), 6),
        (saved(LAP, "JPEG", quality=95, progressive=True), 6),
        (saved(LAP, "PNG"), 0),
        (saved(LAP, "BMP"), 0),
        (saved(LAP, "GIF"), 0),
        (saved(LAP, "WEBP", lossless=True), 0),
        (saved(LAP, "WEBP", quality=95), 12),
        *((saved(LAP, "TIFF", compression=kind), 0) for kind in (None, "tiff_lzw", "packbits", "tiff_deflate")),
        (saved(LAP.quantize(4), "PNG"), 0),
        (saved(LAP.quantize(4), "BMP"), 0),
        (saved(LAP.convert("RGBA"), "PNG"), 0),
        (saved(LAP.convert("RGBA"), "TIFF"), 0),
        (saved(LAP.convert("CMYK"), "TIFF"), 1),
        (saved(LAP.convert("CMYK"), "JPEG", quality=95), 40),
        (saved(LAP.convert("YCbCr"), "TIFF"), 3),
    ],
)
def test_a_picture_has_its_colours_in_every_format(data: bytes, within: int) -> None:
    left, right = colours(decode(data, "x"))
    assert alike(left, RED, within)
    assert alike(right, BLUE, within)


@pytest.mark.parametrize("name", ["a.jpg", "a.tif", "a", "a.csv"])
def test_the_content_counts_and_not_the_extension(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(saved(LAP, "PNG"))
    assert colours(read_image(tmp_path / name)) == (RED, BLUE)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "BMP", "GIF"])
@pytest.mark.parametrize(
    ("image", "left", "right"), [(halves((30,), (200,), "L"), 30, 200), (halves((0,), (1,), "1"), 0, 255)]
)
def test_grey_and_1_bit_are_grey(kind: str, image: Image.Image, left: int, right: int) -> None:
    assert colours(decode(saved(image, kind), "x")) == ((left,) * 3, (right,) * 3)


@pytest.mark.parametrize(
    ("data", "left", "right"),
    [
        (saved(halves((*RED, 255), (*BLUE, 0), "RGBA"), "PNG"), RED, WHITE),
        (saved(halves((*RED, 255), (*BLUE, 0), "RGBA"), "WEBP", lossless=True, exact=True), RED, WHITE),
        (saved(halves((*RED, 255), (*BLUE, 0), "RGBA"), "TIFF"), RED, WHITE),
        (saved(halves((0, 0, 0, 51), (0, 0, 0, 102), "RGBA"), "PNG"), (204,) * 3, (153,) * 3),
        (saved(halves((40, 255), (40, 0), "LA"), "PNG"), (40,) * 3, WHITE),
        (saved(LAP, "PNG", transparency=BLUE), RED, WHITE),
        (saved(halves((40,), (90,), "L"), "PNG", transparency=90), (40,) * 3, WHITE),
        (saved(halves((0,), (1,), "1"), "PNG", transparency=1), BLACK, WHITE),
        (saved(halves((0,), (1,), "1"), "PNG", transparency=0), WHITE, WHITE),
    ],
)
def test_what_is_transparent_is_white(data: bytes, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    assert colours(decode(data, "x")) == (left, right)


@pytest.mark.parametrize("kind", ["PNG", "GIF"])
@pytest.mark.parametrize("hidden", [0, 1])
def test_the_transparent_colour_of_a_palette_is_white(kind: str, hidden: int) -> None:
    image = halves((0,), (1,), "P")
    image.putpalette([*RED, *BLUE])
    for transparency in (hidden, bytes([0 if i == hidden else 255 for i in range(2)])):
        if kind == "GIF" and isinstance(transparency, bytes):
            continue
        left, right = colours(decode(saved(image, kind, transparency=transparency), "x"))
        assert left == (WHITE if hidden == 0 else RED)
        assert right == (WHITE if hidden == 1 else BLUE)


def steps(kind: str, low: float, high: float) -> Image.Image:
    return values(np.repeat(np.array([[low] * 8 + [high] * 8], dtype=kind), 8, axis=0))


@pytest.mark.parametrize(
    ("image", "format_", "left", "right"),
    [
        (steps("uint16", 0, 65535), "PNG", 0, 255),
        (steps("uint16", 257 * 30, 257 * 200), "PNG", 30, 200),
        (steps("uint16", 0, 255), "PNG", 0, 1),  # dark, and so it stays
        (steps("uint16", 257 * 30, 257 * 200), "TIFF", 30, 200),
        (steps("int32", 30, 200), "TIFF", 30, 200),
        (steps("int32", 257 * 30, 257 * 200), "TIFF", 30, 200),
        (steps("int32", -5, 10**6), "TIFF", 0, 255),
        (steps("float32", 0.0, 1.0), "TIFF", 0, 255),
        (steps("float32", 0.2, 0.6), "TIFF", 51, 153),
        (steps("float32", 30.0, 200.0), "TIFF", 30, 200),
        (steps("float32", 257.0 * 30, 257.0 * 200), "TIFF", 30, 200),
        (steps("float32", -3.0, 0.0), "TIFF", 0, 0),
    ],
)
def test_deeper_values_are_scaled_to_8_bits(image: Image.Image, format_: str, left: int, right: int) -> None:
    assert colours(decode(saved(image, format_), "x")) == ((left,) * 3, (right,) * 3)


def test_16_bits_of_colour_are_scaled_too() -> None:
    line = b"\0" + struct.pack(">3H", *(257 * value for value in RED)) * 8
    line += struct.pack(">3H", *(257 * value for value in BLUE)) * 8
    header = struct.pack(">IIBBBBB", 16, 8, 16, 2, 0, 0, 0)
    assert colours(decode(png((b"IHDR", header), (b"IDAT", zlib.compress(line * 8)), (b"IEND", b"")), "x")) == (
        RED,
        BLUE,
    )


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_floats_that_are_no_numbers_are_refused(odd: float) -> None:
    assert "some of its values are not numbers" in refusal(saved(steps("float32", 0.5, odd), "TIFF"))


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_of_an_animation_the_first_frame_counts(kind: str) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    second = halves(BLUE, RED)
    data = saved(LAP, kind, save_all=True, append_images=[second, second.rotate(180)], **options)
    with Image.open(io.BytesIO(data)) as written:
        assert getattr(written, "n_frames", 1) == 3
    assert colours(decode(data, "x")) == (RED, BLUE)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_of_the_camera_is_undone(kind: str, orientation: int) -> None:
    upright = np.zeros((16, 32, 3), dtype=np.uint8)
    upright[:8, :16] = RED
    upright[8:, 16:] = BLUE
    turned = {
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
    pixels = decode(saved(values(np.ascontiguousarray(turned)), kind, exif=exif, quality=95), "x")
    assert pixels.shape == upright.shape
    assert np.abs(pixels.astype(int) - upright).mean() < 6


def test_broken_exif_spoils_no_pixel() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = saved(LAP, "JPEG", exif=exif, quality=95)
    at = data.index(b"MM\0*") if b"MM\0*" in data else data.index(b"II*\0")
    assert decode(data[: at + 8] + b"\xff" * 4 + data[at + 12 :], "x").shape == (8, 16, 3)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (4000, 2), (2, 4000), (1, 60)])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF"])
def test_odd_sizes_are_read(kind: str, width: int, height: int) -> None:
    assert decode(saved(Image.new("RGB", (width, height), RED), kind), "x").shape == (height, width, 3)


# --- what is no image ------------------------------------------------------------------------------------


NOISE = values(np.random.default_rng(0).integers(0, 256, (24, 24, 3), dtype=np.uint8))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty"),
        (b"<!DOCTYPE html><html>Please log in</html>", "it is a web page, no JPEG, PNG, BMP, GIF, WebP or TIFF"),
        (b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf", "it is an AVIF image, no JPEG"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "it is a HEIC image, no JPEG"),
        (b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "it is an SVG drawing, no JPEG"),
        (bytes(128) + b"DICM" + bytes(100), "it is a DICOM image, no JPEG"),
        (b"PK\x03\x04" + bytes(100), "it is an archive, no JPEG"),
        (b"\0" * 1000, "it is no JPEG"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "it is no JPEG"),  # Pillow would start Ghostscript
        (saved(LAP, "PPM"), "it is no JPEG"),
        (b"\xff\xd8\xff", "it is an unusual JPEG, or its header is damaged"),
        (saved(LAP, "PNG")[:12] + b"?" + saved(LAP, "PNG")[13:], "it is an unusual PNG, or its header is damaged"),
        (saved(LAP, "TIFF")[:4] + bytes(200), "it is an unusual TIFF, or its header is damaged"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_what_is_no_image_is_refused_by_name(data: bytes, reason: str) -> None:
    assert reason in refusal(data)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("JPEG", {}),
        ("JPEG", {"progressive": True}),
        ("PNG", {}),
        ("GIF", {}),
        ("WEBP", {"lossless": True}),
        ("BMP", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
    ],
)
@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9])
def test_a_truncated_image_is_refused(kind: str, options: dict[str, object], kept: float) -> None:
    data = saved(NOISE, kind, **options)
    refusal(data[: int(len(data) * kept)])


def photo(kind: str, **options: object) -> bytes:
    """Soft shapes, since whatever bits a JPEG of noise has are a picture of noise."""
    x, y = np.meshgrid(np.arange(320), np.arange(240))
    waves = [127 + 120 * np.sin(x / a) * np.cos(y / b) for a, b in ((17, 23), (31, 11), (7, 40))]
    return saved(values(np.stack(waves, -1).astype(np.uint8)), kind, **options)


def middle(data: bytes, share: float, by: bytes | None) -> bytes:
    """Without a share of its bytes in the middle, or these instead."""
    start, length = len(data) // 2, int(len(data) * share)
    return data[:start] + (by * length if by else b"") + data[start + length :]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("JPEG", {}),
        ("JPEG", {"progressive": True}),
        ("JPEG", {"restart_marker_rows": 1}),
        ("TIFF", {"compression": "tiff_adobe_deflate"}),
        ("PNG", {}),
    ],
)
@pytest.mark.parametrize("by", [None, b"\0", b"\x55"])
def test_damage_in_the_middle_is_noticed(kind: str, options: dict[str, object], by: bytes | None) -> None:
    """Though Pillow and OpenCV decode all of these JPEGs without a word."""
    sound = photo(kind, **options)
    assert examine(sound, "7.jpg")[1].doubt == ""
    damaged = middle(sound, 0.2, by)
    try:
        said = examine(damaged, "7.jpg")[1].doubt
    except BadImage as bad:
        said = bad.reason
    assert said


@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_that_was_cut_and_given_an_end_is_refused(progressive: bool) -> None:
    sound = photo("JPEG", progressive=progressive)
    assert "part of it is missing or damaged (premature end" in refusal(sound[: len(sound) // 2] + b"\xff\xd9")


def test_a_jpeg_whose_header_promises_more_rows_than_there_are_is_refused() -> None:
    data = bytearray(photo("JPEG"))
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 2] = struct.pack(">H", 480)
    assert "part of it is missing or damaged" in refusal(bytes(data))


def test_a_jpeg_with_bytes_too_many_is_read_and_said_so() -> None:
    sound = photo("JPEG")
    pixels, header = examine(sound[:-2] + bytes(40) + sound[-2:], "7.jpg")
    assert header.doubt.endswith("extraneous bytes before marker 0xd9")
    assert np.array_equal(pixels, decode(sound, "7.jpg"))


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"keep_rgb": True}, {"subsampling": "4:1:1"}])
def test_no_sound_jpeg_is_doubted(mode: str, options: dict[str, object]) -> None:
    image = Image.open(io.BytesIO(photo("PNG"))).convert(mode)
    if mode == "RGB" or "keep_rgb" not in options:
        assert examine(saved(image, "JPEG", **options), "7.jpg")[1].doubt == ""


def test_a_deflated_tiff_that_unpacks_to_a_bomb_is_refused() -> None:
    packed = zlib.compress(bytes(900_000_000))
    tags = {256: 8, 257: 8, 258: 8, 259: 8, 262: 1, 273: 200, 277: 1, 278: 8, 279: len(packed)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    header = b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)
    assert "it unpacks to more than its header says" in refusal(header.ljust(200, b"\0") + packed)


def test_a_directory_and_a_dangling_link_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "7.jpg").mkdir()
    (tmp_path / "8.jpg").symlink_to("nowhere")
    for name, reason in (("7.jpg", "it is a folder"), ("8.jpg", "No such file"), ("9.jpg", "No such file")):
        with pytest.raises(BadImage, match=f"{re.escape(str(tmp_path / name))} cannot be read: {reason}"):
            read_image(tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "7.jpg").write_bytes(saved(LAP, "JPEG"))
    (tmp_path / "7.jpg").chmod(0)
    with pytest.raises(BadImage, match=r"7\.jpg cannot be read: Permission denied"):
        read_image(tmp_path / "7.jpg")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "GIF"])
def test_a_bomb_is_refused_from_its_header(kind: str) -> None:
    assert "it has 20000 x 20000 pixels, more than 100 million" in refusal(bomb(kind, 20_000))
    assert "more than 100 million" in refusal(bomb(kind, 10_001))


def test_a_real_bomb_of_400_megapixels_is_refused_too() -> None:
    pack = zlib.compressobj(9)
    rows = b"".join(pack.compress(bytes(2501 * 100)) for _ in range(200)) + pack.flush()  # 1 bit a pixel
    header = struct.pack(">IIBBBBB", 20_000, 20_000, 1, 0, 0, 0, 0)
    data = png((b"IHDR", header), (b"IDAT", rows), (b"IEND", b""))
    assert len(data) < 60_000
    assert "20000 x 20000 pixels" in refusal(data)


def test_text_that_unpacks_to_a_bomb_is_refused() -> None:
    text = (b"zTXt", b"comment\0\0" + zlib.compress(bytes(70_000_000)))
    assert "Decompressed data too large" in refusal(png((b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)), text))


def test_a_png_with_megabytes_of_text_is_read() -> None:
    about = PngInfo()
    about.add_text("comment", "".join(map(str, range(400_000))), zip=True)
    assert decode(saved(LAP, "PNG", pnginfo=about), "7.png").shape == (LAP.height, LAP.width, 3)


def exif(tag: int) -> bytes:
    """Held sideways, and a tag that is text."""
    entries = sorted([(0x0112, 3, 1, struct.pack("<HH", 6, 0)), (tag, 2, 4, b"six\0")])
    packed = b"".join(struct.pack("<HHI", *entry[:3]) + entry[3] for entry in entries)
    return b"Exif\0\0II*\0" + struct.pack("<IH", 8, len(entries)) + packed + bytes(4)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("tag", [0x0100, 0x0102, 0x011A, 0x0128, 0x013E])
def test_tags_of_the_wrong_kind_beside_the_orientation_spoil_nothing(kind: str, tag: int) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    plain = decode(saved(LAP, kind, **options), "7")
    turned = decode(saved(LAP, kind, exif=exif(tag), **options), "7")
    assert turned.shape == (LAP.width, LAP.height, 3)
    assert np.abs(np.rot90(turned).astype(int) - plain).max() <= (0 if kind == "PNG" else 30)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("junk", [b"junk", b"\0", b"Exif\0\0junk", b"II*\0\xff\xff\xff\xff"])
def test_exif_that_is_none_spoils_nothing(kind: str, junk: bytes) -> None:
    assert decode(saved(LAP, kind, exif=junk), "7").shape == (LAP.height, LAP.width, 3)


# --- whatever the bytes ----------------------------------------------------------------------------------

EXIF = Image.Exif()
EXIF[0x0112], EXIF[0x010E] = 6, "a description"
SOUND = [
    saved(LAP, "JPEG", exif=EXIF),
    saved(LAP.convert("CMYK"), "JPEG", progressive=True),
    saved(LAP, "PNG", exif=EXIF),
    saved(LAP.convert("LA"), "PNG"),
    saved(LAP.quantize(4), "PNG", transparency=1),
    saved(LAP, "GIF", save_all=True, append_images=[halves(BLUE, RED)]),
    saved(LAP, "WEBP", exif=EXIF),
    saved(LAP, "BMP"),
    saved(LAP, "TIFF", compression="tiff_lzw"),
    saved(LAP.convert("RGBA"), "TIFF"),
    saved(steps("float32", 0, 1), "TIFF"),
]


@settings(max_examples=400)
@given(sound=st.sampled_from(SOUND), changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4))
def test_a_damaged_file_is_pixels_or_refused_and_never_anything_else(
    sound: bytes, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(sound)
    for at, value in changes:
        data[at % len(data)] = value
    try:
        pixels = decode(bytes(data), "x")
    except BadImage:
        return
    assert pixels.dtype == np.uint8
    assert pixels.ndim == 3
    assert pixels.shape[2] == 3
