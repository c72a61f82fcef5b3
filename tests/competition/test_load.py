"""Competitions: what Podium makes of every layout that Kaggle delivers, and what it says where it cannot."""

import os
from pathlib import Path

import pytest

from layouts import IMAGE, IMAGES, LABELS, SAMPLE, TABLES, TRAIN, load_it, pairs, refusal, rows
from podium import PodiumError
from podium.competition.card import read_card
from podium.competition.ids_and_labels import normalised_label
from podium.competition.load import load, raw_folder

# --- layouts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("train", "test"),
        ("train_image", "test_image"),
        ("train_images", "test_images"),
        ("images/train", "images/test"),
        ("images/train_images", "images/test_images"),
        ("jpeg/train", "jpeg/test"),
        ("images", "images"),
        (".", "."),
        ("train/train", "test/test"),
        ("train/images/train", "test/images/test"),
        ("TrainImages", "TestImages"),
        ("imagesTrain", "imagesTest"),
        ("ISIC_2019_Training_Input", "ISIC_2019_Testing_Input"),
        ("TRAIN", "TEST"),
        ("train/00/cat", "test/00"),
    ],
)
@pytest.mark.parametrize("top", ["", "dogs-and-cats", "test-of-skill/training-data"])
def test_images_are_found_in_the_folders_that_competitions_use(tmp_path: Path, top: str, train: str, test: str) -> None:
    images = [f"{train}/{name}.jpg" for name in LABELS] + [f"{test}/4.jpg", f"{test}/5.jpg"]
    it = load_it(tmp_path, images, TABLES, folder=top)
    learned, answered = pairs(it)
    under = os.path.normpath(f"{top}/{train}") if top else os.path.normpath(train)
    there = os.path.normpath(f"{top}/{test}") if top else os.path.normpath(test)
    assert learned == {os.path.normpath(f"{under}/{name}.jpg"): label for name, label in LABELS.items()}
    assert list(answered.items()) == [(n, os.path.normpath(f"{there}/{n}.jpg")) for n in ("5", "4")]
    assert it.classes == ("cat", "dog")
    assert it.notes == ()
    assert all((it.folder / image).read_bytes() == IMAGE for image in (*learned, *answered.values()))


@pytest.mark.parametrize(("train", "test"), [("train", "test"), ("images/train", "images/test"), ("a/train", "b/test")])
def test_the_same_number_in_train_and_in_test_is_two_images(tmp_path: Path, train: str, test: str) -> None:
    images = [f"{folder}/{name}.png" for folder in (train, test) for name in (1, 2, 3)]
    sample = rows("id,target", "3,cat", "1,cat", "2,cat")
    learned, answered = pairs(load_it(tmp_path, images, {"train.csv": TRAIN, "sample_submission.csv": sample}))
    assert list(learned) == [f"{train}/{name}.png" for name in (1, 2, 3)]
    assert answered == {"3": f"{test}/3.png", "1": f"{test}/1.png", "2": f"{test}/2.png"}


@pytest.mark.parametrize("train", ["train.csv", "Train.csv", "train_labels.csv", "trainLabels.csv", "labels.csv"])
@pytest.mark.parametrize(
    "sample",
    [
        "sample_submission.csv",
        "sampleSubmission.csv",
        "SampleSubmission.csv",
        "sample_sub.csv",
        "submission_format.csv",
        "example_submission.csv",
        "sample.csv",
    ],
)
def test_tables_are_known_by_the_names_in_use(tmp_path: Path, train: str, sample: str) -> None:
    it = load_it(tmp_path, IMAGES, {train: TRAIN, sample: SAMPLE})
    assert list(it.train["target"]) == ["cat", "dog", "cat"]
    assert list(it.test["id"]) == ["5", "4"]
    assert it.submission_format.source == sample


@pytest.mark.parametrize("name", ["tables/train.csv", "train.tsv", "Training_set.csv", "train_cultivar_mapping.csv"])
def test_the_training_table_may_lie_deeper_or_be_called_longer(tmp_path: Path, name: str) -> None:
    it = load_it(tmp_path, IMAGES, {name: TRAIN, "sample_submission.csv": SAMPLE, "tables/old/train_1.csv": "x\n1\n"})
    assert list(it.train["target"]) == ["cat", "dog", "cat"]


@pytest.mark.parametrize("suffix", ["jpg", "JPG", "jpeg", "jfif", "png", "bmp", "gif", "webp", "tif", "tiff"])
def test_every_usual_kind_of_image_is_found(tmp_path: Path, suffix: str) -> None:
    it = load_it(tmp_path, [image.replace("jpg", suffix) for image in IMAGES], TABLES)
    assert it.train["image"][0] == f"train/1.{suffix}"


def test_what_systems_leave_behind_is_no_image(tmp_path: Path) -> None:
    leavings = ["__MACOSX/train/1.jpg", "train/._1.jpg", ".ipynb_checkpoints/1.jpg", "train/Thumbs.db"]
    assert load_it(tmp_path, [*IMAGES, *leavings], TABLES).notes == ()


def test_a_link_that_leads_back_is_followed_once(tmp_path: Path) -> None:
    load_it(tmp_path, IMAGES, TABLES)
    (tmp_path / "data" / "raw" / "it" / "train" / "again").symlink_to("..")
    (tmp_path / "data" / "raw" / "it" / "zz").symlink_to("train")
    assert load("it", tmp_path).notes == ()


def test_images_of_a_linked_folder_count(tmp_path: Path) -> None:
    elsewhere = tmp_path / "disk" / "pictures"
    elsewhere.mkdir(parents=True)
    for name in LABELS:
        (elsewhere / f"{name}.jpg").write_bytes(IMAGE)
    raw = tmp_path / "data" / "raw" / "it"
    raw.mkdir(parents=True)
    (raw / "train").symlink_to(elsewhere)
    it = load_it(tmp_path, IMAGES[3:], TABLES)
    assert it.train["image"][0] == "train/1.jpg"


