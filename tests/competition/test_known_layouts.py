"""Famous competitions under their own slugs, in miniature: files and known card together say all that is needed."""

from collections.abc import Iterable
from pathlib import Path

from layouts import load_files, table, write_files
from podium.competition.describe import describe
from podium.competition.load import Competition, load

COUNT = 12  # of training images


def load_as(root: Path, slug: str, images: Iterable[str], tables: dict[str, str]) -> Competition:
    """Writes the files of a competition under its own slug, without a card of the user's, and loads it."""
    write_files(root / "data" / "raw" / slug, images, tables)
    return load(slug, root)


def understood(competition: Competition) -> tuple[str, str, str]:
    return competition.task.name, competition.metric, competition.submission_format.wants


def test_aptos_2019(tmp_path: Path) -> None:
    images = [f"train_images/{n:012x}.png" for n in range(COUNT)] + ["test_images/0005cfc8afb6.png"]
    tables = {
        "train.csv": table("id_code,diagnosis", *(f"{n:012x},{n % 5}" for n in range(COUNT))),
        "test.csv": table("id_code", "0005cfc8afb6"),
        "sample_submission.csv": table("id_code,diagnosis", "0005cfc8afb6,0"),
    }
    competition = load_as(tmp_path, "aptos2019-blindness-detection", images, tables)
    assert understood(competition) == ("one_label", "quadratic_kappa", "labels")
    assert "a grade: 0 < 1 < 2 < 3 < 4" in describe(competition)


def test_diabetic_retinopathy_keeps_both_eyes_together(tmp_path: Path) -> None:
    names = [f"{n}_{side}" for n in range(10, 16) for side in ("left", "right")]
    images = [f"train/{name}.jpeg" for name in names] + ["test/1_left.jpeg", "test/1_right.jpeg"]
    tables = {
        "trainLabels.csv": table("image,level", *(f"{name},{n % 5}" for n, name in enumerate(names))),
        "sampleSubmission.csv": table("image,level", "1_left,0", "1_right,0"),
    }
    competition = load_as(tmp_path, "diabetic-retinopathy-detection", images, tables)
    assert understood(competition) == ("one_label", "quadratic_kappa", "labels")
    assert competition.groups is not None
    assert competition.groups.tolist() == [name.split("_")[0] for name in names]


def test_melanoma_takes_the_jpegs_beside_the_dicoms(tmp_path: Path) -> None:
    columns = "image_name,patient_id,sex,age_approx,anatom_site_general_challenge"
    names = [f"ISIC_{n:07d}" for n in range(COUNT)]
    images = [f"jpeg/train/{name}.jpg" for name in names] + ["jpeg/test/ISIC_0099999.jpg"]
    rows = [f"{name},IP_{n // 3},male,45.0,torso,nevus,benign,{n % 2}" for n, name in enumerate(names)]
    tables = {
        "train.csv": table(f"{columns},diagnosis,benign_malignant,target", *rows),
        "test.csv": table(columns, "ISIC_0099999,IP_9,male,70.0,torso"),
        "sample_submission.csv": table("image_name,target", "ISIC_0099999,0"),
        "train/ISIC_0000000.dcm": "DICM",
    }
    competition = load_as(tmp_path, "siim-isic-melanoma-classification", images, tables)
    assert understood(competition) == ("one_label", "roc_auc", "probs")
    assert competition.groups is not None
    assert competition.groups.nunique() == 4
    assert competition.features is not None


def test_ranzcr_has_any_number_of_lines_in_an_image(tmp_path: Path) -> None:
    labels = "ETT - Abnormal,NGT - Normal,CVC - Normal,Swan Ganz Catheter Present"
    marks = [",".join(str(int(k == n % 4 or n % 3 == k == 0)) for k in range(4)) for n in range(COUNT)]
    tables = {
        "train.csv": table(
            f"StudyInstanceUID,{labels},PatientID", *(f"1.2.826.{n},{m},p{n // 3}" for n, m in enumerate(marks))
        ),
        "sample_submission.csv": table(f"StudyInstanceUID,{labels}", "1.2.826.99,0,0,0,0"),
        "train_annotations.csv": table("StudyInstanceUID,label,data", '1.2.826.1,CVC - Normal,"[[1, 2]]"'),
    }
    images = [f"train/1.2.826.{n}.jpg" for n in range(COUNT)] + ["test/1.2.826.99.jpg"]
    competition = load_as(tmp_path, "ranzcr-clip-catheter-line-classification", images, tables)
    assert understood(competition) == ("several_labels", "roc_auc", "probs")
    assert competition.groups is not None
    assert competition.classes == tuple(labels.split(","))


