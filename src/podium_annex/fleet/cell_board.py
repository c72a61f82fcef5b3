"""Says who works on which cell, in a folder that several machines share.

    runs/<slug>/.cells/<cell>.<n>     the n-th step of a cell: it was taken, freed, done, or it failed

A step is a new file with the next number, which only one process can make: of two workers that want a cell, and of a
worker that ends its cell and another that takes it over, exactly one succeeds. No step is changed or deleted. Only the
worker that has taken a cell adds a byte to its step at every beat. Another worker deems it dead after it has seen no
new byte for a while by its own clock: the clocks of machines are never compared.

A hard link makes the file with its content at once. On NFS too, only one machine can make it.
"""

import errno
import json
import os
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from podium.basics.disk import explain_full_disk
from podium.basics.errors import PodiumError

TAKEN, FREE, DONE, FAILED = "taken", "free", "done", "failed"
ENDED = (DONE, FAILED)
STATES = (TAKEN, FREE, *ENDED)
FOLDER = ".cells"
LONGEST_LINE = 1 << 16  # bytes of a step
LONGEST_WHY = 2000  # characters of an error, which is one sentence as a rule
WITHOUT_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL)


@dataclass(frozen=True)
class Rhythm:
    """How often workers look at the shared folder: it is asked once a minute, whatever the number of cells."""

    beat: float = 60.0  # seconds between two beats of a worker, and between two looks at the cells of others

    @property
    def patience(self) -> float:
        """Returns how long a worker may be silent. A file system may show its beats a minute late."""
        return 5 * self.beat


@dataclass(frozen=True)
class Step:
    number: int = 0  # 0: nothing has happened to the cell yet
    state: str = FREE
    who: str = ""  # the machine and the process
    why: str = ""  # the error of a cell that has failed


