"""The command line: a mistake is answered in one line before anything heavy is imported, and output is always safe."""

import argparse
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from podium.__main__ import COMMANDS
from podium.basics.errors import PodiumError
from podium.basics.terminal import MAKE_VARIABLES, podium_command
from podium.cli.brief_help import TEXT_WIDTH, InTwoLines
from podium.cli.commands import COMMANDS as own_commands
from podium.cli.parser import FLAGS_OF_ANNEX, ORDER, WORDS, Parser, parser
from podium.models.catalogue import table_fits
from podium.options.recipe import flag_of, recipe_options
from second_round import first_of
from tiny import Podium, one_line, write_competition

HEAVY = ["torch", "timm", "numpy", "pandas", "sklearn", "albumentations", "cv2", "huggingface_hub"]
TRAIN = ("train", "--model", "convnext_small")
SEARCH = ("search", "--model", "convnext_small")
MISTAKES = (
    (("trian",), "no command trian; did you mean train?"),
    (("train", "--modle", "x"), "no flag --modle; did you mean --model?"),
    (("train", "--epoch=3"), "no flag --epoch; did you mean --epochs?"),
    (("--rot", "x", "train"), "no flag --rot; did you mean --root?"),
    (("train", "--model", "convnxt_small"), "did you mean convnext_small"),
    ((*TRAIN, "--epochs", "ten"), "--epochs must be a whole number, not 'ten'"),
    ((*TRAIN, "--lr", "high"), "--lr must be a number, not 'high'"),
    ((*TRAIN, "--learning-rate", "1e-4"), "no flag --learning-rate; it is --lr here"),
    ((*TRAIN, "--batch_size", "8"), "no flag --batch_size; it is --batch-size here"),
    ((*TRAIN, "--resume"), "no flag --resume; the same command resumes"),
    ((*TRAIN, "--sched", "cosine"), "no flag --sched; the learning rate warms up"),
    ((*TRAIN, "swin_tiny_patch4_window7_224", "--name", "a"), "--name is for one model, not for 2"),
    ((*TRAIN, "--seeds", "0-2", "--seed", "1"), "--seed and --seeds contradict each other"),
    ((*TRAIN, "--epochs", "0"), "--epochs must be between 1 and 100,000, not 0"),
    ((*TRAIN, "--lr", "nan"), "--lr must be between"),
    ((*TRAIN, "--mirror", "-1"), "--mirror must be between 0 and 1, not -1"),
    ((*TRAIN, "--precision", "int8"), "--precision must be one of auto, float32"),
    ((*TRAIN, "--folds", "a"), "'a' is not a list of numbers such as 0,1 or 0-2"),
    ((*TRAIN, "--folds", "3-1"), "'3-1' runs backwards; write 1-3"),
    (("submit", "--runs", ","), "--runs: give at least one name"),
    ((*TRAIN, "--name", "../x"), "'../x' is not a valid name"),
    ((*TRAIN, "--budget", "8"), "'8' is not a time such as 8h, 90m or 1h30m"),
    (("train", "-c", "a/../../b"), "is not a valid name"),
    (("train", "--workers", "1000"), "workers must be a number of processes from 0 to 256, not 1000"),
    ((*TRAIN, "--device", "gpu"), "device 'gpu': choose auto, cpu, cuda, cuda:1 or mps"),
    (("submit", "--views", "zoom"), "no flag --views; it is a flag of podium train, and the run keeps its value"),
    (("train", "--workers", "-2"), "'-2' is not a whole number of at least 0"),
    (("train",), "which model? For example: --model convnext_small"),
    (("models", "--pattern", "vit"), "no flag --pattern"),
    (("search",), "which models? For example: --model convnext_small"),
    ((*SEARCH, "convnxt_small"), "did you mean convnext_small"),
    ((*SEARCH, "--linear"), "--linear: a head on frozen features has no options to search"),
    ((*SEARCH, "--folds", "1"), "name two at least"),
    ((*SEARCH, "--image-sizes", "96,wide"), "'wide' is not a number of pixels"),
    ((*SEARCH, "--report"), "--report only shows what a search has found"),
    ((*TRAIN, "--list-models"), "no flag --list-models; podium models finds models"),
    (("score", "x.csv"), "the following arguments are required: --solution"),
    (("--root", "/nowhere/at/all", "folds"), "--root /nowhere/at/all: no such folder"),
    ((), "the following arguments are required: COMMAND"),
)
HELP = (("--help",), ("train", "--help"), ("train", "--help", "all"))

