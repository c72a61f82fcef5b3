"""What Podium reads of each example in the gallery of layouts, and that its complete card reads the same again."""

from pathlib import Path

import pytest

from gallery import examples, needs_annex, what_is_read
from second_round import first_of

EXAMPLES = examples()
BY_NAME = {example.name: example for example in EXAMPLES}
RARE = [example.name for example in EXAMPLES if needs_annex(example)]
READ = {example.name: example for example in EXAMPLES if not example.expected.startswith("error: ")}


@pytest.mark.parametrize("name", first_of(BY_NAME, BY_NAME, annex=RARE))
def test_files_give_this_layout(tmp_path: Path, name: str) -> None:
    example = BY_NAME[name]
    example.write(tmp_path)
    read = what_is_read(example.slug, tmp_path)
    assert read == example.expected, f"this is read now:\n{read}"


@pytest.mark.parametrize("name", first_of(list(READ)[::2], READ, annex=READ.keys() & RARE))
def test_the_complete_card_reads_the_same_and_guesses_nothing(tmp_path: Path, name: str) -> None:
    """Only the origins differ, and the notes on guesses are gone."""
    example = READ[name]
    example.write(tmp_path)
    read = what_is_read(example.slug, tmp_path)
    card = read.partition("\ntask     ")[0]
    example.write_card(tmp_path, card)
    again = what_is_read(example.slug, tmp_path)
    assert _without_origins(again) == _without_origins(read)
    assert "# a guess" not in again
    new_notes = set(_notes(again)) - set(_notes(read))
    assert not new_notes


def _without_origins(read: str) -> list[str]:
    return [line.partition("  # ")[0] for line in read.splitlines() if not line.startswith("note: ")]


def _notes(read: str) -> list[str]:
    return [line for line in read.splitlines() if line.startswith("note: ")]


def test_the_gallery_is_there() -> None:
    assert len(EXAMPLES) > 50
    assert len(READ) > 45
