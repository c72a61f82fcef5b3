"""The certificate: what a split guarantees, computed from images and labels, for any split."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import ImageOps

from pictures import LabelledImages, add_scenes, photograph, write_image_competition, write_table
from podium.basics.disk import sha256
from podium.basics.errors import PodiumError
from podium.competition.build.corrections import Corrections
from podium.competition.build.submission_format import SubmissionFormat
from podium.competition.card import Card
from podium.competition.load import Competition, load
from podium.folds import folds_csv
from podium.folds.certificate import Certificate, certify
from podium.folds.folds import Folds
from podium.folds.folds_csv import folds_path, write_folds
from podium.folds.strategies import Split
from podium.tasks.task import ONE_LABEL
from second_round import examples
from tiny import Podium, done, one_line, write_card

FoldOfImage = dict[str, int]
ImageRow = tuple[str, str, str, bool]  # label, group of duplicates, scene, whether it is unreadable


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six images of `a`, six of `b` and one of `c`. 6, of `b`, is a copy of 1, of `a`; 0 has a copy in the test set."""
    train: LabelledImages = {str(seed): ("ab"[seed >= 6], photograph(seed)) for seed in range(12)}
    train["6"] = ("b", ImageOps.mirror(photograph(1)))
    train["lonely"] = ("c", photograph(50))
    return write_image_competition(tmp_path, train, {"leak": photograph(0).resize((60, 45)), "x": photograph(99)})


def good_folds() -> FoldOfImage:
    return {**{str(seed): seed % 2 for seed in range(12)}, "6": 1, "7": 0, "lonely": -1}


def write_hand_made(path: Path, folds: FoldOfImage) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(path, [("fold", "id"), *((str(fold), name) for name, fold in reversed(folds.items()))])
    return path


def certificate_path(root: Path) -> Path:
    return folds_path("tiny", root).with_suffix(".json")


def read_certificate(root: Path) -> dict[str, object]:
    return dict(json.loads(certificate_path(root).read_text()))


# --- hand-made folds ---------------------------------------------------------------------------------


def test_good_hand_made_folds_get_a_certificate(tmp_path: Path, podium: Podium, folder: Path) -> None:
    path = write_hand_made(folds_path("tiny", tmp_path), good_folds())
    before = path.read_bytes()
    out, err = done(podium("folds", "-c", "tiny", "--verify"))
    assert "FAILS" not in out
    assert f"podium: {path} guarantees" in err
    assert read_certificate(tmp_path)["holds"] is True
    assert read_certificate(tmp_path)["folds_sha256"] == sha256(path)
    assert path.read_bytes() == before


def test_verifying_a_file_elsewhere_writes_nothing(tmp_path: Path, podium: Podium, folder: Path) -> None:
    path = write_hand_made(tmp_path / "forum.csv", good_folds())
    done(podium("folds", "-c", "tiny", "--verify", path))
    assert not path.with_suffix(".json").exists()
    assert not folds_path("tiny", tmp_path).exists()
    assert not certificate_path(tmp_path).exists()


def swap(image: str, other: str) -> Callable[[FoldOfImage], FoldOfImage]:
    return lambda folds: {**folds, image: folds[other], other: folds[image]}


DUPLICATES_APART = "duplicates of one image are in different folds: train/1.png"
CLASSES_UNEVEN = "classes less even than their groups allow"
MISTAKES: dict[str, Callable[[FoldOfImage], FoldOfImage]] = {
    "a copy in another fold": swap("6", "8"),
    "a copy that is always trained on": lambda folds: {**folds, "6": -1},
    "a copy among further faults": lambda folds: {**folds, "lonely": 1, "6": 0, "0": 1, "2": 1},
}
FACTS: dict[str, tuple[Callable[[FoldOfImage], FoldOfImage], list[str]]] = {
    "uneven classes": (
        lambda folds: {**folds, "0": 1, "2": 1, "7": 1, "9": 0, "11": 0, "8": 0},
        [f"{CLASSES_UNEVEN}: 1 (a)"],
    ),
    "a class left out": (
        lambda folds: folds | dict.fromkeys(["1", "6", "7", "8", "9", "10", "11"], -1),
        ["classes that could be validated and are in no fold: 1 (b)", "of those that could be: 5 of 12"],
    ),
    "a class within one fold": (
        lambda folds: {**folds, "lonely": 0},
        ["classes missing from a fold's training images: 1 (c)"],
    ),
    "the first half is only trained on": (
        lambda folds: {name: -1 if name in ("0", "1", "2", "3", "6", "lonely") else int(name) % 2 for name in folds},
        ["of those that could be: 7 of 12"],
    ),
}


