"""Counts how far options reach, of this checkout: `python docs/measure_house.py`.

A file names an option if an attribute, a keyword, a parameter or a text in it has the option's name, alone.
"""

import argparse
import ast
from collections import Counter
from pathlib import Path
from statistics import median

from podium.cli.commands import COMMANDS
from podium.recipe import KNOBS

SOURCE = Path(__file__).parents[1] / "src" / "podium"


def names_in(path: Path) -> set[str]:
    """Returns the options that a file names."""
    found: set[object] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Attribute(attr=name) | ast.keyword(arg=name) | ast.arg(arg=name) | ast.Constant(value=str(name)):
                found.add(name)
    return {name for name in KNOBS if name in found}


def main() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    reached = Counter(name for path in files for name in names_in(path))
    most, count = reached.most_common(1)[0]
    print(f"files that name an option: median {median(reached.values()):g}, most {count} ({most})")
    parser = argparse.ArgumentParser()
    COMMANDS["train"][1](parser)
    flags = sum(bool(action.option_strings) for action in parser._actions)
    print(f"options of training: {len(KNOBS)}; flags of podium train: {flags}")
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
    print(f"src/podium: {len(files)} files, {lines:,} lines")
    for name, number in sorted(reached.items(), key=lambda item: (-item[1], item[0])):
        print(f"  {number:3} {name}")


if __name__ == "__main__":
    main()
