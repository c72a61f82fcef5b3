"""The limits that keep the code readable."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "podium"
FILES = sorted(SOURCE.rglob("*.py"))
FUNCTION_LINES, CLASS_LINES, PARAMETERS = 50, 150, 6


def problems(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > (CLASS_LINES if isinstance(node, ast.ClassDef) else FUNCTION_LINES):
                yield f"line {node.lineno}: {node.name} has {lines} lines"
        if isinstance(node, ast.FunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            count = sum(argument.arg not in ("self", "cls") for argument in arguments)
            if count > PARAMETERS:
                yield f"line {node.lineno}: {node.name} has {count} parameters"


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(SOURCE)) for path in FILES])
def test_functions_fit_on_a_screen(path: Path) -> None:
    assert list(problems(path)) == []


def test_no_two_modules_have_one_name() -> None:
    names = [path.name for path in FILES if path.name != "__init__.py"]
    assert sorted(names) == sorted(set(names))


def test_every_room_says_what_it_does() -> None:
    for room in SOURCE.glob("*/__init__.py"):
        docstring = ast.get_docstring(ast.parse(room.read_text(encoding="utf-8"))) or ""
        assert "In: " in docstring, room
        assert "Out: " in docstring, room
        assert "Read " in docstring, room
