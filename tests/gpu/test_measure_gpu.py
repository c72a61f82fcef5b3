"""benchmarks/gpu.sh, tried on a CPU: tests, bench and a run of five folds, and what it writes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.all
def test_the_script_measures_and_writes_its_table(tmp_path: Path) -> None:
    environment = {**os.environ, "DEVICE": "cpu", "PYTHON": sys.executable, "WHEELS": str(tmp_path / "none")}
    command = [ROOT / "benchmarks" / "gpu.sh", tmp_path / "results"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "results" / "gpu.json").read_text())
    cases = [measured["case"] for measured in results["bench"]]
    assert cases == ["test_vit, batches of 8", "test_vit, batches of 8, gpu", "test_convnext, batches of 8"]
    assert all(measured["training"]["median"] > 0 for measured in results["bench"])
    assert results["run"]["folds"] == 5
    assert 0 < results["run"]["training"] < results["run"]["train"]
    assert results["left_out"] == []
    table = (tmp_path / "results" / "gpu.md").read_text()
    assert "| test_vit, batches of 8, gpu |" in table
    assert table in done.stdout
    assert " passed" in (tmp_path / "results" / "tests.txt").read_text()
