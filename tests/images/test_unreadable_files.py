"""Unreadable files: what is not an image, is damaged or is a decompression bomb is refused with a reason."""

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
from PIL import Image

from pictures import BLUE, RED, bomb, png, saved, two_colours, two_values
from podium.images.decode import BadImage, decode, decode_with_header, read_image
from second_round import examples

IMAGE = two_colours(RED, BLUE)


def refusal(data: bytes) -> str:
    """Returns the message that refuses these bytes."""
    with pytest.raises(BadImage) as refused:
        decode(data, "photos/7.jpg")
    message = str(refused.value)
    assert message.startswith("photos/7.jpg cannot be read: ")
    assert message.endswith("; download it again or replace it")
    assert "\n" not in message
    return message


# --- not an image ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty"),
        (b"<!DOCTYPE html><html>Please log in</html>", "it is a web page, not a JPEG, PNG, BMP, GIF, WebP or TIFF"),
        (b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf", "it is an AVIF image; Pillow 11.3"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "it is a HEIC image; the extra formats brings pillow-heif"),
        (b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "it is an SVG drawing, not a JPEG"),
        (b"PK\x03\x04" + bytes(100), "it is an archive, not a JPEG"),
        (b"\0" * 1000, "it is not a JPEG"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "it is not a JPEG"),  # Pillow would start Ghostscript
        (saved(IMAGE, "PPM"), "it is not a JPEG"),
        (b"\xff\xd8\xff", "it is an unusual JPEG, or its header is damaged"),
        (saved(IMAGE, "PNG")[:12] + b"?" + saved(IMAGE, "PNG")[13:], "it is an unusual PNG, or its header is damaged"),
        (saved(IMAGE, "TIFF")[:4] + bytes(200), "it is an unusual TIFF, or its header is damaged"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_the_message_says_what_the_file_is(data: bytes, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.competition.find.image_names.find_spec", lambda name: None)
    assert reason in refusal(data)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_image_of_floats_that_are_not_finite_is_refused(value: float) -> None:
    assert "not finite numbers" in refusal(saved(two_values("float32", 0.5, value), "TIFF"))


def test_a_folder_and_a_dangling_link_are_refused(tmp_path: Path) -> None:
    (tmp_path / "7.jpg").mkdir()
    (tmp_path / "8.jpg").symlink_to("nowhere")
    for name, reason in (("7.jpg", "it is a folder"), ("8.jpg", "No such file"), ("9.jpg", "No such file")):
        with pytest.raises(BadImage, match=f"{re.escape(str(tmp_path / name))} cannot be read: {reason}"):
            read_image(tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission_to_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "7.jpg").write_bytes(saved(IMAGE, "JPEG"))
    (tmp_path / "7.jpg").chmod(0)
    with pytest.raises(BadImage, match=r"7\.jpg cannot be read: Permission denied"):
        read_image(tmp_path / "7.jpg")


# --- damage ------------------------------------------------------------------------------------------

NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 24, 3), dtype=np.uint8))


def waves(kind: str, **options: object) -> bytes:
    """Returns an image of soft shapes. In a JPEG of noise, damage would look like any other noise."""
    x, y = np.meshgrid(np.arange(320), np.arange(240))
    channels = [127 + 120 * np.sin(x / a) * np.cos(y / b) for a, b in ((17, 23), (31, 11), (7, 40))]
    return saved(Image.fromarray(np.stack(channels, -1).astype(np.uint8)), kind, **options)


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
@pytest.mark.parametrize("filler", [None, b"\0", b"\x55"])
def test_damage_in_the_middle_is_noticed(kind: str, options: dict[str, object], filler: bytes | None) -> None:
    """A fifth of the bytes is missing or replaced. Pillow and OpenCV decode all of these JPEGs without a warning."""
    sound = waves(kind, **options)
    assert decode_with_header(sound, "7.jpg")[1].doubt == ""
    start, length = len(sound) // 2, int(len(sound) * 0.2)
    damaged = sound[:start] + (filler * length if filler else b"") + sound[start + length :]
    try:
        noticed = decode_with_header(damaged, "7.jpg")[1].doubt
    except BadImage as bad:
        noticed = bad.reason
    assert noticed


