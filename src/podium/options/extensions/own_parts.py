"""The project's own parts that a run uses, each with a hash of its code: a run resumes only with the same code.

The hash covers a part's definition and whatever of its file that needs: the definitions that it names, and those that
they name, and all other statements, such as imports and tables. So an edit of another part of the file changes nothing.
"""

import ast
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from podium.options.extensions.definitions import Definition, text_of
from podium.options.extensions.extension_files import Extension, extension_models, loaded_extensions
from podium.options.moves import MOVES
from podium.options.moves.losses import LOSSES
from podium.options.moves.optimizing import SCHEDULES
from podium.options.recipe_options import AUGMENTATIONS, HEADS, OPTIMIZERS, POOLS, VIEWS

IN_PREDICTION = ("model ", "head ", "pool ", "views ")  # losses, augmentations and moves only shape the weights


def own_parts(recipe: Mapping[str, Any]) -> dict[str, str]:
    """Returns the hash of each own part that a recipe uses, from its model to its moves."""
    extensions = {extension.module: extension for extension in loaded_extensions()}
    return {
        f"{kind} {name}": _hash_of(extensions[module], function)
        for kind, name, module, function in _parts_of(recipe)
        if module in extensions
    }


def own_parts_digest(recipe: Mapping[str, Any]) -> str | None:
    """Returns one hash of all of them; None if the recipe uses none."""
    parts = own_parts(recipe)
    return hashlib.sha256(repr(sorted(parts.items())).encode()).hexdigest() if parts else None


def parts_of_notebooks(recipe: Mapping[str, Any]) -> list[Extension]:
    """Returns those that cells of a notebook have defined."""
    used = {module for _, _, module, _ in _parts_of(recipe)}
    return [extension for extension in loaded_extensions() if extension.is_cell and extension.module in used]


def of_predictions(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a recipe whose own parts predictions need."""
    return {kind.strip(): recipe.get(kind.strip()) for kind in IN_PREDICTION}


def file_and_hash(function: Callable[..., Any]) -> tuple[str, str] | None:
    """Returns the file of an own part and the hash of its code; None if no file that `extend` names has defined it."""
    for extension in loaded_extensions():
        if extension.module == function.__module__ and not extension.is_cell:  # whose source no lineage keeps
            return extension.name, _hash_of(extension, function.__name__)
    return None


def edited_parts(recorded: Mapping[str, Any]) -> list[str]:
    """Returns the own parts that a recipe.json needs for predictions and that are other code now: `views turns (a.py)`.

    An older recipe.json has one hash of all its parts, so there any edited part counts.
    """
    now = own_parts(of_predictions(recorded))
    if "own_parts" in recorded:
        before = {part: digest for part, digest in recorded["own_parts"].items() if part.startswith(IN_PREDICTION)}
    else:
        digest = recorded.get("own_parts_sha256")
        before = dict.fromkeys(now, "") if digest and digest != own_parts_digest(recorded) else now
    files = {f"{kind} {name}": module for kind, name, module, _ in _parts_of(recorded)}
    names = {extension.module: extension.name for extension in loaded_extensions()}
    edited = [part for part in {**before, **now} if before.get(part) != now.get(part)]
    return [f"{part} ({names[files[part]]})" if files.get(part) in names else part for part in edited]


def _parts_of(recipe: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Yields kind, name, module and function of the parts that may be own ones."""
    tables: dict[str, Mapping[str, Any]] = {
        "head": HEADS,
        "pool": POOLS,
        "loss": LOSSES,
        "optimizer": OPTIMIZERS,
        "schedule": SCHEDULES,
        "augment": AUGMENTATIONS,
        "views": {name: view.function for name, view in VIEWS.items()},
    }
    for option, table in tables.items():
        for name in str(recipe.get(option, "")).split("+"):
            if function := table.get(name):
                yield option, name, function.__module__, function.__name__
    for move in MOVES:
        if any(recipe.get(own.name, own.metadata["knob"].off) != own.metadata["knob"].off for own in fields(move)):
            yield "move", move.__name__, move.__module__, move.__name__
    model = str(recipe.get("model", "")).partition(".")[0]
    if model in extension_models():
        function = sys.modules["timm"].models.model_entrypoint(model)
        yield "model", model, function.__module__, function.__name__


def _hash_of(extension: Extension, function: str) -> str:
    source = extension.source.decode("utf-8-sig")
    statements = ast.parse(source).body
    definitions = {node.name: node for node in statements if isinstance(node, Definition)}
    others = [node for node in statements if not isinstance(node, Definition)]
    needed = {function} & definitions.keys()
    waiting: list[ast.AST] = [*others, *(definitions[name] for name in needed)]
    while waiting:
        for name in _names_in(waiting.pop()) & definitions.keys() - needed:
            needed.add(name)
            waiting.append(definitions[name])
    kept = [node for node in statements if not isinstance(node, Definition) or node.name in needed]
    return hashlib.sha256("\n".join(text_of(node, source) for node in kept).encode()).hexdigest()


def _names_in(statement: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
