"""Searches of the tiny competition, in seconds: one small model, three folds."""

from pathlib import Path

from podium_annex.searching.study import OPTIONS, SearchStudy
from tiny import FAST, podium_at, write_competition

OPTIONS_GIVEN = ("--device", "cpu", "--epochs", "3", "--lr", "1e-3")
SEARCH = ("search", *FAST, *OPTIONS_GIVEN, "--model", "test_vit", "--trials", "3")


def three_folds(root: Path) -> None:
    write_competition(root)
    podium_at(root, "folds", "-c", "tiny", "--k", "3")


def searched(root: Path) -> None:
    three_folds(root)
    podium_at(root, *SEARCH)


def folder_of_search(root: Path, name: str = "search") -> Path:
    return root / "runs" / "tiny" / "search" / name


def trials_of(root: Path, name: str = "search") -> list[tuple[str, str, dict[int, float]]]:
    """Returns the state, the options and the scores of each trial."""
    trials = SearchStudy(folder_of_search(root, name), 1).trials()
    return [(trial.state.name, trial.user_attrs.get(OPTIONS, ""), trial.intermediate_values) for trial in trials]
