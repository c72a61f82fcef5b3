"""Files are written whole or not at all, and a lock ends with the process that holds it."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from podium.basics.disk import atomic, locked, write_text
from podium.basics.errors import PodiumError


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    with atomic(path) as temporary:
        temporary.write_text("first")

    def write_half(error: Exception) -> None:
        with atomic(path) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(ZeroDivisionError):
        write_half(ZeroDivisionError())
    with pytest.raises(PodiumError, match=f"no space left to write {path}; free some space"):
        write_half(OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(PodiumError, match=f"{path} cannot be written: Permission denied; check the permissions"):
        write_half(PermissionError(errno.EACCES, "Permission denied", "a temporary file"))
    assert path.read_text() == "first"
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


LOCK_HOLDER = """
import os, sys, time
from pathlib import Path
from podium.basics.disk import locked
reading, writing = os.pipe()
with locked(Path(sys.argv[1])) as is_mine:
    if os.fork() == 0:
        os.write(writing, b"1")
        time.sleep(60)
        os._exit(0)
    os.read(reading, 1)
    print(is_mine, flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_a_killed_process_whose_children_live_on_holds_no_lock(tmp_path: Path) -> None:
    words = [sys.executable, "-c", LOCK_HOLDER, str(tmp_path / "lock")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        with locked(tmp_path / "lock") as is_mine:
            assert not is_mine
        holder.kill()
        holder.wait()
        with locked(tmp_path / "lock") as is_mine:
            assert is_mine
        os.killpg(holder.pid, signal.SIGKILL)  # the child


def test_what_a_killed_process_has_left_of_a_file_goes_when_it_is_written_again(tmp_path: Path) -> None:
    child = os.fork()
    if not child:
        with atomic(tmp_path / "file[1].csv") as temporary:
            temporary.write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
            os._exit(1)
    os.waitpid(child, 0)
    (left,) = tmp_path.iterdir()
    living = left.with_name(left.name.replace(f".{child}.", f".{os.getppid()}."))
    other = left.with_name(left.name.replace("file[1]", "file1"))
    for path in (living, other):
        path.write_text("of another")
    write_text(tmp_path / "file[1].csv", "whole")
    assert {path.name for path in tmp_path.iterdir()} == {"file[1].csv", living.name, other.name}