@pytest.mark.parametrize("is_own_path", [True, False])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_leak_is_named_in_one_line(
    tmp_path: Path, podium: Podium, folder: Path, mistake: str, is_own_path: bool
) -> None:
    path = folds_path("tiny", tmp_path) if is_own_path else tmp_path / "forum.csv"
    write_hand_made(path, MISTAKES[mistake](good_folds()))
    status, out, err = podium("folds", "-c", "tiny", "--verify", *([] if is_own_path else [path]))
    assert status == 1
    last_line = err.splitlines()[-1]
    assert last_line.startswith(f"podium: error: {path}: {DUPLICATES_APART}; ")
    assert "split again with" in last_line
    assert out.count("FAILS") == 1
    assert path.with_suffix(".json").exists() == is_own_path
    assert not is_own_path or read_certificate(tmp_path)["holds"] is False


@pytest.mark.parametrize("fact", FACTS)
def test_balance_and_coverage_are_facts_and_fail_nothing(
    tmp_path: Path, podium: Podium, folder: Path, fact: str
) -> None:
    change, expected = FACTS[fact]
    write_hand_made(folds_path("tiny", tmp_path), change(good_folds()))
    out, _ = done(podium("folds", "-c", "tiny", "--verify"))
    assert "FAILS" not in out
    assert all(text in out for text in expected), out
    assert read_certificate(tmp_path)["holds"] is True


def test_folds_that_leak_stay_in_doubt_until_they_are_mended(tmp_path: Path, podium: Podium, folder: Path) -> None:
    """The certificate of the leak keeps the column of groups, so that a second check fails, too."""
    add_scenes(folder, {"2": "park", "4": "park", "3": "sea", "8": "sea"})
    path = write_hand_made(folds_path("tiny", tmp_path), good_folds())
    assert podium("folds", "-c", "tiny", "--verify", "--group", "scene")[0] == 1
    assert podium("folds", "-c", "tiny", "--verify")[0] == 1
    write_hand_made(path, {**good_folds(), "8": 1, "9": 0})
    done(podium("folds", "-c", "tiny", "--verify"))


@pytest.mark.parametrize("source", ["flag", "card"])
def test_groups_of_the_column_in_different_folds_are_named(
    tmp_path: Path, podium: Podium, folder: Path, source: str
) -> None:
    add_scenes(folder, {"2": "park", "4": "park", "3": "sea", "8": "sea", "9": "wood"})
    path = write_hand_made(folds_path("tiny", tmp_path), good_folds())
    done(podium("folds", "-c", "tiny", "--verify"))
    if source == "card":
        write_card(tmp_path, 'group_column = "scene"\n')
    flags = ["--group", "scene"] if source == "flag" else []
    status, out, err = podium("folds", "-c", "tiny", "--verify", *flags)
    assert status == 1
    assert f"podium: error: {path}: groups of scene are in different folds: sea; " in err.splitlines()[-1]
    assert "FAILS  groups of scene in different folds: 1" in out
    write_hand_made(path, {**good_folds(), "8": 1, "9": 0})
    done(podium("folds", "-c", "tiny", "--verify", *flags))
    assert read_certificate(tmp_path)["group_column"] == "scene"


