"""What `podium compete` shows while it works: a table that stays in place, or lines."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from podium.basics.terminal import aside, progress_bar
from podium.competing.progress_table import ProgressTable
from tiny import assert_says

ROWS = [("a-head", "0.9100", "0.700", "0.1"), ("b-head", "0.9000", "0.300", "0.2")]
EXPECTED = "expect 0.9200 (0.9050 to 0.9350)"


def show_a_journey(tmp_path: Path) -> None:
    with aside(tmp_path / "log") as spoken, ProgressTable("accuracy", 600.0, spoken) as shown:
        shown.begin("training a-head")
        shown.update(ROWS, EXPECTED)
        shown.tell("podium: not blended: other")


def test_without_a_terminal_there_are_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_a_journey(tmp_path)
    assert capsys.readouterr().err.splitlines() == ["  0 s of 10 min  training a-head", "podium: not blended: other"]


def test_in_a_terminal_the_table_stays_below_what_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    show_a_journey(tmp_path)
    err = capsys.readouterr().err
    assert err.startswith("podium: not blended: other\n")
    assert_says(err, "a-head", f"0% of 10 min; {EXPECTED}; training a-head")
    assert err.endswith("\033[J")  # nothing of it is left


def test_a_terminal_of_80_columns_shows_the_time_the_score_and_its_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    with aside(tmp_path / "log") as spoken, ProgressTable("quadratic_weighted_kappa", 36_000.0, spoken) as shown:
        shown.worked = lambda: 12_960.0
        shown.begin("training convnextv2_nano.fcmae_ft_in22k_in1k at 288 px, fold0, fold1, fold2")
        spoken.bar = progress_bar(total=100, desc="features", unit="image")
        spoken.bar.update(45)
        shown.update(ROWS, EXPECTED)
        shown.tell("podium: told")
    line = next(line for line in capsys.readouterr().err.splitlines() if " of 10 h" in line)
    assert line.startswith(f"36% of 10 h; {EXPECTED}; features 45%; training")
    assert len(line) < 80


def test_in_a_notebook_the_table_is_an_output_that_is_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    def display(content: dict[str, str], **options: Any) -> Any:
        assert options == {"raw": True, "display_id": True}
        return SimpleNamespace(update=lambda content, raw: shown.append(content["text/plain"]))

    ipython, its_display = ModuleType("IPython"), ModuleType("IPython.display")
    vars(ipython).update(get_ipython=lambda: SimpleNamespace(kernel=object()))
    vars(its_display).update(display=display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", its_display)
    show_a_journey(tmp_path)
    assert "b-head" in shown[-1]
    assert shown[-1].endswith(f"0% of 10 min; {EXPECTED}; training a-head")
    assert capsys.readouterr().err == "podium: not blended: other\n"
