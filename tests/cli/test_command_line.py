"""The command line: what it answers to a wrong word, and that it answers before anything heavy is loaded."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from podium.cli.commands import COMMANDS
from podium.recipe import knobs
from tiny import Podium, write_competition

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
        (["train", "--model", "convnext_small", "--epochs", "0"], "--epochs must be between 1 and 100,000, not 0"),
        (["train", "--model", "convnext_small", "--lr", "nan"], "--lr must be between"),
        (["train", "--model", "convnext_small", "--mirror", "-1"], "--mirror must be between 0 and 1, not -1"),
        (["train", "--model", "convnext_small", "--precision", "int8"], "--precision must be one of auto, float32"),
        (["train", "--model", "convnext_small", "--folds", "a"], "'a' is not a list of folds such as 0,1"),
        (["train", "--model", "convnext_small", "--name", "../x"], "'../x' is no name for a file"),
        (["train", "-c", "a/../../b"], "is no name for a file"),
        (["train", "--workers", "-2"], "'-2' is not a number from 0 up"),
        (["train"], "which model? For example: --model convnext_small"),
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
    assert f"{tmp_path}/data/raw/tiny does not exist" in err
    assert f"get the competition's files with: podium --root {tmp_path} data -c tiny" in err


def test_what_to_type_next_is_said_in_the_words_of_make_to_those_who_use_it(
    podium: Podium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_TYPED", "make")
    assert "next: make folds COMP=sample" in podium("sample")[2]
    monkeypatch.delenv("PODIUM_TYPED")
    assert f"next: podium --root {tmp_path} folds -c sample" in podium("sample")[2]


def test_flags_that_help_are_given_as_make_takes_them(podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_TYPED", "make")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", "/nowhere")
    _, _, err = podium("train", "-c", "tiny", "--model", "convnext_small")
    assert "--weights none" in err
    assert err.endswith('(flags go to make as ARGS="--flag ...")\n')


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_no_reason_to_fail(tmp_path: Path, closed: str) -> None:
    command = f"{sys.executable} -m podium --root {tmp_path} sample {closed}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0)


def test_a_terminal_of_another_encoding_is_written_to_as_well_as_it_can(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    write_competition(tmp_path)
    for path in (tmp_path / "data" / "raw" / "tiny").glob("*.csv"):
        path.write_text(path.read_text().replace("lonely", "einsäm").replace("red", "röt"), encoding="utf-8")
    command = [sys.executable, "-m", "podium", "--root", str(tmp_path), "data", "-c", "tiny"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    assert "eins?m" in done.stdout


def test_what_a_file_is_called_cannot_command_the_terminal(tmp_path: Path, podium: Podium) -> None:
    folder = write_competition(tmp_path)
    path = folder / "train.csv"
    path.write_text(path.read_text().replace("lonely", "\x1b[2Jlonely"))
    _, out, _ = podium("data", "-c", "tiny")
    assert "'\\x1b[2Jlonely'" in out
    assert "\x1b" not in out


def test_make_hands_on_a_message_to_the_letter() -> None:
    text = """cost $5 of $(shell echo it) "so" 'it' -y"""
    told = ["make", "-s", "submit", "UPLOAD=1", "READY=Makefile", "PODIUM=printf '%s\\n'", f"MESSAGE={text}"]
    done = subprocess.run(told, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["--upload", f"--message={text}"]
