"""Tables with a row for each label of an image: they are read as if they had a row for each image."""

from pathlib import Path

import pandas as pd
import pytest

from contained import digits, write
from layouts import card_path, images_by_id, load_error, load_files, raw_path, table, train_labels
from podium.basics.errors import PodiumError
from podium.competition.describe import describe
from podium.competition.load import load
from podium.submissions.write_csv import render, write_csv

NAMES = ("epidural", "intraparenchymal", "any")
IMAGES = [*(f"stage_2_train/ID_{n:02x}.jpg" for n in range(4)), "stage_2_test/ID_aa.jpg", "stage_2_test/ID_bb.jpg"]
TRAIN = [f"ID_{n:02x}_{name},{int(n > place)}" for n in range(4) for place, name in enumerate(NAMES)]
SAMPLE = [f"ID_{n}_{name},0.5" for n in ("bb", "aa") for name in NAMES]


def tables(train: list[str] = TRAIN, sample: list[str] = SAMPLE) -> dict[str, str]:
    return {"stage_2_train.csv": table("ID,Label", *train), "stage_2_sample_submission.csv": table("ID,Label", *sample)}


def test_rsna_intracranial_hemorrhage(tmp_path: Path) -> None:
    competition = load_files(tmp_path, IMAGES, tables())
    assert competition.task.name == "several_labels"
    assert competition.classes == NAMES
    assert train_labels(competition)["stage_2_train/ID_02.jpg"] == "epidural|intraparenchymal"
    assert images_by_id(competition) == {"ID_bb": "stage_2_test/ID_bb.jpg", "ID_aa": "stage_2_test/ID_aa.jpg"}
    assert "submit   ID, Label: the probability of one label of an image a row" in describe(competition)
    text = render(competition, pd.DataFrame([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]).to_numpy())
    assert text == (
        "ID,Label\nID_bb_epidural,0.1\nID_bb_intraparenchymal,0.2\nID_bb_any,0.3\n"
        "ID_aa_epidural,0.4\nID_aa_intraparenchymal,0.5\nID_aa_any,0.6\n"
    )
    write_csv(competition, tmp_path / "right.csv", text)
    for wrong, problem in {
        text.replace("0.5", "1.5"): "line 6: '1.5' is not a probability",
        text.replace("ID_aa_any,0.6\n", ""): "its 5 ids are not the 6 expected",
        text.replace("ID_bb_any", "ID_aa_any"): "they differ at row 3 first",
    }.items():
        with pytest.raises(PodiumError, match=problem):
            write_csv(competition, tmp_path / "wrong.csv", wrong)


def test_rows_in_any_order_keep_their_order(tmp_path: Path) -> None:
    shuffled = [SAMPLE[n] for n in (3, 0, 5, 2, 1, 4)]
    competition = load_files(tmp_path, IMAGES, tables(sample=shuffled))
    text = render(competition, pd.DataFrame([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]).to_numpy())
    assert [line.split(",")[0] for line in text.splitlines()[1:]] == [line.split(",")[0] for line in shuffled]


@pytest.mark.parametrize(
    ("train", "problem"),
    [
        ([*TRAIN, "ID_00_any,1"], "stage_2_train.csv, lines 4 and 14: 'any' of image 'ID_00' has two rows"),
        (TRAIN[:-1], "stage_2_train.csv: image 'ID_03' has no row 'any'; add it"),
        ([*TRAIN[:-1], "ID_03_all,1"], "stage_2_train.csv, line 13: id 'ID_03_all' ends with none of the names"),
    ],
)
def test_a_wrong_long_table_is_refused(tmp_path: Path, train: list[str], problem: str) -> None:
    assert problem in load_error(tmp_path, IMAGES, tables(train))


def test_a_repeated_row_is_left_out_and_noted(tmp_path: Path) -> None:
    competition = load_files(tmp_path, IMAGES, tables([*TRAIN, TRAIN[0]]))
    assert "1 row of stage_2_train.csv left out: they repeat an id with the same label" in competition.notes


