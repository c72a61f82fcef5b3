"""Classes that are held out whole, for a class that no training image has: their share, their groups, their folds."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pictures import photograph, write_image_competition
from podium.basics.errors import PodiumError
from podium.folds.folds_csv import folds_path
from podium.folds.split import assign_folds
from podium.folds.unseen_classes import assign_with_unseen
from tiny import Podium, done, write_card

labels_and_groups = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 60)), min_size=20, max_size=150)


def folds_of_classes(targets: list[str], folds: NDArray[np.int64]) -> dict[str, set[int]]:
    return {name: set(folds[np.array(targets) == name].tolist()) for name in set(targets)}


def unseen_in(targets: list[str], folds: NDArray[np.int64]) -> set[str]:
    return {name for name, own in folds_of_classes(targets, folds).items() if len(own) == 1 and own != {-1}}


@pytest.mark.parametrize("share", [0.05, 0.1, 0.3])
def test_the_share_is_as_wanted_and_folds_are_even(share: float) -> None:
    targets = [f"{number}" for number in range(40) for _ in range(10)]
    folds = assign_with_unseen(targets, 5, 0, np.arange(400), share)
    unseen = unseen_in(targets, folds)
    assert len(unseen) == round(40 * share)
    assert np.ptp(np.bincount(folds)) <= 12
    assert len({folds[targets.index(name)] for name in unseen}) == min(5, len(unseen))  # dealt to all folds


def test_classes_that_could_not_be_validated_come_first() -> None:
    targets = [f"large{number}" for number in range(10) for _ in range(9)] + [f"single{number}" for number in range(30)]
    unseen = unseen_in(targets, assign_with_unseen(targets, 3, 0, np.arange(120), 0.1))
    assert len(unseen) == 10
    assert all(name.startswith("single") for name in unseen)
    assert unseen != unseen_in(targets, assign_with_unseen(targets, 3, 1, np.arange(120), 0.1))  # another seed


def test_few_classes_keep_enough_that_are_known() -> None:
    three, two = [name for name in "abc" for _ in range(6)], [name for name in "ab" for _ in range(6)]
    assert len(unseen_in(three, assign_with_unseen(three, 2, 0, np.arange(18), 0.1))) == 1
    assert (assign_with_unseen(two, 2, 0, np.arange(12), 0.1) == assign_folds(two, 2, 0)).all()


@given(labels_and_groups, st.integers(2, 4), st.sampled_from([0.05, 0.2, 0.5]))
def test_groups_stay_whole_and_no_class_is_unseen_that_shares_one(
    pairs: list[tuple[str, int]], k: int, share: float
) -> None:
    targets, groups = [label for label, _ in pairs], np.array([group for _, group in pairs])
    try:
        folds = assign_with_unseen(targets, k, 0, groups, share)
    except PodiumError:  # as without unseen classes: there are too few groups
        return
    for group in set(groups.tolist()):
        assert len(set(folds[groups == group].tolist())) == 1
    for name in unseen_in(targets, folds):
        own_groups = {group for label, group in pairs if label == name}
        assert {label for label, group in pairs if group in own_groups} == {name}


def test_without_an_unknown_class_the_folds_have_the_same_bytes(tmp_path: Path, podium: Podium) -> None:
    train = {str(number): ("abcd"[number % 4], photograph(number)) for number in range(16)}
    write_image_competition(tmp_path, train, {"x": photograph(99)})
    path = folds_path("tiny", tmp_path)
    written = []
    for card in ("", 'unknown = "a"\n', 'unknown = "z"\n'):
        write_card(tmp_path, card)
        done(podium("folds", "-c", "tiny", "--k", "2"))
        written.append(path.read_bytes())
    assert written[0] == written[1]  # a class that training images have is one like the others
    plain = assign_folds([label for label, _ in train.values()], 2, 0)
    assert [line.split(",")[2] for line in written[0].decode().splitlines()[1:]] == [str(fold) for fold in plain]
    assert written[2] != written[0]
