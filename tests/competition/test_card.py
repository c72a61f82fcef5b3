"""The card: it overrides every guess, and a mistake in it is refused with its file. Famous competitions have one."""

import re
from pathlib import Path

import pytest

from layouts import IMAGES, SLUG, TABLES, TRAIN, card_path, load_error, load_files, raw_path, table
from podium.basics.errors import PodiumError
from podium.competition.card import FILE, check_keys, check_values, known_cards, read_card
from podium.competition.describe import describe
from podium.competition.load import load
from podium.tasks.metrics import METRICS
from tiny import write_card


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
        ("wants = 'both'", "wants must be one of labels, probs, ranking, numbers, not 'both'"),
        ("task = 'boxes'", "task must be one of one_label, several_labels, several_targets, numbers, not 'boxes'"),
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
        ('wants = "probs"', "one column of numbers, but the training images have 3 classes of words"),
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


@pytest.mark.parametrize(
    ("card", "problem"),
    [
        ('metric = "roc_auc"\ntask = "numbers"', 'roc_auc is not defined for numbers; write metric = "rmse" in {card}'),
        ('metric = "rmse"\ntask = "one_label"', "rmse is not defined for one label an image"),
        ('metric = "samples_f1"', "samples_f1 is not defined for one label an image; write metric"),
        ('wants = "numbers"', '{card}: wants = "numbers", but the training table has one label an image'),
        ('task = "numbers"\nwants = "labels"', '{card}: wants = "labels", but the training table has numbers'),
    ],
)
def test_a_card_of_another_task_is_refused(tmp_path: Path, card: str, problem: str) -> None:
    tables = {"train.csv": table("id,level", "1,0", "2,1", "3,4"), "sample_submission.csv": table("id,level", "4,0")}
    message = load_error(tmp_path, [*IMAGES[:3], "train/6.jpg", "test/4.jpg"], tables, card)
    assert problem.format(card=card_path(tmp_path)) in message


def test_a_card_that_wants_labels_in_several_columns_is_refused(tmp_path: Path) -> None:
    tables = TABLES | {"sample_submission.csv": table("id,cat,dog", "4,0,0")}
    message = load_error(tmp_path, IMAGES, tables, 'wants = "labels"')
    assert "sample_submission.csv: 2 columns to fill" in message
    assert f'remove wants = "labels" from {card_path(tmp_path)}' in message


# --- known competitions ------------------------------------------------------------------------------


@pytest.mark.parametrize("slug", known_cards())
def test_every_known_card_is_right(slug: str, tmp_path: Path) -> None:
    settings = known_cards()[slug]
    check_keys(settings, f"{FILE}: {slug}")
    check_values(settings, f"{FILE}: {slug}")
    assert settings["title"]
    card = read_card(slug, tmp_path)
    assert dict(card) == settings
    if "metric" in card:
        assert card.get("task", "one_label") in METRICS[card["metric"]]().tasks
    assert not list(tmp_path.iterdir())  # it is not written into the project


def test_at_least_forty_competitions_are_known_by_their_slugs() -> None:
    assert len(known_cards()) >= 40
    assert {slug for slug in known_cards() if not re.fullmatch(r"[A-Za-z0-9-]+", slug)} == set()


def test_a_copy_of_a_known_competition_may_have_other_tables(tmp_path: Path) -> None:
    slug = "state-farm-distracted-driver-detection"
    load_files(tmp_path, IMAGES, TABLES)
    raw_path(tmp_path).rename(raw_path(tmp_path).with_name(slug))
    competition = load(slug, tmp_path)
    assert competition.classes == ("cat", "dog")
    assert competition.groups is None
    assert "train.csv has no column 'classname', which this competition's table has" in competition.notes
    write_card(tmp_path, 'target_column = "classname"', slug)  # the user's own card must be right
    with pytest.raises(PodiumError, match='target_column = "classname" is not a column'):
        load(slug, tmp_path)


def test_the_own_card_replaces_what_is_known_setting_by_setting(tmp_path: Path) -> None:
    slug = "state-farm-distracted-driver-detection"
    path = write_card(tmp_path, 'metric = "accuracy"\ngroup_column = ""\n[recipe]\nfit = "squash"', slug)
    card = read_card(slug, tmp_path)
    assert card["metric"] == "accuracy"
    assert card["target_column"] == "classname"
    assert not card["group_column"]  # turned off
    assert card["recipe"] == {"mirror": 0.0, "fit": "squash"}
    assert "metric" not in card.known
    assert "target_column" in card.known
    assert card.advise("x") == f"write x in {path}"
    assert known_cards()[slug]["recipe"] == {"mirror": 0.0}


def test_no_table_of_a_known_competition_is_still_no_table(tmp_path: Path) -> None:
    slug = "state-farm-distracted-driver-detection"
    write_card(tmp_path, 'train_table = ""', slug)
    assert read_card(slug, tmp_path)["train_table"] == ""


def test_the_description_says_where_the_metric_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = card_path(tmp_path)
    guessed = load_files(tmp_path, IMAGES, TABLES)
    assert f'metric   accuracy, a guess: write metric = "NAME" in {path} if it is another one' in describe(guessed)
    monkeypatch.setitem(known_cards(), SLUG, {"metric": "macro_f1"})
    assert "metric   macro_f1, known for this competition" in describe(load(SLUG, tmp_path))
    write_card(tmp_path, 'metric = "mcc"', SLUG)
    assert f"metric   mcc, set in {path}" in describe(load(SLUG, tmp_path))


def test_the_drivers_of_a_known_competition_are_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(known_cards(), SLUG, known_cards()["state-farm-distracted-driver-detection"])
    rows = ["p002,c0,img_1.jpg", "p002,c1,img_2.jpg", "p003,c0,img_3.jpg", "p003,c1,img_4.jpg"]
    images = [f"imgs/train/{row.split(',')[1]}/{row.split(',')[2]}" for row in rows] + ["imgs/test/img_5.jpg"]
    tables = {
        "driver_imgs_list.csv": table("subject,classname,img", *rows),
        "sample_submission.csv": table("img,c0,c1", "img_5.jpg,0.5,0.5"),
    }
    competition = load_files(tmp_path, images, tables)
    assert competition.groups is not None
    assert list(competition.groups) == ["p002", "p002", "p003", "p003"]
    assert competition.classes == ("c0", "c1")
    assert list(competition.train["image"]) == images[:4]
