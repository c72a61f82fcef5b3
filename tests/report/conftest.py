"""A headless Chromium."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from report.browser import Browser, find_chromium


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless Chromium; without one, the test is skipped, except where REQUIRE_CHROMIUM is set."""
    program = find_chromium()
    if program is None:
        pytest.skip("there is no Chromium; install it with: apt-get install chromium")
    with Browser.start(program, tmp_path_factory.mktemp("chromium")) as started:
        yield started


@pytest.fixture
def downloads(tmp_path: Path) -> Path:
    folder = tmp_path / "downloads"
    folder.mkdir()
    return folder
