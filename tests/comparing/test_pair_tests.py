"""McNemar's test of every pair of runs, against sums by hand, and the picture of scores against costs."""

import re
from dataclasses import replace
from math import comb
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from blending.test_select_runs import copy_run
from podium.basics.errors import PodiumError
from podium.comparing.compare import compare_runs
from podium.comparing.pair_tests import compare_pairs, correct
from podium.competition.load import load
from podium.saved_runs.prediction_files import Predictions
from podium.saved_runs.run_folder import Run
from tiny import Podium, done, one_line


def write_answers(run: Run, wrong: list[int]) -> None:
    """Makes the run right for all images but these, numbered over its folds."""
    number = 0
    for fold in run.finished():
        path = run.fold_folder(fold) / "oof.npz"
        oof = Predictions.load(path, "")
        probs = np.full(oof.probs.shape, 0.1, np.float32)
        for row, target in enumerate(oof.target.values):
            probs[row, (target + (number in wrong)) % len(oof.classes)] = 0.7
            number += 1
        replace(oof, probs=probs).save(path)


def test_only_images_count_that_one_of_two_runs_classifies_correctly(two_runs: Path) -> None:
    first, second = copy_run(two_runs, "good", "first"), copy_run(two_runs, "good", "second")
    write_answers(first, [0, 1, 2])
    write_answers(second, [2, 3, 4, 5, 6, 7, 8, 9, 10])
    pair = compare_pairs("tiny", two_runs, ["first", "second"]).iloc[0]
    assert (pair["images"], pair["only_run"], pair["only_other"]) == (36, 8, 2)
    assert pair["p"] == pytest.approx(2 * sum(comb(10, k) for k in range(3)) / 2**10)
    assert pair["p_corrected"] == pair["p"]


def test_runs_with_the_same_answers_do_not_differ(two_runs: Path) -> None:
    copy_run(two_runs, "good", "twin")
    assert compare_pairs("tiny", two_runs, ["good", "twin"])["p"].tolist() == [1.0]


def test_holms_correction() -> None:
    assert correct([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert correct([0.5, 0.6]) == [1.0, 1.0]
    assert correct([]) == []


def test_runs_without_a_common_image_are_no_pair(two_runs: Path) -> None:
    for name, fold in (("left", 1), ("right", 0)):
        folder = copy_run(two_runs, "good", name).fold_folder(fold)
        (folder / "oof.npz").unlink()
    assert compare_pairs("tiny", two_runs, ["left", "right"]).empty


def test_with_the_first_run_alone_the_correction_is_smaller(two_runs: Path) -> None:
    names = ["first", "second", "third"]
    for number, name in enumerate(names):
        write_answers(copy_run(two_runs, "good", name), list(range(number * 6)))
    pairs = compare_pairs("tiny", two_runs, names, only_first=True)
    assert list(zip(pairs["run"], pairs["other"], strict=True)) == [("first", "second"), ("first", "third")]
    assert len(compare_pairs("tiny", two_runs, names)) == 3
    assert pairs["p_corrected"].tolist() == pytest.approx(correct([2 * 0.5**6, 2 * 0.5**12]))


def test_each_run_is_tested_against_the_best_one(two_runs: Path) -> None:
    for number, name in enumerate(("best", "second", "third")):
        write_answers(copy_run(two_runs, "good", name), list(range(number * 6)))
    runs = compare_runs(load("tiny", two_runs), ["best", "second", "third"]).set_index("run")
    assert np.isnan(runs["p"]["best"])
    assert runs["p"][["second", "third"]].tolist() == pytest.approx(correct([2 * 0.5**6, 2 * 0.5**12]))


@pytest.mark.annex
def test_the_picture_shows_every_run_by_name(two_runs: Path, podium: Podium) -> None:
    copy_run(two_runs, "good", "twin")
    path = two_runs / "picture.svg"
    _, err = done(podium("compare", "-c", "tiny", "--picture", path))
    assert f"wrote {path}" in err
    texts = [element.text for element in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]
    assert {"good", "idle", "twin", "multiply-adds of one image", "training time of all folds"} <= set(texts)
    assert texts.count("good") == 2


@pytest.mark.annex
def test_names_are_escaped(tmp_path: Path) -> None:
    from podium_annex.report.comparison_picture import draw_comparison

    run = {"run": "a<b", "metric": "accuracy", "score": 0.5, "fold_spread": 0.1, "multiply_adds": 1e9, "seconds": 60}
    draw_comparison(pd.DataFrame([run]), tmp_path / "picture.svg")
    assert "a&lt;b" in (tmp_path / "picture.svg").read_text()


@pytest.mark.annex
def test_a_picture_needs_a_score(tmp_path: Path) -> None:
    from podium_annex.report.comparison_picture import draw_comparison

    with pytest.raises(PodiumError, match="no run has a score"):
        draw_comparison(pd.DataFrame([{"run": "a", "score": float("nan")}]), tmp_path / "picture.svg")


def drawing_of(count: int, path: Path) -> list[str]:
    """Draws equally good and equally expensive runs; returns the lines of the SVG."""
    from podium_annex.report.comparison_picture import draw_comparison

    run = {"metric": "accuracy", "score": 0.5, "fold_spread": np.nan, "multiply_adds": 1.3e9, "seconds": 65.0}
    draw_comparison(pd.DataFrame([{**run, "run": f"run{number}"} for number in range(count)]), path)
    return path.read_text().splitlines()


@pytest.mark.annex
def test_names_stay_in_the_picture_and_apart(tmp_path: Path) -> None:
    names = [line for line in drawing_of(40, tmp_path / "picture.svg") if ">run" in line and "<text" in line]
    heights = sorted(float(re.findall(r' y="([\d.]+)"', line)[0]) for line in names[: len(names) // 2])
    assert len(heights) > 4
    assert heights[0] > 0
    assert heights[-1] < 360 - 48
    assert min(np.diff(heights)) >= 14


@pytest.mark.annex
def test_after_all_colours_the_shape_changes(tmp_path: Path) -> None:
    lines = drawing_of(8, tmp_path / "picture.svg")
    marks = [re.sub("<title>.*", "", line) for line in lines if line.startswith(("<circle", "<path"))]
    assert len(set(marks[:8])) == 8


@pytest.mark.annex
def test_a_single_run_has_a_number_on_each_axis_and_no_bars(tmp_path: Path) -> None:
    text = "\n".join(drawing_of(1, tmp_path / "picture.svg"))
    assert "bar:" not in text
    assert text.count('class="axis" x1') >= 4  # two lines, and a mark on each


@pytest.mark.annex
def test_a_picture_must_be_an_svg_in_a_folder_that_exists(two_runs: Path, podium: Podium) -> None:
    assert "give it a name that ends in .svg" in one_line(podium("compare", "-c", "tiny", "--picture", "x.png"))
    path = two_runs / "new" / "x.svg"
    assert f"{two_runs / 'new'} does not exist" in one_line(podium("compare", "-c", "tiny", "--picture", path))


@pytest.mark.annex
def test_axes() -> None:
    from podium_annex.report.comparison_picture import Axis

    assert Axis(0.91, 0.99, 100, 0).ticks() == pytest.approx([0.92, 0.94, 0.96, 0.98])
    assert Axis(0.0, 2.0, 100, 0).place(0.5) == 75
    times = Axis(10.0, 1000.0, 0, 100, marks=(1.0, 60.0, 600.0))
    assert times.ticks() == [60.0, 600.0]
    assert times.place(100.0) == pytest.approx(50)
