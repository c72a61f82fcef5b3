"""Parts that a cell of a notebook defines: each becomes the source of a file with all that it needs.

So runs, loader processes and hashes know one form of own parts only. The run's folder keeps this file.
"""

import ast
import linecache
import symtable
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from podium.basics.errors import PodiumError
from podium.options.extensions.definitions import Definition, text_of

NOTEBOOK = "__main__"  # the module of what a notebook, or a script, defines
REMEDY = "put it into a file (docs/extend.md)"


def source_of(part: Callable[..., Any], others: dict[str, Any]) -> str:
    """Returns a file that defines the part. `others` are those of other cells, which it may call."""
    blocks = {part.__name__: ""}  # each after those that it needs
    text = _definition(part, is_part=True)
    for name in _global_names(text):
        _add(name, vars(sys.modules[part.__module__]), blocks, others, part.__name__)
    blocks.pop(part.__name__)
    return "\n\n".join([f'"""{part.__name__}, as a cell of a notebook defined it."""', *blocks.values(), text]) + "\n"


def _add(name: str, known: dict[str, Any], blocks: dict[str, str], others: dict[str, Any], part: str) -> None:
    """Adds the block that defines a name of the notebook, and first those that it needs; built-in names have none."""
    if name in blocks or name not in known:
        return
    value = known[name]
    if isinstance(value, FunctionType | type) and value.__module__ == NOTEBOOK:
        blocks[name] = ""  # it may name itself
        text = _definition(value, is_part=False)
        del blocks[name]
        for needed in _global_names(text) - {name}:
            _add(needed, known, blocks, others, part)
        blocks[name] = text
    elif isinstance(value, ModuleType):
        blocks[name] = f"import {value.__name__} as {name}"
    elif isinstance(value, bool | int | float | str | tuple | None) and _is_written(value):
        blocks[name] = f"{name} = {value!r}"
    elif _is_of_its_module(value):
        blocks[name] = f"from {value.__module__} import {value.__name__} as {name}"
    else:
        kind = type(value).__name__
        raise PodiumError(f"{part} needs {name} of the notebook, whose {kind} a run cannot keep; make it inside {part}")


def _is_written(value: Any) -> bool:
    """Returns whether a value is the same when it is read from its text."""
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False


def _is_of_its_module(value: Any) -> bool:
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    return module is not None and getattr(module, getattr(value, "__name__", ""), None) is value


def _definition(value: Any, is_part: bool) -> str:
    """Returns the text of a function or class, from the cell that has defined it; a helper without its decorators."""
    functions = [value] if isinstance(value, FunctionType) else list(vars(value).values())
    files = [own.__code__.co_filename for own in functions if isinstance(own, FunctionType)]
    cell = "".join(linecache.getlines(files[0])) if files else ""
    try:
        found = [node for node in ast.parse(cell).body if isinstance(node, Definition) and node.name == value.__name__]
    except SyntaxError:
        found = []
    if not found:
        raise PodiumError(f"the source of {value.__name__} cannot be read; {REMEDY}")
    if not is_part:
        found[-1].decorator_list = [one for one in found[-1].decorator_list if "extend" not in ast.unparse(one)]
    return text_of(found[-1], cell)


def _global_names(text: str) -> set[str]:
    def walk(table: symtable.SymbolTable) -> Iterator[str]:
        is_outermost = table.get_type() == "module"
        yield from (
            name.get_name()
            for name in table.get_symbols()
            if name.is_global() or (is_outermost and name.is_referenced())
        )
        for inner in table.get_children():
            yield from walk(inner)

    return set(walk(symtable.symtable(text, "cell", "exec")))
