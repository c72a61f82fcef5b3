"""The README's moving picture: the screen that docs/make_terminal.py draws, and the SVG that it has made."""

import re
import runpy
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from podium.basics.terminal import columns_of

ROOT = Path(__file__).parents[1]
SVG = "{http://www.w3.org/2000/svg}"
MAKER = runpy.run_path(str(ROOT / "docs" / "make_terminal.py"))
PICTURE = ROOT / "docs" / "pictures" / "compete.svg"


def texts(lines: tuple[tuple[tuple[str, str], ...], ...]) -> list[str]:
    return ["".join(letter for letter, _ in line) for line in lines]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("10 %\r20 %", ["20 %"]),
        ("bar: 10 %\r\033[Kdone\r\n", ["done"]),
        ("long bar\r        \rpets\r\n", ["pets"]),
        ("said\r\na\r\nb\r\n\033[2F\033[Jtold\r\nc\r\n", ["said", "told", "c"]),
        ("\n\rbar\033[A\rabove", ["above", "bar"]),
        ("0123456789ab", ["0123456789", "ab"]),
        ("123456789猫犬", ["123456789", "猫犬"]),
        ("猫\rab", ["ab"]),
        ("e\u0301t\u0301e", ["e\u0301t\u0301e"]),
    ],
)
def test_the_screen_shows_what_a_terminal_shows(written: str, expected: list[str]) -> None:
    screen = MAKER["Screen"](columns=10, rows=4)
    screen.write(written)
    assert texts(screen.lines()) == expected
    assert [len(line) for line in screen.lines()] == [columns_of(text) for text in expected]


def test_the_screen_keeps_the_lines_above_its_window_and_colours() -> None:
    screen = MAKER["Screen"](columns=10, rows=2)
    screen.write("a\r\nb\r\nc\r\n\033[9F\033[J\033[36mnext\033[0m!")
    assert texts(screen.lines()) == ["a", "b", "next!"]
    assert [colour for _, colour in screen.lines()[-1]] == ["36"] * 4 + [""]
    with pytest.raises(ValueError, match="2J"):
        screen.write("\033[2J")


def test_the_picture_shows_each_row_as_long_as_the_terminal_did() -> None:
    recordings = [("make", [(1.0, "1 of 2\r\n"), (200.0, "\033[1F\033[Jtold\r\n2 of 2 < 3\r\n"), (200.1, "end\r\n")])]
    frames = MAKER["shorten"](MAKER["frames"](recordings))
    assert texts(frames[0].lines) == ["$ make"]
    assert texts(frames[-1].lines) == ["$ make", "told", "2 of 2 < 3", "end"]
    seconds = [frame.second for frame in frames]
    assert all(after - before >= MAKER["TICK"] for before, after in pairwise(seconds))
    assert seconds[-1] < 5
    svg = ElementTree.fromstring(MAKER["picture"](frames))
    gone = [group for group in svg.iter(f"{SVG}g") if "gone" in group.attrib["class"]]
    assert ["".join(group.itertext()).replace("\u00a0", " ") for group in gone] == ["1 of 2"]


def test_the_picture_of_the_readme_is_small_and_told_in_words_and_shows_no_machine() -> None:
    assert f"({PICTURE.relative_to(ROOT)})" in (ROOT / "README.md").read_text(encoding="utf-8")
    text = PICTURE.read_text(encoding="utf-8")
    svg = ElementTree.fromstring(text)
    assert len(text.encode()) < 120_000
    assert svg.findtext(f"{SVG}title")
    assert "make compete" in str(svg.findtext(f"{SVG}desc"))
    assert "prefers-reduced-motion" in text
    assert "<script" not in text
    assert not re.search(r"(?<![\w.])/(home|root|tmp|work|mnt|opt|usr|var|private|Users|Volumes)/", text)