def test_a_missing_file_is_refused_in_one_line(tmp_path: Path, podium: Podium, folder: Path) -> None:
    one_line(
        podium("folds", "-c", "tiny", "--verify", tmp_path / "none.csv"), f"{tmp_path / 'none.csv'} does not exist"
    )


# --- folds by `podium folds` -------------------------------------------------------------------------


def test_folds_json_holds_the_whole_certificate(tmp_path: Path, podium: Podium, folder: Path) -> None:
    (folder / "train" / "9.png").write_bytes(b"")
    done(podium("folds", "-c", "tiny", "--k", "2"))
    certificate = read_certificate(tmp_path)
    assert certificate.pop("largest_difference") in (0, 1, 2)
    assert certificate == {
        "folds": 2,
        "is_rolling": False,
        "images": 13,
        "trained_in_every_fold": 1,
        "bad_images": 1,
        "time_column": None,
        "gap": 0.0,
        "gap_unit": "",
        "late_folds": [],
        "duplicate_groups": 1,
        "duplicates_across_folds": [],
        "group_column": None,
        "groups_across_folds": [],
        "uneven_classes": [],
        "classes_never_validated": ["c"],
        "classes_left_out": [],
        "images_validated": 11,
        "images_that_could_be": 11,
        "classes_partly_validated": [],
        "classes_not_trained": [],
        "test_images": 2,
        "test_copies": 1,
        "test_copies_validated": 1,
        "data_sha256": load("tiny", tmp_path).train_hash,
        "folds_sha256": sha256(folds_path("tiny", tmp_path)),
        "holds": True,
    }
    names = {field.name for field in fields(Certificate)} - {"unknown", "sites"}  # only where there are such
    assert {*certificate, "largest_difference"} == {*names, "holds"}


def test_making_and_verifying_folds_print_and_write_the_same(tmp_path: Path, podium: Podium, folder: Path) -> None:
    _, printed, err = podium("folds", "-c", "tiny", "--k", "2")
    assert err.splitlines()[-1].startswith("next: podium ")
    assert "folds.json" in err
    written = certificate_path(tmp_path).read_bytes()
    verified, _ = done(podium("folds", "-c", "tiny", "--verify"))
    assert verified == printed
    assert certificate_path(tmp_path).read_bytes() == written
    lines = [line.strip() for line in printed.splitlines()]
    assert "holds  duplicates of one image in different folds: 0" in lines
    assert "certified: no leak" in lines
    assert "test images with a duplicate among the training images: 1 of 2" in lines
    assert "classes that no fold validates: 1 (c)" in lines
    usual = "classes missing from a fold's training images: 0"
    assert usual not in lines
    assert usual in podium("folds", "-c", "tiny", "--verify", "--verbose")[1]


def test_folds_no_longer_hold_when_an_image_becomes_a_copy(tmp_path: Path, podium: Podium, folder: Path) -> None:
    write_hand_made(folds_path("tiny", tmp_path), good_folds())
    done(podium("folds", "-c", "tiny", "--verify"))
    photograph(2).save(folder / "train" / "3.png")
    one_line(podium("folds", "-c", "tiny", "--verify"), "duplicates of one image are in different folds: train/2.png")


def test_verifying_uses_the_group_column_that_the_folds_were_made_with(
    tmp_path: Path, podium: Podium, folder: Path
) -> None:
    add_scenes(folder, {"2": "park", "4": "park", "3": "sea", "8": "sea"})
    done(podium("folds", "-c", "tiny", "--k", "2", "--group", "scene"))
    out, _ = done(podium("folds", "-c", "tiny", "--verify"))
    assert "holds  groups of scene in different folds: 0" in out


def test_folds_hold_if_a_class_has_no_readable_image(tmp_path: Path, podium: Podium, folder: Path) -> None:
    (folder / "train" / "lonely.png").write_bytes(b"")
    done(podium("folds", "-c", "tiny", "--k", "2"))
    done(podium("folds", "-c", "tiny", "--verify"))


