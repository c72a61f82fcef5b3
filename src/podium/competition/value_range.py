"""The range of the values in images of more than 8 bits: which value becomes black, and which white.

    range = [0, 4095]      in the card: of 12 bits, for example
    range = "image"        each image's own lowest and highest value

Without it, all values that the kind of image can hold are the range (images/decode.py).
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

from podium.basics.errors import PodiumError

ValueRange = tuple[float, float] | Literal["image"]


def value_range_of(settings: Mapping[str, Any], place: str) -> ValueRange | None:
    """Returns the range in a card's settings; raises if it is none. `place` names the card."""
    value = settings.get("range", "")
    if value == "":
        return None
    if value == "image":
        return "image"
    is_pair = isinstance(value, list) and len(value) == 2 and all(type(bound) in (int, float) for bound in value)
    if not is_pair or not all(map(math.isfinite, value)) or not value[0] < value[1]:
        raise PodiumError(
            f'{place}: range must be a lower and a higher number, as in [0, 4095], or "image", not {value!r}'
        )
    return float(value[0]), float(value[1])
