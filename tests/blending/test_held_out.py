"""Held-out predictions: each run's predictions meet those of the others image by image, class by class."""

from pathlib import Path

import numpy as np

from by_array import targets_of
from podium.blending.held_out import collect_held_out
from podium.competition.load import load
from podium.folds.folds_csv import folds_path, read_groups
from podium.saved_runs.prediction_files import Predictions
from podium.saved_runs.run_folder import Run
from tiny import podium_at, write_competition


def write_run(root: Path, name: str, ids_by_fold: dict[int, list[str]], seed: int) -> Run:
    """Writes out-of-fold predictions of two classes; an image whose id is odd is of the second class."""
    run = Run(root / name)
    for fold, ids in ids_by_fold.items():
        run.fold_folder(fold).mkdir(parents=True)
        probs = np.random.default_rng(seed + fold).dirichlet(np.ones(2), len(ids)).astype(np.float32)
        targets = np.array([int(image_id) % 2 for image_id in ids])
        Predictions(np.array(ids), probs, targets_of(targets), ("a", "b")).save(run.fold_folder(fold) / "oof.npz")
    return run


def test_only_images_that_all_runs_held_out_are_kept(tmp_path: Path) -> None:
    first = write_run(tmp_path, "first", {0: ["1", "2", "3"], 1: ["4", "5"]}, 0)
    second = write_run(tmp_path, "second", {1: ["5", "3"], 2: ["9"], 4: ["1"]}, 7)
    held_out = collect_held_out([first, second], ("a", "b"))
    assert held_out.targets.values.tolist() == [1, 1, 1]
    assert held_out.parts.tolist() == [0, 0, 1]  # the first run's folds of the images 1, 3 and 5
    probs = {run: {fold: run.out_of_fold(fold).probs for fold in run.finished()} for run in (first, second)}
    assert np.array_equal(held_out.probs[0], [probs[first][0][0], probs[first][0][2], probs[first][1][1]])
    assert np.array_equal(held_out.probs[1], [probs[second][4][0], probs[second][1][1], probs[second][1][0]])


def test_runs_may_share_no_image(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, "first", {0: ["1", "2"]}, 0), write_run(tmp_path, "second", {0: ["7"]}, 1)]
    assert len(collect_held_out(runs, ("a", "b"))) == 0


def test_images_of_one_fold_are_split_into_five_parts(tmp_path: Path) -> None:
    run = write_run(tmp_path, "run", {2: [str(number) for number in range(50)]}, 1)
    assert sorted(set(collect_held_out([run], ("a", "b")).parts.tolist())) == [0, 1, 2, 3, 4]


def test_groups_come_from_the_folds_file_or_else_from_the_card(tmp_path: Path) -> None:
    raw = write_competition(tmp_path)
    header, *lines = (raw / "train.csv").read_text().splitlines()
    rows = [f"{line},{'' if number == 3 else f'p{number // 4}'}" for number, line in enumerate(lines)]
    (raw / "train.csv").write_text("\n".join([f"{header},patient", *rows, ""]))
    assert read_groups(load("tiny", tmp_path)) == {}
    from_card = read_groups(load("tiny", tmp_path, group_column="patient"))
    assert (from_card["000"], from_card["004"], "003" in from_card) == ("p0", "p1", False)
    podium_at(tmp_path, "folds", "-c", "tiny", "--k", "2", "--group", "patient")
    from_folds = read_groups(load("tiny", tmp_path))
    assert from_folds["000"] == from_folds["001"] == from_folds["002"] != from_folds["003"]
    folds_path("tiny", tmp_path).write_text("id,fold\n000,0\n")  # made elsewhere, without groups
    assert read_groups(load("tiny", tmp_path)) == {}


def test_an_image_is_not_in_the_group_that_has_its_id_as_name(tmp_path: Path) -> None:
    run = write_run(tmp_path, "run", {0: ["000", "001", "12", "004"]}, 0)
    groups = collect_held_out([run], ("a", "b"), {"000": "12", "001": "12"}).groups
    assert groups[0] == groups[1]
    assert len(set(groups.tolist())) == 3


def test_predictions_follow_another_order_of_classes_and_back() -> None:
    probs = np.eye(3, dtype=np.float32)[:2]
    predictions = Predictions(np.array(["1", "2"]), probs, targets_of(np.array([2, -1])), ("a", "b", "c"))
    reordered = predictions.in_order_of(("c", "a", "b"))
    assert reordered.probs.tolist() == [[0, 1, 0], [0, 0, 1]]
    assert reordered.target.values.tolist() == [0, -1]
    restored = reordered.in_order_of(predictions.classes)
    assert restored.probs.tolist() == probs.tolist()
    assert restored.target.values.tolist() == [2, -1]


def test_all_runs_are_scored_with_the_labels_of_today(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, name, {0: ["1", "2"], 1: ["3", "4"]}, seed) for seed, name in enumerate("ab")]
    held_out = collect_held_out(runs, ("a", "b"), labels={"1": "a", "2": "a", "4": "b"})  # 3 was dropped
    assert held_out.targets.values.tolist() == [0, 0, 1]
    assert list(held_out.ids) == ["1", "2", "4"]
    assert held_out.probs.shape == (2, 3, 2)
    other_classes = collect_held_out(runs, ("a", "b"), labels={"1": "x"})
    assert other_classes.targets.values.tolist() == [1, 0, 1, 0]
