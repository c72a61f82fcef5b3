"""podium folds --by-site: each site or camera is whole in one fold; without a column, clusters of the images."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import podium as library
from pictures import LabelledImages, photograph, write_image_competition, write_table
from podium.basics.errors import PodiumError
from podium.competition.find.csv_files import read_table
from podium.competition.load import Competition, load
from podium.folds.folds_csv import folds_path, read_folds
from podium.folds.sites import Sites, cluster_sites, site_folds
from podium.folds.split import labels_of
from podium.training import image_features
from podium.training.image_features import ImageFeatures, features_of_images
from tiny import Podium, done, one_line, write_card

BY_SITE = ("folds", "-c", "tiny", "--by-site")
CAMERAS = ["north"] * 6 + ["south"] * 10 + ["west"] * 8


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    train: LabelledImages = {f"{seed:02d}": ("ab"[seed % 2], photograph(seed)) for seed in range(24)}
    folder = write_image_competition(tmp_path, train, {"x": photograph(99), "y": photograph(98)})
    write_cameras(folder, CAMERAS)
    return folder


def write_cameras(folder: Path, cameras: list[str]) -> None:
    rows = read_table(folder / "train.csv")
    cells = zip(rows["id"], rows["label"], cameras, strict=True)
    write_table(folder / "train.csv", [("id", "label", "camera"), *cells])


def sites_and_folds(root: Path) -> "pd.Series[str]":
    """Returns, for each site, the folds of its images."""
    folds = read_folds(load("tiny", root)).of_image
    sites = read_table(folds_path("tiny", root).with_name("sites.csv"))["site"]
    return pd.Series(folds).groupby(sites.to_numpy()).unique().map(sorted)


def test_each_site_is_a_fold_and_the_certificate_knows_it(tmp_path: Path, podium: Podium, folder: Path) -> None:
    out, err = done(podium(*BY_SITE, "camera"))
    assert "3 sites" in err
    assert "south (10, fold" in err
    assert "holds  images of one site in different folds" in out
    folds = sites_and_folds(tmp_path)
    assert sorted(folds.sum()) == [0, 1, 2]
    certificate = json.loads(folds_path("tiny", tmp_path).with_suffix(".json").read_text())
    assert (certificate["sites"]["sites"], certificate["sites"]["across_folds"]) == (3, [])
    assert podium("folds", "-c", "tiny", "--verify")[:2] == (0, out)


def test_a_site_in_two_folds_is_a_leak(tmp_path: Path, podium: Podium, folder: Path) -> None:
    done(podium(*BY_SITE, "camera"))
    path = folds_path("tiny", tmp_path)
    rows = read_table(path).set_index("id")
    rows.loc["00", "fold"] = next(fold for fold in "012" if fold != rows.loc["00", "fold"])
    rows.to_csv(path)
    assert "north" in one_line(podium("folds", "-c", "tiny", "--verify"), "images of one site", "split again")


def test_other_folds_know_nothing_of_sites(tmp_path: Path, podium: Podium, folder: Path) -> None:
    done(podium("folds", "-c", "tiny", "--k", "3"))
    before = folds_path("tiny", tmp_path).with_suffix(".json").read_bytes()
    done(podium(*BY_SITE, "camera", "--k", "3"))
    done(podium("folds", "-c", "tiny", "--k", "3"))
    assert folds_path("tiny", tmp_path).with_suffix(".json").read_bytes() == before
    assert b"sites" not in before


def test_more_sites_than_folds_share_folds(tmp_path: Path, podium: Podium, folder: Path) -> None:
    write_cameras(folder, [f"camera {number // 4}" for number in range(24)])
    done(podium(*BY_SITE, "camera", "--k", "3"))
    folds = sites_and_folds(tmp_path)
    assert sorted(folds.sum()) == [0, 0, 1, 1, 2, 2]


def test_duplicates_and_groups_of_the_card_join_sites(tmp_path: Path, podium: Podium, folder: Path) -> None:
    photograph(0).save(folder / "train" / "07.png")
    _, err = done(podium(*BY_SITE, "camera"))
    assert "the sites north, south share duplicates or a group" in err
    folds = sites_and_folds(tmp_path)
    assert folds["north"] == folds["south"] != folds["west"]
    write_card(tmp_path, 'group_column = "camera"')
    done(podium(*BY_SITE, "camera"))
    certificate = json.loads(folds_path("tiny", tmp_path).with_suffix(".json").read_text())
    assert (certificate["group_column"], certificate["holds"]) == ("camera", True)


@pytest.mark.parametrize(
    ("cameras", "words", "parts"),
    [
        (CAMERAS, ["lens"], ["--by-site lens", "no such column", "camera"]),
        (["one"] * 24, ["camera"], ["'one'", "name a column"]),
        ([str(number) for number in range(24)], ["camera"], ["value of its own", "name a column"]),
        (["", *CAMERAS[1:]], ["camera"], ["'00' first", "fill in"]),
        (["ab"[number % 2] for number in range(24)], ["camera"], ["each class", "one site", "name a column"]),
        (CAMERAS, ["camera", "--by-time", "camera"], ["--by-site and --by-time", "leave out one"]),
        (CAMERAS, ["camera", "--verify"], ["--verify", "leave out --by-site"]),
        (CAMERAS, ["camera", "--model", "test_vit"], ["--model", "leave it out"]),
    ],
)
def test_what_is_no_site_is_refused(
    podium: Podium, folder: Path, cameras: list[str], words: list[str], parts: list[str]
) -> None:
    write_cameras(folder, cameras)
    one_line(podium(*BY_SITE, *words), *parts)


def test_sites_that_are_gone_are_asked_for(tmp_path: Path, podium: Podium, folder: Path) -> None:
    done(podium(*BY_SITE, "camera"))
    folds_path("tiny", tmp_path).with_name("sites.csv").unlink()
    one_line(podium("folds", "-c", "tiny", "--verify"), "sites.csv", "does not exist", "--by-site")


# --- clusters ----------------------------------------------------------------------------------------


def test_clusters_are_cameras_and_not_classes(tmp_path: Path, folder: Path) -> None:
    """Features of a strong class and a weak camera."""
    competition, rng = load("tiny", tmp_path), np.random.default_rng(0)
    label, camera = np.arange(24) % 2, np.array([0] * 8 + [1] * 8 + [2] * 8)
    features = rng.normal(0, 0.3, (24, 6))
    features[:, 0] += 30 * label
    features[:, 1:4] += 3 * np.eye(3)[camera]
    sites = cluster_sites(competition, features.astype(np.float32), np.arange(24), 3, 0, "a model")
    assert sites.of_image.groupby(camera).nunique().tolist() == [1, 1, 1]
    assert sites.count == 3


def test_groups_stay_in_one_cluster(tmp_path: Path, folder: Path) -> None:
    features = np.random.default_rng(0).normal(0, 1, (24, 20)).astype(np.float32)
    features[5] = np.nan  # cannot be read
    groups = np.arange(24) // 2 * 2
    sites = cluster_sites(load("tiny", tmp_path), features, groups, 4, 0, "a model")
    assert sites.of_image[5] == ""
    assert sites.of_image.drop([4, 5]).groupby(groups[np.arange(24) // 2 != 2]).nunique().tolist() == [1] * 11
    with pytest.raises(PodiumError, match=r"12 groups .* fewer folds"):
        cluster_sites(load("tiny", tmp_path), features, groups, 13, 0, "a model")


def test_the_images_of_a_folder_are_clustered_again_to_the_same_folds(
    tmp_path: Path, podium: Podium, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = features_of_images(load("tiny", tmp_path), "test_resnet", "none", 32, with_test=False)

    def features(competition: Competition, model: str, with_test: bool) -> ImageFeatures:
        assert not with_test
        return computed

    monkeypatch.setattr(image_features, "features_of_images", features)
    out, _ = done(podium(*BY_SITE, "--k", "3"))
    made = folds_path("tiny", tmp_path).read_bytes()
    library.load("tiny", tmp_path).folds(k=3, by_site=True, force=True)
    assert folds_path("tiny", tmp_path).read_bytes() == made
    assert podium("folds", "-c", "tiny", "--verify")[:2] == (0, out)


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("ab"), st.booleans()), min_size=6, max_size=40))
def test_sites_never_leak(images: list[tuple[int, str, bool]]) -> None:
    numbers, labels, readable = (list(column) for column in zip(*images, strict=True))
    groups, is_good = np.array([numbers.index(number) for number in numbers]), np.array(readable)
    sites = Sites("made up", pd.Series([str(number) for number in numbers]))
    try:
        folds = site_folds(labels_of(labels), is_good, groups, sites, 3, 0)
    except PodiumError:  # too few sites, or classes of one site only
        return
    assert (folds.of_image[~is_good] == -1).all()
    assert (pd.Series(folds.of_image[is_good]).groupby(groups[is_good]).nunique() == 1).all()
    assert set(folds.of_image[is_good]) == set(range(folds.count))
