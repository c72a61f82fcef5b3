"""The scripts in docs/ that measure: those that are quick still run."""

import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "output"),
    [
        (("measure_data.py", "examples", "tiny"), "the full recipe: "),
        (("measure_data.py", "pairs", "20000"), "20 of 20 duplicates are among them"),
        (("measure_data.py", "folds", "2000"), "2,000 images, 1,000 classes, 400 groups"),
    ],
)
def test_a_measurement_runs(tiny: Path, words: tuple[str, ...], output: str) -> None:
    command = [sys.executable, str(DOCS / words[0]), *words[1:]]
    done = subprocess.run(command, cwd=tiny, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert output in done.stdout


@pytest.mark.slow
def test_the_ablation_says_its_cost_prints_a_table_and_goes_on(tiny: Path) -> None:
    words = (
        *("-c", "tiny", "--models", "tf_efficientnet_lite0", "--size", "32", "--epochs", "2", "--seeds", "0"),
        *("--changes", "frozen head", "defaults"),
    )

    def run(*further: str) -> str:
        command = [sys.executable, str(DOCS / "measure_finetuning.py"), ".", *words, *further]
        done = subprocess.run(command, cwd=tiny, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    table = run()
    assert "2 runs, 2 left to train: about" in table
    assert "| frozen head |" in table
    assert "| defaults |" in table
    assert "2 runs, 0 left to train" in run("--cost")
