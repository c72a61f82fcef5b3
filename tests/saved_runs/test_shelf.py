"""Runs of earlier versions (shelf.py) are loaded, compared, resumed, predicted with and submitted by this one."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from podium.options.recipe import NEUTRAL, flag_of, recipe_options, recorded_values
from podium.saved_runs.run_folder import Run
from shelf import SHELF, SLUG, small_models
from tiny import Podium, done

MACHINE = ("--workers", "0", "--device", "cpu")
ROUNDING = 1e-4  # between processors
BFLOAT16_ROUNDING = 0.02  # the heads were fitted in bfloat16, which each kind of processor multiplies in its own way
OTHER_RESULTS = ("head-2026-11-22",)  # heads are fitted in another way since
RUNS = sorted(path.parent.name for path in SHELF.glob("runs/*/*/recipe.json"))


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Path]:
    """A copy of the project on the shelf."""
    shutil.copytree(SHELF, tmp_path, dirs_exist_ok=True)
    with small_models():
        yield tmp_path


def run_in(root: Path, name: str) -> Run:
    return Run(root / "runs" / SLUG / name)


def flags_that_repeat(run: Run) -> list[str]:
    """Returns the flags by which a user repeats a run's options, and gives those that it lacks their neutral value."""
    words = []
    for name, value in recorded_values(run.recipe, recipe_options()).items():
        if value == "":
            continue
        flag = flag_of(name)
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            words += [flag, str(value)]
    return words


def test_the_shelf_holds_runs_and_heads_of_several_versions() -> None:
    kinds = [name.partition("-")[0] for name in RUNS]
    assert kinds.count("run") >= 5
    assert kinds.count("head") >= 4


@pytest.mark.parametrize("name", RUNS)
def test_each_option_that_an_earlier_run_lacks_has_a_neutral_value(name: str) -> None:
    """Without one, no command can resume the run: its record differs from whatever the user gives."""
    assert set(recipe_options()) - run_in(SHELF, name).recipe.keys() <= NEUTRAL.keys()


@pytest.mark.parametrize("name", RUNS)
def test_a_fold_of_an_earlier_run_is_trained_with_the_same_result(shelf: Path, podium: Podium, name: str) -> None:
    """A wrong neutral value would train it otherwise than the version did that had no such option."""
    run = run_in(shelf, name)
    before, predicted = run.check_weights(0), run.out_of_fold(1).probs
    shutil.rmtree(run.fold_folder(1))
    done(podium("train", "-c", SLUG, "--name", name, *MACHINE, *flags_that_repeat(run)))
    assert run.finished() == [0, 1]
    assert run.check_weights(0) == before
    if name not in OTHER_RESULTS:
        rounding = BFLOAT16_ROUNDING if name.startswith("head") else ROUNDING
        assert np.abs(run.out_of_fold(1).probs - predicted).max() < rounding


@pytest.mark.parametrize("name", RUNS)
def test_an_earlier_run_predicts_and_is_submitted(shelf: Path, podium: Podium, name: str) -> None:
    earlier = shelf / "submissions" / SLUG / f"{name}.csv"
    assert name in podium("lineage", earlier)[1]
    out, _ = done(podium("submit", "-c", SLUG, "--anyway", "--runs", name, "--name", "again"))
    again, written = Path(out.strip()).read_text().splitlines(), earlier.read_text().splitlines()
    assert [line.partition(",")[0] for line in again] == [line.partition(",")[0] for line in written]
    done(podium("predict", "-c", SLUG, name, shelf / "data" / "raw" / SLUG / "test_image"))


def test_all_earlier_runs_are_compared(shelf: Path, podium: Podium) -> None:
    out, _ = done(podium("compare", "-c", SLUG))
    assert [name for name in RUNS if name not in out] == []