def test_on_kaggles_own_machines_the_files_are_where_kaggle_mounts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "kaggle" / "input"
    monkeypatch.setattr("podium.competition.load.KAGGLE_INPUT", mounts)
    here = tmp_path / "data" / "raw" / "it"
    (mounts / "competitions" / "it").mkdir(parents=True)
    assert raw_folder("it", tmp_path) == here
    monkeypatch.setenv("KAGGLE_KERNEL_RUN_TYPE", "Interactive")
    assert raw_folder("it", tmp_path) == mounts / "competitions" / "it"
    (mounts / "it").mkdir()
    assert raw_folder("it", tmp_path) == mounts / "it"
    assert raw_folder("other", tmp_path) == tmp_path / "data" / "raw" / "other"
    here.mkdir(parents=True)
    assert raw_folder("it", tmp_path) == here


# --- ids -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "image"),
    [
        ("007", "007.jpg"),
        ("1e5", "1e5.jpg"),
        ("True", "True.jpg"),
        ("NA", "NA.jpg"),
        ("18446744073709551617", "18446744073709551617.jpg"),
        ("-1", "-1.jpg"),
        ("1.5", "1.5.jpg"),
        ("a.b", "a.b.png"),
        ("007.jpg", "007.jpg"),
        ("IMG_7.JPG", "img_7.jpg"),
        ("7.jpg", "7.JPG"),
        ("dog/7", "dog/7.jpg"),
        ("dog/7.jpg", "dog/7.jpg"),
        ("dog\\7.jpg", "dog/7.jpg"),
        ("./dog/7.jpg", "dog/7.jpg"),
        ("7", "dog/7.jpg"),
        ("ünï 7", "ünï 7.jpg"),
        ("e\u0301", "é.jpg"),
        ("猫", "猫.jpg"),
        ("a;b\t'c'", "a;b\t'c'.jpg"),
    ],
)
def test_an_id_finds_its_image_and_stays_as_it_is_to_the_letter(tmp_path: Path, name: str, image: str) -> None:
    tables = {
        "train.csv": rows("id,target", f"{name},cat", "other,dog"),
        "sample_submission.csv": rows("id,target", "last,cat", f"{name},cat"),
    }
    it = load_it(tmp_path, [f"train/{image}", f"test/{image}", "train/other.jpg", "test/last.jpg"], tables)
    assert list(it.train["id"]) == [name, "other"]
    assert list(it.train["image"]) == [f"train/{image}", "train/other.jpg"]
    assert list(it.test["id"]) == ["last", name]
    assert list(it.test["image"]) == ["test/last.jpg", f"test/{image}"]


@pytest.mark.parametrize("prefix", ["train/", "./train/", "train\\", ""])
def test_ids_may_begin_with_their_folder(tmp_path: Path, prefix: str) -> None:
    table = rows("path,target", *(f"{prefix}{name}.jpg,{label}" for name, label in LABELS.items()))
    it = load_it(tmp_path, IMAGES, {"train.csv": table, "sample_submission.csv": SAMPLE})
    assert list(it.train["image"]) == IMAGES[:3]


@pytest.mark.parametrize(
    "name", ["../test/4", "/etc/passwd", "../../secret.jpg", "train/../test/4", "C:\\4.jpg", "~/4", "//4", "."]
)
@pytest.mark.parametrize("table", ["train.csv", "sample_submission.csv"])
def test_an_id_that_leads_out_of_the_images_names_no_image(tmp_path: Path, table: str, name: str) -> None:
    (tmp_path / "data" / "raw").mkdir(parents=True)
    (tmp_path / "data" / "secret.jpg").write_bytes(IMAGE)
    said = refusal(tmp_path, IMAGES, TABLES | {table: TABLES[table] + f"{name},cat\n"})
    assert f"{table}: 1 of" in said
    assert f"(ids {name})" in said


def test_an_id_with_nul_is_refused_with_its_line(tmp_path: Path) -> None:
    assert "train.csv, line 5: a NUL" in refusal(tmp_path, IMAGES, TABLES | {"train.csv": TRAIN + "4\0,cat\n"})


def test_a_blank_id_is_refused_with_its_line(tmp_path: Path) -> None:
    assert "train.csv, line 5: no id; fill it in" in refusal(
        tmp_path, IMAGES, TABLES | {"train.csv": TRAIN + " ,cat\n"}
    )
    sample = TABLES | {"sample_submission.csv": SAMPLE + ",cat\n"}
    assert "sample_submission.csv, line 4: no id; fill it in" in refusal(tmp_path, IMAGES, sample)


@pytest.mark.parametrize("twin", ["train/1.png", "train/1.JPG", "train/sub/1.jpg", "more/1.jpg"])
def test_an_id_that_could_be_two_images_is_refused_with_both(tmp_path: Path, twin: str) -> None:
    others = [twin.replace("1", name) for name in ("2", "3") if "sub" in twin or "more" in twin]  # a whole second set
    said = refusal(tmp_path, [*IMAGES, twin, *others], TABLES)
    assert "train.csv, line 2: id '1' could be " in said
    assert "train/1.jpg" in said
    assert twin in said
    assert "delete one of them" in said
    assert 'train_images = "FOLDER"' in said