# --- large and mixed groups --------------------------------------------------------------------------


def test_images_that_duplicates_and_scenes_link_may_make_a_class_uneven(tmp_path: Path, podium: Podium) -> None:
    """Copies and scenes, in turns, link six of the eight images of `a` into one group."""
    train: LabelledImages = {str(seed): ("ab"[seed >= 8], photograph(seed)) for seed in range(16)}
    train["2"], train["4"] = ("a", photograph(1)), ("a", photograph(3))
    folder = write_image_competition(tmp_path, train, {"x": photograph(99)})
    add_scenes(folder, {str(seed): f"scene {seed // 2}" for seed in range(6)})
    done(podium("folds", "-c", "tiny", "--k", "2", "--group", "scene"))
    assert read_certificate(tmp_path)["largest_difference"] == 4  # six images in one fold, two in the other
    assert read_certificate(tmp_path)["uneven_classes"] == []
    done(podium("folds", "-c", "tiny", "--verify", "--group", "scene"))


def test_a_large_mixed_group_excuses_only_as_many_images_as_it_has_of_a_class(tmp_path: Path, podium: Podium) -> None:
    train: LabelledImages = {str(seed): ("ab"[seed >= 20], photograph(seed)) for seed in range(32)}
    folder = write_image_competition(tmp_path, train, {"x": photograph(99)})
    add_scenes(folder, {str(seed): "all" for seed in range(19, 32)})  # one image of a, all images of b
    uneven = {str(seed): int(seed < 4) for seed in range(32)}
    path = write_hand_made(tmp_path / "forum.csv", uneven)
    out, _ = done(podium("folds", "-c", "tiny", "--verify", path, "--group", "scene"))
    assert f"{CLASSES_UNEVEN}: 1 (a)" in out


def write_patients(root: Path) -> None:
    """Writes a competition of forty patients, each with two images of either class."""
    train: LabelledImages = {str(number): ("ab"[number % 2], photograph(number)) for number in range(160)}
    folder = write_image_competition(root, train, {"x": photograph(999)})
    add_scenes(folder, {str(number): f"patient {number // 4}" for number in range(160)})


