"""The scripts in docs/ that measure: those that are quick still run."""

import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tiny import podium_at

DOCS = Path(__file__).parents[1] / "docs"
Script = Callable[..., str]


@pytest.fixture
def script(tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Script:
    """Runs a script in this process, which has imported torch, and so do the commands that it starts."""

    def run_podium(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert command[:4] == [sys.executable, "-m", "podium", "--root"]
        podium_at(Path(command[4]), *command[5:])
        return subprocess.CompletedProcess(command, 0)

    def run(name: str, *words: str) -> str:
        capsys.readouterr()
        monkeypatch.setattr("sys.argv", [name, *words])
        runpy.run_path(str(DOCS / name), run_name="__main__")
        return capsys.readouterr().out

    monkeypatch.chdir(tiny)
    monkeypatch.setattr("subprocess.run", run_podium)
    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "output"),
    [
        (("measure_data.py", "examples", "tiny"), "the full recipe: "),
        (("measure_data.py", "pairs", "20000"), "20 of 20 duplicates are among them"),
        (("measure_data.py", "folds", "2000"), "2,000 images, 1,000 classes, 400 groups"),
    ],
)
def test_a_measurement_runs(script: Script, words: tuple[str, ...], output: str) -> None:
    assert output in script(*words)


@pytest.mark.slow
@pytest.mark.all
def test_the_ablation_says_its_cost_prints_a_table_and_goes_on(script: Script) -> None:
    words = (
        *("-c", "tiny", "--models", "tf_efficientnet_lite0", "--size", "32", "--epochs", "1", "--seeds", "0"),
        *("--changes", "frozen head", "defaults"),
    )
    table = script("measure_finetuning.py", ".", *words)
    assert "2 runs, 2 left to train: about" in table
    assert "| frozen head |" in table
    assert "| defaults |" in table
    assert "2 runs, 0 left to train" in script("measure_finetuning.py", ".", *words, "--cost")
