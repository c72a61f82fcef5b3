"""podium folds --by-time COLUMN: each fold validates a block of time, and its model learns from earlier images only."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import podium as library
from pictures import LabelledImages, photograph, write_image_competition, write_table
from podium.basics.errors import PodiumError
from podium.competition.find.csv_files import read_table
from podium.competition.load import load
from podium.folds.folds import Folds
from podium.folds.folds_csv import folds_path, read_folds
from podium.folds.time_order import TimeOrder
from second_round import first_of
from tiny import FAST, Podium, done, one_line, run_of, write_card

BY_TIME = ("folds", "-c", "tiny", "--by-time", "taken")


def write_times(folder: Path, times: list[str]) -> None:
    """Adds the column `taken`, with a time for each training image, and `site`."""
    rows = read_table(folder / "train.csv")
    cells = zip(rows["id"], rows["label"], times, strict=True)
    write_table(folder / "train.csv", [("id", "label", "taken"), *cells])


def days(count: int) -> list[str]:
    """Returns one day after another, not in the order of the images."""
    order = np.random.default_rng(0).permutation(count)
    return [f"{pd.Timestamp('2024-02-25') + pd.Timedelta(days=int(day)):%Y-%m-%d}" for day in order]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    train: LabelledImages = {str(seed): ("ab"[seed % 2], photograph(seed)) for seed in range(24)}
    return write_image_competition(tmp_path, train, {"x": photograph(99), "y": photograph(98)})


def folds_of(root: Path) -> Folds:
    return read_folds(load("tiny", root))


def assert_trains_on_earlier_images_only(folds: Folds, times: NDArray[np.float64], gap: float) -> None:
    for fold in range(folds.count):
        assert times[folds.trains(fold)].max() + gap < times[folds.validates(fold)].min()


# --- the split ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("gap", first_of([3], [0, 3]))
def test_each_fold_learns_from_earlier_days_only(tmp_path: Path, podium: Podium, folder: Path, gap: int) -> None:
    dates = days(24)
    write_times(folder, dates)
    out, _ = done(podium(*BY_TIME, "--k", "3", "--gap", gap))
    assert "FAILS" not in out
    assert "holds  folds that train on images as late as" in out
    folds = folds_of(tmp_path)
    assert [int(folds.validates(fold).sum()) for fold in range(-1, 3)] == [6, 6, 6, 6]
    assert [int(folds.trains(fold).sum()) for fold in range(3)] == [6 - gap, 12 - gap, 18 - gap]
    assert_trains_on_earlier_images_only(folds, pd.to_datetime(pd.Series(dates)).dt.day_of_year.to_numpy(), gap)
    assert list(read_table(folds_path("tiny", tmp_path))) == ["id", "target", "fold", "group", "trained_from"]
    made = json.loads(folds_path("tiny", tmp_path).with_suffix(".json").read_text())
    assert (made["time_column"], made["gap"], made["gap_unit"], made["holds"]) == ("taken", gap, "days", True)
    status, verified, err = podium("folds", "-c", "tiny", "--verify")
    assert (status, verified) == (0, out), err


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 9), st.booleans()), min_size=4, max_size=60),
    st.integers(1, 4),
    st.integers(0, 2),
)
def test_times_and_groups_never_leak(images: list[tuple[int, int, bool]], k: int, gap: int) -> None:
    """An image is its time, its group and whether it can be read. A group is named by its first image."""
    numbers, names, readable = (list(column) for column in zip(*images, strict=True))
    groups = np.array([names.index(name) for name in names])
    is_good = np.array(readable)
    order = TimeOrder("time", np.array(numbers, np.float64), False, float(gap))
    try:
        folds = order.rolling_folds(is_good, groups, k)
    except PodiumError:  # too few times, or none early enough: see below
        return
    assert set(folds.of_image[is_good]) == set(range(-1, k))
    assert (folds.of_image[~is_good] == -1).all()
    assert order.late_folds(folds, is_good) == []
    for fold in range(k):
        trains, validates = folds.trains(fold) & is_good, folds.validates(fold)
        assert trains.any()
        assert_trains_on_earlier_images_only(folds.some(is_good), order.values[is_good], gap)
        assert not set(groups[trains]) & set(groups[validates])
        assert len(set(order.values[validates]) & set(order.values[~validates & is_good])) == 0  # times are not split


def test_copies_of_an_image_wait_until_the_last_of_them_is_validated(
    tmp_path: Path, podium: Podium, folder: Path
) -> None:
    times = [str(number) for number in range(24)]
    photograph(0).save(folder / "train" / "13.png")  # 0 is only trained on, 13 is in the second block that is validated
    write_times(folder, times)
    out, _ = done(podium(*BY_TIME, "--k", "3"))
    assert "holds  duplicates of one image on both sides of a split: 0" in out
    folds = folds_of(tmp_path)
    assert (folds.of_image[0], folds.of_image[13]) == (-1, 1)
    assert [bool(folds.trains(fold)[0]) for fold in range(3)] == [False, False, True]
    path = folds_path("tiny", tmp_path)
    rows = read_table(path).set_index("id")
    rows.loc["0", "trained_from"] = "0"
    rows.to_csv(path)
    assert "duplicates of one image are on both sides of a split" in one_line(podium("folds", "-c", "tiny", "--verify"))


def test_another_question_does_not_replace_the_certificate(tmp_path: Path, podium: Podium, folder: Path) -> None:
    write_times(folder, [str(number) for number in range(24)])
    done(podium(*BY_TIME, "--k", "3", "--gap", "2"))
    path = folds_path("tiny", tmp_path).with_suffix(".json")
    made = path.read_text()
    column = json.loads(made)["time_column"]
    for words in (("--gap", "4"), ("--by-time", column, "--gap", "4")):
        status, _, err = podium("folds", "-c", "tiny", "--verify", *words)
        assert status == 1
        assert "within 4 before" in err
        assert f"{path} stays: it certifies these folds for" in err
        assert f"time column {column}, gap 2" in err
    done(podium("folds", "-c", "tiny", "--verify", "--by-time", column, "--gap", "1"))
    assert path.read_text() == made
    path.unlink()
    assert podium("folds", "-c", "tiny", "--verify", "--by-time", column, "--gap", "4")[0] == 1
    assert json.loads(path.read_text())["gap"] == 4  # the only question that was asked of these folds


def test_the_largest_block_may_hold_one_time_only(tmp_path: Path, podium: Podium, folder: Path) -> None:
    write_times(folder, ["5"] * 20 + ["1", "2", "7", "9"])
    done(podium(*BY_TIME, "--k", "2"))
    assert len(set(folds_of(tmp_path).of_image[:20])) == 1


def test_a_later_block_judges_what_was_learned_from_those_before_it() -> None:
    """The images of 0 and 4 are copies, so fold 2 trains on both, and the inner split on neither."""
    folds = Folds.of(np.array([-1, -1, 0, 0, 1, 1, 2, 2]), np.array([2, 0, 1, 1, 2, 2, 3, 3]))
    rows = np.flatnonzero(folds.trains(2))
    assert rows.tolist() == [0, 1, 2, 3, 4, 5]
    assert folds.judge_within(2, rows) == 1
    assert rows[folds.trains(1)[rows]].tolist() == [1, 2, 3]
    assert folds.judge_within(1, np.flatnonzero(folds.trains(1))) == 0
    assert folds.judge_within(0, np.flatnonzero(folds.trains(0))) is None
    inside = folds.inside(2, np.array([1, 2]), np.array([4]))
    assert (np.flatnonzero(inside.trains(2)).tolist(), np.flatnonzero(inside.validates(2)).tolist()) == ([1, 2], [4])
    assert inside.is_used.sum() == 3
    assert folds.sizes([0, 1, 2], 1) == [1 / 3, 1.0, 2.0]
    plain = Folds.of(np.array([0, 1, 2, -1]))
    assert not plain.without(np.array([True, False, False, False])).is_rolling
    assert plain.sizes([0, 1], 0) == [1.0, 1.0]


# --- the certificate ---------------------------------------------------------------------------------


def test_a_split_that_mixes_times_fails_if_asked(tmp_path: Path, podium: Podium, folder: Path) -> None:
    write_times(folder, days(24))
    done(podium("folds", "-c", "tiny", "--k", "2"))
    path = folds_path("tiny", tmp_path).with_suffix(".json")
    made = path.read_text()
    one_line(
        podium("folds", "-c", "tiny", "--verify", "--by-time", "taken"),
        "folds train on images as late as those that they validate (taken): fold 0, fold 1",
        "split again with",
    )
    done(podium("folds", "-c", "tiny", "--verify"))
    assert path.read_text() == made
    path.unlink()  # as if these folds came from elsewhere
    for flags in (("--by-time", "taken"), ()):  # the certificate keeps the column
        assert podium("folds", "-c", "tiny", "--verify", *flags)[0] == 1


def test_a_gap_that_is_too_short_fails(tmp_path: Path, podium: Podium, folder: Path) -> None:
    write_times(folder, days(24))
    done(podium(*BY_TIME, "--k", "2", "--gap", "2"))
    done(podium("folds", "-c", "tiny", "--verify"))
    one_line(
        podium("folds", "-c", "tiny", "--verify", "--by-time", "taken", "--gap", "3"),
        "within 3 days before (taken): fold 0, fold 1",
    )


def test_a_hand_made_file_says_from_which_fold_on_an_image_is_trained_on(
    tmp_path: Path, podium: Podium, folder: Path
) -> None:
    write_times(folder, [str(number) for number in range(24)])
    fold = {str(number): number // 8 - 1 for number in range(24)}
    rows: list[tuple[str, ...]] = [("id", "fold", "trained_from")]
    rows += [(name, str(k), "" if k < 0 else str(k + 1)) for name, k in fold.items()]
    path = tmp_path / "mine.csv"
    write_table(path, rows)
    done(podium("folds", "-c", "tiny", "--verify", path, "--by-time", "taken"))
    folds = read_folds(load("tiny", tmp_path), path)
    assert [int(folds.trains(fold).sum()) for fold in range(2)] == [8, 16]
    for cell, problem in (("later", "line 2: trained_from 'later' is not the number"), ("-1", "line 2: trained_from")):
        write_table(path, [rows[0], (*rows[1][:2], cell), *rows[2:]])
        assert problem in one_line(podium("folds", "-c", "tiny", "--verify", path))
    write_table(path, [rows[0], *((*row[:2], "2") for row in rows[1:])])
    assert "fold 0 trains on no image" in one_line(podium("folds", "-c", "tiny", "--verify", path))


# --- columns and flags -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        (["2024-01-31 23:59", "2024-02-01T00:01"], "days"),
        (["2024:01:31 23:59:00", "2024:02:01 00:01:00"], "days"),
        (["20240131", "20240201"], "days"),
        (["20240131", "20241399"], ""),
        (["-1.5", "2e3"], ""),
    ],
)
def test_dates_and_numbers_are_understood(
    tmp_path: Path, podium: Podium, folder: Path, times: list[str], unit: str
) -> None:
    write_times(folder, times * 12)
    done(podium(*BY_TIME, "--k", "1"))
    assert folds_of(tmp_path).of_image.tolist() == [-1, 0] * 12
    assert json.loads(folds_path("tiny", tmp_path).with_suffix(".json").read_text())["gap_unit"] == unit


def test_what_cannot_be_a_time_is_refused(tmp_path: Path, podium: Podium, folder: Path) -> None:
    assert "no such column; its columns are id, label" in one_line(podium(*BY_TIME))
    write_times(folder, ["31/01/2024"] + ["1"] * 23)
    assert "'31/01/2024' of the image '0' is neither a number nor a date" in one_line(podium(*BY_TIME))
    write_times_anew(folder, ["", *["1"] * 23])
    assert "1 training image without a time, '0' first" in one_line(podium(*BY_TIME))
    write_times_anew(folder, ["1", "2", "3"] * 8)
    assert "5 folds need 6 different times, but the images have 3; use fewer folds: --k 2" in one_line(podium(*BY_TIME))
    assert "no image is early enough for fold 0; use a smaller --gap" in one_line(
        podium(*BY_TIME, "--k", "2", "--gap", "1")
    )
    assert "add --by-time" in one_line(podium("folds", "-c", "tiny", "--gap", "1"))
    assert "--gap -1 must be" in one_line(podium(*BY_TIME, "--k", "2", "--gap=-1"))
    assert "leave out one" in one_line(podium(*BY_TIME, "--strategy", "mine"))
    assert not folds_path("tiny", tmp_path).exists()


def write_times_anew(folder: Path, times: list[str]) -> None:
    rows = read_table(folder / "train.csv")[["id", "label"]]
    rows.assign(taken=times).to_csv(folder / "train.csv", index=False)


def test_the_library_splits_by_time(tmp_path: Path, folder: Path) -> None:
    write_times(folder, days(24))
    folds = library.load("tiny", tmp_path).folds(k=2, by_time=("taken", 2))
    assert list(folds) == ["id", "target", "fold", "group", "trained_from"]
    assert (folds["fold"] == -1).sum() == 8
    assert set(folds["trained_from"][folds["fold"] == 1]) == {2}


# --- training ----------------------------------------------------------------------------------------

TRAIN = ("train", *FAST, "--model", "test_resnet", "--epochs", "2")


@pytest.mark.parametrize("how", first_of(["linear"], ["scratch", "linear"]))
def test_runs_on_rolling_folds_train_blend_and_submit(tmp_path: Path, podium: Podium, folder: Path, how: str) -> None:
    write_times(folder, days(24))
    write_card(tmp_path, 'metric = "accuracy"\n')
    done(podium(*BY_TIME, "--k", "3", "--gap", "1"))
    flags = ("--linear",) if how == "linear" else ()
    out, _ = done(podium(*TRAIN[: -2 if flags else None], *flags, "--name", "one", "--dry-run"))
    assert "about 11 images to train on and 6 to validate" in out
    for name, seed in (("one", 0), ("two", 1)):
        _, err = done(podium(*TRAIN[: -2 if flags else None], *flags, "--name", name, "--seed", seed))
        assert "not verified" not in err
    run = run_of(tmp_path, "one")
    folds, ids = folds_of(tmp_path), load("tiny", tmp_path).train["id"].to_numpy()
    for fold in range(3):
        assert run.out_of_fold(fold).id.tolist() == ids[folds.validates(fold)].tolist()
    _, err = done(podium("submit", "-c", "tiny", "--anyway"))
    assert "on 18 held-out images" in err
    done(podium("compare", "-c", "tiny"))
    student = ("--teacher", "one") if how == "scratch" else ("--name", "one")  # the second: it is resumed
    done(podium(*TRAIN[: -2 if flags else None], *flags, *student))
