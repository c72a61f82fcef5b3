"""Layouts of further competitions, in miniature: all of it is understood without a card."""

import json
from pathlib import Path

import pytest

from layouts import images_by_id, load_error, load_files, table, train_labels
from podium.competition.describe import describe

NAMES = ("Dry_Clover_g", "GDM_g")


def test_csiro_biomass_has_a_row_for_each_number_in_both_tables(tmp_path: Path) -> None:
    """The ids end with the names after two underscores; the tables name the images and the numbers."""
    train = [f"ID{n}__{name},train/ID{n}.jpg,Tas,{name},{n + 0.5}" for n in range(20) for name in NAMES]
    test = [f"ID{n}__{name},test/ID{n}.jpg,{name}" for n in (48, 49) for name in NAMES]
    tables = {
        "train.csv": table("sample_id,image_path,State,target_name,target", *train),
        "test.csv": table("sample_id,image_path,target_name", *test),
        "sample_submission.csv": table("sample_id,target", *(f"{row.split(',')[0]},0.0" for row in test)),
    }
    images = [f"train/ID{n}.jpg" for n in range(20)] + ["test/ID48.jpg", "test/ID49.jpg"]
    competition = load_files(tmp_path, images, tables)
    assert competition.task.name == "numbers"
    assert competition.classes == NAMES
    assert train_labels(competition)["train/ID3.jpg"] == "3.5|3.5"
    assert list(images_by_id(competition).values()) == ["test/ID48.jpg", "test/ID49.jpg"]
    assert competition.submission_format.header == ("sample_id", "target")
    tables["train.csv"] = "\n".join(line for line in tables["train.csv"].split("\n") if "GDM_g" not in line)
    assert "train.csv: no row 'GDM_g', which sample_submission.csv asks for" in load_error(tmp_path, images, tables)


def test_landmarks_want_a_label_and_its_probability(tmp_path: Path) -> None:
    images = [f"train/{n}/a/b/{n:04x}.jpg" for n in range(4)] + ["test/8/a/b/0008.jpg"]
    tables = {
        "train.csv": table("id,landmark_id", *(f"{n:04x},{[7, 138982][n % 2]}" for n in range(4))),
        "sample_submission.csv": table("id,landmarks", "0008,138982 0.1"),
    }
    competition = load_files(tmp_path, images, tables)
    assert competition.submission_format.has_confidence
    assert competition.metric == "gap"
    assert competition.classes == ("7", "138982")
    assert "one label and its probability a row" in describe(competition)
    assert not competition.notes


def test_imaterialist_fashion_writes_its_keys_with_capitals(tmp_path: Path) -> None:
    labels = [["66", "95"], ["95"], ["66", "137"], ["66", "95", "137"], ["137", "95"]]
    content = {
        "images": [{"imageId": str(n), "url": "https://x"} for n in range(5)],
        "annotations": [{"imageId": str(n), "labelId": own} for n, own in enumerate(labels)],
    }
    tables = {
        "train.json": json.dumps(content),
        "test.json": json.dumps({"images": [{"imageId": "8", "url": "https://x"}]}),
        "sample_submission.csv": table("image_id,label_id", "8,95 66 137"),
    }
    competition = load_files(tmp_path, [f"train/{n}.jpg" for n in range(5)] + ["test/8.jpg"], tables)
    assert competition.task.name == "several_labels"
    assert competition.classes == ("66", "95", "137")
    assert train_labels(competition)["train/2.jpg"] == "66|137"
    assert competition.submission_format.separator == " "


def test_lists_of_numbers_are_several_labels_and_names_of_two_words_are_one(tmp_path: Path) -> None:
    images = [f"train/{n}.jpg" for n in range(6)] + ["test/8.jpg"]
    cells = ["1 2", "2 3", "1 3", "1 2 3", "3 1", "1 2"]
    tables = {"train.csv": table("id,tags", *(f"{n},{cell}" for n, cell in enumerate(cells)))}
    tables["sample_submission.csv"] = table("id,tags", "8,1 2")
    assert load_files(tmp_path / "a", images, tables).task.name == "several_labels"
    cells = ["red car", "blue car", "red bus", "blue bus", "red car", "blue car"]
    tables = {"train.csv": table("id,tags", *(f"{n},{cell}" for n, cell in enumerate(cells)))}
    tables["sample_submission.csv"] = table("id,tags", "8,red car")
    assert load_files(tmp_path / "b", images, tables).task.name == "one_label"


def test_inaturalist_2021_calls_its_test_table_public(tmp_path: Path) -> None:
    def coco(names: dict[int, str], with_labels: bool = True) -> str:
        images = [{"id": number, "file_name": name} for number, name in names.items()]
        labels = [{"id": number, "image_id": number, "category_id": number % 2} for number in names]
        return json.dumps({"images": images, **({"annotations": labels} if with_labels else {})})

    train = {number: f"train/0000{number % 2}_Animalia/{number:04x}.jpg" for number in range(4)}
    test = {100: "test/aa.jpg", 101: "test/bb.jpg"}
    tables = {
        "train.json": coco(train),
        "public_test.json": coco(test, with_labels=False),
        "sample_submission.csv": table("id,predicted", "101,0 1", "100,0 1"),
    }
    competition = load_files(tmp_path, [*train.values(), *test.values()], tables)
    assert images_by_id(competition) == {"101": "test/bb.jpg", "100": "test/aa.jpg"}
    assert competition.submission_format.wants == "ranking"