class Board:
    """The cells of a folder and their last steps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, Step] = {}  # steps by the name of their file: none of them changes
        with _explained(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def last_steps(self) -> dict[str, Step]:
        """Returns the last step of every cell, from one listing of the folder; it reads new files only."""
        numbers: dict[str, int] = {}
        for name in os.listdir(self.folder):
            cell, _, number = name.rpartition(".")
            if number.isdecimal() and not name.startswith("."):
                numbers[cell] = max(numbers.get(cell, 0), int(number))
        return {cell: self._step(cell, number) for cell, number in numbers.items()}

    def add(self, cell: str, step: Step) -> bool:
        """Adds the step; False if the cell has one with that number already, of another process."""
        short = replace(step, why=step.why[:LONGEST_WHY])
        line = json.dumps({key: value for key, value in asdict(short).items() if value})
        return write_new_file(self.path(cell, step.number), f"{line}\n")

    def beats(self, cell: str, step: Step) -> int:
        """Returns a number that grows while the worker of the cell lives."""
        with self.path(cell, step.number).open("rb") as file:  # on NFS, only an opened file has its present size
            return os.fstat(file.fileno()).st_size

    def silences(self, steps: Mapping[str, Step]) -> dict[str, float]:
        """Returns for how many seconds the worker of each cell that is taken has not beaten.

        Both times are those of the file system, which a file that is made now tells, so the clocks of machines may
        differ. Nothing, if this machine may not write there.
        """
        now = self.folder / f".{uuid.uuid4().hex}.tmp"
        try:
            now.touch()
            return {
                cell: max(0.0, now.stat().st_mtime - self.path(cell, step.number).stat().st_mtime)
                for cell, step in steps.items()
                if step.state == TAKEN
            }
        except OSError:
            return {}
        finally:
            with suppress(OSError):
                now.unlink()

    def beats_so_far(self, cell: str, last: Step) -> list[int]:
        """Returns how often each worker has beaten that had the cell since it was new, or since it last ended."""
        beats, number = list[int](), last.number
        while number and (step := self._step(cell, number)).state not in ENDED:
            if step.state == TAKEN:
                beats.append(len(self.path(cell, number).read_bytes().partition(b"\n")[2]))
            number -= 1
        return beats

    def path(self, cell: str, number: int) -> Path:
        return self.folder / f"{cell}.{number}"

    def _step(self, cell: str, number: int) -> Step:
        name = f"{cell}.{number}"
        if name not in self._read:
            try:
                step = Step(**json.loads(_first_line(f"{self.folder}/{name}")))
                if (step.number, type(step.who), type(step.why)) != (number, str, str) or step.state not in STATES:
                    raise ValueError("it is no step of this cell")
                self._read[name] = step
            except (ValueError, TypeError) as error:
                raise PodiumError(f"{self.folder / name}: cannot be read ({error}); delete {self.folder}") from None
        return self._read[name]


def write_new_file(path: Path, text: str) -> bool:
    """Writes a file, whole or not at all; False if another process has written it already."""
    temporary = path.parent / f".{uuid.uuid4().hex}.tmp"
    try:
        with _explained(path.parent), explain_full_disk(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(text, encoding="utf-8")
            try:
                os.link(temporary, path)
            except FileExistsError:
                return os.stat(temporary).st_nlink == 2  # NFS may say so when only the first answer was lost
            except OSError as error:
                if error.errno not in WITHOUT_HARD_LINKS:
                    raise
                raise PodiumError(
                    f"{path.parent}: this file system has no hard links ({error.strerror}), so machines cannot share"
                    " it; use NFS, Lustre or another one that has them, or work on one machine without --on"
                ) from None
    finally:
        temporary.unlink(missing_ok=True)
    return True


@dataclass
class Watch:
    """What one worker has seen of the others, by its own clock."""

    board: Board
    rhythm: Rhythm
    seen: dict[tuple[str, int], tuple[int, float]] = field(default_factory=dict)  # beats, and when they were new

    def is_dead(self, cell: str, step: Step) -> bool:
        """Returns whether the worker that has taken the cell has been silent for too long."""
        beats, now = self.board.beats(cell, step), time.monotonic()
        before, since = self.seen.get((cell, step.number), (-1, now))
        if beats != before:
            since = now
        self.seen[cell, step.number] = (beats, since)
        return now - since > self.rhythm.patience


class LeaseLost(PodiumError):
    """Another worker has taken the cell over."""


class Lease:
    """A cell that this process has taken."""

    def __init__(self, board: Board, cell: str, step: Step, rhythm: Rhythm) -> None:
        self.board, self.cell, self.step, self.rhythm = board, cell, step, rhythm
        self._beaten = _clock()

    def beat(self) -> None:
        """Tells the others that this worker lives."""
        path = self.board.path(self.cell, self.step.number)
        if not path.exists() or self.board.path(self.cell, self.step.number + 1).exists():
            raise LeaseLost(
                f"{self.cell}: another worker has taken it over, for this one was silent for more than"
                f" {self.rhythm.patience:.0f} s; nothing is lost"
            )
        with path.open("ab") as file:
            file.write(b".")
        self._beaten = _clock()

    def check(self) -> None:
        """Refuses to write files of a cell that may be another worker's: this process may have been stopped for long.

        While it beats in time, nobody takes the cell, so the shared folder is not asked.
        """
        if _clock() - self._beaten > 2 * self.rhythm.beat:
            self.beat()

    def end(self, state: str, why: str = "") -> Step | None:
        """Says what became of the cell; None if another worker has taken it over."""
        step = Step(self.step.number + 1, state, _me(), why)
        return step if self.board.add(self.cell, step) else None


def take(board: Board, cell: str, after: Step, rhythm: Rhythm) -> Lease | None:
    """Takes a cell whose last step was `after`; None if another worker was faster."""
    step = Step(after.number + 1, TAKEN, _me())
    return Lease(board, cell, step, rhythm) if board.add(cell, step) else None


def reopen(board: Board, cells: Iterable[str]) -> None:
    """Frees cells that have ended, to be trained again."""
    steps = board.last_steps()
    for cell in cells:
        step = steps.get(cell, Step())
        if step.state in ENDED:
            board.add(cell, Step(step.number + 1, FREE, _me()))


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Says what to do about a folder that this machine does not see, or may not write."""
    try:
        yield
    except OSError as error:
        raise PodiumError(
            f"{folder} cannot be written ({error.strerror}), and all machines that take part write there; mount the"
            " project's folder on this one, or get the right to write in it"
        ) from None


def _first_line(path: str) -> bytes:
    """Returns the first line of a file, by calls of the system: there may be tens of thousands of such files."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, LONGEST_LINE).partition(b"\n")[0]
    finally:
        os.close(file)


def _me() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def _clock() -> float:
    """Returns seconds that also pass while the machine sleeps, where the system counts them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
