"""SIGTERM ends a command, whatever it is doing."""

import importlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from podium.basics import end_soon
from podium.basics.end_soon import end_soon_after_sigterm
from podium.basics.errors import STOPPED
from second_round import first_of

# A command that is deaf: an interrupt ends nothing in it, like a long computation in a library.
DEAF = """
import sys, threading
from pathlib import Path
from podium import __main__
from podium.basics import disk
from podium.cli.parser import Command, no_flags

def deaf(args):
    with disk.atomic(Path(sys.argv[1])) as temporary:
        temporary.write_text("half")
        while True:
            try:
                print("ready", flush=True)
                threading.Event().wait()
            except KeyboardInterrupt:
                pass

__main__.COMMANDS["models"] = Command(deaf, no_flags)
sys.exit(__main__.main(["models"]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT, signal.SIGINT]])
def test_a_command_that_hears_nothing_ends_with_one_line_and_without_half_a_file(
    tmp_path: Path, signals: list[signal.Signals]
) -> None:
    words = [sys.executable, "-c", DEAF, str(tmp_path / "file.csv")]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for number in signals:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == STOPPED
    (line,) = err.splitlines()
    assert line.startswith("podium: stopped")
    assert "same command" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.annex
@pytest.mark.slow
@pytest.mark.parametrize("name", first_of(["SIGTERM"], ["SIGTERM", "SIGINT"]))
def test_a_signal_after_the_end_changes_no_exit_status(name: str) -> None:
    """Libraries such as torch take a while to take down what they hold, and the work is done by then."""
    script = f"import atexit, signal, sys; atexit.register(signal.raise_signal, signal.{name})"
    script += "; from podium.__main__ import main; sys.exit(main(['models', 'no_model_of_this_name']))"
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert process.returncode == 1, process.stderr


def test_the_signal_of_a_child_is_none_of_its_parent() -> None:
    """Pools end their forked processes with SIGTERM."""
    with end_soon_after_sigterm():
        child = os.fork()
        if not child:
            signal.signal(signal.SIGTERM, lambda number, frame: None)
            signal.raise_signal(signal.SIGTERM)
            os._exit(signal.set_wakeup_fd(-1) + 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_first_signal_interrupts_and_later_ones_let_it_end() -> None:
    handler, threads = signal.getsignal(signal.SIGTERM), threading.active_count()
    with end_soon_after_sigterm():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is handler
    assert threading.active_count() == threads


@pytest.mark.slow
def test_a_command_that_a_signal_has_ended_does_not_wait_for_libraries() -> None:
    script = """
import atexit, signal, sys, threading
from podium import __main__
from podium.cli.parser import Command, no_flags
__main__.COMMANDS["models"] = Command(lambda args: signal.raise_signal(signal.SIGTERM), no_flags)
sys.argv[1:] = ["models"]
atexit.register(threading.Event().wait)
__main__.run()
"""
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert process.returncode == STOPPED
    (line,) = process.stderr.splitlines()
    assert line.startswith("podium: stopped")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_an_import_raises_nothing_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """C++ code that imports a module aborts the process when an exception comes out of it; the thread ends it."""
    (tmp_path / f"with_signal_{int(number)}.py").write_text(
        f"import signal\nsignal.raise_signal({int(number)})\nis_whole = True"
    )
    monkeypatch.syspath_prepend(tmp_path)
    ended = threading.Event()
    monkeypatch.setattr(end_soon, "_end_now", ended.set)
    monkeypatch.setattr(end_soon, "PATIENCE", 0.0)
    with end_soon_after_sigterm():
        assert importlib.import_module(f"with_signal_{int(number)}").is_whole
        assert ended.wait(60)
