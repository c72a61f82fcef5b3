"""The pages of docs/ are short, say whom they are for, and name only what exists: flags, targets, settings, files."""

import argparse
import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from podium.__main__ import COMMANDS
from podium.blending.strategy_names import ALL_STRATEGIES
from podium.cli.parser import Parser
from podium.competition.card import KEYS
from podium.options.known_words import explain_flag
from podium.options.recipe import KNOBS
from podium.tasks.metrics import BUILT_IN
from podium_annex.explain.picture_names import PICTURES

ROOT = Path(__file__).parents[1]
INDEX = ROOT / "docs" / "guide.md"
GUIDE = sorted((ROOT / "docs" / "guide").glob("*.md"))
PAGES = sorted((ROOT / "docs").rglob("*.md"))
# docs/benchmarks.md also tells of options that have gone since.
NAMING = [ROOT / "README.md", *(page for page in PAGES if page.name not in ("benchmarks.md", "commands.md"))]
OF_ALL = {"--help", "--root", "--competition", "--version"}


def text_of(name: str) -> str:
    return (ROOT / "docs" / "guide" / f"{name}.md").read_text(encoding="utf-8")


def code_in(text: str) -> Iterator[str]:
    """Yields the lines of the blocks of code, without comments, and what stands between backquotes."""
    for block in re.findall(r"^```(?:sh|bash|text)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        yield from (line.partition(" #")[0].strip() for line in block.replace("\\\n", " ").splitlines())
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose))


def rows_below(text: str, head: str) -> list[list[str]]:
    """Returns the rows of the table with this first line."""
    table = text.partition(head)[2].partition("\n\n")[0]
    return [re.split(r"\s*\|\s*", row.strip("| ")) for row in table.splitlines()[2:]]


# --- the pages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_first_who_reads_it_and_what_for(page: Path) -> None:
    title, empty, first, *_ = page.read_text(encoding="utf-8").splitlines()
    assert title.startswith("# ")
    assert not empty
    assert first.startswith("For whoever ")


def test_the_pages_of_the_guide_are_short_and_all_in_its_index() -> None:
    index = INDEX.read_text(encoding="utf-8")
    assert len(index.splitlines()) < 40
    listed = re.findall(r"^\| \[([^\]]+)\]\((guide/[\w-]+\.md)\)", index, re.MULTILINE)
    titles = {page: page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ") for page in GUIDE}
    assert sorted(listed) == sorted((title, f"guide/{page.name}") for page, title in titles.items())
    for page in GUIDE:
        assert len(page.read_text(encoding="utf-8").splitlines()) <= 200, page.name


# --- commands and flags ------------------------------------------------------------------------------


@cache
def flags_of(command: str) -> set[str]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    COMMANDS[command].add_flags(parser)
    return {word for action in parser._actions for word in action.option_strings} | OF_ALL


@cache
def is_flag(word: str) -> bool:
    """Returns whether a command has the flag, or answers it with the one that it has in its place."""
    known = set().union(*map(flags_of, COMMANDS))
    return word in known or bool(explain_flag(word, known))


@pytest.mark.parametrize("page", NAMING, ids=lambda page: page.stem)
def test_the_commands_and_flags_of_a_page_exist(page: Path) -> None:
    for code in code_in(page.read_text(encoding="utf-8")):
        command = re.match(r"(?:[A-Z_]+=\S+ )*podium(?: --?\w+ \S+)* ([a-z][a-z-]+)", code)
        flags = re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", code)
        if command:
            assert command[1] in COMMANDS, code
            own = {"--wrong-labels"} if page.name == "extend.md" else set()  # the page's own option
            assert set(flags) <= flags_of(command[1]) | own, code
        elif code.startswith(("--", "make ")):
            assert all(map(is_flag, flags)) or page.name == "extend.md", code


@pytest.mark.parametrize("page", NAMING, ids=lambda page: page.stem)
def test_the_targets_of_make_exist_and_take_these_variables(page: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    for code in sorted(set(code_in(page.read_text(encoding="utf-8")))):
        target, *given = shlex.split(code.partition(" && ")[0])[1:] if re.match(r"make [a-z]", code) else [""]
        if target:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), code
            words = [target, *(word if word[-1] != "=" else f"{word}x" for word in given if "=" in word)]
            needed = {"predict": ("RUN=x", "IMAGES=x"), "explain": ("RUN=x",)}.get(target, ())
            made = subprocess.run(
                ["make", "-n", *needed, *words, f"VENV={ROOT / 'build' / 'no-venv'}"],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert made.returncode == 0, f"{code}\n{made.stderr}"


def test_the_commands_of_the_guide_that_no_test_runs_are_understood() -> None:
    """Those in blocks of other kinds than sh, which test_docs.py runs."""
    count = 0
    for page in GUIDE:
        for block in re.findall(
            r"^```(?:bash|text)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        ):
            for line in re.findall(r"^podium (.*?)(?: +#.*)?$", block, re.MULTILINE):
                command, *words = shlex.split(line)
                parser = Parser("podium")
                COMMANDS[command].add_flags(parser)
                parser.parse_args(words)
                count += 1
    assert count > 10


# --- what else can be compared with the code ---------------------------------------------------------


def test_the_metrics_of_the_guide_are_those_that_there_are() -> None:
    rows = rows_below(text_of("answers"), "| task | metrics |")
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row[1])}
    also = {f"map_at_{k}" for k in re.findall(r"\d+", re.findall(r"`map_at_3` \(also ([^)]*)\)", str(rows))[0])}
    assert (named | also) - {"any", "patient_overall"} == BUILT_IN  # these two are labels
    decided = {
        name
        for row in rows_below(text_of("rare-classes"), "| metric | decision |")
        for name in re.findall("`(.*?)`", row[0])
    }
    assert decided - {"map_at_k", "shares"} <= BUILT_IN


def test_the_card_of_the_guide_has_every_setting_and_others_are_settings_too() -> None:
    text = text_of("other-competitions")
    (card,) = re.findall(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    elsewhere = {"label_pattern", "url"}  # in the text, and in a comment
    assert set(tomllib.loads(card)) == KEYS.keys() - elsewhere
    assert all(name in text for name in elsewhere)
    known = KEYS.keys() | KNOBS.keys()
    for page in GUIDE:
        for code in code_in(page.read_text(encoding="utf-8")):
            if setting := re.match(r"([a-z_]+) = ", code):
                assert setting[1] in known, f"{page.name}: {code}"


def test_the_extras_of_the_guide_are_those_that_there_are() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    rows = rows_below(text_of("first-submission"), "| extra | brings | for |")
    assert {name for row in rows for name in re.findall("`(.*?)`", row[0])} == extras.keys() - {"all"}


@cache
def source() -> str:
    return "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").glob("podium*/**/*.py"))


