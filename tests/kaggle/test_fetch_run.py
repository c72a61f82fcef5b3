"""A kernel's output: it becomes the run here if it is complete and of the same recipe."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podium.saved_runs.run_folder import Run
from stand_ins.kaggle_kernels import TRAIN
from stand_ins.kaggle_service import Service
from tiny import Podium, done, one_line

pytestmark = pytest.mark.annex

Files = dict[str, bytes]


def without(files: Files, part: str) -> Files:
    return {name: content for name, content in files.items() if part not in name}


@pytest.mark.parametrize(
    ("damage", "problem", "kernel_count"),
    [
        pytest.param(lambda files: {}, "left no podium.json", 2, marks=pytest.mark.all),
        (lambda files: {**files, "podium.json": b"{}"}, "left no podium.json", 2),
        (lambda files: {**files, "podium.json": b'{"exit": 0, "token": "x", "folds": []}'}, "has not worked on", 2),
        pytest.param(
            lambda files: {"podium.json": files["podium.json"]}, "has not worked on", 2, marks=pytest.mark.all
        ),
        (lambda files: {**files, "runs/tiny/test_vit/recipe.json": b"<html>"}, "is incomplete or damaged", 1),
        (lambda files: {**files, "runs/tiny/test_vit/fold1/oof.npz": b""}, "is incomplete or damaged", 1),
        pytest.param(lambda files: without(files, "fold1/oof"), "is incomplete or damaged", 1, marks=pytest.mark.all),
        pytest.param(lambda files: without(files, "recipe"), "is incomplete or damaged", 1, marks=pytest.mark.all),
    ],
)
def test_incomplete_output_is_not_taken_and_the_same_command_continues(
    instant_service: Service,
    tmp_path: Path,
    podium: Podium,
    damage: Callable[[Files], Files],
    problem: str,
    kernel_count: int,
) -> None:
    """What Kaggle still has is downloaded again. Where it has nothing, another kernel starts."""
    run_kernel, sound_outputs = instant_service.run_kernel, {}

    def run_and_damage(kernel: dict[str, Any]) -> Files:
        sound_outputs[kernel["slug"].rpartition("/")[2]] = files = run_kernel(kernel)
        return damage(files) if len(sound_outputs) == 1 else files

    instant_service.run_kernel = run_and_damage
    runs = tmp_path / "runs" / "tiny"
    one_line(podium(*TRAIN), problem, "run the same command again")
    assert [path for path in runs.iterdir() if path.name[0] != "."] == []
    instant_service.kernel_outputs |= sound_outputs
    done(podium(*TRAIN))
    assert len(instant_service.kernels) == kernel_count
    assert Run(runs / "test_vit").finished() == [0, 1]


def test_a_run_of_another_recipe_is_kept_apart(
    instant_service: Service, trained_run: Path, tmp_path: Path, podium: Podium
) -> None:
    run_kernel, runs = instant_service.run_kernel, tmp_path / "runs" / "tiny"

    def train_here_meanwhile(kernel: dict[str, Any]) -> Files:
        shutil.copytree(trained_run, runs / "test_vit")
        shutil.rmtree(runs / "test_vit" / "fold1")
        recipe = json.loads((trained_run / "recipe.json").read_text())
        (runs / "test_vit" / "recipe.json").write_text(json.dumps({**recipe, "lr": 0.01}))
        return run_kernel(kernel)

    instant_service.run_kernel = train_here_meanwhile
    message = one_line(podium(*TRAIN), "is another run than the kernel's: lr was 0.01")
    assert str(runs / "test_vit-kaggle") in message
    assert "was started with other options: lr was 0.01" in one_line(podium(*TRAIN, "--name", "test_vit"))
    assert len(instant_service.kernels) == 1
    assert Run(runs / "test_vit").finished() == [0]
    assert Run(runs / "test_vit-kaggle").finished() == [0, 1]