@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_that_was_cut_and_given_an_end_is_refused(progressive: bool) -> None:
    sound = waves("JPEG", progressive=progressive)
    assert "part of it is missing or damaged (premature end" in refusal(sound[: len(sound) // 2] + b"\xff\xd9")


def test_a_jpeg_with_fewer_rows_than_its_header_says_is_refused() -> None:
    data = bytearray(waves("JPEG"))
    start = data.index(b"\xff\xc0") + 5
    data[start : start + 2] = struct.pack(">H", 480)
    assert "part of it is missing or damaged" in refusal(bytes(data))


def test_a_jpeg_with_extra_bytes_is_read_with_a_doubt() -> None:
    sound = waves("JPEG")
    pixels, header = decode_with_header(sound[:-2] + bytes(40) + sound[-2:], "7.jpg")
    assert header.doubt.endswith("extraneous bytes before marker 0xd9")
    assert np.array_equal(pixels, decode(sound, "7.jpg"))


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"keep_rgb": True}, {"subsampling": "4:1:1"}])
def test_a_sound_jpeg_has_no_doubt(mode: str, options: dict[str, object]) -> None:
    image = Image.open(io.BytesIO(waves("PNG"))).convert(mode)
    if mode == "RGB" or "keep_rgb" not in options:
        assert decode_with_header(saved(image, "JPEG", **options), "7.jpg")[1].doubt == ""


# --- decompression bombs -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "GIF"])
def test_an_image_with_too_many_pixels_is_refused_from_its_header(kind: str) -> None:
    assert "it has 20000 x 20000 pixels, more than 100 million" in refusal(bomb(kind, 20_000))
    assert "more than 100 million" in refusal(bomb(kind, 10_001))


def test_a_small_file_with_400_megapixels_is_refused() -> None:
    compressor = zlib.compressobj(9)
    rows = b"".join(compressor.compress(bytes(2501 * 100)) for _ in range(200)) + compressor.flush()  # 1 bit a pixel
    header = struct.pack(">IIBBBBB", 20_000, 20_000, 1, 0, 0, 0, 0)
    data = png((b"IHDR", header), (b"IDAT", rows), (b"IEND", b""))
    assert len(data) < 60_000
    assert "20000 x 20000 pixels" in refusal(data)


def test_a_png_with_too_much_compressed_text_is_refused() -> None:
    text = (b"zTXt", b"comment\0\0" + zlib.compress(bytes(70_000_000)))
    assert "Decompressed data too large" in refusal(png((b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)), text))


def test_a_deflated_tiff_that_unpacks_to_more_than_its_header_says_is_refused() -> None:
    packed = zlib.compress(bytes(900_000_000), 1)
    tags = {256: 8, 257: 8, 258: 8, 259: 8, 262: 1, 273: 200, 277: 1, 278: 8, 279: len(packed)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    header = b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)
    assert "it unpacks to more than its header says" in refusal(header.ljust(200, b"\0") + packed)


# --- random damage -----------------------------------------------------------------------------------

EXIF = Image.Exif()
EXIF[0x0112], EXIF[0x010E] = 6, "a description"
SOUND_FILES = [
    saved(IMAGE, "JPEG", exif=EXIF),
    saved(IMAGE.convert("CMYK"), "JPEG", progressive=True),
    saved(IMAGE, "PNG", exif=EXIF),
    saved(IMAGE.convert("LA"), "PNG"),
    saved(IMAGE.quantize(4), "PNG", transparency=1),
    saved(IMAGE, "GIF", save_all=True, append_images=[two_colours(BLUE, RED)]),
    saved(IMAGE, "WEBP", exif=EXIF),
    saved(IMAGE, "BMP"),
    saved(IMAGE, "TIFF", compression="tiff_lzw"),
    saved(IMAGE.convert("RGBA"), "TIFF"),
    saved(two_values("float32", 0, 1), "TIFF"),
]


@settings(max_examples=examples(400))
@given(
    sound=st.sampled_from(SOUND_FILES),
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4),
)
def test_a_file_with_changed_bytes_is_decoded_or_refused(sound: bytes, changes: list[tuple[int, int]]) -> None:
    data = bytearray(sound)
    for position, value in changes:
        data[position % len(data)] = value
    try:
        pixels = decode(bytes(data), "x")
    except BadImage:
        return
    assert pixels.dtype == np.uint8
    assert pixels.ndim == 3
    assert pixels.shape[2] == 3
