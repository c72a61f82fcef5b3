"""The command line: what it answers to a wrong word, and that it answers before anything heavy is loaded."""

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Podium
from podium.__main__ import COMMANDS
from podium.recipe import knobs

HEAVY = {"torch", "timm", "numpy", "pandas", "sklearn", "albumentations", "cv2", "huggingface_hub"}


def modules_after(*words: str) -> tuple[int, str, set[str]]:
    """Exit status, what was printed, and the heavy modules that were imported for it."""
    code = f"""
import sys
from podium.__main__ import main
try:
    status = main({list(words)!r})
except SystemExit as stop:
    status = stop.code
print("imported", *sys.modules)
sys.exit(status)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    out, _, modules = done.stdout.rpartition("imported")
    return done.returncode, out + done.stderr, set(modules.split()) & HEAVY


def test_help_names_every_command_and_imports_nothing_heavy() -> None:
    status, text, heavy = modules_after("--help")
    assert (status, heavy) == (0, set())
    assert all(name in text for name in COMMANDS)


def test_the_help_of_train_has_a_flag_for_every_knob() -> None:
    status, text, heavy = modules_after("train", "--help")
    assert (status, heavy) == (0, set())
    assert all(f"--{name.replace('_', '-')}" in text for name in knobs())


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["trian"], "no command trian; did you mean train?"),
        (["train", "--modle", "x"], "no flag --modle; did you mean --model?"),
        (["train", "--epoch=3"], "no flag --epoch; did you mean --epochs?"),
        (["--rot", "x", "train"], "no flag --rot; did you mean --root?"),
        (["train", "--model", "convnxt_small"], "did you mean convnext_small"),
        (["train", "--model", "convnext_small", "--epochs", "ten"], "argument --epochs: invalid int value: 'ten'"),
        (["train", "--model", "convnext_small", "--epochs", "0"], "--epochs must be at least 1, not 0"),
        (["train", "--model", "convnext_small", "--lr", "nan"], "--lr must be between"),
        (["train", "--model", "convnext_small", "--mirror", "-1"], "--mirror must be between 0 and 1, not -1"),
        (["train", "--model", "convnext_small", "--precision", "int8"], "--precision must be one of auto, float32"),
        (["train", "--model", "convnext_small", "--folds", "a"], "'a' is not a list of folds such as 0,1"),
        (["train", "--model", "convnext_small", "--name", "../x"], "'../x' is no name for a file"),
        (["train", "-c", "a/../../b"], "is no name for a file"),
        (["train", "--workers", "-2"], "'-2' is not a number from 0 up"),
        (["train"], "which model? For example: podium train --model convnext_small"),
        (["score", "x.csv"], "the following arguments are required: --solution"),
        (["--root", "/nowhere/at/all", "folds"], "--root /nowhere/at/all: no such folder"),
        ([], "the following arguments are required: COMMAND"),
    ],
)
def test_a_mistake_is_answered_in_one_line_before_anything_heavy_is_loaded(words: list[str], answer: str) -> None:
    status, text, heavy = modules_after(*words)
    assert (status, heavy) == (1, set())
    assert text.startswith("podium: error: ")
    assert len(text.splitlines()) == 1
    assert answer in text


def test_the_address_of_a_competition_serves_as_its_name(podium: Podium, tmp_path: Path) -> None:
    status, _, err = podium("folds", "-c", "https://www.kaggle.com/competitions/tiny/overview")
    assert status == 1
    assert f"{tmp_path}/data/raw/tiny does not exist; get the competition's files with: podium data -c tiny" in err


def test_what_to_type_next_is_said_in_the_words_of_make_to_those_who_use_it(
    podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_TYPED", "make")
    assert "next: make folds COMP=sample" in podium("sample")[2]
    monkeypatch.delenv("PODIUM_TYPED")
    assert "next: podium folds -c sample" in podium("sample")[2]
