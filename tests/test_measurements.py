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
