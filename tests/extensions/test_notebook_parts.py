"""Parts that cells of a notebook define: what a run keeps of them, and what is refused."""

import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import podium as library
from extension_file import write_extension
from podium.options.extensions.extension_files import load_extensions, loaded_extensions
from podium.options.extensions.own_parts import own_parts
from podium.options.moves.losses import LOSSES
from podium.options.recipe import KNOBS
from tiny import recipe_of, run_of

Cell = Callable[[str], None]
NEEDS = """
import math
from math import sqrt
import torch
from podium import extend
POWER = 2
unused = object()

def deeper(values):
    return values.abs() ** POWER

class Helper:
    scale = 3

    def __call__(self, values):
        return deeper(values) * sqrt(self.scale)
"""
LOSS = """
%s
@extend.loss
def mine(logits, targets):
    help = Helper()
    return help(logits.softmax(1) - targets).sum(1)
"""


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    """Runs text as a cell, as IPython does."""
    notebook = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    cells: list[str] = []

    def run(text: str) -> None:
        cells.append(text)
        name = f"<cell {len(cells)}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec"), vars(notebook))

    return run


def source_of_the_part() -> str:
    (extension,) = loaded_extensions()
    return extension.source.decode()


def test_a_part_is_a_file_with_all_that_it_needs(cell: Cell, tmp_path: Path) -> None:
    cell(NEEDS)
    cell(LOSS % "")
    source = source_of_the_part()
    for needed in ("from math import sqrt as sqrt", "POWER = 2", "def deeper", "class Helper", "@extend.loss"):
        assert source.count(needed) == 1
    assert "unused" not in source
    assert "import math as math" not in source
    before = own_parts({"loss": "mine"})
    write_extension(tmp_path, source)
    cell("from podium.options.extensions.extend import CELLS; CELLS.clear()")
    load_extensions(tmp_path)
    assert [extension.name for extension in loaded_extensions()] == ["mine.py"]
    assert own_parts({"loss": "mine"}) == before  # so the file goes on with the run


def test_what_a_part_needs_decides_its_hash(cell: Cell) -> None:
    hashes = []
    for text in (NEEDS, NEEDS + "more = 3", NEEDS.replace("POWER = 2", "POWER = 3"), NEEDS.replace("abs()", "relu()")):
        cell(text)
        cell(LOSS % "")
        hashes.append(own_parts({"loss": "mine"})["loss mine"])
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3


def test_a_cell_may_run_again_and_another_project_keeps_its_parts(cell: Cell, tmp_path: Path) -> None:
    cell(NEEDS)
    for _ in range(2):
        cell(LOSS % "")
    write_extension(tmp_path, "from podium import extend\n@extend.loss\ndef filed(x, t):\n    return x.sum(1)\n")
    load_extensions(tmp_path)
    assert {"mine", "filed"} <= LOSSES.keys()
    load_extensions(tmp_path / "elsewhere")
    assert "mine" in LOSSES
    assert "filed" not in LOSSES


def test_a_move_and_a_head_may_be_of_a_cell(cell: Cell) -> None:
    cell("""
from torch import nn
from podium import extend

@extend.move
class Halved(extend.Move):
    halved: bool = extend.knob("half the rate", off=False, default=False, why="to try it")

    def rate(self, rate, step, total_steps, per_epoch):
        return rate / 2

@extend.head
class Plain(nn.Linear):
    def forward(self, features):
        return super().forward(features)
""")
    assert "halved" in KNOBS
    recipe = recipe_of("test_vit", halved=True, head="Plain")
    assert recipe.rate_at(5, 10, 2) == recipe.but(halved=False).rate_at(5, 10, 2) / 2
    assert own_parts(recipe.values()).keys() == {"move Halved", "head Plain"}


@pytest.mark.parametrize(
    ("before", "text", "why"),
    [
        (
            "TABLE = [1, 2]",
            LOSS.replace("%s", "").replace("Helper()", "TABLE"),
            "needs TABLE of the notebook, whose list",
        ),
        ("", "mine = extend.loss(lambda x, t: x.sum(1))", "the source of <lambda> cannot be read"),
        ("", (LOSS % "").replace("mine", "focal"), "there is a loss 'focal' already"),
    ],
)
def test_what_a_run_could_not_keep_is_refused(cell: Cell, before: str, text: str, why: str) -> None:
    cell(NEEDS + before)
    with pytest.raises(library.PodiumError, match=why):
        cell(text)
    assert loaded_extensions() == ()


def test_a_run_keeps_the_source_of_its_part(cell: Cell, tiny: Path) -> None:
    cell(NEEDS)
    cell(LOSS % "")
    words: dict[str, Any] = {
        "weights": "none",
        "image_size": 32,
        "epochs": 1,
        "batch_size": 8,
        "machine": "cpu",
        "folds": 0,
    }
    competition = library.load("tiny", tiny)
    library.train(competition, "test_vit", loss="mine", name="own", **words)
    library.train(competition, "test_vit", name="usual", **words)
    own, usual = run_of(tiny, "own"), run_of(tiny, "usual")
    assert own.recipe["of_notebook"] == ["notebook_mine.py"]
    assert (own.path / "notebook_mine.py").read_text() == source_of_the_part()
    assert "of_notebook" not in usual.recipe
    cell(NEEDS.replace("POWER = 2", "POWER = 3"))
    cell(LOSS % "")
    with pytest.raises(library.PodiumError, match="the code of own parts changed"):
        library.train(competition, "test_vit", loss="mine", name="own", **words)
