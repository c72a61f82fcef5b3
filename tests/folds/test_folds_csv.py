"""Folds: balanced, groups and copies whole, the same for the same seed, and nothing a hand-made file can hide."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import ImageOps
from sklearn.model_selection import StratifiedGroupKFold

from pictures import Pictures, card, photograph, with_scenes, write_pictures
from podium import PodiumError
from podium.competition.csv_files import read_table
from podium.folds.folds_csv import folds_path
from podium.folds.split import assign_folds
from tiny import Podium, write_competition

labels = st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=200)
grouped = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20)), min_size=1, max_size=120)
# Each a class and the sizes of its groups.
pure = st.dictionaries(
    st.sampled_from("abcd"), st.lists(st.integers(1, 9), min_size=1, max_size=20), min_size=1, max_size=4
)


@given(labels, st.integers(2, 7), st.integers(0, 5))
def test_every_class_and_the_whole_are_spread_to_within_one_image(targets: list[str], k: int, seed: int) -> None:
    counts = Counter(targets)
    if max(counts.values()) < k:
        with pytest.raises(PodiumError, match="nothing could be validated"):
            assign_folds(targets, k, seed)
        return
    folds = assign_folds(targets, k, seed)
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
    assert assign_folds(targets, 3, seed).tolist() == assign_folds(targets, 3, seed).tolist()


def test_another_seed_gives_other_folds() -> None:
    targets = ["a", "b"] * 50
    assert assign_folds(targets, 5, 0).tolist() != assign_folds(targets, 5, 1).tolist()


# --- groups ----------------------------------------------------------------------------------------------


def attempt(targets: Sequence[str], groups: Sequence[str], k: int, seed: int = 0) -> NDArray[np.int64] | None:
    """The folds, or nothing where it is said that there are none."""
    try:
        return assign_folds(targets, k, seed, groups)
    except PodiumError as refused:
        said = str(refused)
    assert "nothing could be validated" in said or "the groups are too few" in said
    return None


@given(grouped, st.integers(2, 5), st.integers(0, 5))
def test_no_group_is_ever_in_two_folds_nor_one_that_holds_all_of_a_class_in_any(
    images: list[tuple[str, int]], k: int, seed: int
) -> None:
    targets, groups = [target for target, _ in images], [f"{group}" for _, group in images]
    folds = attempt(targets, groups, k, seed)
    if folds is None:
        return
    assert len(set(zip(groups, folds.tolist(), strict=True))) == len(set(groups))
    assert set(folds.tolist()) - {-1} == set(range(k))
    holders = {name: {group for target, group in set(images) if target == name} for name in set(targets)}
    alone = {str(*each) for each in holders.values() if len(each) == 1}
    assert alone <= {group for group, fold in zip(groups, folds, strict=True) if fold == -1}
    assert folds.tolist() == assign_folds(targets, k, seed, groups).tolist()


def test_rare_classes_amid_a_common_one_keep_none_of_it_out_of_the_folds() -> None:
    draws = np.random.default_rng(0)
    often = 1 / np.arange(1, 201) ** 1.5
    targets, groups = draws.choice(200, 20_000, p=often / often.sum()), draws.integers(0, 200, 20_000)
    folds = assign_folds([str(each) for each in targets], 5, 0, [str(each) for each in groups])
    assert (folds == -1).mean() < 0.15  # groups that hold the only image of a class


@given(pure, st.integers(2, 5), st.integers(0, 5))
def test_folds_differ_in_images_of_a_class_by_no_more_than_its_largest_group(
    sizes: dict[str, list[int]], k: int, seed: int
) -> None:
    groups = [f"{name}{number}" for name in sizes for number, size in enumerate(sizes[name]) for _ in range(size)]
    targets = [group[0] for group in groups]
    folds = attempt(targets, groups, k, seed)
    if folds is None:
        assert not any(len(each) >= k and sum(each) >= k for each in sizes.values())
        return
    for name, each in sizes.items():
        mine = folds[np.array(targets) == name]
        if sum(each) < k or len(each) < 2:
            assert (mine == -1).all()
        else:
            counts = np.bincount(mine, minlength=k)
            assert counts.sum() == sum(each)
            assert counts.max() - counts.min() <= max(each)


@given(labels, st.integers(2, 5), st.integers(0, 5))
def test_groups_of_one_image_are_no_groups(targets: list[str], k: int, seed: int) -> None:
    alone = attempt(targets, [str(number) for number in range(len(targets))], k, seed)
    if alone is not None:
        assert alone.tolist() == assign_folds(targets, k, seed).tolist()
    else:
        with pytest.raises(PodiumError):
            assign_folds(targets, k, seed)


def test_another_seed_gives_other_folds_of_groups() -> None:
    targets, groups = ["a", "b"] * 60, [f"{number // 6}" for number in range(120)]
    folds = [assign_folds(targets, 4, seed, groups).tolist() for seed in (0, 0, 1)]
    assert folds[0] == folds[1] != folds[2]


def test_what_the_groups_are_called_makes_no_difference() -> None:
    targets = ["a", "b", "a"] * 20
    groups = [f"{number // 4}" for number in range(60)]
    renamed = [f"{1000 - int(group)}" for group in groups]
    assert assign_folds(targets, 3, 0, groups).tolist() == assign_folds(targets, 3, 0, renamed).tolist()


def test_a_rare_class_is_spread_however_its_groups_differ_in_images_of_a_common_one() -> None:
    """Ten groups hold one rare image each, and common ones of very different number."""
    sizes = [1, 40, 3, 30, 7, 25, 2, 9, 50, 12]
    groups = [f"{number}" for number, size in enumerate(sizes) for _ in range(1 + size)]
    targets = [name for size in sizes for name in ("rare", *["common"] * size)]
    for seed in range(5):
        folds = assign_folds(targets, 5, seed, groups)
        rare, common = (np.bincount(folds[np.array(targets) == name], minlength=5) for name in ("rare", "common"))
        assert rare.min() >= 1
        assert rare.max() <= 3
        assert np.ptp(common) <= max(sizes)


@pytest.mark.parametrize(
    ("images", "apart"),
    [
        ("a1 a1 a2 a3 a3 a4 b5 b5 b5 b5", {"5"}),  # one group of four
        ("a1 a1 a2 a3 a3 a4 b5 b6", {"5", "6"}),  # two images
        ("a1 a1 a2 a3 a3 a4 a5 b5 b5 b5", {"5"}),  # with its group go images of a class that can be validated
        ("a1 a2 a3 a4 b5 b5 b6 c6 c6 c6", {"5", "6"}),  # which may leave another class with one group
    ],
)
def test_groups_of_a_class_that_cannot_be_validated_are_trained_on_everywhere(images: str, apart: set[str]) -> None:
    targets, groups = [word[0] for word in images.split()], [word[1] for word in images.split()]
    folds = assign_folds(targets, 3, 0, groups)
    assert {group for group, fold in zip(groups, folds, strict=True) if fold == -1} == apart
    assert set(folds.tolist()) == {-1, 0, 1, 2}


def test_too_few_groups_for_the_folds_say_how_many_there_can_be() -> None:
    with pytest.raises(PodiumError, match="too few to fill 5 folds; take fewer: --k 3"):
        assign_folds(["a"] * 9, 5, 0, ["1", "2", "3"] * 3)
    assert sorted(set(assign_folds(["a"] * 9, 3, 0, ["1", "2", "3"] * 3).tolist())) == [0, 1, 2]


def worst_share(targets: NDArray[np.str_], folds: NDArray[np.int64], k: int) -> float:
    """How far a class's share in a fold is from the K-th part, at most."""
    counts = [np.bincount(folds[targets == name], minlength=k) for name in np.unique(targets)]
    return max(float(np.abs(each / each.sum() - 1 / k).max()) for each in counts)


