"""Flags of other programs are answered with Podium's."""

import argparse

import pytest

from podium.__main__ import COMMANDS
from podium.cli.parser import Parser
from podium.options.known_words import FLAGS, REASONS, SAME_REASON, explain_flag, explain_option, other_names
from podium.options.recipe import KNOBS


def flags_of(command: str) -> set[str]:
    parser = Parser(command)
    COMMANDS[command][1](parser)
    return {flag for action in parser._actions for flag in action.option_strings}


def test_every_flag_that_an_answer_names_exists() -> None:
    known = set().union(*map(flags_of, COMMANDS))
    assert {*other_names().values()} <= known
    assert not {f"--{word}" for word in other_names()} & flags_of("train")
    assert set(SAME_REASON) == set(REASONS)


def test_no_word_has_two_answers() -> None:
    own = [words for knob in KNOBS.values() if (words := list(knob.also_called))]
    words = [word for group in (*own, *FLAGS.values(), *SAME_REASON.values()) for word in group] + list(REASONS)
    assert len(words) == len(set(words))


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--use-swa", ("--ema", "podium soup")),
        ("--tune", ("podium search --model", "podium train --model")),
        ("--search", ("podium search --model", "podium train --model")),
        ("--export", ("run.export(path)", "timm")),
        ("--onnx", ("run.export(path)", "timm")),
        ("--pseudo-labels", ("podium train --pseudo RUN", "its own model")),
        ("--external", ("[[extra]]", "without copies")),
    ],
)
def test_what_podium_does_not_have_is_answered_with_what_there_is(flag: str, words: tuple[str, ...]) -> None:
    answer = explain_flag(flag, flags_of("train"))
    assert all(word in answer for word in words), answer
    if flag not in ("--use-swa", "--tune", "--search"):
        assert explain_flag(flag, flags_of("submit")) == answer


def test_in_python_flags_have_no_hyphens_and_commands_keep_theirs() -> None:
    known = flags_of("train")
    assert explain_option("fold", known) == "it is folds here"
    assert explain_option("bs", known) == "it is batch_size here"
    assert "fine-tuning" in explain_option("dropout", known)
    assert "drop_path" in explain_option("dropout", known)
    assert "podium folds --k" in explain_option("n_folds", known)


def test_a_command_names_only_flags_of_its_own() -> None:
    assert explain_flag("--bs", flags_of("train")) == "it is --batch-size here"
    assert explain_flag("--bs", flags_of("submit")) == ""
    assert explain_flag("--dropout", flags_of("compare")) == ""
    assert isinstance(Parser("x"), argparse.ArgumentParser)
