"""A note is said by the first command that meets it and has ended well, and always by `podium data`."""

from pathlib import Path

import pytest

from tiny import Podium, write_competition

NOTE = "podium: note: "


def notes(err: str) -> list[str]:
    return [line for line in err.splitlines() if line.startswith(NOTE)]


def write_competition_with_note(root: Path) -> None:
    images = write_competition(root) / "train_image"
    (images / "of_no_row.jpg").write_bytes((images / "000.jpg").read_bytes())


def test_a_note_is_said_once(tmp_path: Path, podium: Podium) -> None:
    write_competition_with_note(tmp_path)
    said = notes(podium("folds", "-c", "tiny", "--k", "2")[2])
    assert said
    assert notes(podium("folds", "-c", "tiny", "--k", "1")[2]) == []  # is refused, but the note was said before
    assert notes(podium("audit", "-c", "tiny")[2]) == []
    assert all(note.removeprefix(NOTE) in podium("data", "-c", "tiny")[1] for note in said)


def test_a_refused_command_says_it_again_and_writes_nothing(tmp_path: Path, podium: Podium) -> None:
    write_competition_with_note(tmp_path)
    first = podium("folds", "-c", "tiny", "--k", "1")
    assert first[0] == 1
    assert notes(first[2])
    assert not (tmp_path / "data/prepared").exists()
    assert notes(podium("folds", "-c", "tiny", "--k", "2")[2]) == notes(first[2])


def test_what_the_command_data_shows_is_not_said_again(tmp_path: Path, podium: Podium) -> None:
    write_competition_with_note(tmp_path)
    assert "note" in podium("data", "-c", "tiny")[1]
    assert notes(podium("folds", "-c", "tiny", "--k", "2")[2]) == []


def test_a_command_that_another_one_needs_names_no_next_one(
    tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_competition(tmp_path)
    assert "next: " in podium("data", "-c", "tiny")[2]
    monkeypatch.setenv("PODIUM_GOES_ON", "1")
    assert "next: " not in podium("data", "-c", "tiny")[2]