@pytest.mark.parametrize("habit", [0.05, 1, 5])
def test_classes_are_spread_no_worse_than_by_scikit_learn(habit: float) -> None:
    """On average, over groups that hold mostly one class to such that hold all."""
    ours, theirs = [], []
    for seed in range(10):
        draws = np.random.default_rng(seed)
        groups = np.repeat(np.arange(40), draws.integers(1, 12, 40))
        habits = draws.dirichlet([habit] * 6, 40)
        targets = np.array([draws.choice(list("abcdef"), p=habits[group]) for group in groups])
        folds = assign_folds(targets.tolist(), 5, seed, groups.astype(str).tolist())
        assert (folds >= 0).all()
        ours.append(worst_share(targets, folds, 5))
        splitter = StratifiedGroupKFold(5, shuffle=True, random_state=seed)
        for fold, (_, validated) in enumerate(splitter.split(targets, targets, groups)):
            folds[validated] = fold
        theirs.append(worst_share(targets, folds, 5))
    assert np.mean(ours) <= np.mean(theirs)


@pytest.mark.parametrize(
    ("count", "size", "noise"), [(400, 25, 0.15), (200, 50, 0.15), (400, 25, 0.4), (100, 100, 0.15)]
)
def test_large_groups_of_one_class_and_a_few_others_are_spread_better_than_by_scikit_learn(
    count: int, size: int, noise: float
) -> None:
    draws = np.random.default_rng(0)
    groups = np.repeat(np.arange(count), size)
    other = draws.random(len(groups)) < noise
    targets = np.where(other, draws.integers(0, 20, len(groups)), groups * 7 % 20).astype(str)
    folds = assign_folds(targets.tolist(), 5, 0, groups.astype(str).tolist())
    theirs = np.empty(len(groups), dtype=np.int64)
    for fold, (_, validated) in enumerate(StratifiedGroupKFold(5).split(targets, targets, groups)):
        theirs[validated] = fold
    assert worst_share(targets, folds, 5) < worst_share(targets, theirs, 5)
    assert np.ptp(np.bincount(folds)) <= 2 * size  # and the folds are about as large


