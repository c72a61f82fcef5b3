"""The competition's own metric, a function of two tables as Kaggle's metric notebooks define it."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from by_array import targets_of
from layouts import IMAGES, load_files, table
from podium.basics.errors import PodiumError
from podium.competition.load import load
from podium.options.extensions.extend import call_metric
from podium.tasks.metrics import METRICS, evaluate
from several_labels import SLUG as STRIPES
from several_labels import write_competition
from tiny import FAST, Podium, done, one_line, write_card

ERROR_RATE = """
import pandas as pd


class ParticipantVisibleError(Exception):
    pass


def score(solution: pd.DataFrame, submission: pd.DataFrame, row_id_column_name: str) -> float:
    if not solution[row_id_column_name].equals(submission[row_id_column_name]):
        raise ParticipantVisibleError("other ids")
    del solution[row_id_column_name], submission[row_id_column_name]
    return float((solution != submission).any(axis=1).mean())
"""


def use_metric(root: Path, slug: str, source: str, card: str) -> None:
    (root / "metric.py").write_text(source)
    write_card(root, card, slug)


def test_runs_are_trained_compared_and_submitted_by_it(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.blending.expected_score.SLOW_RESAMPLES", 20)
    use_metric(tiny, "tiny", ERROR_RATE, 'metric = "metric.py:score"\nbetter = "lower"')
    out, _ = done(podium("data", "-c", "tiny"))
    assert "metric   metric.py:score, set in" in out
    for name in ("a", "b"):
        words = ("train", *FAST, "--model", "test_resnet", "--epochs", "1")
        done(podium(*words, "--name", name, "--seed", len(name)))
    competition = load("tiny", tiny)
    assert METRICS["metric.py:score"]().better == -1
    targets = np.array([0, 1, 1, 0])
    probs = np.eye(len(competition.classes))[[0, 1, 0, 0]]
    assert evaluate(competition.metric, targets_of(targets), probs) == 1 / 4
    out, _ = done(podium("compare", "-c", "tiny", "--json"))
    assert {row["metric"] for row in json.loads(out)} == {"metric.py:score"}
    out, _ = done(podium("submit", "-c", "tiny", "--runs", "a", "b"))
    lineage = json.loads(Path(out.strip()).with_suffix(".json").read_text())
    assert lineage["metric"] == "metric.py:score"
    assert set(lineage["extensions"]) == {"metric.py"}


def test_it_gets_the_columns_of_the_submission(tmp_path: Path) -> None:
    source = ERROR_RATE.replace(
        "    if not",
        "    expected = ['image', 'red', 'green', 'blue', 'yellow']\n"
        "    assert list(solution) == list(submission) == expected, list(solution)\n"
        "    assert set(solution['red']) <= {0, 1} and submission['red'].between(0, 1).all()\n"
        "    return float((solution['red'] - submission['red']).abs().mean())\n"
        "    if not",
    )
    write_competition(tmp_path, as_tags=False)
    use_metric(tmp_path, STRIPES, source, 'metric = "metric.py:score"\nbetter = "lower"')
    competition = load(STRIPES, tmp_path)
    targets = np.array([[1, 0, 0, 0], [0, 1, 1, 0]], np.float32)
    assert evaluate(competition.metric, targets_of(targets), np.full((2, 4), 0.25)) == pytest.approx(0.5)
    write_competition(tmp_path, as_tags=True)
    competition = load(STRIPES, tmp_path)
    (tmp_path / "metric.py").write_text(ERROR_RATE)
    competition = load(STRIPES, tmp_path)
    assert evaluate(competition.metric, targets_of(targets), targets * 0.9) == 0
    assert evaluate(competition.metric, targets_of(targets), targets[::-1] * 0.9) == 1


def test_of_a_ranking_it_gets_all_places_and_one_true_label(tmp_path: Path) -> None:
    tables = {
        "train.csv": table("id,label", "1,cat", "2,dog", "3,cow"),
        "sample_submission.csv": table("id,label", "4,cat dog", "5,cat dog"),
    }
    source = """
def score(solution, submission, row_id_column_name):
    assert solution["label"].tolist() == ["cow", "cat"], solution
    assert submission["label"].tolist() == ["cow cat", "dog cat"], submission
    return 1
