"""Counts what this clone is made of: `make sizes`, or python -m benchmarks.house. No test fails by a size.

Files and lines; what stands at the top of src/podium; the longest functions, the largest classes and the functions with
the most parameters; small modules with one importer; the longest chains of imports, among rooms (folders of the core)
and among modules, where a circle counts as one; public names that nothing else names; how far the options reach.
"""

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median

from benchmarks.harness import call

CLONE = Path(__file__).parents[1]
SOURCE = CLONE / "src"
PACKAGES = {"podium": SOURCE / "podium", "podium_annex": SOURCE / "podium_annex", "tests": CLONE / "tests"}
FILES = sorted(SOURCE.glob("podium*/**/*.py"))
SMALL = 60  # lines
TOP = 10
Edges = dict[str, set[str]]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def house(top: int = TOP) -> None:
    print("\nfiles and lines")
    for name, folder in PACKAGES.items():
        paths = [path for path in folder.rglob("*.py") if ".templates" not in path.parts]
        print(f"  {name}: {len(paths):,} files, {sum(map(lines_of, paths)):,} lines")
    entries = [path for path in PACKAGES["podium"].iterdir() if path.name != "__pycache__"]
    print(f"  at the top of src/podium: {len(entries)}, of which {sum(path.is_dir() for path in entries)} are folders")
    show("longest functions, lines", ((long(node), place) for node, place in nodes(ast.FunctionDef)), top)
    show("largest classes, lines", ((long(node), place) for node, place in nodes(ast.ClassDef)), top)
    show("most parameters", ((parameters(node), place) for node, place in nodes(ast.FunctionDef)), top)
    imports = imports_of_modules()
    importers = Counter(name for names in imports.values() for name in names)
    alone = [path for path in FILES if importers[module_of(path)] == 1 and lines_of(path) < SMALL]
    print(f"\nmodules with one importer and fewer than {SMALL} lines: {len(alone)}")
    for path in alone:
        (importer,) = (name for name, names in imports.items() if module_of(path) in names)
        print(f"  {lines_of(path):4} {module_of(path)}, for {importer}")
    for what, edges in (("rooms of the core", rooms_of(imports)), ("modules", imports)):
        tower = longest_chain(edges)
        print(f"\nlongest chain of imports among {what}: {len(tower)} floors\n  {' -> '.join(tower)}")
    dead = sorted(dead_names())
    print(f"\npublic names that nothing else names: {len(dead)}", *dead, sep="\n  ")
    options()


def show(title: str, rows: Iterator[tuple[int, str]], top: int) -> None:
    print(f"\n{title}", *(f"  {count:4} {place}" for count, place in sorted(rows, reverse=True)[:top]), sep="\n")


def nodes(kind: type[ast.AST]) -> Iterator[tuple[ast.AST, str]]:
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, kind):
                yield node, f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}"  # type: ignore[attr-defined]


def long(node: ast.AST) -> int:
    return node.end_lineno - node.lineno + 1  # type: ignore[attr-defined, no-any-return]


def parameters(node: ast.AST) -> int:
    assert isinstance(node, ast.FunctionDef)
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return sum(name not in ("self", "cls") for name in names)


# --- imports -----------------------------------------------------------------------------------------


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def imports_of_modules() -> Edges:
    """Returns which modules each module imports, also inside its functions; not those for type checkers only."""
    known = {module_of(path) for path in FILES}
    edges: Edges = {}
    for path in FILES:
        names = set()
        for node in at_run_time(tree_of(path)):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                names |= inner & known or {node.module}
        edges[module_of(path)] = (names & known) - {module_of(path)}
    return edges


def at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            yield child
            yield from at_run_time(child)


def rooms_of(imports: Edges) -> Edges:
    folders = {f"podium.{path.name}" for path in PACKAGES["podium"].iterdir() if path.is_dir()}

    def room(name: str) -> str:
        return ".".join(name.split(".")[:2])

    edges: Edges = {}
    for name, names in imports.items():
        if room(name) in folders:
            edges.setdefault(room(name), set()).update({room(other) for other in names} & folders - {room(name)})
    return edges


def longest_chain(edges: Edges) -> list[str]:
    """Returns the longest chain of imports; a circle is one floor, and shown by one of its members."""
    reached = {name: reach(edges, name) for name in edges}
    floor = {name: min({name} | {other for other in reached[name] if name in reached[other]}) for name in edges}
    below: Edges = {}
    for name, names in edges.items():
        below.setdefault(floor[name], set()).update({floor[other] for other in names} - {floor[name]})

    @cache
    def chain(name: str) -> tuple[str, ...]:
        longest: tuple[str, ...] = ()
        for other in sorted(below[name]):
            if len(found := chain(other)) > len(longest):
                longest = found
        return (name, *longest)

    return list(sorted(map(chain, sorted(below)), key=len)[-1])


def reach(edges: Edges, name: str) -> set[str]:
    found, waiting = set[str](), [name]
    while waiting:
        new = edges[waiting.pop()] - found
        found |= new
        waiting += new
    return found


# --- names -------------------------------------------------------------------------------------------


def dead_names() -> Iterator[str]:
    """Yields public functions, classes, methods and constants whose names occur once: where they are defined.

    What a decorator registers is called by others; a word in a text or a table counts as an occurrence.
    """
    folders = ("src", "notebooks", "docs", "tests", "benchmarks")
    texts = [path for folder in folders for path in (CLONE / folder).rglob("*") if ".templates" not in path.parts]
    texts = [path for path in texts if path.suffix in (".py", ".ipynb", ".md", ".toml", ".csv")]
    counts = Counter(word for path in texts for word in re.findall(r"\w+", path.read_text(encoding="utf-8")))
    for path in FILES:
        for line, name in defined_in(tree_of(path).body):
            if not name.startswith("_") and counts[name] == 1:
                yield f"{path.relative_to(SOURCE)}:{line} {name}"


def defined_in(body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
    for node in body:
        match node:
            case ast.FunctionDef() | ast.ClassDef() if not node.decorator_list:
                yield node.lineno, node.name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield node.lineno, name
        if isinstance(node, ast.ClassDef):
            yield from defined_in(node.body)


def options() -> None:
    """Counts the files that name an option: as an attribute, a keyword, a parameter or a text of its name alone."""
    from podium.__main__ import COMMANDS
    from podium.options.recipe import KNOBS

    reached = Counter[str]()
    for path in FILES:
        found: set[object] = set()
        for node in ast.walk(tree_of(path)):
            match node:
                case ast.Attribute(attr=name) | ast.keyword(arg=name) | ast.arg(arg=name) | ast.Constant(value=name):
                    found.add(name)
        reached.update(name for name in KNOBS if name in found)
    parser = argparse.ArgumentParser()
    COMMANDS["train"][1](parser)
    flags = sum(bool(action.option_strings) for action in parser._actions)
    print(f"\noptions of training: {len(KNOBS)}; flags of podium train: {flags}")
    print(f"files that name an option: median {median(reached.values()):g}; most:")
    print(*(f"  {number:4} {name}" for name, number in reached.most_common(TOP)), sep="\n")


if __name__ == "__main__":
    call(house)