@pytest.mark.parametrize(
    ("fold_of_patient", "fact"),
    [
        (lambda patient: patient % 3, f"{CLASSES_UNEVEN}: 0"),
        (lambda patient: max(0, patient - 37), f"{CLASSES_UNEVEN}: 2 (a, b)"),
        (lambda patient: max(-1, patient - 37) if patient > 36 else -1, "of those that could be: 12 of 160"),
    ],
)
def test_uneven_folds_of_patients_with_images_of_both_classes_are_named(
    tmp_path: Path, podium: Podium, fold_of_patient: Callable[[int], int], fact: str
) -> None:
    write_patients(tmp_path)
    folds = {str(number): fold_of_patient(number // 4) for number in range(160)}
    path = write_hand_made(tmp_path / "forum.csv", folds)
    out, _ = done(podium("folds", "-c", "tiny", "--group", "scene", "--verify", path, "--verbose"))
    assert fact in out


def test_folds_of_mixed_groups_hold_for_every_seed(tmp_path: Path, podium: Podium) -> None:
    write_patients(tmp_path)
    for seed in range(5):
        done(podium("folds", "-c", "tiny", "--group", "scene", "--k", "3", "--seed", str(seed)))
        out, _ = done(podium("folds", "-c", "tiny", "--verify", "--verbose"))
        assert f"{CLASSES_UNEVEN}: 0" in out


# --- random images and groups ------------------------------------------------------------------------


def audited_competition(root: Path, images: list[ImageRow]) -> tuple[Competition, pd.DataFrame]:
    """Returns a competition of these training images, and its audit."""
    labels, copy_groups, scenes, is_unreadable = (list(column) for column in zip(*images, strict=True))
    ids = [str(number) for number in range(len(images))]
    train = pd.DataFrame({"id": ids, "target": labels, "image": ids}, dtype=object)
    competition = Competition(
        slug="tiny",
        root=root,
        folder=root,
        train=train,
        test=train[:0],
        classes=tuple(sorted(set(labels))),
        metric="accuracy",
        submission_format=SubmissionFormat(("id", "label"), "labels", ""),
        card=Card(root / "tiny.toml", {}),
        groups=pd.Series(scenes, name="scene", dtype=object),
        notes=(),
        corrections=Corrections(root / "tiny.corrections.csv", {}, train, sorted(set(labels))),
        task=ONE_LABEL,
    )
    copy_groups = ["" if bad else group for group, bad in zip(copy_groups, is_unreadable, strict=True)]
    reasons = ["empty" if bad else "" for bad in is_unreadable]
    return competition, train.assign(role="train", group=copy_groups, reason=reasons)


image_rows = st.tuples(
    st.sampled_from("abc"), st.sampled_from(["", "1", "2", "3"]), st.sampled_from(["", "4", "5"]), st.booleans()
)


@given(st.lists(st.tuples(image_rows, st.integers(-1, 3)), min_size=1, max_size=40))
def test_the_certificate_counts_right(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[ImageRow, int]]
) -> None:
    folds = [fold for _, fold in rows]
    k = max(folds) + 1
    assume(k > 0 and not all(bad for (*_, bad), _ in rows))
    path = tmp_path_factory.getbasetemp() / "folds.csv"
    path.write_text("any content")
    competition, audit = audited_competition(path.parent, [row for row, _ in rows])
    certificate = certify(competition, audit, Folds.of(np.array(folds)), path, np.array(folds), None)

    good = [(*row[:3], fold) for row, fold in rows if not row[3]]
    per_class = {name: Counter(fold for label, _, _, fold in good if label == name) for (name, *_), _ in rows}
    validated = {name: [count[fold] for fold in range(k)] for name, count in per_class.items()}
    folds_of_group: dict[str, set[int]] = defaultdict(set)
    for _, copy_group, scene, fold in good:
        folds_of_group[copy_group].add(fold)
        folds_of_group[scene].add(fold)
    across = {group for group, group_folds in folds_of_group.items() if len(group_folds) > 1}
    assert (certificate.folds, certificate.images) == (k, len(rows))
    assert certificate.bad_images == len(rows) - len(good)
    assert certificate.trained_in_every_fold == [fold for *_, fold in good].count(-1)
    assert set(certificate.duplicates_across_folds) == across & {"1", "2", "3"}
    assert set(certificate.groups_across_folds) == across & {"4", "5"}
    assert certificate.largest_difference == max(max(counts) - min(counts) for counts in validated.values())
    assert set(certificate.classes_never_validated) == {name for name, counts in validated.items() if not any(counts)}
    assert set(certificate.classes_partly_validated) == {
        name for name, counts in validated.items() if any(counts) != all(counts)
    }
    assert set(certificate.classes_not_trained) == {
        name for name, counts in validated.items() if max(counts) == per_class[name].total() > 0
    }


@settings(max_examples=examples(100))
@given(st.lists(image_rows, min_size=1, max_size=40), st.integers(2, 4), st.integers(0, 3))
def test_the_certificate_of_our_own_folds_holds(
    tmp_path_factory: pytest.TempPathFactory, rows: list[ImageRow], k: int, seed: int
) -> None:
    """Every class has at least one readable image."""
    root = tmp_path_factory.getbasetemp()
    competition, audit = audited_competition(root, [*rows, *((name, "", "", False) for name in "abc")])
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        patch.setattr(folds_csv, "load_audit", lambda competition: audit)
        try:
            write_folds(competition, Split(k, seed))
        except PodiumError:  # too few images or groups; see test_split.py
            return
    certificate = read_certificate(root)
    assert certificate["holds"]
    assert certificate["uneven_classes"] == certificate["classes_left_out"] == []
    assert read_certificate(root)["bad_images"] == sum(bad for *_, bad in rows)
