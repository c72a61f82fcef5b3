"""A run that something interrupts, and the check that the same command resumes it to the same bits."""

from pathlib import Path

from podium.saved_runs.checkpoint import checkpoints
from tiny import FAST, Podium, assert_same_fold, done, run_of

# Three epochs of three steps.
TRAIN = (
    *("train", *FAST, "--device", "cpu", "--model", "test_vit", "--folds", "0"),
    *("--batch-size", "4", "--epochs", "3"),
)


def assert_resumes_to_the_same_bits(
    root: Path, podium: Podium, command: tuple[object, ...] = TRAIN, name: str = "test_vit"
) -> None:
    """Resumes the run of this name, and compares it with an undisturbed one."""
    for run in (name, "undisturbed"):
        done(podium(*command, "--name", run))
    assert_same_fold(run_of(root, name), run_of(root, "undisturbed"))
    assert not list(root.rglob(".*.tmp"))
    assert not checkpoints(run_of(root, name).fold_folder(0))
