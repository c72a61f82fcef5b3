"""A signal ends a command from its first line on, and changes nothing for those who import podium."""

import signal
import subprocess
import sys

import pytest

from podium.basics.early_signals import is_command
from podium.basics.errors import STOPPED

START = "import signal, sys; sys.orig_argv[:] = {words}; import podium; signal.raise_signal(signal.{name})"


def test_only_the_command_line_takes_signals_for_itself() -> None:
    for words in (
        ["python", "-m", "podium", "train"],
        ["python", "/venv/bin/podium"],
        ["python", "-X", "dev", "-m", "podium"],
    ):
        assert is_command(words)
    for words in (
        ["python", "-m", "pytest", "podium"],
        ["python", "podium/demo.py"],
        ["python", "-c", "import podium"],
    ):
        assert not is_command(words)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("is_of_command", [True, False])
def test_a_signal_at_the_first_line_ends_a_command_and_is_left_to_a_library(name: str, is_of_command: bool) -> None:
    words = ["python", "-m", "podium" if is_of_command else "other"]
    script = START.format(words=words, name=name)
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert process.returncode == (STOPPED if is_of_command else -signal.Signals[name])
    assert ("run the same command again" in process.stderr) == is_of_command
