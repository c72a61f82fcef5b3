"""podium demo: the whole way in one command, and nothing twice."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import sklearn.datasets

from podium_annex import demo
from tiny import Podium, assert_says, done

SHORT: Mapping[str, Mapping[str, Any]] = {"demo-head": {"image_size": 32}, "demo-net": {"epochs": 2}}


@pytest.fixture
def short_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the demo train for a moment, on an eighth of the digits."""
    scans, digits = sklearn.datasets.load_digits(return_X_y=True)
    monkeypatch.setattr(sklearn.datasets, "load_digits", lambda return_X_y: (scans[:220], digits[:220]))
    for name, options in SHORT.items():
        monkeypatch.setitem(demo.RUNS, name, {**demo.RUNS[name], **options})


@pytest.mark.slow
def test_the_demo_goes_the_whole_way_and_a_second_one_trains_nothing(
    tmp_path: Path, podium: Podium, short_demo: None
) -> None:
    out, err = done(podium("demo"))
    lines = err.splitlines()
    assert [line[:7] for line in lines if line[1:6] == " of 6"] == [f"{step} of 6 " for step in range(1, 7)]
    assert [line for line in lines if line.startswith("next:")] == [lines[-1]]
    csv, report = tmp_path / "submissions" / "sample" / "demo.csv", tmp_path / "runs" / "sample" / "report.html"
    assert_says(out, f"submission  {csv}", f"report      {report}", " test images; expected: ")
    assert 'id="predicted"' in report.read_text()

    trained = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*.safetensors")}
    assert len(trained) == 6
    assert lines[-1].endswith(f"podium --root {tmp_path} compete")
    next((tmp_path / "data" / "raw" / "sample" / "train_image").iterdir()).unlink()  # it is written anew
    again, err = done(podium("demo"))
    assert again == out
    assert "  fold 0  " not in err
    assert {path: path.stat().st_mtime_ns for path in trained} == trained
