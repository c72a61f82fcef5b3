"""The card: it overrides every guess, and a mistake in it is refused with its file."""

from pathlib import Path

import pytest

from layouts import IMAGES, SLUG, TABLES, TRAIN, card_path, load_error, load_files, raw_path, table
from podium import PodiumError
from podium.competition.card import read_card


def test_the_card_overrides_every_guess(tmp_path: Path) -> None:
    images = [f"{folder}/{i}.jpg" for folder in ("photos", "renders", "thumbs") for i in range(1, 6)]
    header = "id,number,target,kind"
    tables = {
        "train.csv": table(header, *(f"x{i},{i},wrong{i},k{i % 2}" for i in range(1, 4))),
        "lists/learn.csv": table(header, *(f"{4 - i},{i},wrong{i},k{i % 2}" for i in range(1, 4))),
        "sample_submission.csv": table("id,target", "1,x"),
        "lists/answer.csv": table("nr,guess", "2,0", "1,0"),
    }
    card = """
        title = "A title"
        url = "https://example.org"
        metric = "roc_auc"
        wants = "probs"
        train_table = "lists/learn.csv"
        train_images = "./photos/"
        test_images = "renders"
        sample_submission = "lists/answer.csv"
        id_column = "number"
        target_column = "kind"
        [recipe]
        mirror = 0.0
        """
    competition = load_files(tmp_path, images, tables, card)
    assert competition.title == "A title"
    assert competition.metric == "roc_auc"
    assert competition.submission_format.wants == "probs"
    assert competition.submission_format.columns == ("nr", "guess")
    assert competition.submission_format.source == "answer.csv"
    assert competition.recipe == {"mirror": 0.0}
    assert competition.classes == ("k0", "k1")
    assert list(competition.train["image"]) == ["photos/1.jpg", "photos/2.jpg", "photos/3.jpg"]
    assert list(competition.train["target"]) == ["k1", "k0", "k1"]
    assert list(competition.test["image"]) == ["renders/2.jpg", "renders/1.jpg"]


def test_the_card_names_the_table_of_test_images(tmp_path: Path) -> None:
    tables = {"train.csv": TRAIN, "test.csv": table("id", "4"), "answers.csv": table("id", "5")}
    assert list(load_files(tmp_path, IMAGES, tables, 'test_table = "answers.csv"').test["id"]) == ["5"]


@pytest.mark.parametrize(
    ("card", "problem"),
    [
        ("metrik = 'accuracy'", "no setting 'metrik'; did you mean metric?"),
        ("zzz = 1", "no setting 'zzz'; the settings are title, url, metric"),
        ("metric = 'f2'", "metric must be one of accuracy, log_loss, macro_f1"),
        ("wants = 'both'", "wants must be one of labels, probs, not 'both'"),
        ("title = 1", "title must be text, not 1"),
        ("recipe = 'x'", "recipe must be a table, not 'x'"),
        ("[recipe]\nepohcs = 3", "[recipe]: no option 'epohcs'; did you mean epochs?"),
        ("[recipe]\nmirror = '0'", "[recipe]: mirror must be a number, not '0'"),
        ("[recipe]\nmirror = 2", "[recipe]: mirror must be between 0 and 1, not 2"),
        ("[recipe]\nmodel = 'auto'", "[recipe]: a card cannot choose the model"),
        ("metric = \nwants", "line 1"),
        ("title = 'caf\xe9'", "utf-8"),
    ],
)
def test_a_mistake_in_the_card_is_refused_with_its_file(tmp_path: Path, card: str, problem: str) -> None:
    path = card_path(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text(card, encoding="latin-1")
    with pytest.raises(PodiumError) as refused:
        read_card(SLUG, tmp_path)
    assert str(refused.value).startswith(f"{path}: ")
    assert problem in str(refused.value)


def test_a_card_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    card_path(tmp_path).mkdir(parents=True)
    with pytest.raises(PodiumError, match=r"it\.toml: Is a directory; delete it"):
        read_card(SLUG, tmp_path)


@pytest.mark.parametrize(
    ("card", "problem"),
    [
        ('train_table = "x.csv"', 'train_table = "x.csv" is not among the tables of'),
        ('test_table = "x.csv"', 'test_table = "x.csv" is not among the tables of'),
        ('sample_submission = "../x.csv"', 'sample_submission = "../x.csv" is not among the tables of'),
        ('train_images = "x"', 'train_images = "x" holds no images below {raw}'),
        ('test_images = "/etc"', 'test_images = "etc" holds no images below {raw}'),
        ('id_column = "x"', 'id_column = "x" is not a column of'),
        ('target_column = "x"', 'target_column = "x" is not a column of'),
        ('train_images = "test"', "3 of 3 rows have no image below"),
        ('wants = "probs"', 'one column to fill for 3 classes; remove wants = "probs" from {card}'),
    ],
)
def test_a_card_that_does_not_fit_the_files_is_refused(tmp_path: Path, card: str, problem: str) -> None:
    tables = TABLES | {"train.csv": TRAIN.replace("3,cat", "3,bird")}
    if "test_table" in card:
        del tables["sample_submission.csv"]
    message = load_error(tmp_path, IMAGES, tables, card)
    assert problem.format(raw=raw_path(tmp_path), card=card_path(tmp_path)) in message
    if "holds no images" in problem:
        assert "these folders do: test, train" in message


def test_a_card_that_wants_labels_in_several_columns_is_refused(tmp_path: Path) -> None:
    tables = TABLES | {"sample_submission.csv": table("id,cat,dog", "4,0,0")}
    message = load_error(tmp_path, IMAGES, tables, 'wants = "labels"')
    assert "sample_submission.csv: 2 columns to fill" in message
    assert f'remove wants = "labels" from {card_path(tmp_path)}' in message
