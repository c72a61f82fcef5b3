"""Competitions in which a row of the submission is the answer for several images."""

from pathlib import Path

import pytest

from layouts import images_by_id, load_error, load_files, table, train_labels
from podium.competition.describe import describe

MAYO_TRAIN = [f"{n:06x}_{m},{n % 3},{n:06x},{m},{['CE', 'LAA'][n % 2]}" for n in range(4) for m in range(n % 2 + 1)]
MAYO_TEST = ["006388_0,11,006388", "008e5c_0,11,008e5c", "00c058_0,11,00c058"]
MAYO = {
    "train.csv": table("image_id,center_id,patient_id,image_num,label", *MAYO_TRAIN),
    "test.csv": table("image_id,center_id,patient_id,image_num", *(f"{row},0" for row in MAYO_TEST)),
    "sample_submission.csv": table("patient_id,CE,LAA", *(f"{row[-6:]},0.5,0.5" for row in reversed(MAYO_TEST))),
}
MAYO_IMAGES = [f"train/{row.split(',')[0]}.png" for row in MAYO_TRAIN]
MAYO_IMAGES += [f"test/{row.split(',')[0]}.png" for row in MAYO_TEST]

BREAST = "site_id,patient_id,image_id,laterality,view,age,cancer,machine_id"
BREAST_TRAIN = [
    f"2,{p},{p * 10 + v},{'LR'[v // 2]},CC,61,{int(p == 3 and v > 1)},29" for p in (1, 2, 3) for v in range(4)
]
BREAST_TEST = [f"2,10008,{736 + v},{'LR'[v // 2]},MLO,81,21,10008_{'LR'[v // 2]}" for v in range(4)]
RSNA = {
    "train.csv": table(BREAST, *BREAST_TRAIN),
    "test.csv": table("site_id,patient_id,image_id,laterality,view,age,machine_id,prediction_id", *BREAST_TEST),
    "sample_submission.csv": table("prediction_id,cancer", "10008_R,0.0210", "10008_L,0.0210"),
}
RSNA_IMAGES = [f"train_images/{p}/{p * 10 + v}.png" for p in (1, 2, 3) for v in range(4)]
RSNA_IMAGES += [f"test_images/10008/{736 + v}.png" for v in range(4)]


def test_mayo_asks_for_a_row_for_each_patient(tmp_path: Path) -> None:
    competition = load_files(tmp_path, MAYO_IMAGES, MAYO)
    assert competition.answers is not None
    assert competition.answers.column == "patient_id"
    assert competition.answers.train["000001_1"] == competition.answers.train["000001_0"] == "000001"
    assert competition.answer_ids == ["00c058", "008e5c", "006388"]
    assert images_by_id(competition)["008e5c_0"] == "test/008e5c_0.png"
    assert competition.groups is not None
    assert competition.groups.tolist() == ["000000", "000001", "000001", "000002", "000003", "000003"]
    assert competition.classes == ("CE", "LAA")
    assert "a row, for each patient_id (1.0 images on average)" in describe(competition)


def test_rsna_asks_for_a_row_for_each_breast(tmp_path: Path) -> None:
    """The training table has no such id: patient and side make it."""
    competition = load_files(tmp_path, RSNA_IMAGES, RSNA, 'group_column = "patient_id"')
    assert competition.answers is not None
    assert competition.answers.train["12"] == "1_R"
    assert competition.answer_ids == ["10008_R", "10008_L"]
    assert competition.answers.test == ["10008_R", "10008_R", "10008_L", "10008_L"]
    assert competition.test["id"].tolist() == ["738", "739", "736", "737"]
    assert competition.groups is not None
    assert competition.groups.nunique() == 3  # patients
    assert competition.submission_format.wants == "probs"


def test_yelp_lists_the_photos_of_a_restaurant_in_a_table_of_their_own(tmp_path: Path) -> None:
    """Restaurants may be called like photos, and a photo of the test set may belong to several restaurants."""
    files = {
        "train.csv": table("business_id,labels", "1,0 2", "2,2", "3,0 1", "4,0 1 2", "9,1"),
        "train_photo_to_biz_ids.csv": table("photo_id,business_id", *(f"{n},{n % 4 + 1}" for n in range(1, 13))),
        "test_photo_to_biz.csv": table("photo_id,business_id", "21,t1", "22,t1", "22,t0", "23,t0"),
        "sample_submission.csv": table("business_id,labels", "t0,1 2 3", "t1,1 2 3"),
    }
    images = [f"train_photos/{n}.jpg" for n in range(1, 13)] + [f"test_photos/{n}.jpg" for n in (21, 22, 23)]
    competition = load_files(tmp_path, images, files)
    assert competition.task.name == "several_labels"
    assert len(competition.train) == 12
    assert train_labels(competition)["train_photos/5.jpg"] == "2"
    assert competition.answers is not None
    assert competition.answers.train["5"] == "2"
    assert competition.answer_ids == ["t0", "t1"]
    assert competition.test["id"].tolist() == ["22", "23", "21", "22"]
    assert competition.answers.test == ["t0", "t0", "t1", "t1"]
    assert competition.groups is not None
    assert competition.groups.nunique() == 4
    assert "the images of each business_id of train.csv are those in train_photo_to_biz_ids.csv" in competition.notes
    files["test_photo_to_biz.csv"] += "22,t1\n"
    assert "line 6: '22' appears twice; delete one line" in load_error(tmp_path, images, files)


