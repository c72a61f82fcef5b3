"""Draws the scores of runs against what they cost, as an SVG: a panel for the multiply-adds, one for the training time.

`podium compare --picture FILE.svg` and `podium train` with several models write it. It needs no other package.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import pandas as pd

from podium.basics.disk import write_text
from podium.basics.errors import PodiumError
from podium.basics.terminal import say
from podium.tasks.metrics import METRICS
from podium_annex.explain.svg import base_line, below, level, picture, round_step

WIDTH, HEIGHT = 480, 360  # pixels of a panel
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 28, 48  # margins around the axes
LINE = 14  # pixels between two labels
TICK_DISTANCE = 44  # pixels that the numbers below an axis need
FARTHEST_LABEL = 6  # half lines between a point and its name
LETTER = 6.6  # width of a letter, about
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito's, for all eyes
MINUTE, HOUR = 60.0, 3600.0  # seconds
# After six runs, the next six have the same colours and another shape.
SHAPES = (
    '<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}">{title}</circle>',
    '<path d="M{x:.1f} {y:.1f}m-5 -5h10v10h-10z" fill="{colour}">{title}</path>',
    '<path d="M{x:.1f} {y:.1f}m0 -6l6 6l-6 6l-6 -6z" fill="{colour}">{title}</path>',
    '<path d="M{x:.1f} {y:.1f}m0 -6l6 11h-12z" fill="{colour}">{title}</path>',
)


@dataclass(frozen=True)
class Axis:
    """Maps values to pixels, evenly or by their logarithm."""

    low: float
    high: float
    start: float  # pixels
    end: float
    marks: tuple[float, ...] = ()  # of a logarithmic axis; an even one has round numbers

    def place(self, value: float) -> float:
        low, high, value = (math.log(number) if self.marks else number for number in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        step = round_step((self.high - self.low) / 5)
        even = (step * number for number in range(math.ceil(self.low / step), math.floor(self.high / step) + 1))
        ticks = [tick for tick in self.marks or even if self.low <= tick <= self.high]
        return ticks or [math.sqrt(self.low * self.high)]  # the middle: no mark lies between the ends


@dataclass(frozen=True)
class Point:
    name: str
    cost: float
    score: float
    spread: float  # standard deviation over the folds; NaN for one fold
    place: int  # in the list of runs: decides colour and shape


def draw_comparison(runs: pd.DataFrame, path: Path) -> None:
    """Writes the picture of what compare_runs returns."""
    svg = comparison_svg(runs)
    if not svg:
        raise PodiumError(f"no run has a score that could be drawn in {path}; train a run, or correct the metric")
    write_text(path, svg + "\n")
    say(f"podium: wrote {path}")


def comparison_svg(runs: pd.DataFrame) -> str:
    """Draws what compare_runs returns; runs without a score or a cost are left out. Returns "" if none is left."""
    drawn = [row for row in runs.itertuples() if not math.isnan(row.score)]
    if not drawn:
        return ""
    metric = drawn[0].metric
    better = "" if METRICS[metric]().better > 0 else " (lower is better)"
    bars = ", bar: standard deviation over the folds" if any(row.fold_spread > 0 for row in drawn) else ""
    panels = []
    for number, cost in enumerate(COSTS):
        points = [
            Point(row.run, getattr(row, cost.column), row.score, row.fold_spread, place)
            for place, row in enumerate(drawn)
            if getattr(row, cost.column) > 0
        ]
        if points:
            panels.append(_panel(points, cost, f"{metric}{better}{bars}", number * WIDTH))
    return picture(2 * WIDTH, HEIGHT, f"{metric} of runs against their cost", panels)


def check_path(path: Path) -> None:
    if path.suffix.lower() != ".svg":
        raise PodiumError(f"{path}: the picture is an SVG; give it a name that ends in .svg")
    if not path.absolute().parent.is_dir():
        raise PodiumError(f"{path.absolute().parent} does not exist; make that folder, or name another one")


def _operations(count: float) -> str:
    return f"{count / 1e9:g} G" if count >= 1e9 else f"{count / 1e6:g} M"


def _time(seconds: float) -> str:
    unit, name = next((unit, name) for unit, name in ((HOUR, "h"), (MINUTE, "min"), (0.0, "s")) if seconds >= unit)
    return f"{seconds / (unit or 1):.2g} {name}"


@dataclass(frozen=True)
class Cost:
    column: str  # of compare_runs
    title: str
    marks: tuple[float, ...]
    describe: Callable[[float], str]


COSTS = (
    Cost(
        "multiply_adds",
        "multiply-adds of one image",
        tuple(first * 10.0**power for power in range(5, 13) for first in (1, 2, 5)),
        _operations,
    ),
    Cost(
        "seconds",
        "training time of all folds",
        tuple(first * unit for unit in (1.0, MINUTE, HOUR) for first in (1, 2, 5, 10, 20, 40)),
        _time,
    ),
)


def _panel(points: Sequence[Point], cost: Cost, title: str, shift: int) -> str:
    across, up = _axes(points, cost)
    parts = [f'<g transform="translate({shift} 0)">']
    for tick in up.ticks():
        parts += level(across.start, across.end, up.place(tick), tick)
    last = -math.inf
    for tick in across.ticks():
        x = across.place(tick)
        if x - last < TICK_DISTANCE:
            continue
        last = x
        parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{up.start}" y2="{up.start + 4}"/>')
        parts.append(below(x, up.start + 18, cost.describe(tick)))
    parts.append(base_line(across.start, across.end, up.start))
    parts.append(below((across.start + across.end) / 2, HEIGHT - 10, cost.title))
    parts.append(f'<text x="{across.start - 6}" y="{TOP - 12}">{escape(title)}</text>')
    parts += [_draw_point(point, across, up) for point in points]
    parts += _draw_labels(points, across, up)
    return "\n".join([*parts, "</g>"])


def _axes(points: Sequence[Point], cost: Cost) -> tuple[Axis, Axis]:
    costs = [point.cost for point in points]
    spreads = [0.0 if math.isnan(point.spread) else point.spread for point in points]
    low = min(point.score - spread for point, spread in zip(points, spreads, strict=True))
    high = max(point.score + spread for point, spread in zip(points, spreads, strict=True))
    margin = 0.1 * (high - low) or 0.01
    across = Axis(min(costs) / 1.5, max(costs) * 1.5, LEFT, WIDTH - RIGHT, cost.marks)
    return across, Axis(low - margin, high + margin, HEIGHT - BOTTOM, TOP)


def _draw_point(point: Point, across: Axis, up: Axis) -> str:
    x, y = across.place(point.cost), up.place(point.score)
    colour, shape = COLOURS[point.place % len(COLOURS)], SHAPES[point.place // len(COLOURS) % len(SHAPES)]
    bar = ""
    if point.spread > 0:
        ends = up.place(point.score - point.spread), up.place(point.score + point.spread)
        bar = f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{ends[0]:.1f}" y2="{ends[1]:.1f}" stroke="{colour}"/>'
    spread = f" ± {point.spread:z.4f}" if point.spread > 0 else ""
    title = f"<title>{escape(point.name)}: {point.score:z.4f}{spread}</title>"
    return bar + shape.format(x=x, y=y, colour=colour, title=title)


def _draw_labels(points: Sequence[Point], across: Axis, up: Axis) -> list[str]:
    """Writes the names beside the points, on the side with more room, and none over another.

    Where many points lie close together, a name without room is left out: the point shows it under the pointer.
    """
    labels: list[str] = []
    taken: list[tuple[float, float, float]] = []  # left and right end, and the base line
    for point in sorted(points, key=lambda point: -point.score):
        x, y, width = across.place(point.cost), up.place(point.score) + 4, LETTER * len(point.name)
        left, anchor = (x + 9, "start") if x + 9 + width < WIDTH else (x - 9 - width, "end")
        base = _nearest_free(y, left, left + width, taken)
        if base is not None and left > 0:
            taken.append((left, left + width, base))
            start = left if anchor == "start" else left + width
            labels.append(f'<text x="{start:.1f}" y="{base:.1f}" text-anchor="{anchor}">{escape(point.name)}</text>')
    return labels


def _nearest_free(y: float, left: float, right: float, taken: Sequence[tuple[float, float, float]]) -> float | None:
    """Returns the base line nearest to `y` where no other label stands; None if it would be too far away."""

    def is_free(base: float) -> bool:
        is_inside = TOP < base < HEIGHT - BOTTOM
        return is_inside and not any(
            left < end and right > start and abs(base - other) < LINE for start, end, other in taken
        )

    shifts = (sign * LINE / 2 * number for number in range(FARTHEST_LABEL) for sign in (1, -1))
    return next((y + shift for shift in shifts if is_free(y + shift)), None)
