"""The measurements in benchmarks/: each can be called, and docs/benchmarks.md names commands that exist."""

import ast
import re
import runpy
from pathlib import Path

import pytest

from tiny import FAST

ROOT = Path(__file__).parents[1]
FILES = {path.stem: path for path in (ROOT / "benchmarks").glob("[!_]*.py") if path.stem != "harness"}


def call(name: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [name, *words])
    runpy.run_path(str(FILES[name]), run_name="__main__")


@pytest.mark.annex
@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_measurement_says_how_it_is_called(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        call(name, ["--help"], monkeypatch)
    assert f"python -m benchmarks.{name}" in capsys.readouterr().out


def functions_of(path: Path) -> list[str]:
    """Returns what a measurement calls: call(curve, beside)."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    (names,) = ([ast.unparse(word) for word in node.args] for node in calls if ast.unparse(node.func) == "call")
    return names


def test_the_commands_of_the_docs_exist() -> None:
    texts = [path.read_text().replace("\n", " ") for path in (ROOT / "docs").rglob("*.md")]
    named = [words for text in texts for words in re.findall(r"-m benchmarks\.(\w+)(?: (\w+))?", text)]
    assert len(named) > 10
    for name, word in named:
        functions = functions_of(FILES[name])
        assert len(functions) == 1 or word in functions
    assert FILES.keys() == {name for name, _ in named} | {"catalogue", "house"}  # which write no table


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "output"),
    [
        (("examples", ".", "tiny"), "the full recipe: "),
        (("pairs", "20000"), "20 of 20 duplicates are among them"),
        (("folds", "2000"), "2,000 images, 1,000 classes, 400 groups"),
    ],
)
def test_the_measurements_of_data_run(
    tiny: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    output: str,
) -> None:
    monkeypatch.chdir(tiny)
    call("data", list(words), monkeypatch)
    assert output in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.all
def test_variants_are_trained_once_and_compared(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = " ".join((*FAST[2:], "--epochs", "1"))
    words = [str(tiny), "tiny", "--model", "test_vit", "--seeds", "0", "--variants=--mix 0", f"--flags={flags}"]
    for _ in range(2):  # the second time, nothing is trained
        call("variants", words, monkeypatch)
        out = capsys.readouterr().out
        assert "| defaults |" in out
        assert "| --mix 0 |" in out
