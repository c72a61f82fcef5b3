"""The parts of a picture with axes, as SVG: its frame in two colour schemes, its grid, round numbers for an axis."""

import math
from collections.abc import Sequence
from html import escape

STYLE = """
  svg { background: #ffffff; }
  text { font: 12px system-ui, sans-serif; fill: #222222; }
  .axis { stroke: #888888; } .grid { stroke: #e4e4e4; }
  circle.point { fill: #0072b2; fill-opacity: 0.7; }
  @media (prefers-color-scheme: dark) {
    svg { background: #16181c; } text { fill: #e6e6e6; } .grid { stroke: #2c3036; } circle.point { fill: #56b4e9; }
  }
"""


def picture(width: int, height: int, label: str, parts: Sequence[str]) -> str:
    """Returns a file of its own; `label` is what a screen reader says."""
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(label, quote=True)}">'
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>"])


def level(left: float, right: float, y: float, number: float, distance: int = 6) -> list[str]:
    """Returns a line of the grid at a height, and its number to the left of it."""
    return [
        f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>',
        f'<text x="{left - distance}" y="{y + 4:.1f}" text-anchor="end">{number:g}</text>',
    ]


def base_line(left: float, right: float, y: float) -> str:
    return f'<line class="axis" x1="{left}" x2="{right}" y1="{y}" y2="{y}"/>'


def below(x: float, y: float, text: str) -> str:
    """Returns a text under a place of an axis, in its middle."""
    return f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{text}</text>'


def round_step(least: float) -> float:
    """Returns the next of 1, 2 and 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(first * power for first in (1, 2, 5, 10) if first * power >= least * 0.999)