def test_bengali_has_a_row_for_each_of_three_labels(tmp_path: Path) -> None:
    columns = ("grapheme_root", "vowel_diacritic", "consonant_diacritic")
    rows = [f"Train_{n},{n % 4 + 70},{n % 3},{n % 2},x" for n in range(12)]
    order = [f"Test_{n}_{name}" for n in (0, 1) for name in reversed(columns)]
    files = {
        "train.csv": table("image_id,grapheme_root,vowel_diacritic,consonant_diacritic,grapheme", *rows),
        "test.csv": table("image_id,row_id,component", *(f"{i[:6]},{i},{i[7:]}" for i in order)),
        "sample_submission.csv": table("row_id,target", *(f"{row},0" for row in order)),
    }
    images = [*(f"train/Train_{n}.png" for n in range(12)), "test/Test_0.png", "test/Test_1.png"]
    competition = load_files(tmp_path, images, files)
    assert competition.task.name == "several_targets"
    assert competition.metric == "mean_recall"
    assert competition.classes[:2] == ("grapheme_root=70", "grapheme_root=71")  # as in the training table
    assert images_by_id(competition) == {"Test_0": "test/Test_0.png", "Test_1": "test/Test_1.png"}
    probs = [[0.1, 0.1, 0.1, 0.7, 0.1, 0.8, 0.1, 0.9, 0.1], [0.7, 0.1, 0.1, 0.1, 0.8, 0.1, 0.1, 0.2, 0.8]]
    text = render(competition, pd.DataFrame(probs).to_numpy())
    answers = ["0", "1", "73", "1", "0", "70"]
    assert text.splitlines()[1:] == [f"{row},{answer}" for row, answer in zip(order, answers, strict=True)]
    write_csv(competition, tmp_path / "right.csv", text)
    with pytest.raises(PodiumError, match="line 4: '7' is not a class"):
        write_csv(competition, tmp_path / "wrong.csv", text.replace(",73", ",7"))


def test_facial_keypoints_are_asked_for_by_another_table(tmp_path: Path) -> None:
    """The ids of the rows are numbers, as those of the images are; of the second image, only one point is wanted."""
    names = ["left_eye_center_x", "left_eye_center_y", "nose_tip_x"]
    faces = [" ".join(map(str, face)) for face in digits(12, side=24)]
    rows = [[f"{n + 0.25}", "" if n == 3 else f"{n / 4}", f"{n * 2.5}", face] for n, face in enumerate(faces)]
    write(tmp_path, "training.csv", ",".join([*names, "Image"]), rows)
    write(tmp_path, "test.csv", "ImageId,Image", ((n + 1, face) for n, face in enumerate(faces[:2])))
    wanted = [(1, names[0]), (1, names[1]), (1, names[2]), (2, names[2])]
    lookup = ((row, image, name, "") for row, (image, name) in enumerate(wanted, 1))
    write(tmp_path, "IdLookupTable.csv", "RowId,ImageId,FeatureName,Location", lookup)
    write(tmp_path, "SampleSubmission.csv", "RowId,Location", ((row, 0) for row in range(1, 5)))
    competition = load("it", tmp_path)
    assert competition.task.name == "numbers"
    assert competition.classes == tuple(names)
    assert competition.train["target"].iloc[3] == "3.25||7.5"
    assert images_by_id(competition) == {"1": "test.csv#1", "2": "test.csv#2"}
    assert "one of the numbers of an image a row" in describe(competition)
    text = render(competition, pd.DataFrame([[1.5, 2.5, 3.5], [4.5, 5.5, 6.5]]).to_numpy())
    assert text == "RowId,Location\n1,1.5\n2,2.5\n3,3.5\n4,6.5\n"
    write_csv(competition, tmp_path / "right.csv", text)
    assert not card_path(tmp_path).exists()
    assert raw_path(tmp_path).exists()
