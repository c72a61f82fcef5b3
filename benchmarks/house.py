"""Counts how far options reach, of this checkout: `python docs/measure_house.py`.

A file names an option if an attribute, a keyword, a parameter or a text in it has the option's name, alone. It reads
one if it takes its value from a recipe, as tests/test_knobs_at_home.py counts.
"""

import argparse
import ast
import importlib
import sys
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from podium.__main__ import COMMANDS
from podium.options.recipe import KNOBS

SOURCE = Path(__file__).parents[1] / "src"
PACKAGES = ("podium", "podium_annex")


def names_in(path: Path) -> set[str]:
    """Returns the options that a file names."""
    found: set[object] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Attribute(attr=name) | ast.keyword(arg=name) | ast.arg(arg=name) | ast.Constant(value=str(name)):
                found.add(name)
    return {name for name in KNOBS if name in found}


def main() -> None:
    of_package = {name: sorted((SOURCE / name).rglob("*.py")) for name in PACKAGES}
    files = [path for paths in of_package.values() for path in paths]
    reached = Counter(name for path in files for name in names_in(path))
    most, count = reached.most_common(1)[0]
    print(f"files that name an option: median {median(reached.values()):g}, most {count} ({most})")
    sys.path.insert(0, str(SOURCE.parent / "tests"))
    home: Any = importlib.import_module("test_knobs_at_home")
    read = Counter(name for name, _ in home.pairs_elsewhere())
    counts = {name: 1 + read[name] for name in KNOBS if name not in home.CORE}
    most, count = max(counts.items(), key=lambda item: item[1])
    print(
        f"files that read an option, without {len(home.CORE)} core ones: median {median(counts.values()):g}, most",
        end=" ",
    )
    print(f"{count} ({most}); {sum(number == 1 for number in counts.values())} of {len(counts)} are read at home only")
    parser = argparse.ArgumentParser()
    COMMANDS["train"][1](parser)
    flags = sum(bool(action.option_strings) for action in parser._actions)
    print(f"options of training: {len(KNOBS)}; flags of podium train: {flags}")
    for package, paths in of_package.items():
        lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)
        print(f"src/{package}: {len(paths)} files, {lines:,} lines")
    for name, number in sorted(reached.items(), key=lambda item: (-item[1], item[0])):
        print(f"  {number:3} {name}")


if __name__ == "__main__":
    main()