@pytest.mark.parametrize(
    ("name", "old", "new", "problem"),
    [
        ("train.csv", "000001_1,1,000001,1,LAA", "000001_1,1,000001,1,CE", "patient_id '000001' has two labels"),
        ("sample_submission.csv", "008e5c,", "00beef,", "line 3: patient_id '00beef' has no image in"),
        ("test.csv", "006388_0,11,006388,0", "006388_0,11,006388,0\n006388_0,11,006388,0", "appears twice; delete"),
    ],
)
def test_wrong_groups_are_refused(tmp_path: Path, name: str, old: str, new: str, problem: str) -> None:
    message = load_error(tmp_path, MAYO_IMAGES, MAYO | {name: MAYO[name].replace(old, new)})
    assert name in message
    assert problem in message


def test_a_training_table_without_the_groups_is_refused(tmp_path: Path) -> None:
    train = RSNA["train.csv"].replace("laterality", "side")
    assert "no columns that make the ids 'prediction_id' of test.csv" in load_error(
        tmp_path, RSNA_IMAGES, RSNA | {"train.csv": train}
    )


def test_groups_of_folds_must_hold_whole_answers(tmp_path: Path) -> None:
    assert "prediction_id '1_L' has two groups; name another group_column" in load_error(
        tmp_path, RSNA_IMAGES, RSNA, 'group_column = "image_id"'
    )


def test_both_eyes_of_a_patient_share_a_group(tmp_path: Path) -> None:
    images = [f"train/{n}_{side}.jpeg" for n in range(3) for side in ("left", "right")]
    files = {
        "trainLabels.csv": table("image,level", *(f"{image[6:-5]},{n % 5}" for n, image in enumerate(images))),
        "sampleSubmission.csv": table("image,level", "9_left,0"),
    }
    images.append("test/9_left.jpeg")
    competition = load_files(tmp_path, images, files, r"group_pattern = '(\d+)_.*'")
    assert competition.groups is not None
    assert competition.groups.tolist() == ["0", "0", "1", "1", "2", "2"]
    for pattern, problem in {
        "(": "is no regular expression",
        r"\d+": "has 0 groups",
        r"(\d+)_left": "finds no group in the id '0_right'; correct it",
    }.items():
        assert problem in load_error(tmp_path, images, files, f"group_pattern = '{pattern}'")


@pytest.mark.parametrize("dropped", ["000001_1", ""])
def test_corrections_that_give_the_images_of_an_answer_different_labels_are_refused(
    tmp_path: Path, dropped: str
) -> None:
    corrections = tmp_path / "data" / "competitions" / "it.corrections.csv"
    corrections.parent.mkdir(parents=True)
    lines = ["000001_0,CE", *([f"{dropped},drop"] if dropped else [])]
    corrections.write_text(table("id,label", *lines))
    if dropped:
        assert len(load_files(tmp_path, MAYO_IMAGES, MAYO).train) == len(MAYO_TRAIN) - 1
    else:
        message = load_error(tmp_path, MAYO_IMAGES, MAYO)
        assert f"{corrections}: patient_id '000001' has the labels 'CE' and 'LAA'" in message
        assert "correct all of its images" in message


@pytest.mark.parametrize("are_whole", [True, False])
def test_a_group_is_guessed_if_it_holds_whole_answers(tmp_path: Path, are_whole: bool) -> None:
    """Both breasts of a patient share a fold; a group that would part the images of an answer is none."""
    rows = []
    for number in range(24):  # four images of each patient, two of each side
        patient = number // 4 if are_whole else number % 6
        rows.append(f"{number},{number // 2},{patient},{number // 2 % 2}")
    tables = {
        "train.csv": table("image_id,breast,patient,cancer", *rows),
        "test.csv": table("image_id,breast,patient", "90,70,50", "91,70,50"),
        "sample_submission.csv": table("breast,cancer", "70,0.5"),
    }
    images = [f"train/{number}.png" for number in range(24)] + ["test/90.png", "test/91.png"]
    competition = load_files(tmp_path, images, tables)
    assert competition.answers is not None
    assert competition.groups is not None
    assert competition.groups.nunique() == (6 if are_whole else 12)
    assert any("'patient' share a fold is a guess" in note for note in competition.notes) == are_whole
