"""The files of a run that are damaged, replaced or deleted after they were written, and who may write them."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from podium.basics.errors import InUse, PodiumError
from podium.saved_runs.run_folder import Run, discarded_if_failed, keep_of_fold, lock_folds
from second_round import first_of
from templates import template
from tiny import FAST, Podium, done, one_line, podium_at, run_of, tiny_with_folds
from training.damage import cut_end, empty, flip_bit

TRAIN = ("train", *FAST, "--model", "test_vit", "--epochs", "2", "--folds", "0")
Array = NDArray[Any]
SUBMIT = ("submit", "-c", "tiny")


def with_a_finished_fold(root: Path) -> None:
    tiny_with_folds(root)
    podium_at(root, *TRAIN)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run with one finished fold."""
    shutil.copytree(template(with_a_finished_fold), tmp_path, dirs_exist_ok=True)
    return run_of(tmp_path)


def test_processes_that_record_facts_of_their_folds_keep_those_of_the_others(run: Run) -> None:
    others = [Run(run.path), Run(run.path)]
    assert all("pseudo_power" not in other.recipe for other in others)  # both have read it
    for fold, other in enumerate(others):
        keep_of_fold(other, "pseudo_power", fold, 2.0 + fold)
    assert Run(run.path).recipe["pseudo_power"] == {"0": 2.0, "1": 3.0}


def raise_error(message: str) -> None:
    raise PodiumError(message)


# --- damaged files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", first_of([flip_bit, Path.unlink], [flip_bit, cut_end, Path.unlink]))
def test_weights_other_than_those_that_were_trained_are_never_used(
    run: Run, podium: Podium, damage: Callable[[Path], None]
) -> None:
    damage(run.weights_path(0))
    for command in (SUBMIT, TRAIN):
        assert f"delete {run.fold_folder(0)} and train that fold again" in one_line(podium(*command))
    assert not (run.path.parents[2] / "submissions").exists()
    shutil.rmtree(run.fold_folder(0))
    done(podium(*TRAIN))
    done(podium(*SUBMIT))


def test_a_run_without_its_recipe_is_neither_given_another_nor_forgotten(run: Run, podium: Podium) -> None:
    recipe = run.path / "recipe.json"
    recipe.unlink()
    for command in (SUBMIT, (*TRAIN, "--epochs", "9")):
        one_line(podium(*command), "recipe.json", f"restore it, or delete {run.path}")
    for path in run.fold_folder(0).iterdir():
        path.unlink()
    (run.fold_folder(0) / "checkpoint-000000003.safetensors").write_bytes(b"")  # it needs its recipe, too
    assert f"{recipe} is missing" in one_line(podium(*TRAIN))
    assert not recipe.exists()


def test_a_run_that_failed_before_its_first_checkpoint_leaves_nothing(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("podium.training.loop.training_batches", lambda _: raise_error("no such device"))
        assert "no such device" in one_line(podium(*TRAIN))
    assert not run_of(tiny).path.exists()


def test_a_run_that_was_killed_before_its_first_checkpoint_takes_other_options(tiny: Path, podium: Podium) -> None:
    done(podium(*TRAIN))
    shutil.rmtree(run_of(tiny).fold_folder(0))  # only the recipe is left
    done(podium(*TRAIN, "--lr", "0.002"))
    assert run_of(tiny).recipe["lr"] == 0.002
    assert "was started with other options" in one_line(podium(*TRAIN))


def test_a_run_that_is_older_than_an_option_resumes_if_the_option_changes_nothing(run: Run, podium: Podium) -> None:
    recipe = json.loads((run.path / "recipe.json").read_text())
    for name in ("sam", "grow", "teacher"):
        del recipe[name]
    (run.path / "recipe.json").write_text(json.dumps(recipe))
    _, err = done(podium(*TRAIN))
    assert "fold 0 is trained already" in err
    assert "sam was 0.0 and is 0.05" in one_line(podium(*TRAIN, "--sam", "0.05"))


NO_RECIPES = ("", "5", "null", "[1]", "{}", "not json", "[" * 99_999, '{"folds": "2"}', "\xff")


@pytest.mark.parametrize("content", first_of(["", "{}", "[" * 99_999, "\xff"], NO_RECIPES))
def test_a_file_that_is_not_a_recipe_is_reported(run: Run, podium: Podium, content: str) -> None:
    (run.path / "recipe.json").write_text(content, encoding="latin-1")
    for command in (SUBMIT, TRAIN):
        one_line(podium(*command), f"{run.path}/recipe.json: ", f"restore it, or delete {run.path}")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("id", lambda ids: np.full_like(ids, ids[0])),
        ("id", lambda ids: np.arange(len(ids))),
        ("probs", lambda probs: np.hstack([probs, probs])),
        ("target", lambda target: target + 99),
        ("target", lambda target: target / 2),
        ("target", lambda target: np.full_like(target, -1)),
        ("classes", lambda classes: np.full_like(classes, classes[0])),
    ],
)
def test_arrays_that_do_not_fit_together_are_reported(  # tests/test_damaged_records.py has those of another form
    run: Run, podium: Podium, name: str, change: Callable[[Array], Array]
) -> None:
    path = run.fold_folder(0) / "oof.npz"
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **{**arrays, name: change(arrays[name])})
    for command in (SUBMIT, ("compare", "-c", "tiny"), TRAIN):
        one_line(podium(*command), f"{path}: ", f"restore it, or delete {path.parent}")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("image_size", value) for value in ("x", "../../etc", True, 10**30)),
        *(("test_size", value) for value in ("x", True)),
        *(("batch_size", value) for value in (-3, 10**30)),
        *(("folds", value) for value in (0, 10**30)),
        *(("lr", "x"), ("lr", math.nan), ("precision", "x"), ("linear", "yes")),
        *(("model", None), ("epochs", None), ("metric", 3), ("versions", "x"), ("budget", [1]), ("data_sha256", 7)),
    ],
)
def test_a_recipe_with_a_value_that_no_run_has_is_reported(run: Run, podium: Podium, key: str, value: object) -> None:
    recipe = json.loads((run.path / "recipe.json").read_text())
    (run.path / "recipe.json").write_text(json.dumps({**recipe, key: value}))
    one_line(podium(*SUBMIT), f"{run.path}/recipe.json: ", key, f"restore it, or delete {run.path}")


