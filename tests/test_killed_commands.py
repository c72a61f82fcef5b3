"""A command that is killed at any of its files leaves, when it is run again, what an undisturbed one does."""

import shutil
import signal
from functools import partial
from pathlib import Path

import pytest

from forked_podium import die_at_file, exit_status, start_podium
from second_round import first_of
from templates import template
from tiny import tiny_with_folds, two_trained_runs

pytestmark = pytest.mark.slow

COMMANDS = {
    "folds": ("folds", "-c", "tiny", "--k", "3", "--force", "--corrections", "corrections.csv"),
    "audit": ("audit", "-c", "tiny"),
    "submit": ("submit", "-c", "tiny", "--runs", "good", "--name", "sent"),
    "report": ("report", "-c", "tiny"),
    "explain": ("explain", "good", "-c", "tiny"),
    "export": ("export", "good", "-c", "tiny", "--onnx"),
}
WRITTEN = (  # beside the folders that hold nothing else
    "data/prepared/*/pixels*/*",
    "runs/tiny/*/fold*/test.npz",
    "runs/tiny/*/fold*/regions.csv",
    "runs/tiny/*/explain/*",
    "runs/tiny/*/*.onnx*",
    "runs/tiny/**/*.html",
)
# The number of the file at whose renaming it is killed; after the last one, it ends undisturbed.
MOMENTS = [(name, count) for name in COMMANDS for count in range(1, 8)]
OF_ANNEX = [moment for moment in MOMENTS if moment[0] in ("report", "explain", "export")]
FIRST = [("folds", 1), ("folds", 6), ("audit", 2), ("submit", 2), ("report", 2), ("explain", 2), ("export", 1)]


def project(root: Path, name: str) -> Path:
    shutil.copytree(template(tiny_with_folds if name in ("folds", "audit") else two_trained_runs), root)
    (root / "corrections.csv").write_text("id,label\n000,green\n")
    return root


def delete_results(root: Path) -> None:
    """Deletes all that the commands write; the images stay, whose times are part of a store's key."""
    for folder in ("submissions", "data/competitions", "data/prepared"):
        if not (folder == "data/prepared" and (root / "runs").exists()):  # a run needs its folds
            shutil.rmtree(root / folder, ignore_errors=True)
    for pattern in WRITTEN:
        for path in root.glob(pattern):
            path.unlink()


def files_in(root: Path) -> dict[str, bytes]:
    names = (path for path in root.rglob("*") if path.is_file() and not path.name.endswith("lock"))
    return {str(path.relative_to(root)): path.read_bytes() for path in names}


@pytest.mark.parametrize(
    "moment",
    first_of(FIRST, MOMENTS, annex=[one for one in MOMENTS if one[0] in ("report", "explain", "export")]),
    ids=str,
)
def test_a_killed_command_is_run_again(tmp_path: Path, moment: tuple[str, int]) -> None:
    name, count = moment
    root, log = project(tmp_path / "project", name), tmp_path / "log"
    words = ["--root", str(root), *(str(root / word) if word.endswith(".csv") else word for word in COMMANDS[name])]
    delete_results(root)
    assert exit_status(start_podium(words, log)) == 0, log.read_text()
    undisturbed = files_in(root)
    delete_results(root)
    status = exit_status(start_podium(words, log, before=partial(die_at_file, count)))
    assert status in (0, -signal.SIGKILL), log.read_text()
    if status:
        assert exit_status(start_podium(words, log)) == 0, log.read_text()
    assert not list(root.rglob(".*.tmp"))
    assert files_in(root) == undisturbed