"""
    (tmp_path / "metric.py").write_text(source)
    images = [*IMAGES[:3], "test/4.jpg", "test/5.jpg"]
    competition = load_files(tmp_path, images, tables, 'metric = "metric.py:score"')
    assert competition.classes == ("cat", "cow", "dog")
    probs = np.array([[0.0, 1.0, 0.0], [0.3, 0.1, 0.6]])  # sure or not, an answer has two places
    assert evaluate(competition.metric, targets_of(np.array([1, 0])), probs) == 1


@pytest.mark.parametrize(
    ("source", "card", "problem"),
    [
        ("", 'metric = "metric.py:score"', "metric.py: no function 'score', which the card's metric names; add it"),
        ("def score(:", 'metric = "metric.py:score"', "metric.py, line 1: SyntaxError"),
        ("", 'metric = "other.py:score"', "other.py: No such file"),
        ("", 'metric = "../metric.py:score"', "must name .py files below the project's folder"),
        (
            "def score(*_): return 1",
            'metric = "metric.py:score"\nbetter = "less"',
            "better must be one of higher, lower",
        ),
    ],
)
def test_a_mistake_is_one_line(tiny: Path, podium: Podium, source: str, card: str, problem: str) -> None:
    use_metric(tiny, "tiny", source, card)
    assert problem in one_line(podium("data", "-c", "tiny"))


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("raise ValueError('your ids')", "metric.py, line 2: the metric score: ValueError: your ids; correct it"),
        ("return 'good'", "the metric score returned 'good', not a number"),
        ("raise SystemExit(0)", "metric.py, line 2: the metric score: SystemExit: 0; correct it"),
    ],
)
def test_an_error_inside_is_one_line(tiny: Path, podium: Podium, body: str, problem: str) -> None:
    source = f"def score(solution, submission, row_id_column_name):\n    {body}\n"
    use_metric(tiny, "tiny", source, 'metric = "metric.py:score"')
    assert problem in one_line(podium("train", *FAST, "--model", "test_resnet"))


def call(body: str) -> float:
    space: dict[str, Any] = {}
    exec(compile(f"def score(solution):\n    {body}\n", __file__, "exec"), space)
    return call_metric(space["score"], None)


@pytest.mark.parametrize(
    "body",
    [
        "import sys; sys.exit(0)",
        "raise BaseException('x')",
        "raise MemoryError",
        "raise ValueError('no memory of it')",
        "raise ValueError('x' * 100_000)",
        "return 'x' * 100_000",
        "return [0.5] * 100_000",
    ],
)
def test_whatever_it_does_is_one_short_line(body: str) -> None:
    with pytest.raises(PodiumError, match=r"the metric score.*; correct it") as error:
        call(body)
    assert len(str(error.value)) < 600


def test_a_signal_inside_still_stops() -> None:
    with pytest.raises(KeyboardInterrupt):
        call("raise KeyboardInterrupt")


def test_an_infinite_score_is_none() -> None:
    assert math.isnan(call("return -float('inf')"))


def test_what_it_prints_is_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("print('checked'); return 1") == 1
    assert capsys.readouterr() == ("", "checked\n")


@pytest.mark.annex
def test_runs_without_a_score_have_pages_and_no_picture(tiny: Path, podium: Podium) -> None:
    source = "def score(*tables):\n    return float('inf')\n"
    use_metric(tiny, "tiny", source, 'metric = "metric.py:score"')
    done(podium("train", *FAST, "--model", "test_resnet", "--epochs", "1", "--folds", "0"))
    out, _ = done(podium("report", "-c", "tiny"))
    assert "<figure class=" not in Path(out.strip()).read_text(encoding="utf-8")
    one_line(
        podium("compare", "-c", "tiny", "--picture", tiny / "scores.svg"),
        "scores.svg; train a run, or correct the metric",
    )
    assert not (tiny / "scores.svg").exists()


@pytest.mark.parametrize("better", ["", 'better = "lower"'])
def test_the_wrong_sign_is_refused_with_the_line_to_write(tiny: Path, podium: Podium, better: str) -> None:
    """A perfect run would be the worst one, and blends and decisions would be chosen for their mistakes."""
    use_metric(tiny, "tiny", ERROR_RATE, f'metric = "metric.py:score"\n{better}')
    if better:
        done(podium("data", "-c", "tiny"))
        return
    one_line(podium("data", "-c", "tiny"), "metric.py:score", 'better = "lower"', "tiny.toml")


def test_a_decorated_metric_with_the_wrong_sign_is_refused(tiny: Path, podium: Podium) -> None:
    source = "from podium import extend\n@extend.metric\ndef mistakes(targets, probs):\n"
    source += "    return (targets != probs.argmax(1)).mean()\n"
    use_metric(tiny, "tiny", source, 'metric = "mistakes"\nextend = "metric.py"')
    one_line(podium("data", "-c", "tiny"), 'better="lower"')
    use_metric(
        tiny,
        "tiny",
        source.replace("metric\n", 'metric(better="lower")\n'),
        'metric = "mistakes"\nextend = "metric.py"',
    )
    done(podium("data", "-c", "tiny"))
