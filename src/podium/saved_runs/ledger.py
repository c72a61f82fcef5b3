"""compete.jsonl: every decision of `podium compete`, what it was expected to bring and what it brought.

Writes runs/<slug>/.compete/compete.jsonl, a line an event, and worked.json: how long the command has worked. Nothing
else is needed to go on after a kill, besides the runs themselves. `submit`, `lineage` and the report read it.
"""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from podium.basics.disk import locked, write_json
from podium.basics.errors import InUse, PodiumError
from podium.basics.project_root import runs_folder

FOLDER = ".compete"
LEDGER, WORKED, LOG = "compete.jsonl", "worked.json", "compete.log"
BEAT = 5.0  # seconds between two notes of the time that was worked
# Events: what a line is about, by its key "event".
STARTED, FOLDS, BEGUN, ENDED, FAILED, SUBMITTED, STOPPED = (
    *("started", "folds", "begun", "ended", "failed"),
    *("submitted", "stopped"),
)
EVENTS = (STARTED, FOLDS, BEGUN, ENDED, FAILED, SUBMITTED, STOPPED)

Line = dict[str, Any]


class Ledger:
    """The events of one competition, in their order."""

    def __init__(self, slug: str, root: Path) -> None:
        self.folder = runs_folder(slug, root) / FOLDER
        self.path, self._lock = self.folder / LEDGER, self.folder / ".lock"
        self.lines = _read(self.path)
        self._before = _read_worked(self.folder / WORKED)
        self._since = time.monotonic()
        self._writing = threading.Lock()  # the beat writes beside the work

    @property
    def worked(self) -> float:
        """Returns the seconds that were worked: neither a stop nor a suspended machine counts."""
        return self._before + time.monotonic() - self._since

    def add(self, event: str, **facts: Any) -> Line:
        """Appends a line, which is on disk when this returns."""
        line = {"event": event, "worked": round(self.worked, 1), **facts}
        text = json.dumps(line, ensure_ascii=False) + "\n"
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
        self.lines.append(line)
        self.keep_worked()
        return line

    def of(self, *events: str) -> list[Line]:
        return [line for line in self.lines if line["event"] in events]

    def failed(self) -> set[str]:
        """Returns the members that have failed; with more time than before, or other data, they may not."""
        most, data, failed = 0.0, None, set[str]()
        for line in self.lines:
            if line["event"] == STARTED and (line["budget"] > most or line.get("data") != data):
                most, data = max(most, line["budget"]), line.get("data")
                failed.clear()
            elif line["event"] == FAILED:
                failed.add(line["member"])
        return failed

    def unfinished(self) -> Line | None:
        """Returns the member that was being trained when the command ended."""
        begun = self.of(BEGUN)
        if not begun:
            return None
        after = self.lines[self.lines.index(begun[-1]) + 1 :]
        is_over = any(line["event"] in (ENDED, FAILED) for line in after)
        return None if is_over else begun[-1]

    def keep_worked(self) -> None:
        with self._writing:
            write_json(self.folder / WORKED, {"seconds": round(self.worked, 1)})

    def is_in_use(self) -> bool:
        """Returns whether a `compete` works on it now."""
        with locked(self._lock) as is_mine:
            return not is_mine

    @contextmanager
    def open(self) -> Iterator[None]:
        """Keeps a second `compete` out, and notes the time that is worked."""
        with locked(self._lock) as is_mine:
            if not is_mine:
                raise InUse(f"another podium compete works on {self.folder.parent}; wait for it, or stop it")
            self._since = time.monotonic()
            _cut_half_line(self.path)
            ended = threading.Event()
            beat = threading.Thread(target=self._keep_beating, args=(ended,), daemon=True)
            beat.start()
            try:
                yield
            finally:
                ended.set()
                beat.join()
                if self.folder.is_dir():
                    self.keep_worked()

    def _keep_beating(self, ended: threading.Event) -> None:
        while not ended.wait(BEAT):
            try:
                self.keep_worked()
            except PodiumError:  # the disk is full: the work itself says so
                return


def judging_folds(slug: str, root: Path) -> tuple[int, ...]:
    """Returns the folds on which `compete` has compared the blend that it submitted; none without one."""
    submitted = Ledger(slug, root).of(SUBMITTED)
    return tuple(submitted[-1]["folds"]) if submitted else ()


def _read(path: Path) -> list[Line]:
    """Reads the lines; the last one may be cut off by a kill, and then does not count."""
    try:
        texts = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise PodiumError(f"{path}: cannot be read ({error}); restore it, or delete it to start anew") from None
    lines = []
    for number, text in enumerate(texts[:-1], 1):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            line = None
        if problem := _problem_with(line):
            raise PodiumError(f"{path}, line {number}: {problem}; restore it, or delete the file to start anew")
        lines.append(line)
    return lines


# What a line of each kind must have, and of which type: all that is read back.
FIELDS: Mapping[str, Mapping[str, Any]] = {
    STARTED: {"budget": (int, float)},
    FOLDS: {"judging": list},
    BEGUN: {"member": str, "folds": list, "kind": str, "model": str, "side": int, "seed": int, "options": dict},
    ENDED: {"member": str, "seconds": (int, float)},
    FAILED: {"member": str, "error": str},
    SUBMITTED: {"runs": list, "folds": list, "sha256": str},
    STOPPED: {"why": str},
}


def _problem_with(line: Any) -> str:
    """Returns what is wrong with a line, which anybody may have edited."""
    if not isinstance(line, dict) or line.get("event") not in EVENTS:
        return "it is no event of podium compete"
    for name, kind in FIELDS[line["event"]].items():
        if not isinstance(line.get(name), kind) or isinstance(line.get(name), bool):
            return f"{name} cannot be {str(line.get(name))[:40]!r}"
    return ""


def _cut_half_line(path: Path) -> None:
    """Removes a last line that a kill has cut off."""
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        with path.open("r+b") as file:
            file.truncate(len(whole))


def _read_worked(path: Path) -> float:
    try:
        return max(0.0, float(json.loads(path.read_text(encoding="utf-8"))["seconds"]))
    except (OSError, ValueError, LookupError, TypeError):
        return 0.0
