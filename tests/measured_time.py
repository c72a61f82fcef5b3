"""Which tests are slow: those that took long when they were measured, by `make measure-tests`.

slow_tests.txt lists them, and conftest.py marks them, so that `make test-fast` leaves them out. A test that is not
listed counts as fast until it is measured.
"""

from collections import defaultdict
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("slow_tests.txt")
SLOW = 0.1  # seconds, of the slowest case of a test, without its setup: templates are built once
HEADER = "# Tests that take more than a tenth of a second, as `make measure-tests` found them. Not written by hand.\n"


def slow_tests() -> set[str]:
    """Returns them as file::test, without their cases."""
    return {line for line in FILE.read_text().splitlines() if line and not line.startswith("#")}


def name_of(node_id: str) -> str:
    """Returns a test's name without its case."""
    return node_id.partition("[")[0].removeprefix("tests/")


def mark_slow(items: list[pytest.Item]) -> None:
    slow = slow_tests()
    for item in items:
        if name_of(item.nodeid) in slow:
            item.add_marker(pytest.mark.slow)


class Measure:
    """A plugin that measures each test, and writes the list anew; tests that did not run keep their entry."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            name = name_of(report.nodeid)
            self.seconds[name] = max(self.seconds[name], report.duration)

    def pytest_sessionfinish(self) -> None:
        slow = {name for name, seconds in self.seconds.items() if seconds > SLOW}
        names = slow | {name for name in slow_tests() if name not in self.seconds}
        existing = (name for name in names if (FILE.parent / name.partition("::")[0]).exists())
        FILE.write_text(HEADER + "".join(f"{name}\n" for name in sorted(existing)))
