"""The values of flags: names, numbers, sizes, times; a wrong one is answered with what it must be."""

import argparse
import re
from collections.abc import Callable
from typing import Any

from podium.basics.image_size import ImageSize, parse_size
from podium.basics.terminal import seconds_of
from podium.saved_runs.fold_names import WHOLE


class Names(argparse.Action):
    """A list of names, separated by blanks, commas or both."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, words: Any, *_: object) -> None:
        names = re.findall(r"[^\s,]+", " ".join(words))
        if not names:
            raise argparse.ArgumentError(self, "give at least one name")
        setattr(namespace, self.dest, self.read(names))

    def read(self, names: list[str]) -> list[Any]:
        return names


class AnyNames(Names):
    """A list of names that may be empty."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, words: Any, *_: object) -> None:
        if words:
            super().__call__(parser, namespace, words)
        else:
            setattr(namespace, self.dest, [])


class Sizes(Names):
    """A list of sizes of images."""

    def read(self, names: list[str]) -> list[ImageSize]:
        try:
            return [reader(parse_size)(name) for name in dict.fromkeys(names)]
        except argparse.ArgumentTypeError as problem:
            raise argparse.ArgumentError(self, str(problem)) from None


class Numbers(Names):
    """A list of numbers and ranges: 0,2-4 means 0, 2, 3 and 4."""

    def read(self, names: list[str]) -> list[int]:
        numbers: list[int] = []
        for name in names:
            bounds = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", name)
            if bounds and bounds[2] and int(bounds[2]) < int(bounds[1]):
                raise argparse.ArgumentError(self, f"'{name}' runs backwards; write {bounds[2]}-{bounds[1]}")
            folds = range(int(bounds[1]), int(bounds[2] or bounds[1]) + 1) if bounds else ()
            if not folds:
                raise argparse.ArgumentError(self, f"'{name}' is not a list of numbers such as 0,1 or 0-2")
            numbers += folds
        return numbers


class FoldNumbers(Numbers):
    """As numbers; `all` and `all:3` mean models that hold nothing out."""

    def read(self, names: list[str]) -> list[int]:
        numbers: list[int] = []
        for name in names:
            whole = re.fullmatch(r"all(?::([1-9]\d?))?", name)
            numbers += range(WHOLE, WHOLE + int(whole[1] or 1)) if whole else super().read([name])
        return numbers


def count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least 0")
    return int(text)


def reader(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """Returns what argparse reads a value with: a type, or a function whose ValueError says what is not right."""
    if isinstance(kind, type):
        return kind

    def read(text: str) -> Any:
        try:
            return kind(text)
        except ValueError as problem:
            raise argparse.ArgumentTypeError(f"'{text}' is not {str(problem).rpartition(', not')[0]}") from None

    return read


def positive(text: str) -> int:
    if not count(text):
        raise argparse.ArgumentTypeError("0 is too few; give at least 1")
    return count(text)


def seconds(text: str) -> float:
    seconds = seconds_of(text)
    if not seconds:
        raise argparse.ArgumentTypeError(f"'{text}' is not a time such as 8h, 90m or 1h30m")
    return seconds


def run_name(text: str) -> str:
    from podium.basics.disk import NAME_PATTERN

    if not re.fullmatch(NAME_PATTERN, text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a valid name; use letters, digits and . _ - + =")
    return text


def column(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("give the name of a column")
    return text


def slug(text: str) -> str:
    """Returns the competition's name, also from the address of its page."""
    return run_name(re.sub(r"^https?://(www\.)?kaggle\.com/(competitions|c)/([^/]+).*$", r"\3", text))
