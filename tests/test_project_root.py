"""The project's root: --root, else PODIUM_ROOT, else the nearest folder upwards that holds the data."""

from pathlib import Path

import pytest

from podium import PodiumError
from podium.__main__ import main
from podium.project_root import find_root


@pytest.fixture(autouse=True)
def _without_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PODIUM_ROOT", raising=False)


@pytest.mark.parametrize("mark", ["data/raw", "data/competitions", "podium.toml"])
def test_is_found_from_a_folder_below(mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / mark).mkdir(parents=True)
    below = tmp_path / "notebooks" / "drafts"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert find_root() == Path("../..")
    monkeypatch.chdir(tmp_path)
    assert find_root() == Path()


def test_is_the_current_folder_if_none_holds_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()  # a folder of this name alone says nothing
    below = tmp_path / "work"
    below.mkdir()
    monkeypatch.chdir(below)
    assert find_root() == Path()


def test_variable_and_argument_replace_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data/raw").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for name in ("variable", "argument"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("PODIUM_ROOT", "variable")
    assert find_root() == Path("variable")
    assert find_root("argument") == Path("argument")
    monkeypatch.setenv("PODIUM_ROOT", "missing")
    with pytest.raises(PodiumError, match="PODIUM_ROOT missing: no such folder"):
        find_root()


def test_commands_run_from_a_folder_below(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("podium.terminal.root", Path())
    (tiny / "notebooks").mkdir()
    monkeypatch.chdir(tiny / "notebooks")
    assert main(["folds", "-c", "tiny", "--verify"]) == 0
    assert "podium: using the project in .." in capsys.readouterr().err
    assert not (tiny / "notebooks" / "data").exists()