def test_planet_has_tags_in_a_cell(tmp_path: Path) -> None:
    tags = ["haze primary", "clear primary agriculture", "clear primary", "clear water", "cloudy"]
    tables = {
        "train_v2.csv": table("image_name,tags", *(f"train_{n},{tags[n % 5]}" for n in range(COUNT))),
        "sample_submission_v2.csv": table("image_name,tags", "test_0,primary clear agriculture road water"),
    }
    images = [f"train-jpg/train_{n}.jpg" for n in range(COUNT)] + ["test-jpg/test_0.jpg"]
    competition = load_as(tmp_path, "planet-understanding-the-amazon-from-space", images, tables)
    assert understood(competition) == ("several_labels", "samples_f2", "labels")
    assert "agriculture" in competition.classes


def test_imet_has_numbers_of_attributes_in_a_cell(tmp_path: Path) -> None:
    for slug, metric in {"imet-2019-fgvc6": "samples_f2", "imet-2020-fgvc7": "micro_f1"}.items():
        rows = [f"{n:06x},{147 + n % 4} {616 + n % 3} 813" for n in range(COUNT)]
        tables = {
            "labels.csv": table("attribute_id,attribute_name", *(f"{k},culture::{k}" for k in range(900))),
            "train.csv": table("id,attribute_ids", *rows),
            "sample_submission.csv": table("id,attribute_ids", "00ffff,0 1 2"),
        }
        images = [f"train/{n:06x}.png" for n in range(COUNT)] + ["test/00ffff.png"]
        competition = load_as(tmp_path / slug, slug, images, tables)
        assert understood(competition) == ("several_labels", metric, "labels")
        assert competition.submission_format.separator == " "


def test_plant_pathology_2021_has_diseases_in_a_cell(tmp_path: Path) -> None:
    labels = ["healthy", "scab", "scab frog_eye_leaf_spot", "frog_eye_leaf_spot complex", "frog_eye_leaf_spot"]
    tables = {
        "train.csv": table("image,labels", *(f"{n:016x}.jpg,{labels[n % 5]}" for n in range(COUNT))),
        "sample_submission.csv": table("image,labels", "85f8cb619c66b863.jpg,healthy"),
    }
    images = [f"train_images/{n:016x}.jpg" for n in range(COUNT)] + ["test_images/85f8cb619c66b863.jpg"]
    competition = load_as(tmp_path, "plant-pathology-2021-fgvc8", images, tables)
    assert understood(competition) == ("several_labels", "samples_f1", "labels")
    assert competition.classes == ("complex", "frog_eye_leaf_spot", "healthy", "scab")


def test_happywhale_wants_individuals_not_species(tmp_path: Path) -> None:
    rows = [f"{n:014x}.jpg,{['beluga', 'orca'][n % 2]},{n % 6:012x}" for n in range(COUNT)]
    cell = "37c7aba965a5 114207cab555 a6e325d8e924 19fbb960f07d c995c043c353"
    tables = {
        "train.csv": table("image,species,individual_id", *rows),
        "sample_submission.csv": table("image,predictions", f"0000abcd.jpg,{cell}"),
    }
    images = [f"train_images/{n:014x}.jpg" for n in range(COUNT)] + ["test_images/0000abcd.jpg"]
    competition = load_as(tmp_path, "happy-whale-and-dolphin", images, tables)
    assert understood(competition) == ("one_label", "map_at_5", "ranking")
    assert len(competition.classes) == 6
    assert competition.submission_format.places == 5


def test_hotel_id_2022_has_a_folder_for_each_hotel(tmp_path: Path) -> None:
    images = [f"train_images/{36363 + n % 6}/{n:06d}.jpg" for n in range(COUNT)] + ["test_images/000099.jpg"]
    tables = {"sample_submission.csv": table("image_id,hotel_id", "000099.jpg,36363 53586 18807 64314 60181")}
    competition = load_as(tmp_path, "hotel-id-to-combat-human-trafficking-2022-fgvc9", images, tables)
    assert understood(competition) == ("one_label", "map_at_5", "ranking")
    assert competition.classes == tuple(str(36363 + n) for n in range(6))


def test_rock_paper_scissors_has_folders_for_validation(tmp_path: Path) -> None:
    names = ("paper", "rock", "scissors")
    images = [f"train/{name}/{name}{n:02d}.png" for name in names for n in range(4)]
    images += [f"validation/{name}/v{n}.png" for name in names for n in range(2)] + ["test/0.png"]
    tables = {"sample_submission.csv": table("id,label", "0.png,rock")}
    competition = load_files(tmp_path, images, tables)
    assert understood(competition) == ("one_label", "accuracy", "labels")
    assert len(competition.train) == 18
    assert competition.classes == names