def test_the_files_of_the_guide_are_in_the_code_and_have_the_commands_that_write_them() -> None:
    rows = rows_below(text_of("files-and-promises"), "| path | content | written by |")
    assert len(rows) > 30
    for path, content, writers in rows:
        assert {name for name in re.findall("`([a-z-]+)`", writers) if not name.startswith("--")} <= COMMANDS.keys()
        for name in re.findall(
            r"[/`.]([a-z]+\.(?:json|jsonl|csv|npz|safetensors|log|html|png|db|toml))`", path + content
        ):
            assert name in source(), name
    for name in re.findall(r"`(\d\d_\w+\.ipynb)`", text_of("understand")):
        assert (ROOT / "notebooks" / name).exists()


def test_the_messages_of_the_guide_are_in_the_code() -> None:
    rows = rows_below(text_of("first-submission"), "| the message says | do |")
    assert len(rows) > 5
    for message, _ in rows:
        for part in message.strip("`").split(" ... "):
            assert part in source(), part


def test_counts_names_and_choices_of_the_guide_are_those_of_the_code() -> None:
    known = tomllib.loads((ROOT / "src/podium/competition/known_competitions.toml").read_text(encoding="utf-8"))
    assert f"Podium knows {len(known)} famous" in text_of("other-competitions")
    pictures = rows_below(text_of("understand"), "| `--what` | shows | of which models |")
    assert [row[0].strip("`") for row in pictures] == list(PICTURES)
    strategies = rows_below(text_of("blending"), "| `--blend` | weights |")
    assert {row[0].strip("`") for row in strategies} | {"shrunk"} == {
        name for name in ALL_STRATEGIES if "-" not in name
    }
    pools = rows_below(text_of("training-options"), "| `--pool` | takes |")
    assert {row[0].strip("`") for row in pools} - {"your own"} | {"default"} == {*(KNOBS["pool"].limits.choices or ())}


def test_the_tests_that_the_pages_name_exist() -> None:
    named = {name for page in NAMING for name in re.findall(r"`(test_\w{20,})`", page.read_text(encoding="utf-8"))}
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert named
    assert all(f"def {name}(" in sources for name in named)
