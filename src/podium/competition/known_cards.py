"""Knows famous competitions: their cards ship with Podium.

Reads known_competitions.toml, a table for each competition; writes nothing.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "known_competitions.toml"


@cache
def known_cards() -> dict[str, dict[str, Any]]:
    """Returns the settings of each competition that Podium knows."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))
