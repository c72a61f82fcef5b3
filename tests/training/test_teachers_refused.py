"""Teachers that cannot teach are refused in one line, before the student begins."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from podium.basics.disk import sha256
from tiny import FAST, Podium, assert_says, done, one_line, run_of, write_image

TRAIN = ("train", *FAST, "--model", "test_resnet", "--epochs", "2")


def refusal(podium: Podium, root: Path, *words: object) -> str:
    result = podium(*TRAIN, "--name", "student", *words)
    assert result[1] == ""
    assert not (run_of(root, "student").path / "recipe.json").exists()
    message = one_line(result)
    assert "; " in message  # a remedy follows
    return message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--teacher", "test_vot"), "no run 'test_vot'"),
        (("--teacher", "test_convnext+test_vot"), "did you mean test_vit?"),
        (("--teacher", "test_vit+student"), "'student' cannot learn from itself; give the new run another name"),
    ],
)
def test_a_wrong_name_is_refused(taught: Path, podium: Podium, words: tuple[str, ...], message: str) -> None:
    assert message in refusal(podium, taught, *words)


def test_a_teacher_teaches_only_the_folds_that_it_has_finished(taught: Path, podium: Podium) -> None:
    done(podium(*TRAIN, "--name", "half", "--folds", "1"))
    message = refusal(podium, taught, "--teacher", "test_vit+half")
    assert_says(message, "the teacher half has not finished fold 0", "--folds among 1")
    begun = run_of(taught, "begun").path
    begun.mkdir()
    shutil.copy2(run_of(taught, "half").path / "recipe.json", begun)
    assert "run 'begun' has no finished fold yet" in refusal(podium, taught, "--teacher", "begun")
    done(podium(*TRAIN, "--name", "of-half", "--teacher", "half", "--folds", "1"))

    weights = run_of(taught, "half").weights_path(1)
    weights.write_bytes(weights.read_bytes() + b"x")
    assert f"{weights} was damaged or replaced" in refusal(podium, taught, "--teacher", "half", "--folds", "1")


def test_a_teacher_of_other_classes_folds_or_data_is_refused(taught: Path, podium: Podium) -> None:
    teacher = run_of(taught, "test_vit")
    held_out = teacher.out_of_fold(1)
    replace(held_out, classes=("a", "b", "c", "d")).save(teacher.fold_folder(1) / "oof.npz")
    assert "test_vit was trained on other classes" in refusal(podium, taught, "--teacher", "test_vit")
    held_out.save(teacher.fold_folder(1) / "oof.npz")

    folds = taught / "data" / "prepared" / "tiny" / "folds.csv"
    before = folds.read_text()
    done(podium("folds", "-c", "tiny", "--k", "2", "--seed", "7", "--force"))
    assert "test_vit was trained on other folds" in refusal(podium, taught, "--teacher", "test_vit")
    folds.write_text(before)
    write_image(taught / "data" / "raw" / "tiny" / "train_image" / "003.jpg", (1, 2, 3), 99, (50, 50))
    assert "test_vit was trained on other data" in refusal(podium, taught, "--teacher", "test_vit+test_convnext")


def test_another_teacher_is_another_recipe(taught: Path, podium: Podium) -> None:
    command = (*TRAIN, "--name", "student")
    done(podium(*command, "--teacher", "test_vit", "--folds", "0"))
    before = sha256(run_of(taught, "student").path / "recipe.json")
    one_line(
        podium(*command, "--teacher", "test_convnext", "--folds", "1"), "teacher was test_vit and is test_convnext"
    )
    assert sha256(run_of(taught, "student").path / "recipe.json") == before