def test_of_images_that_an_id_could_mean_it_means_the_one_it_spells(tmp_path: Path) -> None:
    tables = TABLES | {"train.csv": rows("id,target", "a,cat", "A,dog", "b.jpg,cat", "b.jpg.png,dog")}
    images = ["train/a.jpg", "train/A.jpg", "train/b.jpg", "train/b.jpg.png", *IMAGES]
    train, _ = pairs(load_it(tmp_path, images, tables))
    assert train == {"train/a.jpg": "cat", "train/A.jpg": "dog", "train/b.jpg": "cat", "train/b.jpg.png": "dog"}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_rows_that_an_open_quote_swallows_are_not_lost_without_a_word(tmp_path: Path, end: str) -> None:
    swallowing = rows("id,target,about", '1,cat,"', "2,dog,x", '3,cat,"', "7,dog,x").replace("\n", end)
    said = refusal(tmp_path / "label", IMAGES, TABLES | {"train.csv": rows("id,target", '1,"cat', '2,dog"', "3,cat")})
    assert "train.csv, line 2: a label of several lines, 'cat...'; close its quote" in said
    said = refusal(tmp_path / "id", IMAGES, TABLES | {"train.csv": rows("id,target", '"1', '2",dog', "3,cat")})
    assert "(ids 1\\n2), the first on line 2" in said
    it = load_it(tmp_path / "other", [*IMAGES, "train/7.jpg"], TABLES | {"train.csv": swallowing})
    assert "train.csv: 1 row with a cell of several lines, the first on line 2; is a quote left open there?" in it.notes


def test_an_open_quote_in_the_sample_is_refused(tmp_path: Path) -> None:
    sample = rows("id,target", '5,"cat', '4,cat"')
    said = refusal(tmp_path, IMAGES, TABLES | {"sample_submission.csv": sample})
    assert "sample_submission.csv, line 2: a cell of several lines; close its quote" in said


def test_a_table_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    said = refusal(tmp_path / "sound", IMAGES, TABLES | {"train.csv": rows("id,target", "1,cat")})
    assert said
    folder = tmp_path / "data" / "raw" / "it"
    load_it(tmp_path, IMAGES, TABLES)
    (folder / "train.csv").unlink()
    os.mkfifo(folder / "train.csv")
    with pytest.raises(PodiumError, match="it is no regular file"):
        load("it", tmp_path)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("9007199254740993", "9007199254740992", False),
        ("12345678901234567890.5", "12345678901234567890.4", False),
        ("7", "007", True),
        ("0", "-0", True),
        (".5", "0.50", True),
        ("1e3", "1000", False),
        ("cat", "c\u200bat", True),
        ("a", "A", False),
    ],
)
def test_which_labels_look_the_same(one: str, other: str, same: bool) -> None:
    assert (normalised_label(one) == normalised_label(other)) == same


def test_labels_that_look_the_same_are_pointed_out(tmp_path: Path) -> None:
    table = rows("id,target", "1,cat", "2,cat ", "3,dog", "4,1", "5,1.0", "6,Cat", "7,c at")
    images = [f"train/{name}.jpg" for name in range(1, 8)] + ["test/9.jpg"]
    it = load_it(tmp_path, images, {"train.csv": table, "sample_submission.csv": "id,target\n9,cat\n"})
    assert it.classes == ("1", "1.0", "Cat", "c at", "cat", "cat ", "dog")
    assert it.notes == (
        "train.csv: 'cat' (line 2) and 'cat ' (line 3) are different classes; mend the table where one is meant",
        "train.csv: '1' (line 5) and '1.0' (line 6) are different classes; mend the table where one is meant",
    )
    table = table.replace("cat ", "cat\xa0").replace("1.0", "2")
    it = load_it(tmp_path, images, {"train.csv": table, "sample_submission.csv": "id,target\n9,cat\n"})
    assert it.notes[0].startswith("train.csv: 'cat' (line 2) and 'cat\\xa0' (line 3) are different classes")


def test_two_ids_of_one_image_are_refused(tmp_path: Path) -> None:
    train = TABLES | {"train.csv": TRAIN + "1.jpg,dog\n"}
    assert "train.csv, lines 2 and 5: '1' and '1.jpg' both mean train/1.jpg; delete one" in refusal(
        tmp_path, IMAGES, train
    )
    sample = TABLES | {"sample_submission.csv": SAMPLE + "4.JPG,cat\n"}
    assert "lines 3 and 4: '4' and '4.JPG' both mean test/4.jpg" in refusal(tmp_path, IMAGES, sample)


NUMBERED = {
    "train.csv": rows("id,image_path,label", "0,train/1.jpg,cat", "1,train/2.jpg,dog", "2,train/3.jpg,cat"),
    "test.csv": rows("id,image_path", "0,test/4.jpg", "1,test/5.jpg"),
    "sample_submission.csv": rows("id,label", "1,0", "0,0"),
}


def test_where_ids_are_mere_numbers_a_column_beside_them_names_the_images(tmp_path: Path) -> None:
    it = load_it(tmp_path, IMAGES, NUMBERED)
    assert it.train.to_numpy().tolist() == [
        ["0", "cat", "train/1.jpg"],
        ["1", "dog", "train/2.jpg"],
        ["2", "cat", "train/3.jpg"],
    ]
    assert it.test.to_numpy().tolist() == [["1", "test/5.jpg"], ["0", "test/4.jpg"]]


def test_mere_numbers_do_without_a_sample_too(tmp_path: Path) -> None:
    del (tables := dict(NUMBERED))["sample_submission.csv"]
    it = load_it(tmp_path, IMAGES, tables, 'id_column = "id"\ntarget_column = "label"')
    assert it.test.to_numpy().tolist() == [["0", "test/4.jpg"], ["1", "test/5.jpg"]]


def test_a_mere_number_without_an_image_is_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path, IMAGES, NUMBERED | {"sample_submission.csv": rows("id,label", "1,0", "7,0")})
    assert "sample_submission.csv: 1 of 2 rows have no image" in said
    assert "(ids 7)" in said
    del (tables := dict(NUMBERED))["test.csv"]
    assert "sample_submission.csv: 2 of 2 rows have no image" in refusal(tmp_path / "x", IMAGES, tables)
    tables = NUMBERED | {"test.csv": rows("id,image_path", "0,test/4.jpg", "1,test/5.jpg", "1,test/4.jpg")}
    assert "test.csv, line 4: id '1' has a second image; keep one" in refusal(tmp_path / "y", IMAGES, tables)


