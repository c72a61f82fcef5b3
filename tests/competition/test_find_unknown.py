"""The class for unknown ones that no training image has: who names it, and where it cannot be."""

from pathlib import Path

import pytest

from layouts import IMAGES, TRAIN, card_path, load_error, load_files, table
from podium.competition.load import Competition
from tiny import write_file


def loaded(root: Path, sample: tuple[str, str], card: str = "") -> Competition:
    """Loads cats and dogs with these two answers in the sample submission."""
    rows = (f"{number},{answer}" for number, answer in zip((4, 5), sample, strict=True))
    return load_files(root, IMAGES, {"train.csv": TRAIN, "sample_submission.csv": table("id,target", *rows)}, card)


def test_the_card_names_it(tmp_path: Path) -> None:
    competition = loaded(tmp_path, ("cat", "dog"), 'unknown = "stranger"\nunknown_share = 0.25\n')
    assert competition.classes == ("cat", "dog", "stranger")
    assert competition.unknown is not None
    assert (competition.unknown.name, competition.unknown.share) == ("stranger", 0.25)
    assert any("'stranger'" in note for note in competition.notes)
    assert "stranger" not in set(competition.train["target"])


def test_the_sample_names_it_beside_labels(tmp_path: Path) -> None:
    competition = loaded(tmp_path, ("cat new_individual", "dog cat"))
    assert competition.unknown is not None
    assert competition.unknown.name == "new_individual"
    assert competition.submission_format.wants == "ranking"
    assert any('unknown = ""' in note for note in competition.notes)
    assert any(setting.key == "unknown" for setting in competition.settings)


@pytest.mark.parametrize(
    ("sample", "card"),
    [
        (("unknown", "unknown"), ""),  # something must fill the cells
        (("cat", "new_individual"), 'unknown = ""\n'),
        (("cat", "dog"), ""),
        (("cat", "dog"), 'unknown = "dog"\n'),  # training images have it
        (("0.5", "0.5"), 'unknown = "stranger"\nmetric = "log_loss"\n'),
        (("cat 0.1", "dog 0.2"), 'unknown = "stranger"\n'),
    ],
)
def test_there_is_none(tmp_path: Path, sample: tuple[str, str], card: str) -> None:
    competition = loaded(tmp_path, sample, card)
    assert competition.unknown is None
    assert set(competition.classes) == {"cat", "dog"}


def test_a_name_that_may_only_fill_the_cells_is_advised(tmp_path: Path) -> None:
    notes = loaded(tmp_path, ("unknown", "unknown")).notes
    assert any('write unknown = "unknown"' in note for note in notes)


@pytest.mark.parametrize(
    ("card", "problem"),
    [
        ('unknown = "stranger"\nunknown_share = 1.5\n', "unknown_share must be a number above 0 and below 1"),
        ('unknown = "stranger"\nunknown_share = "much"\n', "unknown_share must be a number above 0 and below 1"),
        ('unknown = "dog"\nunknown_share = 0.2\n', "unknown_share is for an unknown class that no training image has"),
        ("unknown_share = 0.2\n", "delete it, or correct unknown"),
        ('unknown = "stranger"\nshares = { cat = 0.5, dog = 0.5 }\n', "shares does not go with the unknown class"),
    ],
)
def test_a_share_that_says_nothing_is_refused(tmp_path: Path, card: str, problem: str) -> None:
    sample = table("id,target", "4,cat", "5,dog")
    assert problem in load_error(tmp_path, IMAGES, {"train.csv": TRAIN, "sample_submission.csv": sample}, card)


def test_corrections_cannot_have_it(tmp_path: Path) -> None:
    sample, card = table("id,target", "4,cat", "5,dog"), 'unknown = "stranger"\n'
    path = card_path(tmp_path).with_name("it.corrections.csv")
    write_file(path, "id,label\n1,stranger\n")
    message = load_error(tmp_path, IMAGES, {"train.csv": TRAIN, "sample_submission.csv": sample}, card)
    assert "stranger" in message
    assert path.name in message
