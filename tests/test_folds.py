"""Folds: balanced to within one image, the same for the same seed, and nothing a hand-made file can hide."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Podium, write_competition
from podium import PodiumError
from podium.folds import assign

labels = st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=200)


@given(labels, st.integers(2, 7), st.integers(0, 5))
def test_every_class_and_the_whole_are_spread_to_within_one_image(targets: list[str], k: int, seed: int) -> None:
    counts = Counter(targets)
    if max(counts.values()) < k:
        with pytest.raises(PodiumError, match="nothing could be validated"):
            assign(targets, k, seed)
        return
    folds = assign(targets, k, seed)
    label = np.array(targets)
    assert set(folds[folds >= 0]) == set(range(k))
    for name, count in counts.items():
        per_fold = np.bincount(folds[(label == name) & (folds >= 0)], minlength=k)
        if count < k:
            assert (folds[label == name] == -1).all()  # trained on everywhere, validated nowhere
        else:
            assert per_fold.max() - per_fold.min() <= 1
            assert per_fold.sum() == count
    sizes = np.bincount(folds[folds >= 0], minlength=k)
    assert sizes.max() - sizes.min() <= 1


@given(labels.filter(lambda targets: max(Counter(targets).values()) >= 3), st.integers(0, 5))
def test_the_same_seed_gives_the_same_folds(targets: list[str], seed: int) -> None:
    assert assign(targets, 3, seed).tolist() == assign(targets, 3, seed).tolist()


def test_another_seed_gives_other_folds() -> None:
    targets = ["a", "b"] * 50
    assert assign(targets, 5, 0).tolist() != assign(targets, 5, 1).tolist()


def test_the_file_has_the_columns_of_the_contract_and_the_singleton_is_in_no_fold(
    tmp_path: Path, podium: Podium
) -> None:
    write_competition(tmp_path)
    status, out, err = podium("folds", "-c", "tiny", "--k", "4")
    assert status == 0
    path = tmp_path / "data" / "prepared" / "tiny" / "folds.csv"
    lines = path.read_text().splitlines()
    assert lines[0] == "id,target,fold,group"
    assert lines[-1] == "024,lonely,-1,024"
    assert "classes that no fold validates: 1 (lonely)" in out
    assert "next: podium train -c tiny" in err
    before = path.read_bytes()
    assert "holds these folds already" in podium("folds", "-c", "tiny", "--k", "4")[2]
    assert path.read_bytes() == before


@pytest.mark.parametrize("k", ["1", "0", "-3", "9"])
def test_a_number_of_folds_that_cannot_be_is_refused(tmp_path: Path, podium: Podium, k: str) -> None:
    write_competition(tmp_path, each=3, test=1)
    status, out, err = podium("folds", "-c", "tiny", "--k", k)
    assert (status, out) == (1, "")
    assert "--k" in err


HAND_MADE = {
    "a missing column": (lambda text: text.replace("fold", "split", 1), "no column 'fold'"),
    "an id twice": (lambda text: text + "000,red,1,000\n", "line 27: id '000' stands there twice"),
    "a fold that is no number": (lambda text: text.replace("001,red,", "001,red,x", 1), "line 3: fold 'x"),
    "an unknown id": (lambda text: text.replace("\n001,", "\nzzz,", 1), "line 3: no training image has the id 'zzz'"),
    "an image left out": (
        lambda text: "".join(line for line in text.splitlines(True) if not line.startswith("001,")),
        "1 training images have no fold, '001' first",
    ),
    "another label": (lambda text: text.replace("001,red", "001,blue", 1), "has the label 'blue' there and 'red'"),
    "a fold without images": (lambda text: text.replace(",0,", ",2,"), "no image in fold 0"),
}


@pytest.mark.parametrize("mistake", HAND_MADE)
def test_a_hand_made_file_with_a_mistake_is_refused_by_line(tmp_path: Path, podium: Podium, mistake: str) -> None:
    write_competition(tmp_path)
    assert podium("folds", "-c", "tiny", "--k", "2")[0] == 0
    path = tmp_path / "data" / "prepared" / "tiny" / "folds.csv"
    change, answer = HAND_MADE[mistake]
    path.write_text(change(path.read_text()))
    status, _, err = podium("train", "-c", "tiny", "--model", "test_vit", "--weights", "none")
    assert status == 1
    assert answer in err
    assert str(path) in err


def test_a_hand_made_file_with_only_ids_and_folds_serves(tmp_path: Path, podium: Podium) -> None:
    write_competition(tmp_path)
    path = tmp_path / "data" / "prepared" / "tiny" / "folds.csv"
    path.parent.mkdir(parents=True)
    path.write_text("fold,id\n" + "".join(f"{number % 2},{number:03d}\n" for number in range(25)))
    small = ("--weights", "none", "--image-size", "32", "--epochs", "1", "--folds", "1")
    status, out, err = podium("train", "-c", "tiny", "--model", "test_vit", *small)
    assert status == 0, err
    assert out.splitlines()[1].split()[:2] == ["1", "12"]


def test_training_without_folds_says_how_to_make_them(tmp_path: Path, podium: Podium) -> None:
    write_competition(tmp_path)
    status, _, err = podium("train", "-c", "tiny", "--model", "test_vit", "--weights", "none")
    assert status == 1
    assert "folds.csv does not exist; split the training images with: podium folds -c tiny" in err
    assert podium("folds", "-c", "tiny", "--k", "2")[0] == 0
    status, _, err = podium("train", "-c", "tiny", "--model", "test_vit", "--weights", "none", "--folds", "0,2")
    assert status == 1
    assert "there is no fold 2; the folds of tiny are 0 to 1" in err