def test_ifood_has_a_table_for_validation(tmp_path: Path) -> None:
    images = [f"{role}_set/{role}_{n}.jpg" for role in ("train", "val", "test") for n in range(3)]
    tables = {
        f"{role}_labels.csv": table("img_name,label", *(f"{role}_{n}.jpg,{n % 2}" for n in range(3)))
        for role in ("train", "val")
    }
    tables["sample_submission.csv"] = table("img_name,label", *(f"test_{n}.jpg,0 1" for n in range(3)))
    competition = load_files(tmp_path, images, tables)
    assert len(competition.train) == 6
    assert competition.notes[0].startswith("the 3 rows of val_labels.csv join those of train_labels.csv")
    competition = load_files(tmp_path, images, tables, 'folds = "val"')
    assert competition.validation == {"val_0.jpg", "val_1.jpg", "val_2.jpg"}
    competition = load_files(tmp_path, images, tables, 'train_table = "train_labels.csv"')
    assert len(competition.train) == 3
    tables["val_labels.csv"] = table("img_name,place", "val_0.jpg,here")
    assert len(load_files(tmp_path / "other", images, tables).train) == 3


def test_fathomnet_2025_counts_the_rows_of_its_test_table(tmp_path: Path) -> None:
    """Both tables are called annotations.csv; their folders say which is which."""
    images = [f"{role}_data/rois/{n}_{n}.png" for role in ("train", "test") for n in range(4)]
    tables = {
        "train_data/annotations.csv": table("path,label", *(f"rois/{n}_{n}.png,{'ab'[n % 2]}" for n in range(4))),
        "test_data/annotations.csv": table("path,label", *(f"rois/{n}_{n}.png," for n in reversed(range(4)))),
        "sample_submission.csv": table("annotation_id,concept_name", *(f"{n},a" for n in range(1, 5))),
    }
    competition = load_files(tmp_path, images, tables)
    assert train_labels(competition)["train_data/rois/1_1.png"] == "b"
    assert images_by_id(competition) == {str(5 - n): f"test_data/rois/{n - 1}_{n - 1}.png" for n in range(4, 0, -1)}
    assert "the ids 'annotation_id' count the rows of annotations.csv" in competition.notes
    tables["sample_submission.csv"] = table("annotation_id,concept_name", *(f"{n},a" for n in (1, 2, 3, 5)))
    assert "have no image below" in load_error(tmp_path, images, tables)


def test_cassava_2019_has_its_ids_in_the_second_column(tmp_path: Path) -> None:
    images = [f"train/{name}/train-{name}-{n}.jpg" for name in ("cbb", "cgm") for n in range(3)]
    images += ["test/0/test-img-0.jpg", "test/0/test-img-1.jpg", "extraimages/extra-image-0.jpg"]
    tables = {"sample_submission_file.csv": table("Category,Id", "cbb,test-img-1.jpg", "cbb,test-img-0.jpg")}
    competition = load_files(tmp_path, images, tables)
    assert images_by_id(competition) == {f"test-img-{n}.jpg": f"test/0/test-img-{n}.jpg" for n in (1, 0)}
    assert competition.classes == ("cbb", "cgm")
    assert competition.submission_format.header == ("Category", "Id")


def test_feather_in_focus_has_two_tables_of_test_images(tmp_path: Path) -> None:
    images = [f"train_images/train_images/{n}.jpg" for n in range(4)] + ["test_images/test_images/1.jpg"]
    tables = {
        "train_images.csv": table("image_path,label", *(f"/train_images/{n}.jpg,{n % 2 + 1}" for n in range(4))),
        "test_images_path.csv": table("id,image_path,label", "1,/test_images/1.jpg,1"),
        "test_images_sample.csv": table("id,label", "1,1"),
    }
    competition = load_files(tmp_path, images, tables)
    assert images_by_id(competition) == {"1": "test_images/test_images/1.jpg"}
    assert competition.submission_format.source == "test_images_sample.csv"


def test_a_table_of_paths_with_a_column_without_a_name(tmp_path: Path) -> None:
    """The detection of generated images: the test table, without a sample, holds paths as ids."""
    images = [f"train_data/{n}.jpg" for n in range(4)] + ["test_data_v2/8.jpg"]
    tables = {
        "train.csv": table(",file_name,label", *(f"{n},train_data/{n}.jpg,{n % 2}" for n in range(4))),
        "test.csv": table("id", "test_data_v2/8.jpg"),
    }
    competition = load_files(tmp_path, images, tables)
    assert images_by_id(competition) == {"test_data_v2/8.jpg": "test_data_v2/8.jpg"}
    assert competition.classes == ("0", "1")


def test_grand_xray_slam_has_columns_beside_its_labels(tmp_path: Path) -> None:
    labels = "Atelectasis,Edema,No Finding"
    rows = [f"{n:04d}.jpg,{n},Male,{40 + n},AP,{n % 2},{(n + 1) % 2},{int(n > 2)}" for n in range(4)]
    tables = {
        "train1.csv": table(f"Image_name,Patient_ID,Sex,Age,ViewPosition,{labels}", *rows),
        "sample_submission_1.csv": table(f"Image_name,{labels}", "0008.jpg,0,0,0"),
    }
    competition = load_files(tmp_path, [f"train1/{n:04d}.jpg" for n in range(4)] + ["test1/0008.jpg"], tables)
    assert competition.task.name == "several_labels"
    assert competition.metric == "roc_auc"
    assert train_labels(competition)["train1/0003.jpg"] == "Atelectasis|No Finding"


@pytest.mark.parametrize("name", ["train.bson", "train.npz"])
def test_other_files_are_refused_by_name(tmp_path: Path, name: str) -> None:
    tables = {name: "123", "sample_submission.csv": table("_id,category_id", "1,1000010653")}
    assert f"Podium does not read its files 1 {name[5:]}" in load_error(tmp_path, [], tables)
