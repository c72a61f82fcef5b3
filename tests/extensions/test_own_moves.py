"""A move of the project's own: its flag, its page, its hash in the run, and what it changes."""

import pickle
import signal
from pathlib import Path

import pytest

from podium.basics.errors import PodiumError
from podium.cli.option_page import option_page
from podium.models.build import ModelSpec
from podium.options.extensions.extension_files import load_extensions, use_extensions
from podium.options.moves import MOVES
from podium.options.recipe import KNOBS, NEUTRAL
from podium.options.recipe_defaults import Backbone, fill_in_defaults
from podium.training.augment import TrainView
from tiny import FAST, Podium, assert_same_fold, done, one_line, recipe_of, run_of, stop_in_step

NOISE = """
import torch

from podium import extend


@extend.move
class WrongLabels(extend.Move):
    \"\"\"Some labels of a batch are those of other images.\"\"\"

    wrong_labels: float = extend.knob(
        "share of labels that are another image's", 0, 1, off=0.0, default=0.0, why="labels are too clean"
    )

    def batch(self, change):
        def noisy(images, targets, moment):
            images, targets = change(images, targets, moment)
            rng = moment.rng("wrong labels")
            others = targets[torch.from_numpy(rng.permutation(len(targets)))]
            is_wrong = torch.from_numpy(rng.random((len(targets), 1)) < self.wrong_labels)
            return images, torch.where(is_wrong, others, targets)

        return noisy
"""
TRAIN = ("train", *FAST, "--model", "test_vit", "--epochs", "2", "--folds", "0")


@pytest.fixture
def noise(tiny: Path) -> Path:
    (tiny / "podium.toml").write_text('extend = "noise.py"\n')
    file = tiny / "noise.py"
    file.write_text(NOISE)
    return file


def test_its_flag_is_there_where_podium_toml_names_the_file(noise: Path, podium: Podium) -> None:
    assert "--wrong-labels must be between 0 and 1" in one_line(podium(*TRAIN, "--wrong-labels", "2"))
    assert "labels are too clean" in option_page("wrong-labels")
    assert "Some labels of a batch are those of other images." in option_page("wrong-labels")
    assert "did you mean --wrong-labels?" in one_line(podium(*TRAIN, "--wrong-label", "0.1"))
    (noise.parent / "podium.toml").unlink()
    assert "no flag --wrong-labels" in one_line(podium(*TRAIN, "--wrong-labels", "0.1"))
    assert "wrong_labels" not in KNOBS.keys() | NEUTRAL.keys()


def test_a_run_keeps_its_value_resumes_to_the_bit_and_not_after_an_edit(noise: Path, podium: Podium) -> None:
    root = noise.parent
    done(podium(*TRAIN, "--wrong-labels", "0.5", "--name", "whole"))
    stop_in_step(podium, 0, *TRAIN, "--wrong-labels", "0.5", "--name", "stopped", number=signal.SIGINT)
    done(podium(*TRAIN, "--wrong-labels", "0.5", "--name", "stopped"))
    assert_same_fold(run_of(root, "whole"), run_of(root, "stopped"))
    assert run_of(root, "whole").recipe["wrong_labels"] == 0.5
    assert "move WrongLabels" in run_of(root, "whole").recipe["own_parts"]
    noise.write_text(NOISE.replace("rng.random(", "rng.uniform(size="))
    assert "the code of own parts changed" in one_line(podium(*TRAIN, "--wrong-labels", "0.5", "--name", "whole"))
    done(podium("submit", "-c", "tiny", "--runs", "whole"))


@pytest.mark.annex
def test_a_run_with_it_is_verified(noise: Path, podium: Podium) -> None:
    done(podium(*TRAIN, "--wrong-labels", "0.5"))
    use_extensions([])  # as in a process that has just begun
    done(podium("verify", "test_vit", "-c", "tiny"))


def test_a_loader_process_makes_the_moves_itself(noise: Path) -> None:
    load_extensions(noise.parent)
    recipe = recipe_of("test_vit", wrong_labels=0.5)
    assert len(recipe.moves) == len(recipe_of("test_vit").moves) + 1
    spec = ModelSpec("test_vit", ("a",), 48, 48, (0.5,) * 3, (0.5,) * 3, "bicubic", 1.0, "crop", "none")
    view = TrainView(recipe, spec)
    assert view.augmenter is view.augmenter
    assert b"podium_extension_noise" not in pickle.dumps(view)
    assert pickle.loads(pickle.dumps(view)).recipe.moves == recipe.moves


def test_what_was_refused_leaves_nothing_behind(noise: Path) -> None:
    noise.write_text(
        NOISE.replace("    def batch", '    smoothing: float = extend.knob("x", off=0, default=0)\n\n    def batch')
    )
    with pytest.raises(PodiumError, match="there is an option 'smoothing' already"):
        load_extensions(noise.parent)
    assert "wrong_labels" not in KNOBS
    noise.write_text(NOISE)
    load_extensions(noise.parent)
    assert "wrong_labels" in KNOBS


def test_switched_off_it_changes_no_bit_and_older_runs_resume(noise: Path, podium: Podium) -> None:
    root = noise.parent
    (root / "podium.toml").unlink()
    done(podium(*TRAIN, "--name", "without"))
    (root / "podium.toml").write_text('extend = "noise.py"\n')
    done(podium(*TRAIN, "--name", "without"))
    done(podium(*TRAIN, "--name", "off"))
    assert_same_fold(run_of(root, "without"), run_of(root, "off"))
    done(podium(*TRAIN, "--wrong-labels", "0.5", "--name", "on"))
    with pytest.raises(AssertionError):
        assert_same_fold(run_of(root, "without"), run_of(root, "on"))
    (root / "podium.toml").unlink()
    done(podium(*TRAIN, "--name", "off"))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("wrong_labels: float = extend", "smoothing: float = extend", "there is an option 'smoothing' already"),
        ("(extend.Move)", "", "must be a class that extends extend.Move"),
        (
            "    wrong_labels: float",
            "    power: float = 1.0\n    wrong_labels: float",
            "must be options, extend.knob(...)",
        ),
        ("wrong_labels: float = extend", "values: float = extend", "has the name of a part of the recipe"),
        ("wrong_labels: float = extend", "workers: float = extend", "--workers is a flag of podium train already"),
        (", default=0.0", "", "needs a default"),
        ('why="', 'against={"lr": "x"}, why="', "is against lr, which cannot be switched off"),
    ],
)
def test_a_class_that_is_no_move_is_refused(noise: Path, podium: Podium, old: str, new: str, why: str) -> None:
    noise.write_text(NOISE.replace(old, new))
    message = one_line(podium(*TRAIN), why)
    assert "noise.py" in message or "flag" in why


def test_a_recipe_that_is_older_than_the_move_lacks_it(noise: Path) -> None:
    older = fill_in_defaults({"model": "m"}, {}, Backbone("", "batch norm", 64, 64))
    load_extensions(noise.parent)
    assert "WrongLabels" in [move.__name__ for move in MOVES]
    assert "wrong_labels" not in older.values()
    assert "WrongLabels" not in [type(move).__name__ for move in older.but(seed=1).moves]
