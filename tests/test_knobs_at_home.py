"""An option is read in the file that declares it, and nowhere else, but for the few of the core."""

import ast
from pathlib import Path

from podium.options.recipe import KNOBS

SOURCE = Path(__file__).parents[1] / "src"
TOGETHER = {"recipe.py", "recipe_defaults.py"}  # read all options
# What the loop itself is made of, and reads wherever it is built.
CORE = {
    *("model", "weights", "head", "image_size", "test_size", "views"),
    *("epochs", "batch_size", "optimizer", "lr", "precision", "seed"),
}


def pairs_of(path: Path) -> set[tuple[str, str]]:
    """Returns the options that a file reads from a recipe, or from a run's recorded one, with its name."""
    found, tree = set(), ast.parse(path.read_text(encoding="utf-8"))
    declared = {
        ast.unparse(node.target) for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) and _is_knob(node)
    }
    for node in ast.walk(tree):
        name = ""
        if isinstance(node, ast.Attribute) and "recipe" in ast.unparse(node.value):
            name = node.attr
        elif isinstance(node, ast.Subscript | ast.Call) and isinstance(key := _key_of(node), str):
            name = key
        if name in KNOBS.keys() - CORE - declared:
            found.add((name, str(path.relative_to(SOURCE))))
    return found


def _is_knob(node: ast.AnnAssign) -> bool:
    """Returns whether this declares an option: `mix: float = knob(...)`."""
    return isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "knob"


def _key_of(node: ast.Subscript | ast.Call) -> object:
    """Returns the key in `recipe["mix"]` or `run.recipe.get("mix", 0.0)`."""
    if isinstance(node, ast.Subscript):
        where, key = node.value, node.slice
    elif isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        where, key = node.func.value, node.args[0]
    else:
        return None
    is_recipe = "recipe" in ast.unparse(where) or ast.unparse(where) in ("chosen", "asked", "options")
    return key.value if is_recipe and isinstance(key, ast.Constant) else None


def pairs_elsewhere() -> set[tuple[str, str]]:
    """Returns the pairs of options and of files that read them and do not declare them."""
    return set().union(*(pairs_of(path) for path in SOURCE.glob("podium*/**/*.py") if path.name not in TOGETHER))


def test_an_option_is_read_where_it_is_declared() -> None:
    assert (
        sorted(pairs_elsewhere()) == []
    )  # ask the move for it, as `SeenParts.recorded`, or Recipe for a fact, as `takes_steps`
