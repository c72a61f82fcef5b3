"""Workers end when the process that started them was killed."""

import os
import signal
import subprocess
import sys

import pytest

from podium_annex.fleet.lifeline import VARIABLE, follow_parent, lifeline

WORKER = """
import signal
from podium_annex.fleet.lifeline import follow_parent
print(follow_parent(), flush=True)
signal.pause()
"""


def test_a_command_that_nobody_has_started_as_a_worker_follows_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert not follow_parent()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "at its end"])
def test_a_worker_ends_with_the_process_that_started_it(how: str) -> None:
    reading, writing = os.pipe()
    parent = os.fork()
    if not parent:
        try:
            with lifeline() as line:
                environment = {**os.environ, VARIABLE: str(line)}
                words = [sys.executable, "-c", WORKER]
                worker = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, pass_fds=(line, writing))
                assert worker.stdout is not None
                os.write(writing, worker.stdout.readline())
                if how == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(parent, 0)
    assert os.read(reading, 100) == b"True\n"
    assert os.read(reading, 100) == b""  # the worker, which holds the other end as well, has ended
    os.close(reading)
