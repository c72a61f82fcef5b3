"""A worker: takes free cells one after another until all have ended, and beats while it works on one."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from podium.basics.disk import checked_before_writing
from podium.basics.end_soon import exit_stopped
from podium.basics.errors import InUse, PodiumError
from podium.basics.terminal import say
from podium_annex.fleet.cell_board import DONE, ENDED, FAILED, FREE, Board, Lease, LeaseLost, Rhythm, Step, Watch, take


def work(board: Board, cells: Sequence[str], run: Callable[[str], None], rhythm: Rhythm) -> dict[str, Step]:
    """Runs every cell that no other worker runs; returns the last steps of all cells, once all have ended."""
    watch, waits = Watch(board, rhythm), False
    while True:
        looked, steps = time.monotonic(), board.last_steps()
        last = {cell: steps.get(cell, Step()) for cell in cells}
        for cell, step in last.items():
            if step.state == FREE or (step.state not in ENDED and watch.is_dead(cell, step)):
                last[cell] = _run_if_free(board, cell, step, run, rhythm)
        if all(step.state in ENDED for step in last.values()):
            return last
        if not waits:
            waits = True
            say("podium: other workers have the cells that are left; waiting for them")
        time.sleep(max(0.0, looked + rhythm.beat - time.monotonic()))


def _run_if_free(board: Board, cell: str, step: Step, run: Callable[[str], None], rhythm: Rhythm) -> Step:
    """Runs the cell and returns its last step, or what is known of it if another worker has it."""
    lease = take(board, cell, step, rhythm)
    return Step(step.number, "", "another worker") if lease is None else run_taken(lease, run)


def run_taken(lease: Lease, run: Callable[[str], None]) -> Step:
    """Runs a cell that this process has taken, and returns its last step."""
    try:
        with _beating(lease), checked_before_writing(lease.check):
            run(lease.cell)
    except LeaseLost as loss:
        say(f"podium: note: {loss}")
        return lease.step
    except InUse as problem:  # by a process that takes no cells
        say(f"podium: note: {problem}")
        return lease.end(FREE) or lease.step
    except PodiumError as error:
        say(f"podium: error: {error}")
        return lease.end(FAILED, str(error)) or lease.step
    except KeyboardInterrupt:
        lease.end(FREE)
        raise
    except BaseException as error:
        lease.end(FAILED, f"{type(error).__name__}: {error}")
        raise
    return lease.end(DONE) or lease.step


@contextmanager
def _beating(lease: Lease) -> Iterator[None]:
    """Beats in a thread. If another worker has taken the cell over, the process ends: training cannot be taken back."""
    has_ended = threading.Event()

    def beat() -> None:
        while not has_ended.wait(lease.rhythm.beat):
            try:
                lease.beat()
            except LeaseLost as loss:
                say(f"podium: {loss}; this worker stops")
                exit_stopped()
            except OSError as error:  # the shared folder may come back
                say(f"podium: warning: {lease.cell}: no beat ({error.strerror})")

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()
