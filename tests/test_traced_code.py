"""traced_code.py: a template is built anew when code changes that it was built with."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from traced_code import code_that_runs

FILES = {
    "__init__.py": "",
    "start.py": "from traced_package.constants import SIZE\n\n\ndef run():\n    from traced_package import late\n\n"
    "    return late.double(SIZE)\n\n\ndef other():\n    from traced_package import unused\n\n    return unused.NAME\n",
    "constants.py": "SIZE = 3\n",
    "late.py": "import threading\n\nfrom traced_package.deep import add\n\n\ndef double(value):\n"
    "    thread = threading.Thread(target=add, args=(value, value))\n    thread.start()\n    thread.join()\n",
    "deep.py": "def add(first, second):\n    from traced_package import table\n\n    return first + table.ZERO\n",
    "table.py": "ZERO = 0\n",
    "unused.py": "NAME = ''\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "traced_package"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.startswith("traced_package")]:
        del sys.modules[name]


def test_what_runs_or_is_imported_by_it_counts_and_nothing_else(package: Path) -> None:
    start = importlib.import_module("traced_package.start")
    start.run()  # what was imported before counts as well
    with code_that_runs(package) as files:
        start.run()
    assert {path.name for path in files} == {*FILES} - {"unused.py"}
