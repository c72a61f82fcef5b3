"""Draws the charts of a report as SVG elements that stand inside the page; page.css gives them their colours.

Lines are told apart by colour and by their dashes, which the legend shows; each chart says its end as text.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from podium_annex.explain.svg import below, level, round_step
from podium_annex.report.numbers import Reliability

WIDTH, HEIGHT = 420, 250  # pixels; the page scales them
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 16, 38
MIN_BARS = 5  # whose height a bar has if there are fewer


@dataclass(frozen=True)
class Line:
    name: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class Point:
    name: str
    x: float
    y: float


@dataclass(frozen=True)
class Frame:
    """Maps values to pixels."""

    x: tuple[float, float]
    y: tuple[float, float]

    def place(self, x: float, y: float) -> tuple[float, float]:
        across = (x - self.x[0]) / (self.x[1] - self.x[0] or 1)
        up = (y - self.y[0]) / (self.y[1] - self.y[0] or 1)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)


def line_chart(title: str, across: str, lines: Sequence[Line]) -> str:
    """Draws lines over a common axis of whole numbers; values that are not finite are left out."""
    lines = [_finite(line) for line in lines]
    lines = [line for line in lines if line.x]
    if not lines:
        return ""
    low, high = min(min(line.y) for line in lines), max(max(line.y) for line in lines)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    last = max(max(line.x) for line in lines)
    frame = Frame((min(min(line.x) for line in lines), last), (low - margin, high + margin))
    parts = [_axes(frame, across, whole_x=True)]
    for number, line in enumerate(lines):
        points = " ".join("{:.1f},{:.1f}".format(*frame.place(x, y)) for x, y in zip(line.x, line.y, strict=True))
        hint = f"<title>{escape(line.name)}: {line.y[-1]:z.4f} at the end</title>"
        if len(line.x) == 1:
            x, y = frame.place(line.x[0], line.y[0])
            parts.append(f'<circle class="line{number % 6}" cx="{x:.1f}" cy="{y:.1f}" r="4">{hint}</circle>')
        else:
            parts.append(f'<polyline class="line{number % 6}" points="{points}">{hint}</polyline>')
    legend = "".join(
        f"<li>{_key(number)}{escape(line.name)} {line.y[-1]:z.4f}</li>" for number, line in enumerate(lines)
    )
    ends = ", ".join(f"{line.name} {line.y[-1]:z.4f}" for line in lines)
    return _figure(title, parts, f"<ul class=legend>{legend}</ul>", f"{title}, by {across}; at the end: {ends}")


def course_chart(title: str, across: str, line: Line, points: Sequence[Point]) -> str:
    """Draws a value that holds until the next one as steps, and single values as points, from 0 on."""
    line = _finite(line)
    points = [point for point in points if math.isfinite(point.y)]
    xs, ys = [*line.x, *(point.x for point in points)], [*line.y, *(point.y for point in points)]
    if not line.x:
        return ""
    low, high = min(ys), max(ys)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    frame = Frame((0.0, max(xs)), (low - margin, high + margin))
    corners = [(line.x[0], line.y[0])]
    for x, y in zip(line.x[1:], line.y[1:], strict=True):
        corners += [(x, corners[-1][1]), (x, y)]
    path = " ".join("{:.1f},{:.1f}".format(*frame.place(x, y)) for x, y in corners)
    hint = f"<title>{escape(line.name)}: {line.y[-1]:z.4f} at the end</title>"
    parts = [_axes(frame, across), f'<polyline class="line0" points="{path}">{hint}</polyline>']
    for point in points:
        x, y = frame.place(point.x, point.y)
        hint = f"<title>{escape(point.name)}: {point.y:z.4f} after {point.x:.1f} {escape(across)}</title>"
        parts.append(f'<circle class="line1" cx="{x:.1f}" cy="{y:.1f}" r="4">{hint}</circle>')
    names = f"{line.name} {line.y[-1]:z.4f}", f"members ({len(points)})"
    legend = f"<li>{_key(0)}{escape(names[0])}</li><li>{_key(1, is_line=False)}{escape(names[1])}</li>"
    course = f"{title}, by {across}: {line.y[0]:z.4f} at {line.x[0]:.1f}, {line.y[-1]:z.4f} at {line.x[-1]:.1f}"
    return _figure(title, parts, f"<ul class=legend>{legend}</ul>", course)


def bar_chart(title: str, shares: Mapping[str, float]) -> str:
    """Draws shares of one as bars, each below its name."""
    if not shares:
        return ""
    step = (HEIGHT - TOP) / max(len(shares), MIN_BARS)
    parts = []
    for number, (name, share) in enumerate(shares.items()):
        y = TOP + number * step
        width = max(0.0, min(share, 1.0)) * (WIDTH - 2 * RIGHT)
        parts.append(f'<text x="{RIGHT}" y="{y:.1f}">{escape(name)} {share:z.3f}</text>')
        bar = f'x="{RIGHT}" y="{y + 4:.1f}" width="{width:.1f}" height="{max(step - 20, 2):.1f}"'
        parts.append(f'<rect class="line0" {bar}/>')
    return _figure(title, parts, "", f"{title}: {', '.join(f'{name} {share:z.3f}' for name, share in shares.items())}")


def reliability_chart(title: str, measured: Reliability) -> str:
    """Draws how often predictions of a confidence are right; on the dashed line, confidence is honest."""
    lowest = min(1 - 1e-6, *measured.confidence, *measured.accuracy)
    frame = Frame((math.floor(lowest * 10) / 10, 1.0), (math.floor(lowest * 10) / 10, 1.0))
    (x0, y0), (x1, y1) = (frame.place(value, value) for value in frame.x)
    parts = [_axes(frame, "confidence"), f'<line class="even" x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}"/>']
    places = []
    for confidence, accuracy, count in zip(measured.confidence, measured.accuracy, measured.count, strict=True):
        x, y = frame.place(confidence, accuracy)
        places.append(f"{x:.1f},{y:.1f}")
        hint = f"<title>confidence {confidence:z.3f}: {accuracy:.1%} of {count:,} right</title>"
        parts.append(f'<circle class="line0" cx="{x:.1f}" cy="{y:.1f}" r="4">{hint}</circle>')
    parts.append(f'<polyline class="line0" points="{" ".join(places)}"/>')
    note = f"calibration error {measured.error:z.4f}, log loss {measured.log_loss:z.4f}"
    return _figure(title, parts, f"<p class=note>{note}</p>", f"{title}: {note}")


def _key(number: int, is_line: bool = True) -> str:
    shape = '<polyline points="0,4 26,4"' if is_line else '<circle cx="13" cy="4" r="4"'
    return f'<svg class="key" viewBox="0 0 26 8" aria-hidden="true">{shape} class="line{number % 6}"/></svg>'


def _figure(title: str, parts: Sequence[str], below: str, told: str) -> str:
    """Returns a chart with its title; `told` is what somebody hears who does not see it."""
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(told)}">{"".join(parts)}</svg>'
    return f"<figure><figcaption>{escape(title)}</figcaption>{svg}{below}</figure>"


def _axes(frame: Frame, across: str, whole_x: bool = False) -> str:
    parts = []
    for tick in _round_values(*frame.y):
        _, y = frame.place(frame.x[0], tick)
        parts += level(LEFT, WIDTH - RIGHT, y, tick)
    for tick in _round_values(*frame.x):
        if whole_x and tick % 1:
            continue
        x, _ = frame.place(tick, frame.y[0])
        parts.append(below(x, HEIGHT - BOTTOM + 16, f"{tick:g}"))
    parts.append(below((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, escape(across)))
    return "".join(parts)


def _round_values(low: float, high: float) -> list[float]:
    """Returns four to seven round numbers between two values."""
    if high <= low:
        return [low]
    step = round_step((high - low) / 6)
    numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return [round(number * step, 10) for number in numbers]


def _finite(line: Line) -> Line:
    pairs = [(x, y) for x, y in zip(line.x, line.y, strict=True) if math.isfinite(y)]
    return Line(line.name, [x for x, _ in pairs], [y for _, y in pairs])
