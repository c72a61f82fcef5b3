"""podium folds --strategy NAME: a splitter of the project's own, whose folds are checked and certified."""

from pathlib import Path

import pytest

from extension_file import write_extension
from pictures import LabelledImages, add_scenes, photograph, write_image_competition
from podium.competition.find.csv_files import read_table
from podium.folds.folds_csv import folds_path
from tiny import Podium, assert_says, done, one_line

SPLITTER = """
from podium import extend

@extend.splitter
def by_scene(images, k, seed):
    assert list(images) == ["id", "target", "group", "label", "scene"], list(images)
    scenes = sorted(set(images["scene"]))
    return [scenes.index(scene) % k for scene in images["scene"]]

@extend.splitter
def returns_what_it_should_not(images, k, seed):
    return RESULT
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    train: LabelledImages = {str(seed): ("ab"[seed % 2], photograph(seed)) for seed in range(12)}
    folder = write_image_competition(tmp_path, train, {"x": photograph(99)})
    add_scenes(folder, {str(seed): f"scene {seed // 3}" for seed in range(12)})
    write_extension(tmp_path, SPLITTER.replace("RESULT", "[0] * 12"))
    return folder


def test_a_splitter_gets_the_table_and_its_folds_are_certified(tmp_path: Path, podium: Podium, folder: Path) -> None:
    (folder / "train" / "11.png").write_bytes(b"")  # cannot be read: the splitter does not see it
    out, err = done(podium("folds", "-c", "tiny", "--strategy", "by_scene", "--k", "2"))
    assert "FAILS" not in out
    (warning,) = [line for line in err.splitlines() if "warning" in line]
    assert "11.png" in warning
    folds = read_table(folds_path("tiny", tmp_path))["fold"].tolist()
    assert folds == ["0"] * 3 + ["1"] * 3 + ["0"] * 3 + ["1"] * 2 + ["-1"]
    assert podium("folds", "-c", "tiny", "--verify")[:2] == (0, out)
    assert "--k" not in err


def test_a_splitter_that_returns_another_number_of_folds_is_told(tmp_path: Path, podium: Podium, folder: Path) -> None:
    write_extension(tmp_path, SPLITTER.replace("RESULT", "[0, 1, 2, 3] * 3"))
    _, err = done(podium("folds", "-c", "tiny", "--strategy", "returns_what_it_should_not", "--k", "2"))
    assert "mine.py: the splitter returns_what_it_should_not returned 4 folds, not 2 (--k)" in err


def test_a_splitter_that_leaks_is_told(tmp_path: Path, podium: Podium, folder: Path) -> None:
    photograph(0).save(folder / "train" / "3.png")
    out, err = done(podium("folds", "-c", "tiny", "--strategy", "by_scene", "--k", "2"))
    assert "FAILS  duplicates of one image in different folds: 1" in out
    assert_says(err, "warning", "correct the splitter by_scene")
    assert podium("folds", "-c", "tiny", "--verify")[0] == 1


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        ("[0] * 12", "returns_what_it_should_not is wrong: all images are in fold 0"),
        ("[0, 2] * 6", "is wrong: no image in fold 1"),
        ("[-1] * 12", "is wrong: no image in fold 0"),
        ("[0, 1]", "must return a fold (-1, 0, 1, ...) for each of the 12 images"),
        ("[0, 1.5] * 6", "must return a fold"),
        ("[-2, 1] * 6", "must return a fold"),
        ("['a'] * 12", "must return a fold"),
        ("None", "must return a fold"),
        ("1 / 0", "line 12: the splitter returns_what_it_should_not: ZeroDivisionError"),
    ],
)
def test_wrong_folds_are_refused(tmp_path: Path, podium: Podium, folder: Path, result: str, problem: str) -> None:
    write_extension(tmp_path, SPLITTER.replace("RESULT", result))
    one_line(podium("folds", "-c", "tiny", "--strategy", "returns_what_it_should_not"), problem, "mine.py")
    assert not folds_path("tiny", tmp_path).exists()


def test_names_and_flags_that_do_not_fit_are_refused(tmp_path: Path, podium: Podium, folder: Path) -> None:
    assert "did you mean by_scene" in one_line(podium("folds", "-c", "tiny", "--strategy", "by_scenes"))
    one_line(podium("folds", "-c", "tiny", "--strategy", "nosuch"), "there are by_scene, returns_what_it_should_not")
    write_extension(tmp_path, "from podium import extend")
    assert "docs/extend.md" in one_line(podium("folds", "-c", "tiny", "--strategy", "by_scene"))
