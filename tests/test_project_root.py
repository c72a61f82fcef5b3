"""The project's root: --root, else PODIUM_ROOT, else the nearest folder upwards that holds the data."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from podium.__main__ import main
from podium.basics.errors import PodiumError
from podium.basics.project_root import DEFAULT_COMPETITION, DIGITS_SLUG, find_root, usual_competition
from podium.library import load
from second_round import first_of
from tiny import Podium, done, one_line, write_competition


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


def test_a_name_that_is_not_utf_8_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """safetensors cannot read a model there."""
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    (Path(folder) / "data/raw/own").mkdir(parents=True)
    monkeypatch.setenv("PODIUM_ROOT", folder)
    with pytest.raises(PodiumError, match=r"PODIUM_ROOT .*caf\\xe9' is not UTF-8; rename it"):
        find_root()
    monkeypatch.delenv("PODIUM_ROOT")
    monkeypatch.chdir(folder)
    with pytest.raises(PodiumError, match=r"the project's folder .*caf\\xe9' is not UTF-8; rename it"):
        load("own")


def test_commands_run_from_a_folder_below(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("podium.basics.terminal.root", Path())
    (tiny / "notebooks").mkdir()
    monkeypatch.chdir(tiny / "notebooks")
    assert main(["folds", "-c", "tiny", "--verify"]) == 0
    assert "podium: using the project in .." in capsys.readouterr().err
    assert not (tiny / "notebooks" / "data").exists()


def test_the_only_competition_is_meant_where_none_is_named(tmp_path: Path, podium: Podium) -> None:
    assert usual_competition(tmp_path) == DEFAULT_COMPETITION
    (tmp_path / "data/raw/sample").mkdir(parents=True)  # there to try things
    assert usual_competition(tmp_path) == DEFAULT_COMPETITION
    write_competition(tmp_path, "my-shapes")
    _, err = done(podium("folds", "--k", "2"))
    assert "the competition is my-shapes, the only one in" in err
    assert (tmp_path / "data/prepared/my-shapes/folds.csv").exists()
    status, _, err = podium("data")  # brings another one
    assert status == 1
    assert f"this fetches {DEFAULT_COMPETITION}; for the one that is here, add -c my-shapes" in err
    write_competition(tmp_path, "other-shapes")
    one_line(podium("folds"), "my-shapes, other-shapes, sample: name one with -c")


def test_the_only_archive_is_unpacked_where_no_competition_is_named(tmp_path: Path, podium: Podium) -> None:
    folder = write_competition(tmp_path, "my-shapes")
    archive = shutil.make_archive(str(folder), "zip", folder)
    shutil.rmtree(folder)
    (tmp_path / "data/raw/sample").mkdir()
    _, err = done(podium("data"))
    assert "the competition is my-shapes, the only archive in" in err
    assert (folder / "train.csv").exists()
    assert Path(archive).exists()
    status, _, err = podium("data")  # it is unpacked: there is nothing to fetch but the default one
    assert status == 1
    assert f"this fetches {DEFAULT_COMPETITION}; for the one that is here, add -c my-shapes" in err


def test_the_help_says_that_the_sample_does_not_count(podium: Podium, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        podium("folds", "--help")
    assert f"not counting '{DIGITS_SLUG}'" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "command", first_of(["predict", "submit"], ["predict", "explain", "submit", "compare", "report"])
)
def test_a_run_of_another_competition_is_named(one_run: Path, podium: Podium, command: str) -> None:
    write_competition(one_run, "other-shapes")
    words = {"predict": ("test_vit", one_run), "explain": ("test_vit",)}.get(command, ())
    message = one_line(
        podium(command, "-c", "other-shapes", *words), "there is one of tiny", "name that competition with -c"
    )
    if command in ("submit", "compare", "report"):  # it has no run yet
        assert "train one with: podium" in message.partition("there is one of")[0]


def test_make_means_the_same_competition(tmp_path: Path) -> None:
    makefile = Path(__file__).parents[1] / "Makefile"

    def meant(goal: str) -> str:
        command = ["make", "-sn", "-f", str(makefile), goal, "READY=", "PODIUM=podium"]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        return str(result.stdout).split("-c ")[1].split()[0]

    assert meant("doctor") == DEFAULT_COMPETITION
    archive = tmp_path / "data/raw/zipped.zip"
    archive.parent.mkdir(parents=True)
    archive.touch()
    assert [meant(goal) for goal in ("doctor", "data")] == ["zipped", "zipped"]
    (tmp_path / "data/raw/zipped").mkdir()
    assert [meant(goal) for goal in ("doctor", "data")] == ["zipped", DEFAULT_COMPETITION]
    archive.unlink()
    (tmp_path / "data/raw/zipped").rmdir()
    for name in ("sample", "my-shapes"):
        (tmp_path / "data/raw" / name).mkdir(parents=True)
    assert meant("doctor") == "my-shapes"
    (tmp_path / "data/raw/other").mkdir()
    assert meant("doctor") == DEFAULT_COMPETITION
