"""Dealing images into folds: balanced, the same for the same seed, and never a group in two folds."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold

from podium.basics.errors import PodiumError
from podium.folds.split import assign_folds
from second_round import examples

labels = st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=200)
labels_and_groups = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20)), min_size=1, max_size=120)
# Classes and the sizes of their groups; every group is of one class.
group_sizes = st.dictionaries(
    st.sampled_from("abcd"), st.lists(st.integers(1, 9), min_size=1, max_size=20), min_size=1, max_size=4
)


def try_to_assign(targets: Sequence[str], groups: Sequence[str], k: int, seed: int = 0) -> NDArray[np.int64] | None:
    """Returns the folds, or None if the message says that there can be none."""
    try:
        return assign_folds(targets, k, seed, groups)
    except PodiumError as error:
        message = str(error)
    assert "nothing could be validated" in message or "too few groups" in message
    return None


# --- without groups ----------------------------------------------------------------------------------


@settings(max_examples=examples(100))
@given(labels, st.integers(2, 7), st.integers(0, 5))
def test_folds_differ_by_at_most_one_image_of_each_class_and_in_all(targets: list[str], k: int, seed: int) -> None:
    class_counts = Counter(targets)
    if max(class_counts.values()) < k:
        remedy = "fewer folds" if k > 2 else "add images"
        with pytest.raises(PodiumError, match=f"nothing could be validated.*{remedy}"):
            assign_folds(targets, k, seed)
        return
    folds = assign_folds(targets, k, seed)
    label = np.array(targets)
    assert set(folds[folds >= 0]) == set(range(k))
    for name, count in class_counts.items():
        per_fold = np.bincount(folds[(label == name) & (folds >= 0)], minlength=k)
        if count < k:
            assert (folds[label == name] == -1).all()  # always trained on, never validated
        else:
            assert per_fold.max() - per_fold.min() <= 1
            assert per_fold.sum() == count
    sizes = np.bincount(folds[folds >= 0], minlength=k)
    assert sizes.max() - sizes.min() <= 1


@settings(max_examples=examples(100))
@given(labels.filter(lambda targets: max(Counter(targets).values()) >= 3), st.integers(0, 5))
def test_the_same_seed_gives_the_same_folds(targets: list[str], seed: int) -> None:
    assert assign_folds(targets, 3, seed).tolist() == assign_folds(targets, 3, seed).tolist()


def test_another_seed_gives_other_folds() -> None:
    targets = ["a", "b"] * 50
    assert assign_folds(targets, 5, 0).tolist() != assign_folds(targets, 5, 1).tolist()


# --- with groups -------------------------------------------------------------------------------------


@settings(max_examples=examples(100))
@given(labels_and_groups, st.integers(2, 5), st.integers(0, 5))
def test_a_group_is_in_one_fold_and_in_none_if_it_holds_all_images_of_a_class(
    images: list[tuple[str, int]], k: int, seed: int
) -> None:
    targets, groups = [target for target, _ in images], [f"{group}" for _, group in images]
    folds = try_to_assign(targets, groups, k, seed)
    if folds is None:
        return
    assert len(set(zip(groups, folds.tolist(), strict=True))) == len(set(groups))
    assert set(folds.tolist()) - {-1} == set(range(k))
    groups_of_class = {name: {group for target, group in set(images) if target == name} for name in set(targets)}
    only_groups = {str(*class_groups) for class_groups in groups_of_class.values() if len(class_groups) == 1}
    assert only_groups <= {group for group, fold in zip(groups, folds, strict=True) if fold == -1}
    assert folds.tolist() == assign_folds(targets, k, seed, groups).tolist()


@settings(max_examples=examples(100))
@given(group_sizes, st.integers(2, 5), st.integers(0, 5))
def test_folds_differ_in_images_of_a_class_by_at_most_its_largest_group(
    sizes_of_class: dict[str, list[int]], k: int, seed: int
) -> None:
    groups = [
        f"{name}{number}"
        for name, sizes in sizes_of_class.items()
        for number, size in enumerate(sizes)
        for _ in range(size)
    ]
    targets = [group[0] for group in groups]
    folds = try_to_assign(targets, groups, k, seed)
    if folds is None:
        assert not any(len(sizes) >= k and sum(sizes) >= k for sizes in sizes_of_class.values())
        return
    for name, sizes in sizes_of_class.items():
        class_folds = folds[np.array(targets) == name]
        if sum(sizes) < k or len(sizes) < 2:
            assert (class_folds == -1).all()
        else:
            counts = np.bincount(class_folds, minlength=k)
            assert counts.sum() == sum(sizes)
            assert counts.max() - counts.min() <= max(sizes)


@settings(max_examples=examples(100))
@given(labels, st.integers(2, 5), st.integers(0, 5))
def test_groups_of_one_image_change_nothing(targets: list[str], k: int, seed: int) -> None:
    folds = try_to_assign(targets, [str(number) for number in range(len(targets))], k, seed)
    if folds is not None:
        assert folds.tolist() == assign_folds(targets, k, seed).tolist()
    else:
        with pytest.raises(PodiumError):
            assign_folds(targets, k, seed)


def test_another_seed_gives_other_folds_of_groups() -> None:
    targets, groups = ["a", "b"] * 60, [f"{number // 6}" for number in range(120)]
    first, same_seed, other_seed = (assign_folds(targets, 4, seed, groups).tolist() for seed in (0, 0, 1))
    assert first == same_seed != other_seed


def test_the_names_of_the_groups_change_nothing() -> None:
    targets = ["a", "b", "a"] * 20
    groups = [f"{number // 4}" for number in range(60)]
    renamed = [f"{1000 - int(group)}" for group in groups]
    assert assign_folds(targets, 3, 0, groups).tolist() == assign_folds(targets, 3, 0, renamed).tolist()


def test_a_rare_class_is_spread_although_its_groups_hold_different_numbers_of_common_images() -> None:
    """Ten groups hold one rare image each, and between 1 and 50 common ones."""
    sizes = [1, 40, 3, 30, 7, 25, 2, 9, 50, 12]
    groups = [f"{number}" for number, size in enumerate(sizes) for _ in range(1 + size)]
    targets = [name for size in sizes for name in ("rare", *["common"] * size)]
    for seed in range(5):
        folds = assign_folds(targets, 5, seed, groups)
        rare, common = (np.bincount(folds[np.array(targets) == name], minlength=5) for name in ("rare", "common"))
        assert rare.min() >= 1
        assert rare.max() <= 3
        assert np.ptp(common) <= max(sizes)


def test_rare_classes_keep_few_images_of_common_classes_out_of_the_folds() -> None:
    rng = np.random.default_rng(0)
    frequencies = 1 / np.arange(1, 201) ** 1.5
    targets = rng.choice(200, 20_000, p=frequencies / frequencies.sum()).astype(str).tolist()
    groups = rng.integers(0, 200, 20_000).astype(str).tolist()
    folds = assign_folds(targets, 5, 0, groups)
    assert (folds == -1).mean() < 0.15  # groups that hold the only image of a class


@pytest.mark.parametrize(
    ("images", "always_trained_on"),
    [
        ("a1 a1 a2 a3 a3 a4 b5 b5 b5 b5", {"5"}),  # b has one group of four images
        ("a1 a1 a2 a3 a3 a4 b5 b6", {"5", "6"}),  # b has two images
        ("a1 a1 a2 a3 a3 a4 a5 b5 b5 b5", {"5"}),  # the group of b also holds an image of a
        ("a1 a2 a3 a4 b5 b5 b6 c6 c6 c6", {"5", "6"}),  # c keeps group 6, which leaves b with one group
    ],
)
def test_the_groups_of_a_class_that_cannot_be_validated_get_fold_minus_1(
    images: str, always_trained_on: set[str]
) -> None:
    """An image is written as its class and its group."""
    targets, groups = [image[0] for image in images.split()], [image[1] for image in images.split()]
    folds = assign_folds(targets, 3, 0, groups)
    assert {group for group, fold in zip(groups, folds, strict=True) if fold == -1} == always_trained_on
    assert set(folds.tolist()) == {-1, 0, 1, 2}


def test_too_few_groups_are_refused_with_the_number_of_folds_that_they_can_fill() -> None:
    with pytest.raises(PodiumError, match="too few groups to fill 5 folds; use fewer folds: --k 3"):
        assign_folds(["a"] * 9, 5, 0, ["1", "2", "3"] * 3)
    assert sorted(set(assign_folds(["a"] * 9, 3, 0, ["1", "2", "3"] * 3).tolist())) == [0, 1, 2]


# --- compared with scikit-learn ----------------------------------------------------------------------


def worst_share(targets: NDArray[np.str_], folds: NDArray[np.int64], k: int) -> float:
    """Returns the largest difference between the share of a class that a fold holds and 1/K."""
    counts = [np.bincount(folds[targets == name], minlength=k) for name in np.unique(targets)]
    return max(float(np.abs(count / count.sum() - 1 / k).max()) for count in counts)


def folds_by_scikit_learn(
    splitter: StratifiedGroupKFold, targets: NDArray[np.str_], groups: NDArray[np.int64]
) -> NDArray[np.int64]:
    folds = np.empty(len(targets), dtype=np.int64)
    for fold, (_, validated) in enumerate(splitter.split(targets, targets, groups)):
        folds[validated] = fold
    return folds


@pytest.mark.parametrize("concentration", [0.05, 1, 5])
def test_classes_are_spread_at_least_as_evenly_as_by_scikit_learn(concentration: float) -> None:
    """On average. With a low concentration a group holds mostly one class, with a high one it holds all."""
    own_shares, sklearn_shares = [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        groups = np.repeat(np.arange(40), rng.integers(1, 12, 40))
        class_shares = rng.dirichlet([concentration] * 6, 40)
        targets = np.array([rng.choice(list("abcdef"), p=class_shares[group]) for group in groups])
        folds = assign_folds(targets.tolist(), 5, seed, groups.astype(str).tolist())
        assert (folds >= 0).all()
        own_shares.append(worst_share(targets, folds, 5))
        splitter = StratifiedGroupKFold(5, shuffle=True, random_state=seed)
        sklearn_shares.append(worst_share(targets, folds_by_scikit_learn(splitter, targets, groups), 5))
    assert np.mean(own_shares) <= np.mean(sklearn_shares)


@pytest.mark.parametrize(
    ("count", "size", "noise"), [(400, 25, 0.15), (200, 50, 0.15), (400, 25, 0.4), (100, 100, 0.15)]
)
def test_large_groups_that_hold_mostly_one_class_are_spread_more_evenly_than_by_scikit_learn(
    count: int, size: int, noise: float
) -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(count), size)
    is_other = rng.random(len(groups)) < noise
    targets = np.where(is_other, rng.integers(0, 20, len(groups)), groups * 7 % 20).astype(str)
    folds = assign_folds(targets.tolist(), 5, 0, groups.astype(str).tolist())
    sklearn_folds = folds_by_scikit_learn(StratifiedGroupKFold(5), targets, groups)
    assert worst_share(targets, folds, 5) < worst_share(targets, sklearn_folds, 5)
    assert np.ptp(np.bincount(folds)) <= 2 * size  # and the folds are about as large