def test_a_few_examples_beside_the_images_confuse_nobody(tmp_path: Path) -> None:
    it = load_it(tmp_path, [*IMAGES, "examples/1.jpg", "examples/4.jpg"], TABLES)
    assert list(it.train["image"]) == IMAGES[:3]
    assert it.notes == ("2 images belong to no row",)


def test_numbers_that_repeat_in_every_class_are_not_guessed_at(tmp_path: Path) -> None:
    images = [
        "train/cat/1.jpg",
        "train/cat/2.jpg",
        "train/cat/3.jpg",
        "train/dog/1.jpg",
        "train/dog/4.jpg",
        *IMAGES[3:],
    ]
    said = refusal(tmp_path, images, TABLES | {"train.csv": TRAIN + "4,dog\n"})
    assert "train.csv, line 2: id '1' could be train/cat/1.jpg or train/dog/1.jpg" in said


def test_ids_with_their_class_folder_tell_them_apart(tmp_path: Path) -> None:
    images = ["train/cat/1.jpg", "train/dog/1.jpg", "examples/cat/1.jpg"]
    tables = TABLES | {"train.csv": rows("id,target", "cat/1,cat", "dog/1,dog")}
    assert list(load_it(tmp_path, [*images, *IMAGES[3:]], tables).train["image"]) == images[:2]


@pytest.mark.parametrize("name", ["train.csv", "sample_submission.csv"])
def test_a_table_without_a_header_is_refused(tmp_path: Path, name: str) -> None:
    without = (TABLES | {"train.csv": TRAIN})[name].split("\n", 1)[1]
    assert "names an image, so there is no header" in refusal(tmp_path, IMAGES, TABLES | {name: without})


def test_rows_without_images_are_counted_and_named(tmp_path: Path) -> None:
    said = refusal(tmp_path, IMAGES, TABLES | {"train.csv": TRAIN + "".join(f"x{i},cat\n" for i in range(1200))})
    assert "train.csv: 1,200 of 1,203 rows have no image below" in said
    assert "(ids x0, x1, x2, x3, x4, ... (1200 in all)), the first on line 5; " in said
    assert 'download again, delete those rows, or write train_images = "FOLDER"' in said
    said = refusal(tmp_path, [], TABLES | {"sample_submission.csv": SAMPLE + "6,cat\n"})
    assert "sample_submission.csv: 1 of 3 rows have no image" in said
    assert 'test_images = "FOLDER"' in said


