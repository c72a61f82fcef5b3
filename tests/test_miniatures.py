"""Known competitions in miniature go the whole way, and their submissions are graded by code of its own.

The same files are read alike where Podium does not know the competition, and where they come in archives.
"""

import csv
import shutil
from functools import partial
from pathlib import Path

import pytest

from archives import make_zip, zip_folder
from gallery import rows_of
from miniatures import MINIATURES, Files
from podium.competition.load import load
from podium.kaggle.download import load_unpacked
from second_round import first_of
from tiny import Podium, done

pytestmark = pytest.mark.slow
FIRST = [
    "cassava-leaf-disease-classification",
    "rsna-breast-cancer-detection",
    "ranzcr-clip-catheter-line-classification",
]
RARE = [*FIRST, "isic-2024-challenge"]  # their images are in formats that the annex reads
FIRST_READ = ["alaska2-image-steganalysis", "isic-2024-challenge", "iwildcam-2020-fgvc7"]
UNKNOWN: dict[str, dict[str, str]] = {  # what nobody can know from the files
    "alaska2-image-steganalysis": {"metric": "weighted_auc", "positive": "other than Cover"},
    "galaxy-zoo-the-galaxy-challenge": {"sample_submission": "all_zeros_benchmark.csv"},
    "state-farm-distracted-driver-detection": {"train_table": "driver_imgs_list.csv", "target_column": "classname"},
}
FAST = ("--weights", "none", "--image-size", "32", "--batch-size", "8", "--workers", "0")


@pytest.mark.parametrize("slug", first_of(FIRST, MINIATURES, annex=RARE))
def test_a_competition_goes_the_whole_way(tmp_path: Path, podium: Podium, slug: str) -> None:
    raw = tmp_path / "data" / "raw" / slug
    grading = MINIATURES[slug](Files(raw))
    for words in (
        ("data", "-c", slug),
        ("folds", "-c", slug, "--k", "2"),
        ("train", "-c", slug, *FAST, "--model", "test_resnet", "--epochs", "1"),
        ("train", "-c", slug, *FAST, "--model", "test_resnet", "--linear", "--name", "head"),
        ("submit", "-c", slug, "--runs", "head", "test_resnet", "--name", "blend"),
        ("submit", "-c", slug, "--runs", "head"),
    ):
        done(podium(*words))
    competition = load(slug, tmp_path)
    sample = raw / competition.submission_format.source
    submissions = tmp_path / "submissions" / slug
    scores = {path.stem: grading.grade(path, sample) for path in submissions.glob("*.csv")}
    assert len(scores) == 2
    assert scores["head"] > grading.score_of(sample)
    assert competition.metric == grading.metric
    with (tmp_path / "data" / "prepared" / slug / "folds.csv").open(newline="") as file:
        folds = {row["id"]: row["fold"] for row in csv.DictReader(file)}
    assert len(folds) == len(competition.train)
    assert not cut_groups(grading.groups, folds)


def cut_groups(groups: dict[str, str], folds: dict[str, str]) -> set[str]:
    """Returns the groups that have images in several folds."""
    pairs = {(group, folds[image]) for image, group in groups.items()}
    return {group for group, fold in pairs if any(other == group and own != fold for other, own in pairs)}


@pytest.mark.parametrize("slug", first_of(FIRST_READ, MINIATURES, annex=RARE))
def test_it_is_read_alike_under_another_name_and_in_archives(tmp_path: Path, slug: str) -> None:
    raw = tmp_path / "data" / "raw"
    MINIATURES[slug](Files(raw / slug))
    own = rows_of(load(slug, tmp_path))
    shutil.copytree(raw / slug, raw / "some-competition")
    settings = UNKNOWN.get(slug, {})
    assert rows_of(load("some-competition", tmp_path, **settings)) == own
    pack(raw / slug)
    assert rows_of(load_unpacked(slug, tmp_path, partial(load, slug, tmp_path))) == own


def pack(folder: Path) -> None:
    """Puts each folder and each table but the sample into an archive of its own, as Kaggle does."""
    for path in [path for path in folder.iterdir() if "ample" not in path.name]:
        if path.is_dir():
            archive = zip_folder(path, folder)
            shutil.rmtree(path)
        else:
            archive = make_zip({path.name: path.read_bytes()})
            path.unlink()
        (folder / f"{path.name}.zip").write_bytes(archive)