# --- the file --------------------------------------------------------------------------------------------


def split(root: Path, podium: Podium, *words: object) -> dict[str, int]:
    """The fold of every id, as written by `podium folds`."""
    status, _, err = podium("folds", "-c", "tiny", *words)
    assert status == 0, err
    rows = read_table(root / "data" / "prepared" / "tiny" / "folds.csv")
    return dict(zip(rows["id"], rows["fold"].astype(int), strict=True))


def groups_of(root: Path) -> dict[str, str]:
    rows = read_table(root / "data" / "prepared" / "tiny" / "folds.csv")
    return dict(zip(rows["id"], rows["group"], strict=True))


def pictures(count: int = 12) -> Pictures:
    return {str(seed): ("ab"[seed % 2], photograph(seed)) for seed in range(count)}


def test_copies_share_a_fold_also_when_mirrored_or_saved_anew(tmp_path: Path, podium: Podium) -> None:
    train = pictures()
    for seed in range(6):
        train[f"copy {seed}"] = (train[str(seed)][0], ImageOps.mirror(photograph(seed)).resize((60, 45)))
    write_pictures(tmp_path, train, {"x": photograph(99)})
    for seed in range(3):
        folds = split(tmp_path, podium, "--k", "3", "--seed", seed)
        assert [folds[f"copy {number}"] for number in range(6)] == [folds[str(number)] for number in range(6)]
        assert set(folds.values()) == {0, 1, 2}
    assert groups_of(tmp_path) == {name: name.removeprefix("copy ") for name in train}


@pytest.mark.parametrize("how", ["flag", "card"])
def test_images_of_one_group_share_a_fold(tmp_path: Path, podium: Podium, how: str) -> None:
    folder = write_pictures(tmp_path, pictures(16), {"x": photograph(99)})
    scenes = {str(number): f"scene {number % 4}, north" for number in range(12)}
    with_scenes(folder, scenes)
    alone = split(tmp_path, podium, "--k", "2")
    assert any(len({alone[name] for name in scenes if scenes[name] == scene}) > 1 for scene in set(scenes.values()))
    if how == "card":
        card(tmp_path, 'group_column = "scene"\n')
    folds = split(tmp_path, podium, "--k", "2", *(["--group", "scene"] if how == "flag" else []))
    for scene in set(scenes.values()):
        assert len({folds[name] for name in scenes if scenes[name] == scene}) == 1
    assert {name: int(group) for name, group in groups_of(tmp_path).items()} == {
        **{str(number): number % 4 for number in range(12)},
        **{str(number): number for number in range(12, 16)},  # of no scene, and so not of one together
    }


