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
from pretraining.pretrainings import PRETRAIN
from searching.searches import SEARCH, searched
from templates import template
from tiny import FAST, Podium, done, podium_at, tiny_with_folds, two_trained_runs, with_a_submission

pytestmark = pytest.mark.slow
PERIOD = 1 if "PODIUM_TEST_ALL" in os.environ else 37  # of so many damages, one is tried in `make test`
RUN, LINEAGE, PREPARED = "runs/tiny/good", "submissions/tiny/good.json", "data/prepared/tiny"
SEARCHED, PRETRAINED = "runs/tiny/search/search", "runs/tiny/dino-test_vit"
SUBMIT = ("submit", "-c", "tiny", "--runs", "good", "--anyway", "--name", "again")
SUBMIT_HEAD = (*SUBMIT[:4], "head", *SUBMIT[5:])
COMPARE = ("compare", "-c", "tiny", "--json")


def with_features(root: Path) -> None:
    """Makes a project with the features of the test images, and a head that has not predicted them."""
    shutil.copytree(template(two_trained_runs), root, dirs_exist_ok=True)
    podium_at(root, "train", *FAST, "--model", "test_convnext", "--image-size", "64", "--linear", "--name", "head")
    for path in root.glob("data/prepared/tiny/features-*/*"):
        path.unlink()
    podium_at(root, "submit", "-c", "tiny", "--runs", "head")
    for path in root.glob("runs/tiny/head/fold*/test.npz"):
        path.unlink()


def pretrained(root: Path) -> None:
    shutil.copytree(template(tiny_with_folds), root, dirs_exist_ok=True)
    podium_at(root, *PRETRAIN)


class Record(NamedTuple):
    path: str  # may have wildcards
    damages: Callable[[Path], Iterator[tuple[str, bytes]]]
    command: tuple[str, ...]
    parts: tuple[str, ...] = ()  # whose names are explained without the file's
    decides: bool = True  # what is in it decides about the command's answer; else it is only shown
    base: Callable[[Path], None] = with_a_submission
    is_of_copy: bool = False  # it belongs to the files in one place: the command has written it there


RECORDS = {
    "recipe compared": Record(f"{RUN}/recipe.json", damaged_json, COMPARE),
    "recipe submitted": Record(f"{RUN}/recipe.json", damaged_json, SUBMIT),
    "options": Record(f"{RUN}/fold0/trained.json", damaged_json, COMPARE),
    "epochs": Record(f"{RUN}/fold0/metrics.jsonl", damaged_lines, ("report", "-c", "tiny", "--runs", "good")),
    "held-out predictions compared": Record(f"{RUN}/fold0/oof.npz", damaged_arrays, COMPARE),
    "held-out predictions submitted": Record(f"{RUN}/fold0/oof.npz", damaged_arrays, SUBMIT),
    "test predictions": Record(f"{RUN}/fold0/test.npz", damaged_arrays, SUBMIT),
    "lineage": Record(LINEAGE, damaged_json, ("submit", "--from", "FILE", "-c", "tiny")),
    "lineage described": Record(LINEAGE, damaged_json, ("lineage", "FILE"), decides=False),
    "certificate": Record(f"{PREPARED}/folds.json", damaged_json, COMPARE),
    "certificate verified": Record(
        f"{PREPARED}/folds.json", damaged_json, ("folds", "-c", "tiny", "--verify"), ("group_column",)
    ),
    "pixels": Record(f"{PREPARED}/pixels-*/manifest.json", damaged_json, ("audit", "-c", "tiny"), is_of_copy=True),
    "features": Record(f"{PREPARED}/features-*/*.npz", damaged_arrays, SUBMIT_HEAD, base=with_features),
    "search": Record(f"{SEARCHED}/study.json", damaged_json, SEARCH, (SEARCHED,), base=searched),
    "trials": Record(f"{SEARCHED}/trials.jsonl", damaged_lines, SEARCH, (SEARCHED,), base=searched),
    "pretraining": Record(f"{PRETRAINED}/pretrain.json", damaged_json, PRETRAIN, (PRETRAINED,), base=pretrained),
    "audit": Record(f"{PREPARED}/audit.json", damaged_json, ("audit", "-c", "tiny")),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_damaged_record_is_refused_by_name_or_changes_no_answer(name: str, tmp_path: Path, podium: Podium) -> None:
    record = RECORDS[name]
    base = template(record.base)
    shutil.copytree(base, tmp_path, dirs_exist_ok=True)
    if record.is_of_copy:
        done(podium(*record.command))
        base = Path(shutil.copytree(tmp_path, tmp_path / "copy"))
    source = min(base.glob(record.path))
    path, expected, unexplained = tmp_path / source.relative_to(base), None, []
    words = [str(path) if word == "FILE" else word for word in record.command]
    whole = ("", source.read_bytes())
    for damage, content in [whole, *islice(record.damages(source), 0, None, PERIOD)]:
        restore(base, tmp_path)
        path.write_bytes(content)
        try:
            status, out, err = podium(*words)
        except Exception as error:
            unexplained.append(f"{damage}: {error!r}")
            continue
        answer = (out, [file.read_bytes() for file in sorted(tmp_path.glob("submissions/*/*.csv"))])
        expected = answer if expected is None else expected
        is_named = any(name in err for name in (path.name, RUN, *record.parts))
        if not is_named and (status or (answer != expected and record.decides)):
            unexplained.append(f"{damage}: {err.strip() if status else 'believed'}")
    assert unexplained == [], "\n".join(unexplained)


def restore(base: Path, root: Path) -> None:
    """Puts back what a command may have written: all but weights and images."""
    for folder in ("runs", "submissions", "data/prepared"):
        for file in (root / folder).rglob("*"):
            if file.is_file() and file.suffix not in (".safetensors", ".bin"):
                file.unlink()
    for folder in [name for name in ("runs", "submissions", "data/prepared") if (base / name).exists()]:
        ignored = shutil.ignore_patterns("*.safetensors", "*.bin")
        shutil.copytree(base / folder, root / folder, ignore=ignored, dirs_exist_ok=True)
