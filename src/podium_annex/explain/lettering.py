"""Writes text of any script into a picture: each letter in the first font that has it.

The first font is the one in Pillow, which has the letters of English. DejaVu Sans, which comes with matplotlib, has
those of most European languages and more. The fonts that the system has (Noto, and some of macOS) come last.
"""

import unicodedata
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

from PIL import ImageDraw, ImageFont

from podium.basics.terminal import say

FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", "~/.local/share/fonts", "~/.fonts", "/Library/Fonts")
SYSTEM_FONTS = ("DejaVuSans.ttf", "NotoSans*-Regular.*", "Arial Unicode.ttf")
NO_LETTER = "\U0010ffff"  # every font draws its sign for a missing letter here

Font = Any  # of Pillow
Place = tuple[float, float]
_unwritten: set[str] = set()  # letters that no font has; the user reads of the first one


def width_of(text: str, size: int) -> float:
    return float(sum(font.getlength(part) for font, part in _parts(text, size)))


def write_line(pen: ImageDraw.ImageDraw, place: Place, text: str, colour: str, size: int) -> None:
    """Writes a line of text whose upper left corner is at `place`."""
    x, baseline = place[0], place[1] + _first_font(size).getmetrics()[0]
    for font, part in _parts(text, size):
        pen.text((x, baseline), part, colour, font, anchor="ls")
        x += font.getlength(part)


def _parts(text: str, size: int) -> Iterator[tuple[Font, str]]:
    """Yields the parts of a text that one font can write."""
    fonts: list[Font] = []
    text = unicodedata.normalize("NFC", text)  # in the names of files, an umlaut may be two characters
    for letter in text:  # a mark is drawn onto the letter before it, and a blank is in every font
        is_joined = fonts and (letter.isspace() or unicodedata.category(letter).startswith(("M", "Cf")))
        fonts.append(fonts[-1] if is_joined else _font_with(letter, size))
    pairs = zip(fonts, text, strict=True)
    for _, group in groupby(pairs, key=lambda pair: id(pair[0])):
        same = list(group)
        yield same[0][0], "".join(letter for _, letter in same)


@cache
def _font_with(letter: str, size: int) -> Font:
    if letter.isspace() or _has(_first_font(size), letter):
        return _first_font(size)
    for path in _font_files():
        font = _open(path, size)
        if font is not None and _has(font, letter):
            return font
    if not _unwritten:
        say(f"podium: note: no font here has the letter {letter}; install the Noto fonts (Debian: fonts-noto)")
    _unwritten.add(letter)
    return _first_font(size)


@cache
def _first_font(size: int) -> Font:
    return ImageFont.load_default(size)


@cache
def _open(path: Path, size: int) -> Font | None:
    try:
        return ImageFont.truetype(path, size)
    except OSError:  # a damaged file
        return None


def _has(font: Font, letter: str) -> bool:
    drawn, missing = font.getmask(letter), font.getmask(NO_LETTER)
    return bool(drawn.size != missing.size or bytes(drawn) != bytes(missing))


@cache
def _font_files() -> tuple[Path, ...]:
    """Returns the fonts after the first one, in the order in which they are tried."""
    matplotlib = find_spec("matplotlib")
    installed = Path(matplotlib.origin).parent if matplotlib and matplotlib.origin else Path()
    paths = [installed / "mpl-data/fonts/ttf/DejaVuSans.ttf"]
    for folder in FOLDERS:
        for name in SYSTEM_FONTS:
            paths += sorted(Path(folder).expanduser().rglob(name))
    return tuple(path for path in paths if path.is_file())