def test_a_folder_called_as_an_image_is_none_unless_it_is_empty(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "raw" / "it" / "train" / "1.jpg"
    folder.mkdir(parents=True)
    assert load_it(tmp_path, IMAGES[1:], TABLES).train["image"][0] == "train/1.jpg"  # whoever reads it will say so
    (folder / "readme.txt").touch()
    assert "1 of 3 rows have no image" in refusal(tmp_path, IMAGES[1:], TABLES)


def test_a_dangling_link_is_left_to_whoever_reads_the_image(tmp_path: Path) -> None:
    (tmp_path / "data" / "raw" / "it" / "train").mkdir(parents=True)
    (tmp_path / "data" / "raw" / "it" / "train" / "1.jpg").symlink_to("nowhere")
    it = load_it(tmp_path, IMAGES[1:], TABLES)
    assert it.train["image"][0] == "train/1.jpg"
    assert it.train_hash


def test_images_without_rows_are_counted(tmp_path: Path) -> None:
    assert load_it(tmp_path, [*IMAGES, "train/9.jpg", "test/8.jpg"], TABLES).notes == (
        "1 images beside the test images are in no row of sample_submission.csv: is that file whole?",
        "1 images belong to no row",
    )


def test_an_image_both_learned_from_and_asked_for_is_noted(tmp_path: Path) -> None:
    sample = rows("id,target", "1,cat", "4,cat")
    it = load_it(tmp_path, [f"images/{i}.jpg" for i in range(1, 5)], TABLES | {"sample_submission.csv": sample})
    assert it.notes == ("1 images are both trained on and asked for",)


def test_a_file_name_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    load_it(tmp_path, IMAGES, TABLES)
    Path(os.fsdecode(os.fsencode(tmp_path / "data/raw/it/train") + b"/caf\xe9.jpg")).write_bytes(IMAGE)
    said = refusal(tmp_path, [], {})
    assert "b'train/caf\\xe9.jpg' is not UTF-8; rename it" in said
    assert said.isascii()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_not_passed_over(tmp_path: Path) -> None:
    load_it(tmp_path, [*IMAGES, "more/1.jpg"], TABLES)
    locked = tmp_path / "data" / "raw" / "it" / "more"
    locked.chmod(0)
    try:
        with pytest.raises(PodiumError, match="more: Permission denied; mend its rights"):
            load("it", tmp_path)
    finally:
        locked.chmod(0o755)


# --- labels ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["NA", "None", "null", "nan", "NaN", "True", "0", "007", "1e5", " cat", "N/A"])
def test_a_label_is_text_to_the_letter(tmp_path: Path, label: str) -> None:
    tables = {"train.csv": rows("id,target", f"1,{label}", "2,dog", "3,dog"), "sample_submission.csv": SAMPLE}
    it = load_it(tmp_path, IMAGES, tables)
    assert list(it.train["target"]) == [label, "dog", "dog"]
    assert set(it.classes) == {label, "dog"}


@pytest.mark.parametrize("blank", ["", " ", "\t", '""'])
def test_a_blank_label_is_refused_with_its_line(tmp_path: Path, blank: str) -> None:
    train = rows("id,target", "1,cat", f"2,{blank}", "3,dog")
    assert "train.csv, line 3: no label; fill it in or delete the line" in refusal(
        tmp_path, IMAGES, TABLES | {"train.csv": train}
    )


def test_a_row_said_twice_counts_once_and_is_noted(tmp_path: Path) -> None:
    it = load_it(tmp_path, IMAGES, TABLES | {"train.csv": TRAIN + "2,dog\n1,cat\n"})
    assert list(it.train["id"]) == ["1", "2", "3"]
    assert it.notes == ("2 rows of train.csv repeat an id with the same label and were left out",)


def test_an_id_with_two_labels_is_refused_with_both_lines(tmp_path: Path) -> None:
    said = refusal(tmp_path, IMAGES, TABLES | {"train.csv": TRAIN + "2,dog\n2,cat\n"})
    assert "train.csv, lines 3 and 6: id '2' has two labels; delete the wrong line" in said


def test_an_id_asked_for_twice_is_refused_with_its_line(tmp_path: Path) -> None:
    said = refusal(tmp_path, IMAGES, TABLES | {"sample_submission.csv": SAMPLE + "5,cat\n"})
    assert "sample_submission.csv, line 4: id '5' stands there twice; download again" in said


def test_one_class_alone_is_nothing_to_learn(tmp_path: Path) -> None:
    said = refusal(tmp_path, IMAGES, TABLES | {"train.csv": TRAIN.replace("dog", "cat")})
    assert "every training image has the label 'cat'" in said
    assert "target_column" in said


@pytest.mark.parametrize(
    ("labels", "order"),
    [
        (("10", "9", "0"), ("0", "9", "10")),
        (("010", "9", "0"), ("0", "010", "9")),
        (("-1", "1", "0"), ("-1", "0", "1")),
        (("b", "A", "a"), ("A", "a", "b")),
        (("9" * 5000, "8", "1"), ("1", "8", "9" * 5000)),
        (("٣", "1", "2"), ("1", "2", "٣")),
    ],
)
def test_classes_are_in_order_by_value_where_all_are_numbers(
    tmp_path: Path, labels: tuple[str, ...], order: tuple[str, ...]
) -> None:
    train = rows("id,target", *(f"{i},{label}" for i, label in enumerate(labels, 1)))
    assert load_it(tmp_path, IMAGES, TABLES | {"train.csv": train}).classes == order


# --- columns ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("train", "sample"),
    [
        ("id,patient,age,target\n1,p,40,cat\n2,p,50,dog\n3,q,1,cat", "id,target\n5,cat\n4,cat"),
        ("label,variety,id\ncat,x,1\ndog,y,2\ncat,z,3", "id,label\n5,\n4,"),
        ("index,file_name,Label\n0,1.jpg,cat\n1,2.jpg,dog\n2,3.jpg,cat", "name,predict\n5.jpg,cat\n4.jpg,cat"),
        ("image,species\n1,cat\n2,dog\n3,cat", "filename,answer\n5,cat\n4,cat"),
        (",id,notes,target\n0,1,a,cat\n1,2,b,dog\n2,3,c,cat", "id,target\n5,cat\n4,cat"),
        ("Image,Id\n1.jpg,cat\n2.jpg,dog\n3.jpg,cat", "Image,Id\n5.jpg,new\n4.jpg,new"),
        ("id,species,margin1\n1,cat,0.1\n2,dog,0.2\n3,cat,0.3", "id,cat,dog\n5,0.5,0.5\n4,0.5,0.5"),
        ("id,cat,dog\n1,1,0\n2,0,1\n3,1,0", "id,cat,dog\n5,0.5,0.5\n4,0.5,0.5"),
        ("cat,dog,sex,id\n1.0,0.0,m,1\n0.0,1.0,f,2\n1.0,0.0,f,3", "id,dog,cat\n5,0,0\n4,0,0"),
        ("id,cat,dog\n1,True,False\n2,False,True\n3,True,False", "id,cat,dog\n5,0,0\n4,0,0"),
    ],
)
def test_ids_and_labels_are_found_among_other_columns(tmp_path: Path, train: str, sample: str) -> None:
    it = load_it(tmp_path, IMAGES, {"train.csv": train + "\n", "sample_submission.csv": sample + "\n"})
    assert dict(zip(it.train["image"], it.train["target"], strict=True)) == {
        "train/1.jpg": "cat",
        "train/2.jpg": "dog",
        "train/3.jpg": "cat",
    }
    assert list(it.test["image"]) == ["test/5.jpg", "test/4.jpg"]


def test_an_image_with_two_marked_classes_is_refused_with_its_line(tmp_path: Path) -> None:
    tables = {
        "train.csv": rows("id,cat,dog", "1,1,0", "2,1,1", "3,0,0"),
        "sample_submission.csv": rows("id,cat,dog", "4,0,0", "5,0,0"),
    }
    said = refusal(tmp_path, IMAGES, tables)
    assert "train.csv, line 3: 2 classes are marked" in said
    assert "delete" in said


def test_a_label_that_cannot_be_told_is_asked_for(tmp_path: Path) -> None:
    tables = {"train.csv": rows("id,colour,size", "1,a,b", "2,b,a", "3,b,b"), "sample_submission.csv": SAMPLE}
    said = refusal(tmp_path, IMAGES, tables)
    assert "train.csv: which of the columns colour, size holds the label?" in said
    assert 'target_column = "NAME"' in said


def test_a_table_of_ids_alone_is_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path, IMAGES, TABLES | {"train.csv": "id\n1\n2\n3\n"})
    assert "train.csv: no column beside 'id' could hold the label" in said
    assert 'train_table = "NAME"' in said


def test_a_table_that_names_no_image_is_refused(tmp_path: Path) -> None:
    tables = {"labels.csv": rows("number,name", "0,cat", "1,dog"), "sample_submission.csv": SAMPLE}
    said = refusal(tmp_path, ["train/a.jpg", *IMAGES[3:]], tables)
    assert "labels.csv: no column names images below" in said
    assert "number, name" in said
    assert 'id_column = "NAME"' in said


# --- the submission --------------------------------------------------------------------------------------


def test_the_sample_decides_columns_rows_and_line_ends(tmp_path: Path) -> None:
    sample = "image name,Predicted Class\r\n5.jpg,x\r\n4.jpg,x\r\n"
    it = load_it(tmp_path, IMAGES, TABLES | {"sample_submission.csv": sample})
    assert it.submission_format.columns == ("image name", "Predicted Class")
    assert it.submission_format.csv_style
    assert (it.submission_format.csv_style.header, it.submission_format.csv_style.newline) == (
        "image name,Predicted Class",
        "\r\n",
    )
    assert it.submission_format.wants == "labels"
    assert it.metric == "accuracy"
    assert list(it.test["id"]) == ["5.jpg", "4.jpg"]


