"""Shows `podium compete` while it works: one table that stays in place in a terminal or notebook, lines elsewhere."""

import sys
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from podium.basics import terminal
from podium.basics.terminal import Aside, aloud, duration, printable, say, table

EVERY = 1.0  # seconds between two looks at the work
MOST_ROWS = 12  # of the table; the members with the least weight are left out


class ProgressTable:
    """Rows of members, and a line below them that says what is going on."""

    def __init__(self, metric: str, budget: float, aside: Aside) -> None:
        self.metric, self.budget, self.aside = metric, budget, aside
        self.rows: list[Sequence[object]] = []
        self.doing, self.expected = "", ""
        self.cell = None if terminal.quiet else _notebook_cell()  # whose output the table is
        self.is_live = self.cell is not None or (sys.stderr.isatty() and not terminal.quiet)
        self.worked = lambda: 0.0
        self._lines = 0  # on the screen
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def tell(self, text: str) -> None:
        """Says a line of the story, which stays above the table."""
        with self._lock:
            self._clear()
            with aloud():
                say(text)
            self._draw()

    def begin(self, doing: str) -> None:
        """Says what is being done now: in the line below the table, or as a line."""
        self.doing, self.aside.bar = doing, None
        if not self.is_live:
            self.tell(f"  {self._clock()}  {doing}")

    def update(self, rows: Sequence[Sequence[object]], expected: str) -> None:
        self.rows, self.expected = list(rows)[:MOST_ROWS], expected

    def text(self) -> str:
        """Returns the table of the members."""
        return table(["member", self.metric, "weight", "minutes"], self.rows) if self.rows else ""

    def _clock(self) -> str:
        return f"{duration(self.worked())} of {duration(self.budget)}"

    def _status(self) -> str:
        """Returns the line below the table: a narrow terminal cuts its end, so what matters most comes first."""
        bar, done = self.aside.bar, min(self.worked() / self.budget, 1.0)
        part = f"{bar.desc} {bar.n / bar.total:.0%}" if bar is not None and bar.total and bar.n < bar.total else ""
        return "; ".join(filter(None, [f"{done:.0%} of {duration(self.budget)}", self.expected, part, self.doing]))

    # --- in place ---

    def _run(self) -> None:
        while not self._ended.wait(EVERY):
            with self._lock:
                self._clear()
                self._draw()

    def _draw(self) -> None:
        if not self.is_live:
            return
        if self.cell is not None:
            self.cell.update({"text/plain": "\n".join(filter(None, [self.text(), self._status()]))}, raw=True)
            return
        import shutil

        columns = shutil.get_terminal_size().columns
        lines = [line[: columns - 1] for line in (*self.text().splitlines(), self._status())]
        sys.stderr.write("\n".join(map(printable, lines)) + "\n")
        sys.stderr.flush()
        self._lines = len(lines)

    def _clear(self) -> None:
        if self.is_live and self._lines:
            sys.stderr.write(f"\033[{self._lines}F\033[J")
            sys.stderr.flush()
        self._lines = 0

    def __enter__(self) -> Self:
        if self.is_live:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_live:
            self._ended.set()
            self._thread.join()
            with self._lock:
                self._clear()


def _notebook_cell() -> Any:
    """Returns an output of the notebook's cell that can be replaced; None where there is no notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import display

    return display({"text/plain": ""}, raw=True, display_id=True)
