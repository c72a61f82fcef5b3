"""Records that Podium reads back: whatever field is missing, of another type or length, no command fails unexplained.

Each damage is refused in one line that names the file, or changes no answer: the command computes anew what it needs.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest

from damaged_records import damaged_arrays, damaged_json, damaged_lines
from templates import template
from tiny import Podium, with_a_submission

PERIOD = 1 if "PODIUM_TEST_ALL" in os.environ else 37  # of so many damages, one is tried in `make test`
RUN, LINEAGE, PREPARED = Path("runs/tiny/good"), Path("submissions/tiny/good.json"), Path("data/prepared/tiny")
SUBMIT = ("submit", "-c", "tiny", "--runs", "good", "--anyway", "--name", "again")
COMPARE = ("compare", "-c", "tiny", "--json")


class Record(NamedTuple):
    path: Path
    damages: Callable[[Path], Iterator[tuple[str, bytes]]]
    command: tuple[str, ...]
    parts: tuple[str, ...] = ()  # whose names are explained without the file's
    decides: bool = True  # what is in it decides about the command's answer; else it is only shown


RECORDS = {
    "recipe compared": Record(RUN / "recipe.json", damaged_json, COMPARE),
    "recipe submitted": Record(RUN / "recipe.json", damaged_json, SUBMIT),
    "options": Record(RUN / "fold0/trained.json", damaged_json, COMPARE),
    "epochs": Record(RUN / "fold0/metrics.jsonl", damaged_lines, ("report", "-c", "tiny", "--runs", "good")),
    "held-out predictions compared": Record(RUN / "fold0/oof.npz", damaged_arrays, COMPARE),
    "held-out predictions submitted": Record(RUN / "fold0/oof.npz", damaged_arrays, SUBMIT),
    "test predictions": Record(RUN / "fold0/test.npz", damaged_arrays, SUBMIT),
    "lineage": Record(LINEAGE, damaged_json, ("submit", "--from", "FILE", "-c", "tiny")),
    "lineage described": Record(LINEAGE, damaged_json, ("lineage", "FILE"), decides=False),
    "certificate": Record(PREPARED / "folds.json", damaged_json, COMPARE),
    "certificate verified": Record(
        PREPARED / "folds.json", damaged_json, ("folds", "-c", "tiny", "--verify"), ("group_column",)
    ),
    "audit": Record(PREPARED / "audit.json", damaged_json, ("audit", "-c", "tiny")),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_damaged_record_is_refused_by_name_or_changes_no_answer(name: str, tmp_path: Path, podium: Podium) -> None:
    record, base = RECORDS[name], template(with_a_submission)
    shutil.copytree(base, tmp_path, dirs_exist_ok=True)
    path, expected, unexplained = tmp_path / record.path, None, []
    words = [str(path) if word == "FILE" else word for word in record.command]
    whole = ("", path.read_bytes())
    for damage, content in [whole, *islice(record.damages(base / record.path), 0, None, PERIOD)]:
        restore(base, tmp_path)
        path.write_bytes(content)
        try:
            status, out, err = podium(*words)
        except Exception as error:
            unexplained.append(f"{damage}: {error!r}")
            continue
        answer = (out, [file.read_bytes() for file in sorted(tmp_path.glob("submissions/*/*.csv"))])
        expected = answer if expected is None else expected
        is_named = any(name in err for name in (record.path.name, str(RUN), *record.parts))
        if not is_named and (status or (answer != expected and record.decides)):
            unexplained.append(f"{damage}: {err.strip() if status else 'believed'}")
    assert unexplained == []


def restore(base: Path, root: Path) -> None:
    """Puts back what a command may have written: all but weights and images."""
    for folder in ("runs", "submissions", "data/prepared"):
        for file in (root / folder).rglob("*"):
            if file.is_file() and file.suffix not in (".safetensors", ".bin"):
                file.unlink()
    for folder in ("runs", "submissions", "data/prepared"):
        ignored = shutil.ignore_patterns("*.safetensors", "*.bin")
        shutil.copytree(base / folder, root / folder, ignore=ignored, dirs_exist_ok=True)