@pytest.mark.parametrize(
    ("labels", "columns", "classes"),
    [
        (("cat", "dog", "cat"), ("dog", "cat"), ("dog", "cat")),
        (("0", "1", "10"), ("class_0", "class_1", "class_10"), ("0", "1", "10")),
        (("0", "1", "10"), ("p10", "p0", "p1"), ("10", "0", "1")),
        (("0", "1", "0"), ("0", "1", "2"), ("0", "1", "2")),
        (("c0", "c1", "c0"), ("c0", "c1", "c2", "c3"), ("c0", "c1", "c2", "c3")),
        (("10", "1", "0"), ("c1", "c10", "c0"), ("1", "10", "0")),
    ],
)
def test_a_column_per_class_asks_for_its_probability(
    tmp_path: Path, labels: tuple[str, ...], columns: tuple[str, ...], classes: tuple[str, ...]
) -> None:
    train = rows("id,target", *(f"{i},{label}" for i, label in enumerate(labels, 1)))
    sample = rows(",".join(["id", *columns]), *(",".join([name, *("0.1" for _ in columns)]) for name in "45"))
    it = load_it(tmp_path, IMAGES, {"train.csv": train, "sample_submission.csv": sample})
    assert it.submission_format.columns == ("id", *columns)
    assert it.submission_format.wants == "probs"
    assert it.metric == "log_loss"
    assert it.classes == classes
    unseen = set(classes) - set(labels)
    assert len(it.notes) == bool(unseen)
    for name in unseen:  # a class that only the sample knows keeps its column, and is told of
        assert name in it.notes[0]


def test_a_label_without_a_column_is_refused(tmp_path: Path) -> None:
    sample = rows("id,cat,bird", "4,0,0", "5,0,0")
    said = refusal(tmp_path, IMAGES, TABLES | {"sample_submission.csv": sample})
    assert "sample_submission.csv: no column for the class 'dog', its columns are cat, bird" in said
    assert "target_column" in said


@pytest.mark.parametrize(
    ("labels", "answer", "card", "wants"),
    [
        (("0", "1", "0"), "0.5", "", "probs"),
        (("0", "1", "0"), "0.0", "", "probs"),
        (("0", "1", "0"), ".5", "", "probs"),
        (("cat", "dog", "cat"), "0.5", "", "probs"),
        (("0", "1", "0"), "0", "", "labels"),
        (("0.0", "1.0", "0.0"), "0.0", "", "labels"),
        (("cat", "dog", "cat"), "cat", "", "labels"),
        (("cat", "dog", "cat"), "", "", "labels"),
        (("cat", "dog", "bird"), "0.5", "", "labels"),
        (("0", "1", "0"), "0", 'wants = "probs"', "probs"),
        (("0", "1", "0"), "0", 'metric = "roc_auc"', "probs"),
        (("0", "1", "0"), "0.5", 'wants = "labels"', "labels"),
        (("0", "1", "0"), "0", 'metric = "accuracy"', "labels"),
    ],
)
def test_of_two_classes_the_placeholder_tells_what_is_wanted(
    tmp_path: Path, labels: tuple[str, ...], answer: str, card: str, wants: str
) -> None:
    tables = {
        "train.csv": rows("id,target", *(f"{i},{label}" for i, label in enumerate(labels, 1))),
        "sample_submission.csv": rows("id,target", f"4,{answer}", f"5,{answer}"),
    }
    it = load_it(tmp_path, IMAGES, tables, card)
    assert it.submission_format.wants == wants
    assert it.submission_format.columns == ("id", "target")


def test_a_sample_of_ids_alone_is_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path, IMAGES, TABLES | {"sample_submission.csv": "id\n4\n5\n"})
    assert "sample_submission.csv: one column only" in said
    assert 'sample_submission = "NAME"' in said


@pytest.mark.parametrize(("card", "columns"), [("", ("id", "target")), ('wants = "probs"', ("id", "target"))])
def test_without_a_sample_the_test_table_lists_the_rows(tmp_path: Path, card: str, columns: tuple[str, ...]) -> None:
    tables = {"train.csv": TRAIN, "test.csv": rows("age,id", "40,5", "50,4")}
    it = load_it(tmp_path, IMAGES, tables, card)
    assert list(it.test["id"]) == ["5", "4"]
    assert it.submission_format.columns == columns
    assert it.submission_format.source == "no sample submission"


@pytest.mark.parametrize("name", ["test.csv", "Test.csv", "test_ids.csv", "Testing_set.csv"])
def test_the_test_table_is_known_by_the_names_in_use(tmp_path: Path, name: str) -> None:
    it = load_it(tmp_path, IMAGES, {"train.csv": TRAIN, name: rows("filename", "5.jpg", "4.jpg")})
    assert list(it.test["id"]) == ["5.jpg", "4.jpg"]


@pytest.mark.parametrize(("spelled", "ids"), [("{}", ["4", "5"]), ("{}.jpg", ["4.jpg", "5.jpg"])])
def test_without_any_test_table_the_test_folder_is_answered(tmp_path: Path, spelled: str, ids: list[str]) -> None:
    train = rows("image,label", *(f"{spelled.format(name)},{label}" for name, label in LABELS.items()))
    it = load_it(tmp_path, IMAGES, {"train.csv": train})
    assert list(it.test["id"]) == ids
    assert list(it.test["image"]) == ["test/4.jpg", "test/5.jpg"]
    assert it.submission_format.columns == ("image", "label")


