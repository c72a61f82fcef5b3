"""What runs on Kaggle's machines."""

import subprocess
import sys
from pathlib import Path

import podium
from podium.saved_runs.ledger import FOLDER
from podium_annex.kaggle_machines.inside_kernel import LEDGER, TrainFlags, run_for


def test_it_imports_nothing_but_pythons_library() -> None:
    """On Kaggle it runs before any package is installed."""
    src = Path(podium.__file__).parents[1]
    source = f"import sys; sys.path.insert(0, {str(src)!r}); import podium_annex.kaggle_machines.inside_kernel"
    without_packages = [sys.executable, "-I", "-S", "-c"]
    done = subprocess.run([*without_packages, source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert subprocess.run([*without_packages, "import numpy"], capture_output=True).returncode == 1
    assert LEDGER == FOLDER  # it cannot be imported there


def test_options_become_the_words_of_a_command_line() -> None:
    recipe = {"model": "test_vit", "image_size": 32, "linear": True, "head_first": False}
    words = ["--model", "test_vit", "--image-size", "32", "--linear", "--no-head-first"]
    assert TrainFlags(recipe).to_words() == words
    assert TrainFlags(recipe, [0, 2], 90.0).to_words() == [*words, "--folds", "0,2", "--budget", "90.0s"]


def test_training_is_asked_to_stop_when_kaggles_time_is_over() -> None:
    until_stopped = "trap 'exit 75' TERM; while :; do sleep 0.05; done"
    assert run_for(["sh", "-c", until_stopped], 0.5) == 75
    assert run_for(["sh", "-c", "exit 3"], 60.0) == 3