NO_HISTORIES = (None, b"", b"\xff\xfe", b'{"loss": 1', b'{"loss": null, "seconds": 1}\n', b"[]\n")


@pytest.mark.parametrize("content", first_of([None, b'{"loss": 1', b"[]\n"], NO_HISTORIES))
def test_a_fold_without_its_history_is_still_finished(run: Run, podium: Podium, content: bytes | None) -> None:
    path = run.fold_folder(0) / "metrics.jsonl"
    path.unlink() if content is None else path.write_bytes(content)
    out, err = done(podium(*TRAIN))
    assert "metrics.jsonl: cannot be read" in err
    assert "over 1 of 2 folds" in out
    done(podium(*SUBMIT))


@pytest.mark.parametrize("damage", first_of([cut_end], [cut_end, empty]))
def test_damaged_test_predictions_are_made_again_and_damaged_out_of_fold_ones_cost_the_fold(
    run: Run, podium: Podium, damage: Callable[[Path], None]
) -> None:
    first = podium(*SUBMIT)
    damage(run.fold_folder(0) / "test.npz")
    again = podium(*SUBMIT)
    assert again[:2] == first[:2]
    assert "test.npz: cannot be read" in again[2]
    damage(run.fold_folder(0) / "oof.npz")
    assert f"delete {run.fold_folder(0)} and train that fold again" in one_line(podium(*SUBMIT))


# --- who may write -----------------------------------------------------------------------------------


def test_two_processes_cannot_train_one_run(tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.saved_runs.run_folder.PATIENCE", 0.0)
    with run_of(tiny).lock():
        message = one_line(podium(*TRAIN))
    assert f"{run_of(tiny).path} is being trained by another process; wait, or use --name" in message


def test_processes_may_train_different_folds_of_a_run_but_not_the_same(tiny: Path) -> None:
    run = run_of(tiny)
    with lock_folds(run, [0]):
        with lock_folds(run, [1]), pytest.raises(InUse, match=r"fold0 is being trained by another process"):  # noqa: SIM117
            with lock_folds(run, [0, 2]):
                pass
        with pytest.raises(InUse), run.lock():
            pass
    with run.lock():
        pass


def test_a_fold_that_fails_leaves_what_another_process_needs(tiny: Path) -> None:
    run = run_of(tiny)
    with lock_folds(run, [1]):
        (run.path / "recipe.json").write_text("{}")
        unfinished = run.path / ".recipe.json.1.tmp"
        unfinished.write_text("half")
        with pytest.raises(ZeroDivisionError), discarded_if_failed(run), lock_folds(run, [0]):
            raise ZeroDivisionError
        assert (run.path / "recipe.json").exists()
        assert unfinished.exists()
    with pytest.raises(ZeroDivisionError), discarded_if_failed(run), lock_folds(run, [0]):
        raise ZeroDivisionError
    assert not run.path.exists()


def test_leftovers_of_a_killed_process_are_deleted(tiny: Path, podium: Podium) -> None:
    run = run_of(tiny)
    done(podium(*TRAIN[:-1], "1"))
    run.fold_folder(0).mkdir(parents=True)
    (run.fold_folder(0) / ".checkpoint-000000001.safetensors.1.tmp").write_text("half")
    (run.fold_folder(1) / "checkpoint-000000001.safetensors").write_text("of a fold that is finished")
    (run.path / ".trial-killed").mkdir()
    done(podium(*TRAIN))
    assert not list(run.path.glob("fold*/.*"))
    assert not list(run.path.glob("fold*/checkpoint-*"))
    assert not list(run.path.glob(".trial-*"))


def test_a_file_in_the_place_of_a_folder_is_reported_in_one_line(tiny: Path, podium: Podium) -> None:
    (tiny / "runs").write_text("")
    assert str(tiny / "runs") in one_line(podium(*TRAIN))