def test_without_a_sample_a_card_that_wants_probabilities_gets_a_column_per_class(tmp_path: Path) -> None:
    train = TRAIN.replace("3,cat", "3,bird")
    it = load_it(tmp_path, IMAGES, {"train.csv": train}, 'wants = "probs"')
    assert it.submission_format.columns == ("id", "bird", "cat", "dog")


def test_test_images_of_one_name_are_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path, [*IMAGES, "test/more/4.jpg"], {"train.csv": TRAIN})
    assert "2 test images are called '4'" in said
    assert 'test_images = "FOLDER"' in said


# --- a folder per class ----------------------------------------------------------------------------------

FOLDERS = ["train/cat/1.jpg", "train/dog/1.jpg", "train/dog/2.jpg", "test/4.jpg", "test/5.jpg"]


@pytest.mark.parametrize("train", ["train", "images/train", "train/train", "Training", "pictures"])
@pytest.mark.parametrize("top", ["", "training-data"])
def test_folders_per_class_are_labels(tmp_path: Path, train: str, top: str) -> None:
    images = [image.replace("train", train) for image in FOLDERS]
    it = load_it(
        tmp_path, images, {"sample_submission.csv": rows("file,species", "5.jpg,cat", "4.jpg,cat")}, folder=top
    )
    assert list(it.train["id"]) == ["cat/1.jpg", "dog/1.jpg", "dog/2.jpg"]
    assert list(it.train["target"]) == ["cat", "dog", "dog"]
    assert it.train["image"][0].endswith(f"{train}/cat/1.jpg")
    assert list(it.test["id"]) == ["5.jpg", "4.jpg"]
    assert it.submission_format.columns == ("file", "species")
    assert it.notes == ()


def test_folders_per_class_do_without_a_sample(tmp_path: Path) -> None:
    it = load_it(tmp_path, FOLDERS, {}, 'id_column = "image"\ntarget_column = "kind"')
    assert list(it.test["id"]) == ["4.jpg", "5.jpg"]
    assert it.submission_format.columns == ("image", "kind")


def test_folders_per_class_answer_with_probabilities_too(tmp_path: Path) -> None:
    it = load_it(tmp_path, FOLDERS, {"sample_submission.csv": rows("img,dog,cat", "4.jpg,0,0", "5.jpg,0,0")})
    assert it.classes == ("dog", "cat")


def test_other_folders_beside_the_training_are_left_alone(tmp_path: Path) -> None:
    extra = ["val/cat/7.jpg", "val/dog/8.jpg", "test/cat/9.jpg", "test/dog/10.jpg"]
    it = load_it(tmp_path, [*FOLDERS, *extra], {"sample_submission.csv": rows("id,label", "4,cat")})
    assert list(it.train["target"]) == ["cat", "dog", "dog"]
    assert it.notes[1:] == ("4 images belong to no row",)


def test_train_and_validation_are_no_classes(tmp_path: Path) -> None:
    said = refusal(tmp_path, ["images/train/1.jpg", "images/val/2.jpg", "images/test/3.jpg"], {})
    assert "neither a table of training labels (train.csv) nor a folder for each of several classes" in said
    assert "train_table or train_images" in said


def test_two_sets_of_class_folders_are_not_chosen_between(tmp_path: Path) -> None:
    images = [f"{top}/{label}/1.jpg" for top in ("photos", "masks") for label in ("cat", "dog")]
    said = refusal(tmp_path, [*images, "test/4.jpg"], {})
    assert "are the classes the folders in" in said
    assert "photos" in said
    assert "masks" in said
    assert 'train_images = "FOLDER"' in said
    it = load_it(tmp_path, [], {}, 'train_images = "photos"')
    assert list(it.train["image"]) == ["photos/cat/1.jpg", "photos/dog/1.jpg"]


def test_a_single_class_folder_is_none(tmp_path: Path) -> None:
    assert "folder for each of several classes" in refusal(tmp_path, ["train/cat/1.jpg", "test/4.jpg"], {})


def test_a_table_of_class_names_can_be_waved_away(tmp_path: Path) -> None:
    tables = {"labels.csv": rows("number,name", "a,cat", "b,dog")}
    assert 'train_table = ""' in refusal(tmp_path, FOLDERS, tables)
    assert load_it(tmp_path, [], {}, 'train_table = ""').classes == ("cat", "dog")


# --- the card --------------------------------------------------------------------------------------------


def test_the_card_overrides_every_guess(tmp_path: Path) -> None:
    images = [f"{folder}/{i}.jpg" for folder in ("photos", "renders", "thumbs") for i in range(1, 6)]
    tables = {
        "train.csv": rows("id,number,target,kind", *(f"x{i},{i},wrong{i},k{i % 2}" for i in range(1, 4))),
        "lists/learn.csv": rows("id,number,target,kind", *(f"{4 - i},{i},wrong{i},k{i % 2}" for i in range(1, 4))),
        "sample_submission.csv": rows("id,target", "1,x"),
        "lists/answer.csv": rows("nr,guess", "2,0", "1,0"),
    }
    it = load_it(
        tmp_path,
        images,
        tables,
        """
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
        """,
    )
    assert it.title == "A title"
    assert it.metric == "roc_auc"
    assert it.submission_format.wants == "probs"
    assert it.submission_format.columns == ("nr", "guess")
    assert it.submission_format.source == "answer.csv"
    assert it.recipe == {"mirror": 0.0}
    assert it.classes == ("k0", "k1")
    assert list(it.train["image"]) == ["photos/1.jpg", "photos/2.jpg", "photos/3.jpg"]
    assert list(it.train["target"]) == ["k1", "k0", "k1"]
    assert list(it.test["image"]) == ["renders/2.jpg", "renders/1.jpg"]


def test_the_card_names_the_table_of_test_images(tmp_path: Path) -> None:
    tables = {"train.csv": TRAIN, "test.csv": rows("id", "4"), "answers.csv": rows("id", "5")}
    assert list(load_it(tmp_path, IMAGES, tables, 'test_table = "answers.csv"').test["id"]) == ["5"]