# Runs many command lines in turn; reports which heavy modules each of them was the first to import.
RUN_COMMANDS = """
import contextlib, io, json, sys
from podium.__main__ import main
commands, heavy = map(json.loads, sys.argv[1:])
results = []
for words in commands:
    before, output = set(sys.modules), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            status = main(words)
        except SystemExit as stop:
            status = stop.code
    results.append([status, output.getvalue(), [name for name in heavy if name in set(sys.modules) - before]])
print(json.dumps(results))
"""


class Result(NamedTuple):
    status: int
    output: str
    heavy_imports: list[str]


def run_commands(commands: Sequence[Sequence[str]]) -> dict[tuple[str, ...], Result]:
    """Runs command lines in one process of their own."""
    process = [sys.executable, "-c", RUN_COMMANDS, json.dumps(commands), json.dumps(HEAVY)]
    done = subprocess.run(process, capture_output=True, text=True, timeout=60, check=True)
    results = [Result(*values) for values in json.loads(done.stdout)]
    return {tuple(words): result for words, result in zip(commands, results, strict=True)}


@pytest.fixture(scope="module")
def results() -> dict[tuple[str, ...], Result]:
    return run_commands([*HELP, *(words for words, _ in MISTAKES)])


# --- before anything heavy is imported ---------------------------------------------------------------


def test_help_names_every_command_and_imports_nothing_heavy(results: dict[tuple[str, ...], Result]) -> None:
    help_of_podium = results[("--help",)]
    assert (help_of_podium.status, help_of_podium.heavy_imports) == (0, [])
    assert all(name in help_of_podium.output for name in COMMANDS)


def test_help_of_train_has_a_flag_for_every_option_in_two_lines(results: dict[tuple[str, ...], Result]) -> None:
    for words in HELP[1:]:
        help_of_train = results[words]
        assert (help_of_train.status, help_of_train.heavy_imports) == (0, [])
        assert all(flag_of(name) in help_of_train.output for name in recipe_options())
    text = " ".join(help_of_train.output.split())
    assert "passes over the training images (default: 12, by kind of model)" in text
    assert "images per step (default: 64)" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(words, message, marks=[pytest.mark.annex] if {*words} & {"models", "search", "score"} else [])
        for words, message in MISTAKES
    ],
)
def test_a_mistake_is_answered_in_one_line(
    results: dict[tuple[str, ...], Result], words: tuple[str, ...], message: str
) -> None:
    status, output, heavy_imports = results[words]
    assert (status, heavy_imports) == (1, [])
    assert output.startswith("podium: error: ")
    assert len(output.splitlines()) == 1
    assert message in output


@pytest.mark.annex
@pytest.mark.skipif(not table_fits(), reason="timm must be imported if catalogue.csv describes another version")
def test_models_are_listed_without_importing_anything_heavy(tmp_path: Path) -> None:
    commands = [
        ("--root", str(tmp_path), "models", *words) for words in ((), ("vit small",), ("--json",), ("convnxt",))
    ]
    results = run_commands(commands)
    assert [(result.status, result.heavy_imports) for result in results.values()] == [(0, [])] * 3 + [(1, [])]


