"""Text in pictures: letters of any script, and no boxes where a font has the letter."""

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from podium_annex.explain import lettering
from podium_annex.explain.lettering import NO_LETTER, width_of, write_line
from tiny import assert_says


def written(text: str) -> NDArray[np.uint8]:
    picture = Image.new("RGB", (200, 30), "white")
    write_line(ImageDraw.Draw(picture), (5, 5), text, "black", 13)
    return np.asarray(picture)


def box() -> NDArray[np.uint8]:
    picture = Image.new("RGB", (200, 30), "white")
    ImageDraw.Draw(picture).text((5, 5), NO_LETTER, "black", ImageFont.load_default(13))
    return np.asarray(picture)


def test_letters_of_european_languages_are_no_boxes() -> None:
    pytest.importorskip("matplotlib")
    letters = "äöüßñçéłžαβγжщя"
    drawn = [written(letter) for letter in letters]
    assert not any(np.array_equal(letter, box()) for letter in drawn)
    assert len({letter.tobytes() for letter in drawn}) == len(letters)
    assert width_of("Löwe", 13) > width_of("Lwe", 13)


def test_an_umlaut_may_be_two_characters() -> None:
    assert np.array_equal(written("Ba\u0308r"), written("B\u00e4r"))


def test_english_is_written_as_pillow_writes_it() -> None:
    picture = Image.new("RGB", (200, 30), "white")
    ImageDraw.Draw(picture).text((5, 5), "jog, [AV To] 0.93 %", "black", ImageFont.load_default(13))
    assert np.array_equal(written("jog, [AV To] 0.93 %"), np.asarray(picture))


def test_where_no_font_has_the_letters_one_note_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lettering, "_font_files", lambda: ())
    monkeypatch.setattr(lettering, "_unwritten", set())
    monkeypatch.setattr(lettering, "_font_with", lettering._font_with.__wrapped__)
    assert np.array_equal(written("ж"), box())
    written("щя")
    (note,) = capsys.readouterr().err.splitlines()
    assert_says(note, "ж", "Noto")