@pytest.mark.parametrize(
    ("card", "said"),
    [
        ("metrik = 'accuracy'", "no setting 'metrik'; did you mean metric?"),
        ("zzz = 1", "no setting 'zzz'; there are title, url, metric"),
        ("metric = 'f2'", "metric must be one of accuracy, log_loss, macro_f1"),
        ("wants = 'both'", "wants must be one of labels, probs, not 'both'"),
        ("title = 1", "title must be text, not 1"),
        ("recipe = 'x'", "recipe must be a table, not 'x'"),
        ("metric = \nwants", "line 1"),
        ("title = 'caf\xe9'", "utf-8"),
    ],
)
def test_a_mistake_in_the_card_is_named_with_its_file(tmp_path: Path, card: str, said: str) -> None:
    path = tmp_path / "data" / "competitions" / "it.toml"
    path.parent.mkdir(parents=True)
    path.write_text(card, encoding="latin-1")
    with pytest.raises(PodiumError) as refused:
        read_card("it", tmp_path)
    assert str(refused.value).startswith(f"{path}: ")
    assert said in str(refused.value)


def test_a_card_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "data" / "competitions" / "it.toml").mkdir(parents=True)
    with pytest.raises(PodiumError, match=r"it\.toml: Is a directory; delete it"):
        read_card("it", tmp_path)


@pytest.mark.parametrize(
    ("card", "said"),
    [
        ('train_table = "x.csv"', 'train_table = "x.csv" is not among the tables of'),
        ('test_table = "x.csv"', 'test_table = "x.csv" is not among the tables of'),
        ('sample_submission = "../x.csv"', 'sample_submission = "../x.csv" is not among the tables of'),
        ('train_images = "x"', 'train_images = "x" holds no images below {raw}; these do: test, train'),
        ('test_images = "/etc"', 'test_images = "etc" holds no images below {raw}; these do: test, train'),
        ('id_column = "x"', 'id_column = "x" is not a column of'),
        ('target_column = "x"', 'target_column = "x" is not a column of'),
        ('train_images = "test"', "3 of 3 rows have no image below"),
        ('wants = "probs"', 'one column to fill for 3 classes; take wants = "probs" off the card'),
    ],
)
def test_a_card_that_does_not_fit_the_files_is_refused(tmp_path: Path, card: str, said: str) -> None:
    tables = TABLES | {"train.csv": TRAIN.replace("3,cat", "3,bird")}
    if "test_table" in card:
        del tables["sample_submission.csv"]
    assert said.format(raw=tmp_path / "data/raw/it") in refusal(tmp_path, IMAGES, tables, card)


def test_a_card_that_wants_labels_in_many_columns_is_refused(tmp_path: Path) -> None:
    tables = TABLES | {"sample_submission.csv": rows("id,cat,dog", "4,0,0")}
    said = refusal(tmp_path, IMAGES, tables, 'wants = "labels"')
    assert 'sample_submission.csv: 2 columns to fill; take wants = "labels" off the card' in said


# --- what is missing -------------------------------------------------------------------------------------


def test_a_competition_that_is_not_there_is_to_be_got_first(tmp_path: Path) -> None:
    with pytest.raises(PodiumError, match="does not exist; get the competition's files with: podium data -c it"):
        load("it", tmp_path)


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path, [], TABLES | {"train.7z": "packed"})
    assert "data/raw/it: no images below it; unpack the archives in it, or delete it" in said


@pytest.mark.parametrize(
    ("extra", "key"),
    [
        ("train_labels.csv", "train_table"),
        ("sample_submission_stage2.csv", "sample_submission"),
    ],
)
def test_two_tables_that_fit_alike_are_not_chosen_between(tmp_path: Path, extra: str, key: str) -> None:
    said = refusal(tmp_path, IMAGES, TABLES | {extra: TRAIN})
    assert extra in said
    assert f'Write {key} = "NAME" in the competition\'s card' in said


def test_nothing_that_says_what_to_answer_is_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path, ["train/1.jpg", "train/2.jpg", "train/3.jpg"], {"train.csv": TRAIN})
    assert "no sample submission, no test.csv and no test folder" in said
    assert 'test_images = "FOLDER"' in said


# --- what others rely on ---------------------------------------------------------------------------------


def test_the_hash_changes_with_every_id_label_and_size_and_with_nothing_else(tmp_path: Path) -> None:
    first = load_it(tmp_path, IMAGES, TABLES)
    assert load("it", tmp_path).train_hash == first.train_hash
    assert first.train_hash != first.test_hash
    seen = {first.train_hash}
    for change in ({"train/1.jpg": "larger" * 99}, {"train.csv": TRAIN.replace("2,dog", "2,bird")}):
        it = load_it(tmp_path, [], change)
        assert it.train_hash not in seen
        seen.add(it.train_hash)


def test_describe_tells_all_of_it(tmp_path: Path) -> None:
    text = load_it(tmp_path, [*IMAGES, "test/6.jpg"], TABLES, 'title = "Pets"').describe()
    for part in ("Pets", "3 images in train/", "2 images in test/", "2, from 2 images ('cat') down to 1 ('dog')"):
        assert part in text
    for part in ("id, target: one label a row, as in sample_submission.csv", "accuracy", "is that file whole?"):
        assert part in text


def test_tens_of_thousands_of_images_with_few_names_load_in_a_moment(tmp_path: Path) -> None:
    """Every class numbers its images from 0: looking an id up by its file name alone would take minutes."""
    names = [f"c{label}/{i}.jpg" for label in range(200) for i in range(100)]
    tables = {
        "train.csv": rows("id,target", *(f"{name},{name.split('/')[0]}" for name in names)),
        "sample_submission.csv": rows("id,target", *(f"t{i},c0" for i in range(10))),
    }
    it = load_it(tmp_path, [*(f"train/{name}" for name in names), *(f"test/t{i}.jpg" for i in range(10))], tables)
    assert list(it.train["image"]) == [f"train/{name}" for name in names]
