"""Draws how far the heads of a transformer look, as an SVG: layers across, distance up."""

from html import escape
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from podium.basics.disk import write_text

WIDTH, HEIGHT = 560, 380
LEFT, RIGHT, TOP, BOTTOM = 56, 20, 44, 48  # pixels around the axes
STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)  # pixels between two lines
MOST_LINES = 6
STYLE = """
  svg { background: #ffffff; }
  text { font: 12px system-ui, sans-serif; fill: #222222; }
  .axis { stroke: #888888; } .grid { stroke: #e4e4e4; }
  circle { fill: #0072b2; fill-opacity: 0.7; }
  @media (prefers-color-scheme: dark) {
    svg { background: #16181c; } text { fill: #e6e6e6; } .grid { stroke: #2c3036; } circle { fill: #56b4e9; }
  }
"""


def draw_distances(path: Path, distances: NDArray[Any], name: str) -> None:
    """Draws a point for every head of [layers, heads] distances in pixels."""
    layers, most = len(distances), float(distances.max()) or 1.0
    step = next((step for step in STEPS if step * MOST_LINES >= most), 1000)
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def across(layer: int) -> float:
        return LEFT + (right - LEFT) * (layer + 0.5) / layers

    def up(distance: float) -> float:
        return bottom - (bottom - TOP) * distance / (1.05 * most)

    parts = []
    for number in range(int(1.05 * most / step) + 1):
        y = up(number * step)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{number * step:g}</text>')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    every = -(-layers // 24)  # so that the numbers of the layers do not touch
    for layer in range(0, layers, every):
        parts.append(f'<text x="{across(layer):.1f}" y="{bottom + 18}" text-anchor="middle">{layer + 1}</text>')
    for layer, heads in enumerate(distances):
        for number, distance in enumerate(heads):
            hint = f"<title>layer {layer + 1}, head {number + 1}: {distance:.1f} px</title>"
            parts.append(f'<circle cx="{across(layer):.1f}" cy="{up(float(distance)):.1f}" r="4">{hint}</circle>')
    parts.append(f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 10}" text-anchor="middle">layer</text>')
    parts.append(f'<text x="12" y="18">{escape(name)}: how far every head looks</text>')
    parts.append('<text x="12" y="35">mean distance between a patch and what it attends to, in pixels</text>')
    label = escape(f"attention distance of {name}", quote=True)
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">'
    write_text(path, "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>"]) + "\n")
