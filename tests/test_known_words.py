"""Flags of other programs are answered with Podium's."""

import argparse

from podium.cli.commands import COMMANDS
from podium.cli.flags import Parser
from podium.known_words import FLAGS, OTHER_NAMES, REASONS, SAME_REASON, explain_flag


def flags_of(command: str) -> set[str]:
    parser = Parser(command)
    COMMANDS[command][1](parser)
    return {flag for action in parser._actions for flag in action.option_strings}


def test_every_flag_that_an_answer_names_exists() -> None:
    known = set().union(*map(flags_of, COMMANDS))
    assert set(FLAGS) <= known
    assert not {f"--{word}" for word in OTHER_NAMES} & flags_of("train")
    assert set(SAME_REASON) == set(REASONS)


def test_no_word_has_two_answers() -> None:
    words = [word for group in (*FLAGS.values(), *SAME_REASON.values()) for word in group] + list(REASONS)
    assert len(words) == len(set(words))


def test_a_command_names_only_flags_of_its_own() -> None:
    assert explain_flag("--bs", flags_of("train")) == "it is --batch-size here"
    assert explain_flag("--bs", flags_of("submit")) == ""
    assert explain_flag("--dropout", flags_of("compare")) == ""
    assert isinstance(Parser("x"), argparse.ArgumentParser)