def test_the_flag_and_the_card_give_the_same_folds_and_the_flag_counts(tmp_path: Path, podium: Podium) -> None:
    folder = write_pictures(tmp_path, pictures(), {"x": photograph(99)})
    with_scenes(folder, {str(number): str(number // 3) for number in range(12)})
    by_flag = split(tmp_path, podium, "--k", "2", "--group", "scene")
    card(tmp_path, 'group_column = "scene"\n')
    assert split(tmp_path, podium, "--k", "2") == by_flag
    card(tmp_path, 'group_column = "label"\n')
    assert split(tmp_path, podium, "--k", "2", "--group", "scene") == by_flag


def test_a_group_column_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path, podium: Podium) -> None:
    write_pictures(tmp_path, pictures(), {"x": photograph(99)})
    status, out, err = podium("folds", "-c", "tiny", "--group", "patient")
    assert (status, out) == (1, "")
    assert '"patient" is not a column of' in err
    assert "id, label" in err


def test_copies_and_groups_chain_into_one(tmp_path: Path, podium: Podium) -> None:
    """1 is a copy of 0, of one scene with 2, of which 4 is a copy, which is of one scene with 7."""
    train = pictures(16)
    train["1"], train["4"] = ("b", ImageOps.mirror(photograph(0))), ("a", photograph(2).resize((60, 45)))
    folder = write_pictures(tmp_path, train, {"x": photograph(99)})
    with_scenes(folder, {"1": "park", "2": "park", "4": "sea", "7": "sea", "8": "wood", "9": "wood"})
    for seed in range(4):
        folds = split(tmp_path, podium, "--k", "2", "--group", "scene", "--seed", seed)
        assert len({folds[name] for name in ("0", "1", "2", "4", "7")}) == 1
        assert folds["8"] == folds["9"]
    chained = {"1": "0", "2": "0", "4": "0", "7": "0", "9": "8"}
    assert groups_of(tmp_path) == {name: chained.get(name, name) for name in train}


def test_training_images_with_a_copy_in_the_test_set_only_are_no_group(tmp_path: Path, podium: Podium) -> None:
    write_pictures(tmp_path, pictures(), {"x": photograph(0), "y": photograph(1)})
    split(tmp_path, podium, "--k", "2")
    assert groups_of(tmp_path) == {name: name for name in pictures()}


def test_bad_images_are_in_no_fold_and_count_for_no_class(tmp_path: Path, podium: Podium) -> None:
    rare = {"c1": ("c", photograph(50)), "c2": ("c", photograph(51))}
    folder = write_pictures(tmp_path, {**pictures(), **rare}, {"x": photograph(99)})
    for name in ("3", "6", "c2"):
        (folder / "train" / f"{name}.png").write_bytes(b"")
    folds = split(tmp_path, podium, "--k", "2")
    assert {name for name, fold in folds.items() if fold == -1} == {"3", "6", "c1", "c2"}  # c has one image left
    assert groups_of(tmp_path)["3"] == "3"
    for fold in (0, 1):
        assert sorted(int(name) % 2 for name in folds if folds[name] == fold) in ([0, 0, 0, 1, 1], [0, 0, 1, 1, 1])


def test_a_bad_image_keeps_no_others_of_its_group_out_of_the_folds(tmp_path: Path, podium: Podium) -> None:
    folder = write_pictures(tmp_path, pictures(), {"x": photograph(99)})
    with_scenes(folder, {"0": "park", "2": "park", "4": "park", "1": "sea", "3": "sea"})
    (folder / "train" / "2.png").write_bytes(b"")
    folds = split(tmp_path, podium, "--k", "2", "--group", "scene")
    assert [name for name, fold in folds.items() if fold == -1] == ["2"]
    assert folds["0"] == folds["4"]
    assert folds["1"] == folds["3"]
    assert podium("folds", "-c", "tiny", "--verify", "--group", "scene")[0] == 0


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
    assert f"next: podium --root {tmp_path} train -c tiny" in err
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
    assert f"folds.csv does not exist; split the training images with: podium --root {tmp_path} folds -c tiny" in err
    assert podium("folds", "-c", "tiny", "--k", "2")[0] == 0
    status, _, err = podium("train", "-c", "tiny", "--model", "test_vit", "--weights", "none", "--folds", "0,2")
    assert status == 1
    assert "there is no fold 2; the folds of tiny are 0 to 1" in err


def test_training_says_where_nobody_has_verified_the_folds(tmp_path: Path, podium: Podium) -> None:
    write_competition(tmp_path)
    quick = ("train", "-c", "tiny", "--model", "test_vit", "--weights", "none", "--epochs", "1", "--image-size", "32")
    assert podium("folds", "-c", "tiny", "--k", "2")[0] == 0
    assert "nobody has verified" not in podium(*quick, "--folds", "0")[2]
    certificate = folds_path("tiny", tmp_path).with_suffix(".json")
    certificate.unlink()
    said = podium(*quick, "--folds", "1")[2]
    assert (
        f"warning: nobody has verified that {folds_path('tiny', tmp_path)} keeps copies of one image together" in said
    )
    assert "folds -c tiny --verify" in said


def test_ids_with_any_line_end_in_them_come_back(tmp_path: Path, podium: Podium) -> None:
    write_pictures(
        tmp_path, {f"{seed}\r\n\n{seed}": ("ab"[seed % 2], photograph(seed)) for seed in range(8)}, {"x": photograph(9)}
    )
    assert podium("folds", "-c", "tiny", "--k", "2")[0] == 0
    assert podium("folds", "-c", "tiny", "--verify")[0] == 0


def test_where_all_images_hang_together_the_way_out_is_said(tmp_path: Path, podium: Podium) -> None:
    write_pictures(tmp_path, {str(seed): ("ab"[seed % 2], photograph(0)) for seed in range(30)}, {"x": photograph(9)})
    status, _, err = podium("folds", "-c", "tiny")
    assert status == 1
    assert "30 training images hang together as copies" in err
    card(tmp_path, 'copies = "exact"\n')
    status, _, err = podium("folds", "-c", "tiny")
    assert status == 1  # for these are the same file
    assert "nothing could be validated" in err


def test_a_column_of_groups_without_a_name_is_refused(tmp_path: Path, podium: Podium) -> None:
    write_competition(tmp_path)
    for name in ("", " "):
        status, _, err = podium("folds", "-c", "tiny", "--group", name)
        assert status == 1
        assert "argument --group: it needs the name of a column" in err