@pytest.mark.parametrize("name", COMMANDS)
def test_no_help_text_takes_more_than_two_lines(name: str) -> None:
    command = Parser()
    COMMANDS[name].add_flags(command)
    shown = InTwoLines("podium") if command.explain else argparse.HelpFormatter("podium")
    texts = {action.dest: shown._expand_help(action) for action in command._actions if action.help}
    assert not [text for text in texts.values() if len(textwrap.wrap(text, TEXT_WIDTH)) > 2]


def test_what_follows_a_command_exists() -> None:
    assert {command.then for command in COMMANDS.values()} <= {"", *ORDER}


def test_a_word_of_another_help_is_answered_with_it() -> None:
    with pytest.raises(PodiumError, match="podium train --help images"):
        parser(COMMANDS, "1.0").parse_args(["--help", "images"])


def test_commands_are_named_as_this_shell_finds_podium(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.basics.terminal.root", Path())
    monkeypatch.setattr(sys, "argv", [".venv/bin/podium", "next"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert podium_command() == ".venv/bin/podium"
    (tmp_path / "podium").write_text("#!/bin/sh\n")
    (tmp_path / "podium").chmod(0o755)
    assert podium_command() == "podium"


def test_words_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser(COMMANDS, "1.0").parse_args(["--help", "words"])
    assert [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()] == list(WORDS)


# --- what to type ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "folds"),
    [(("0",), [0]), (("0,1",), [0, 1]), (("0", "1"), [0, 1]), (("0-2",), [0, 1, 2]), (("0,", "2-4"), [0, 2, 3, 4])],
)
def test_folds_are_numbers_and_ranges(words: tuple[str, ...], folds: list[int]) -> None:
    assert parser(COMMANDS, "1.0").parse_args(["train", "--folds", *words]).folds == folds


@pytest.mark.parametrize("words", [("a", "b"), ("a,b",), ("a,", "b"), ("a b",)])
@pytest.mark.parametrize(
    ("command", "flag", "name"),
    [
        *((command, "--runs", "runs") for command in ("submit", "compare")),
        *((command, "--except", "except_names") for command in ("submit", "compare")),
        pytest.param("kaggle-bundle", "--runs", "runs", marks=pytest.mark.annex),
        pytest.param("kaggle-bundle", "--except", "except_names", marks=pytest.mark.annex),
        *(pytest.param(command, "--model", "model", marks=pytest.mark.annex) for command in ("bench", "doctor")),
    ],
)
def test_names_are_separated_by_blanks_or_commas(command: str, flag: str, name: str, words: tuple[str, ...]) -> None:
    assert getattr(parser(COMMANDS, "1.0").parse_args([command, flag, *words]), name) == ["a", "b"]


def test_the_address_of_a_competition_serves_as_its_name(podium: Podium, tmp_path: Path) -> None:
    one_line(
        podium("folds", "-c", "https://www.kaggle.com/competitions/tiny/overview"),
        f"{tmp_path}/data/raw/tiny does not exist",
        f"podium --root {tmp_path} data -c tiny",
    )


def test_advice_names_make_to_users_of_make(podium: Podium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_CALLED_BY", "make")
    assert "next: make folds COMP=sample" in podium("sample")[2]
    monkeypatch.delenv("PODIUM_CALLED_BY")
    assert f"next: podium --root {tmp_path} folds -c sample" in podium("sample")[2]


def test_users_of_make_learn_how_to_give_a_flag(podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_CALLED_BY", "make")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", "/nowhere")
    message = one_line(podium("train", "-c", "tiny", "--model", "convnext_small"), "--weights none")
    assert message.endswith("(with make: MODEL=... WEIGHTS=...)")
    assert one_line(podium("train", "--epochs", "0")).endswith("(with make: EPOCHS=...)")
    assert one_line(podium("train", "--model", "test_vit", "--sam", "-1")).endswith('(with make: ARGS="--sam ...")')


def make(*words: str) -> "subprocess.CompletedProcess[str]":
    """Runs make with an environment that is ready, and prints the words of podium's command, one per line."""
    ready = ("READY=Makefile", "--old-file=Makefile", "--old-file=.venv/.with-search")  # else make could set up first
    command = ["make", "-s", *ready, "PODIUM=printf '%s\\n'", *words]
    return subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("variable", "remedy"),
    [
        ("EPOCH=1", "did you mean EPOCHS?"),
        ("FOLD=0", "did you mean FOLDS?"),
        ("model=convnext_small", "did you mean MODEL?"),
        ("QUANTUM=1", "there are COMP, VENV"),
    ],
)
def test_make_refuses_a_variable_that_it_does_not_know(variable: str, remedy: str) -> None:
    done = make("train", "MODEL=test_vit", "LR=1e-4", variable)
    assert done.returncode == 2
    assert f"no variable {variable.partition('=')[0]} for make train; {remedy}" in done.stderr
    assert not done.stdout


@pytest.mark.parametrize(
    ("target", "variable", "remedy"),
    [
        ("submit", "RUN=test_vit", "did you mean RUNS?"),
        ("folds", "FOLDS=3", "there are COMP, VENV, PYTHON, TORCH, CONSTRAINTS, ARGS, CORRECTIONS, K"),
        ("compare", "MODEL=test_vit", "did you mean MODELS"),
        ("search", "EPOCHS=3", "there are COMP, VENV, PYTHON, TORCH, CONSTRAINTS, ARGS, BUDGET, FOLDS, MODEL, NAME"),
    ],
)
def test_make_refuses_a_variable_that_the_target_does_not_use(target: str, variable: str, remedy: str) -> None:
    done = make(target, variable)
    assert done.returncode == 2
    assert f"no variable {variable.partition('=')[0]} for make {target}; {remedy}" in done.stderr


@pytest.mark.parametrize(("target", "remedy"), [("trian", "did you mean make train?"), ("xyzzy", "make help")])
def test_make_answers_a_target_that_it_does_not_have(target: str, remedy: str) -> None:
    done = make(target)
    assert done.returncode == 2
    assert f"no target {target}" in done.stderr
    assert remedy in done.stderr


def test_make_search_hands_its_variables_to_podium() -> None:
    done = make("search", "COMP=sample", "MODEL=a b", "BUDGET=4h", "NAME=wide", "ARGS=--on slurm", "--old-file=data")
    words = done.stdout.split("\n")
    start = words.index("search")
    expected = "search -c sample --model a b --budget 4h --name wide --on slurm"
    assert words[start:-1] == expected.split()


def test_make_predict_says_what_is_missing() -> None:
    assert "make predict needs RUN=" in make("predict", "IMAGES=x.jpg").stderr


def test_names_with_spaces_reach_predict_and_explain_whole(tmp_path: Path) -> None:
    file = tmp_path / "it's a b.jpg"
    file.touch()
    for target, flag in (("predict", ""), ("explain", "--images\n")):
        for images, words in ((f"{file}", f"{file}\n"), ("a.jpg 'b c'", "a.jpg\nb c\n")):
            assert make(target, "RUN=r", f"IMAGES={images}").stdout.endswith(f"\nr\n{flag}{words}")
    assert make("explain", "RUN=r").stdout.endswith("\nr\n")


def test_variables_of_make_become_flags() -> None:
    values = {flag: f"value-of-{flag}" for flag in MAKE_VARIABLES if flag not in ("k", "runs", "except", "corrections")}
    done = make("kaggle-train", *(f"{MAKE_VARIABLES[flag]}={value}" for flag, value in values.items()), "ARGS=--sam 1")
    words = done.stdout.split("\n")[3:-1]
    assert dict(zip(words[0::2], words[1::2], strict=True)) == {
        "--sam": "1",
        **{f"--{k}": v for k, v in values.items()},
    }
    assert "--k\n7\n" in make("folds", "K=7", "RAW=src").stdout
    for target in ("folds", "train"):
        done = make(target, "CORRECTIONS=mine.csv", "RAW=src")
        assert "--corrections\nmine.csv\n" in done.stdout
    assert "--runs\na\nb\n" in make("compare", "RUNS=a b").stdout
    assert make("models", "PATTERN=vit *small*", "ARGS=--json").stdout.endswith("\nvit *small*\n--json\n")
    assert make("models").stdout.endswith("models\n-c\nboolart-image-classification\n")
    assert make("compare", "EXCEPT=a,b", "ARGS=--csv").stdout.endswith("--except\na,b\n--csv\n")


def test_make_passes_a_message_on_to_the_letter() -> None:
    text = """cost $5 of $(shell echo it) "so" 'it' -y"""
    done = make("submit", "UPLOAD=1", f"MESSAGE={text}")
    assert done.stdout.splitlines()[-2:] == ["--upload", f"--message={text}"]


# --- terminals and pipes -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("closed", first_of(["<&-", ">&- 2>&-"], ["<&-", ">&-", "2>&-", ">&- 2>&-"]))
def test_a_command_works_with_closed_streams(tmp_path: Path, closed: str) -> None:
    write_competition(tmp_path, per_class=1, test_images=1)
    command = f"{sys.executable} -m podium --root {tmp_path} data -c tiny {closed}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr


@pytest.mark.slow
def test_letters_that_the_encoding_of_the_terminal_lacks_are_replaced(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    for path in write_competition(tmp_path).glob("*.csv"):
        path.write_text(path.read_text().replace("lonely", "einsäm").replace("red", "röt"), encoding="utf-8")
    command = [sys.executable, "-m", "podium", "--root", str(tmp_path), "data", "-c", "tiny"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    assert "eins?m" in done.stdout


def test_a_name_in_a_file_cannot_command_the_terminal(tmp_path: Path, podium: Podium) -> None:
    path = write_competition(tmp_path) / "train.csv"
    path.write_text(path.read_text().replace("lonely", "\x1b[2Jlonely"))
    _, out, _ = podium("data", "-c", "tiny")
    assert "'\\x1b[2Jlonely'" in out
    assert "\x1b" not in out


@pytest.mark.annex
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_for_the_output_is_named() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "podium", "models", "test_vit"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert "podium: error: the output: No space left" in done.stderr.splitlines()[-1]


ELSEWHERE = " comes with podium_annex, which is not installed"


@pytest.mark.parametrize("words", [("report", "-c", "tiny"), ("submit", "--on", "ray"), ("--root", "demo", "demo")])
def test_whoever_lacks_the_annex_is_told_what_comes_with_it(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.cli.parser.modules_beside", lambda _: ())
    with pytest.raises(PodiumError, match=ELSEWHERE):
        parser(own_commands, "1.0").parse_args(words)
    assert parser(own_commands, "1.0").parse_args(["--root", "demo", "folds"]).root == Path("demo")


@pytest.mark.annex
def test_the_lists_of_what_the_annex_brings_are_whole(podium: Podium) -> None:
    from podium_annex.commands import COMMANDS as commands_of_annex

    assert set(ORDER) == {*own_commands, *commands_of_annex}
    flags = set[str]()
    for name in own_commands.keys() & commands_of_annex.keys():
        both = [argparse.ArgumentParser() for _ in range(2)]
        for filled, commands in zip(both, (own_commands, commands_of_annex), strict=True):
            commands[name].add_flags(filled)
        flags |= both[1]._option_string_actions.keys() - both[0]._option_string_actions.keys()
    assert set(FLAGS_OF_ANNEX) == flags
    assert "no flag --on" in one_line(podium("folds", "--on", "ray"))  # the annex is there: this is a mistake


@pytest.mark.annex
def test_commands_are_listed_in_the_order_of_work(results: dict[tuple[str, ...], Result]) -> None:
    listed = re.findall(r"^  ([a-z-]+) ", results[("--help",)].output, re.MULTILINE)
    assert listed == list(ORDER)
