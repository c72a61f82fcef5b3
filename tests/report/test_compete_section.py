"""What the page of all runs shows of `podium compete`."""

import re
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from podium.competition.load import load
from podium.saved_runs.ledger import BEGUN, ENDED, FAILED, FOLDS, STARTED, SUBMITTED, Ledger
from podium.saved_runs.prediction_files import Predictions
from podium_annex.report.charts import Line, Point, bar_chart, course_chart
from podium_annex.report.compete_section import compete_section, disagreement
from tiny import Podium, done

WHY = "an error of 0.2000 expected, the blend's 0.5000 would fall by 0.10000 in 9 s"


def svgs_of(text: str) -> list[ElementTree.Element]:
    """Returns the charts; the keys of a legend are for the eye alone."""
    charts = [ElementTree.fromstring(svg) for svg in re.findall("<svg.*?</svg>", text, re.DOTALL)]
    return [chart for chart in charts if chart.get("aria-hidden") is None]


def begin(ledger: Ledger, member: str, **facts: Any) -> None:
    kind = {"kind": "tuned", "model": "test_convnext", "side": 64, "seed": 0, "options": {}}
    ledger.add(BEGUN, **{"member": member, "folds": [0, 1], **kind, "seconds": 9.0, "gain": 0.1, "why": WHY, **facts})


@pytest.fixture
def competed(two_runs: Path) -> Path:
    """A project whose ledger says that `compete` has trained both runs."""
    ledger = Ledger("tiny", two_runs)
    ledger.add(STARTED, budget=60.0)
    begin(ledger, "idle", gain=None, error=None)
    ledger.add(ENDED, member="idle", seconds=7.4, blend_error=0.5, gain=None, errors={"idle": 0.5})
    ledger.add(FOLDS, judging=[0, 1], why="2 folds fit into the time")
    begin(ledger, "good")  # it was stopped, and begun again
    begin(ledger, "good")
    ledger.add(ENDED, member="good", seconds=8.6, blend_error=0.2, gain=0.3, errors={"idle": 0.5, "good": 0.2})
    begin(ledger, "large")
    ledger.add(FAILED, member="large", error="<out of memory>")
    weights = {"idle": 0.25, "good": 0.75}
    ledger.add(SUBMITTED, runs=["idle", "good"], folds=[0, 1], score=0.8, weights=weights, sha256="0" * 64)
    return two_runs


def test_without_competing_there_is_no_section(two_runs: Path) -> None:
    assert compete_section(load("tiny", two_runs)) == ""


def test_the_section_shows_the_course_the_members_and_each_decision(competed: Path) -> None:
    text = compete_section(load("tiny", competed))
    course, weights = svgs_of(text)
    hints = [hint.text for hint in course.iter("title")]
    assert "blend: 0.8000 at the end" in hints
    assert any(hint and hint.startswith("good: 0.8000 after") for hint in hints)
    assert [bar.text for bar in weights.iter("text")] == ["good 0.750", "idle 0.250"]
    rows = re.findall("<tr>(.*?)</tr>", text)
    members = [row for row in rows if row.startswith('<td class="text">good</td>')]
    assert '<td data-value="0.75">0.7500</td>' in members[0]
    steps = [row for row in rows if escape(WHY) in row or "fit into the time" in row]
    assert len(steps) == 5
    assert '<td data-value="0.3">0.3000</td>' not in steps[2]  # the one that was stopped
    assert '<td data-value="0.3">0.3000</td>' in steps[3]
    assert '<td data-value="9">9</td>' in steps[3]  # seconds
    assert "failed: &lt;out of memory&gt;" in steps[4]


def test_the_page_of_all_runs_holds_it_and_the_images_on_which_members_disagree(competed: Path, podium: Podium) -> None:
    done(podium("report", "-c", "tiny", "--runs", "good"))
    page = (competed / "runs/tiny/report.html").read_text(encoding="utf-8")
    assert '<a href="#compete">Competing</a>' in page
    section = page[page.index('<section id="compete">') : page.index('<section id="runs">')]
    disputed = section[section.index("Images on which members disagree most") :]
    count = int(re.search(r"answer differently for (\d+) image", disputed)[1])  # type: ignore[index]
    assert count > 0
    assert len(re.findall("<img ", disputed)) == min(count, 24)
    first = re.search(r'title="(\d+): (\w+); good \d+% (\w+), idle \d+% (\w+)"', disputed)
    assert first
    assert first[3] != first[4]
    assert "agreement" in section


def test_of_members_of_other_classes_the_rest_is_shown(competed: Path) -> None:
    path = competed / "runs/tiny/idle/fold0/oof.npz"
    predictions = Predictions.load(path, "")
    replace(predictions, classes=("blue", "green", "lonely", "pink")).save(path)
    text = compete_section(load("tiny", competed))
    assert "<h3>Decisions</h3>" in text
    assert "<h3>Agreement</h3>" not in text


def test_those_images_come_first_for_which_probabilities_differ_most() -> None:
    probs = np.array([[[0.9, 0.1], [0.9, 0.1]], [[0.8, 0.2], [0.1, 0.9]]])
    low, high = disagreement(probs)
    assert high > low > 0


def test_a_line_of_steps_holds_until_the_next_and_values_that_are_not_finite_are_left_out() -> None:
    line = Line("blend", [1.0, 2.0, 3.0], [0.5, float("nan"), 0.7])
    (svg,) = svgs_of(course_chart("score", "minutes", line, [Point("a < b", 2.0, 0.6), Point("c", 1.0, float("inf"))]))
    (path,) = svg.iter("polyline")
    (first, corner, last) = (tuple(map(float, point.split(","))) for point in str(path.get("points")).split())
    assert first[1] == corner[1]
    assert corner[0] == last[0]
    assert len(list(svg.iter("circle"))) == 1
    assert course_chart("score", "minutes", Line("blend", [], []), []) == ""


def test_bars_have_the_lengths_of_the_shares() -> None:
    (svg,) = svgs_of(bar_chart("weights", {"a & b": 0.6, "c": 0.3}))
    widths = [float(str(bar.get("width"))) for bar in svg.iter("rect")]
    assert widths[0] == pytest.approx(2 * widths[1])
    assert bar_chart("weights", {}) == ""
