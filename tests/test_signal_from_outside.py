"""SIGTERM ends pytest, also while a command runs in it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TEST = """
import pytest
from podium import __main__
from podium.cli.parser import Command, no_flags

def waiting(args):
    print("ready", file=sys.__stderr__, flush=True)
    time.sleep(60)

def test_first(podium, monkeypatch):
    monkeypatch.setitem(__main__.COMMANDS, "models", Command(waiting, no_flags))
    podium("models")

def test_second():
    print("went on", file=sys.__stderr__, flush=True)
"""


@pytest.mark.slow
def test_sigterm_ends_pytest_while_a_command_runs_in_it(tmp_path: Path) -> None:
    (tmp_path / "test_waiting.py").write_text(f"import sys, time\n{TEST}")
    tests = Path(__file__).parent
    words = ["-s", "-p", "conftest", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *map(str, words)],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "went on" not in err
