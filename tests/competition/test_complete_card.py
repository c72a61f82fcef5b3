"""The complete card: what it says, how it is printed, and that odd texts in it are read back unchanged."""

import tomllib
from pathlib import Path

import pytest

from layouts import IMAGES, SLUG, TABLES, TRAIN, card_path, load_files, table
from podium.basics.errors import PodiumError
from podium.competition.build.complete_card import Setting, as_toml
from podium.competition.load import load
from tiny import Podium, done, write_file


def test_every_setting_has_its_origin(tmp_path: Path) -> None:
    card = 'metric = "macro_f1"\n\n[recipe]\nmirror = 0.0\n'
    competition = load_files(tmp_path, IMAGES, TABLES, card)
    origins = {setting.key: setting.origin for setting in competition.settings}
    assert origins == {
        "metric": f"set in {card_path(tmp_path)}",
        "task": "the usual one",
        "wants": "the cells of the sample submission are no fractions",
        "train_table": "by its name",
        "sample_submission": "by its name",
        "id_column": "the sample submission has it",
        "target_column": "the only column beside the ids",
        "recipe": f"set in {card_path(tmp_path)}",
    }


def test_known_and_typed_settings_say_so(tmp_path: Path) -> None:
    folder, slug = tmp_path / "data" / "raw", "cassava-leaf-disease-classification"
    train = table("id,target,who", "1,cat,a", "2,dog,b", "3,cat,c")
    load_files(tmp_path, IMAGES, {**TABLES, "train.csv": train}, 'target_column = "target"')
    card_path(tmp_path).rename(card_path(tmp_path).with_name(f"{slug}.toml"))
    (folder / SLUG).rename(folder / slug)
    competition = load(slug, tmp_path, group_column="who")
    origins = {setting.key: setting.origin for setting in competition.settings}
    assert origins["metric"] == origins["title"] == "known for this competition"
    assert origins["group_column"] == "set on the command line"


def test_a_typed_column_is_not_dropped_like_a_known_one(tmp_path: Path) -> None:
    slug = "siim-isic-melanoma-classification"  # Podium knows its group column
    load_files(tmp_path, IMAGES, TABLES)
    (tmp_path / "data" / "raw" / SLUG).rename(tmp_path / "data" / "raw" / slug)
    assert any("has no column 'patient_id'" in note for note in load(slug, tmp_path).notes)
    with pytest.raises(PodiumError, match='group_column = "nobody" is not a column'):
        load(slug, tmp_path, group_column="nobody")


def test_a_known_table_that_is_missing_is_noted_where_folders_stand_for_it(tmp_path: Path) -> None:
    slug = "state-farm-distracted-driver-detection"
    load_files(tmp_path, ["train/a/1.jpg", "train/b/2.jpg", "test/3.jpg"], {})
    (tmp_path / "data" / "raw" / SLUG).rename(tmp_path / "data" / "raw" / slug)
    notes = load(slug, tmp_path).notes
    assert any('train_table = "driver_imgs_list.csv" is not among these files' in note for note in notes)


def test_the_digits_are_made_before_their_card_is_printed(podium: Podium) -> None:
    out, _ = done(podium("data", "-c", "sample", "--card"))
    assert tomllib.loads(out)["metric"] == "accuracy"


def test_the_command_prints_the_card_alone_and_it_reads_the_same(tmp_path: Path, podium: Podium) -> None:
    before = load_files(tmp_path, IMAGES, TABLES)
    out, err = done(podium("data", "-c", SLUG, "--card"))
    assert tomllib.loads(out)["target_column"] == "target"
    assert f"save this as {card_path(tmp_path)}" in err
    write_file(card_path(tmp_path), out)
    after = load(SLUG, tmp_path)
    assert (after.train_hash, after.test_hash) == (before.train_hash, before.test_hash)
    assert all(setting.origin == f"set in {card_path(tmp_path)}" for setting in after.settings)


@pytest.mark.parametrize(
    "value", ['a "quoted" name', r"(\w+)\.\d+", "two\nlines", "ünï", [1, 2.5], {"a b": {"c": True}}]
)
def test_odd_values_are_read_back(value: object) -> None:
    text = as_toml("it", [Setting("title", value, "such as 'a\nb'"), Setting("x", "y", "z", is_settled=False)])
    assert tomllib.loads(text) == {"title": value}


def test_without_a_sample_submission_the_card_says_that_there_is_none(tmp_path: Path) -> None:
    competition = load_files(tmp_path, IMAGES, {"train.csv": TRAIN})
    (sample,) = [setting for setting in competition.settings if setting.key == "sample_submission"]
    assert (sample.value, sample.origin) == ("", "no table has such a name")
    assert competition.submission_format.source == "no sample submission"
