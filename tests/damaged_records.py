"""Ways to damage a record: each of its fields missing, of another type, of another length."""

import copy
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

STRANGERS: tuple[Any, ...] = (None, True, -7, 10**30, 0.5, "text", [], {}, [{}])


def damaged(content: Any) -> Iterator[tuple[str, Any]]:
    """Yields what was done, and a copy of the content with that damage, for each field at any depth."""
    for place in places_in(content):
        where = "".join(f"[{key!r}]" for key in place) or "all"
        for name, value in damages(value_at(content, place)):
            if not place:
                yield f"{where} {name}", value
                continue
            changed = copy.deepcopy(content)
            holder = value_at(changed, place[:-1])
            if name == "missing":
                del holder[place[-1]]
            else:
                holder[place[-1]] = value
            yield f"{where} {name}", changed


def damages(value: Any) -> Iterator[tuple[str, Any]]:
    yield "missing", None
    for stranger in STRANGERS:
        if type(stranger) is not type(value) or stranger != value:
            yield f"is {str(stranger)[:12]!r}", stranger
    if isinstance(value, list) and value:
        yield "is shorter", value[:-1]
        yield "is longer", [*value, value[-1]]


def places_in(content: Any) -> Iterator[tuple[Any, ...]]:
    """Yields the keys that lead to each value; of the items of a list, only those of the first."""
    yield ()
    items: list[tuple[Any, Any]] = []
    if isinstance(content, dict):
        items = list(content.items())
    elif isinstance(content, list):
        items = list(enumerate(content[:1]))
    for key, value in items:
        for place in places_in(value):
            yield (key, *place)


def value_at(content: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        content = content[key]
    return content


def damaged_json(path: Path) -> Iterator[tuple[str, bytes]]:
    for name, content in damaged(json.loads(path.read_text())):
        yield name, json.dumps(content).encode()


def damaged_lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """Damages the last line of a file of JSON lines."""
    *others, last = path.read_text().splitlines()
    for name, content in damaged(json.loads(last)):
        yield name, "".join(f"{line}\n" for line in [*others, json.dumps(content)]).encode()


def damaged_arrays(path: Path) -> Iterator[tuple[str, bytes]]:
    with np.load(path) as stored:
        arrays = dict(stored)
    for key, array in arrays.items():
        for name, other in _other_arrays(array):
            changed = {**arrays, key: other} if other is not None else {k: v for k, v in arrays.items() if k != key}
            file = io.BytesIO()
            np.savez(file, **changed)
            yield f"{key} {name}", file.getvalue()


def _other_arrays(array: np.ndarray[Any, Any]) -> Iterator[tuple[str, np.ndarray[Any, Any] | None]]:
    yield "missing", None
    yield "is text", np.full(array.shape, "text")
    yield "is nan", np.full(array.shape, np.nan)
    yield "is whole numbers", np.full(array.shape, 10**9)
    yield "is empty", np.zeros(0)
    yield "has more axes", array[..., None]
    if array.ndim:
        yield "is shorter", array[:-1]
        yield "is longer", np.concatenate([array, array[-1:]])
