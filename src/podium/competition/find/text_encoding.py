"""Decodes the text of a table or a JSON file: UTF-8, UTF-16 with its mark, else what Western Windows writes.

The last is a guess, and is refused where most letters beyond ASCII stand side by side, as in Chinese or Japanese.
"""

import codecs

WESTERN = "cp1252"
MOST_SIDE_BY_SIDE = 0.5  # of the bytes beyond ASCII: in Western words such letters stand alone


def decode_text(data: bytes, may_guess: bool = True) -> tuple[str, str]:
    """Returns the text, and its encoding if that is a guess; raises UnicodeDecodeError if none fits."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16"), ""
    try:
        return data.decode("utf-8-sig"), ""
    except UnicodeDecodeError:
        if may_guess and _looks_western(data):
            return data.decode(WESTERN), WESTERN
        raise


def _looks_western(data: bytes) -> bool:
    import numpy as np

    codes = np.frombuffer(data, np.uint8)
    places = np.flatnonzero(codes > 127)
    has_neighbour = np.diff(places, prepend=-2) == 1
    has_neighbour[:-1] |= has_neighbour[1:]
    is_text = not np.isin(codes, [*range(9), 11, *range(14, 32), 0x81, 0x8D, 0x8F, 0x90, 0x9D, 127]).any()
    return bool(is_text and has_neighbour.mean() <= MOST_SIDE_BY_SIDE)


def note_on_encoding(name: str, encoding: str) -> str:
    """Says that an encoding was guessed; "" if it was not."""
    return encoding and f"{name} is not UTF-8; that it is Western text ({encoding}) is a guess: save it as UTF-8 if not"
