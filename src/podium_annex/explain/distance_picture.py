"""Draws how far the heads of a transformer look, as an SVG: layers across, distance up."""

from html import escape
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from podium.basics.disk import write_text
from podium_annex.explain.svg import base_line, below, level, picture, round_step

WIDTH, HEIGHT = 560, 380
LEFT, RIGHT, TOP, BOTTOM = 56, 20, 44, 48  # pixels around the axes
MOST_LINES = 6


def draw_distances(path: Path, distances: NDArray[Any], name: str) -> None:
    """Draws a point for every head of [layers, heads] distances in pixels."""
    layers, most = len(distances), float(distances.max()) or 1.0
    step = round_step(max(most / MOST_LINES, 1))
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def across(layer: int) -> float:
        return LEFT + (right - LEFT) * (layer + 0.5) / layers

    def up(distance: float) -> float:
        return bottom - (bottom - TOP) * distance / (1.05 * most)

    parts = []
    for number in range(int(1.05 * most / step) + 1):
        y = up(number * step)
        parts += level(LEFT, right, y, number * step, 8)
    parts.append(base_line(LEFT, right, bottom))
    every = -(-layers // 24)  # so that the numbers of the layers do not touch
    for layer in range(0, layers, every):
        parts.append(below(across(layer), bottom + 18, str(layer + 1)))
    for layer, heads in enumerate(distances):
        for number, distance in enumerate(heads):
            hint = f"<title>layer {layer + 1}, head {number + 1}: {distance:.1f} px</title>"
            parts.append(
                f'<circle class="point" cx="{across(layer):.1f}" cy="{up(float(distance)):.1f}" r="4">{hint}</circle>'
            )
    parts.append(below((LEFT + right) / 2, HEIGHT - 10, "layer"))
    parts.append(f'<text x="12" y="18">{escape(name)}: how far every head looks</text>')
    parts.append('<text x="12" y="35">mean distance between a patch and what it attends to, in pixels</text>')
    write_text(path, picture(WIDTH, HEIGHT, f"attention distance of {name}", parts) + "\n")
