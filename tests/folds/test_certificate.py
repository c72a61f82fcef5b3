"""The certificate: what a split guarantees, recomputed from images and labels, whoever made it."""

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

from pictures import Pictures, card, photograph, with_scenes, write_pictures, write_table
from podium import PodiumError
from podium.competition.load import Competition, load
from podium.competition.submission_format import SubmissionFormat
from podium.disk import sha256
from podium.folds import folds_csv as folds_module
from podium.folds.certificate import Certificate, certify
from podium.folds.folds_csv import folds_path, write_folds
from tiny import Podium

Folds = dict[str, int]
Row = tuple[str, str, str, bool]  # label, group of copies, scene, whether it is a bad image


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six images of `a` (of 0 and 1 there is a copy in the test set and among `b`), six of `b` and one of `c`."""
    train: Pictures = {str(seed): ("ab"[seed >= 6], photograph(seed)) for seed in range(12)}
    train["6"] = ("b", ImageOps.mirror(photograph(1)))
    train["lonely"] = ("c", photograph(50))
    return write_pictures(tmp_path, train, {"leak": photograph(0).resize((60, 45)), "x": photograph(99)})


def good_folds() -> Folds:
    return {**{str(seed): seed % 2 for seed in range(12)}, "6": 1, "7": 0, "lonely": -1}


def write_hand_made(path: Path, folds: Folds) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(path, [("fold", "id"), *((str(fold), name) for name, fold in reversed(folds.items()))])
    return path


def known(root: Path) -> dict[str, object]:
    return dict(json.loads(folds_path("tiny", root).with_suffix(".json").read_text()))


# --- hand-made folds -------------------------------------------------------------------------------------


def test_good_hand_made_folds_are_certified_beside_them(tmp_path: Path, podium: Podium, folder: Path) -> None:
    path = write_hand_made(folds_path("tiny", tmp_path), good_folds())
    before = path.read_bytes()
    status, out, err = podium("folds", "-c", "tiny", "--verify")
    assert status == 0, err
    assert "FAILS" not in out
    assert "holds what it should" in err
    assert known(tmp_path)["holds"] is True
    assert known(tmp_path)["folds_sha256"] == sha256(path)
    assert path.read_bytes() == before


def test_of_folds_that_lie_elsewhere_nothing_is_kept(tmp_path: Path, podium: Podium, folder: Path) -> None:
    path = write_hand_made(tmp_path / "forum.csv", good_folds())
    assert podium("folds", "-c", "tiny", "--verify", path)[0] == 0
    assert not path.with_suffix(".json").exists()
    assert not folds_path("tiny", tmp_path).exists()
    assert not folds_path("tiny", tmp_path).with_suffix(".json").exists()


def swap(one: str, other: str) -> Callable[[Folds], Folds]:
    return lambda folds: {**folds, one: folds[other], other: folds[one]}


BROKEN: dict[str, tuple[Callable[[Folds], Folds], str]] = {
    "a copy in another fold": (swap("6", "8"), "copies of one picture are in different folds: train/1.png"),
    "a copy that is always trained on": (
        lambda folds: {**folds, "6": -1},
        "copies of one picture are in different folds: train/1.png",
    ),
    "uneven classes": (
        lambda folds: {**folds, "0": 1, "2": 1, "7": 1, "9": 0, "11": 0, "8": 0},
        "the folds' images of a class differ by more than one group: a",
    ),
    "a class left out": (
        lambda folds: folds | dict.fromkeys(["1", "6", "7", "8", "9", "10", "11"], -1),
        "classes that could be validated are in no fold: b; only 5 of 12 images that could be are validated",
    ),
    "a class within one fold": (
        lambda folds: {**folds, "lonely": 0},
        "classes are missing from a fold's training images: c",
    ),
    "all of that": (
        lambda folds: {**folds, "lonely": 1, "6": 0, "0": 1, "2": 1},
        "copies of one picture are in different folds: train/1.png; "
        "the folds' images of a class differ by more than one group: a; "
        "classes are missing from a fold's training images: c",
    ),
}


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("mistake", BROKEN)
def test_what_hand_made_folds_break_is_said_by_name(
    tmp_path: Path, podium: Podium, folder: Path, mistake: str, own: bool
) -> None:
    change, answer = BROKEN[mistake]
    path = write_hand_made(folds_path("tiny", tmp_path) if own else tmp_path / "forum.csv", change(good_folds()))
    status, out, err = podium("folds", "-c", "tiny", "--verify", *([] if own else [path]))
    assert status == 1
    assert err.splitlines()[-1] == f"podium: error: {path}: {answer}"
    assert out.count("FAILS") == answer.count(";") + 1
    assert not path.with_suffix(".json").exists()


@pytest.mark.parametrize("how", ["flag", "card"])
def test_groups_of_the_column_that_straddle_are_said_too(
    tmp_path: Path, podium: Podium, folder: Path, how: str
) -> None:
    with_scenes(folder, {"2": "park", "4": "park", "3": "sea", "8": "sea", "9": "wood"})
    path = write_hand_made(folds_path("tiny", tmp_path), good_folds())
    assert podium("folds", "-c", "tiny", "--verify")[0] == 0
    if how == "card":
        card(tmp_path, 'group_column = "scene"\n')
    flags = ["--group", "scene"] if how == "flag" else []
    status, out, err = podium("folds", "-c", "tiny", "--verify", *flags)
    assert status == 1
    assert err.splitlines()[-1] == f"podium: error: {path}: groups of scene are in different folds: sea"
    assert "FAILS  groups of scene in different folds: 1" in out
    write_hand_made(path, {**good_folds(), "8": 1, "9": 0})
    assert podium("folds", "-c", "tiny", "--verify", *flags)[0] == 0
    assert known(tmp_path)["group_column"] == "scene"


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path, podium: Podium, folder: Path) -> None:
    status, out, err = podium("folds", "-c", "tiny", "--verify", tmp_path / "none.csv")
    assert (status, out) == (1, "")
    assert f"{tmp_path / 'none.csv'} does not exist" in err


# --- our own ---------------------------------------------------------------------------------------------


def test_folds_json_says_all_of_it(tmp_path: Path, podium: Podium, folder: Path) -> None:
    (folder / "train" / "9.png").write_bytes(b"")
    assert podium("folds", "-c", "tiny", "--k", "2")[0] == 0
    said = known(tmp_path)
    difference = said.pop("largest_difference")
    assert difference in (0, 1, 2)
    assert said == {
        "folds": 2,
        "images": 13,
        "trained_in_every_fold": 1,
        "bad_images": 1,
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
        "data_sha256": load("tiny", tmp_path).train_hash,
        "folds_sha256": sha256(folds_path("tiny", tmp_path)),
        "holds": True,
    }
    assert {*said, "largest_difference"} == {*(field.name for field in fields(Certificate)), "holds"}


def test_the_screen_says_what_the_file_does(tmp_path: Path, podium: Podium, folder: Path) -> None:
    _, made, err = podium("folds", "-c", "tiny", "--k", "2")
    assert err.splitlines()[-1].startswith("next: podium ")
    assert "folds.json" in err
    written = folds_path("tiny", tmp_path).with_suffix(".json").read_bytes()
    status, verified, _ = podium("folds", "-c", "tiny", "--verify")
    assert status == 0
    assert verified == made
    assert folds_path("tiny", tmp_path).with_suffix(".json").read_bytes() == written
    lines = [line.strip() for line in made.splitlines()]
    assert "holds  copies of one picture in different folds: 0" in lines
    assert "holds  classes missing from a fold's training images: 0" in lines
    assert "test images with a copy among the training images: 1 of 2" in lines
    assert "classes that no fold validates: 1 (c)" in lines


def test_when_an_image_becomes_a_copy_the_folds_no_longer_hold(tmp_path: Path, podium: Podium, folder: Path) -> None:
    write_hand_made(folds_path("tiny", tmp_path), good_folds())
    assert podium("folds", "-c", "tiny", "--verify")[0] == 0
    photograph(2).save(folder / "train" / "3.png")
    status, _, err = podium("folds", "-c", "tiny", "--verify")
    assert status == 1
    assert "copies of one picture are in different folds: train/2.png" in err


def test_copies_that_chain_groups_together_make_classes_no_more_uneven_than_they_must(
    tmp_path: Path, podium: Podium
) -> None:
    """Eight images of `a`, of which six hang together by turns as copies and by their scene."""
    train: Pictures = {str(seed): ("ab"[seed >= 8], photograph(seed)) for seed in range(16)}
    train["2"], train["4"] = ("a", photograph(1)), ("a", photograph(3))
    folder = write_pictures(tmp_path, train, {"x": photograph(99)})
    with_scenes(folder, {str(seed): f"scene {seed // 2}" for seed in range(6)})
    assert podium("folds", "-c", "tiny", "--k", "2", "--group", "scene")[0] == 0
    assert known(tmp_path)["largest_difference"] == 4  # six in one fold and two in the other
    assert known(tmp_path)["uneven_classes"] == []
    assert podium("folds", "-c", "tiny", "--verify", "--group", "scene")[0] == 0


def test_a_large_group_of_several_classes_excuses_no_more_than_its_images_of_each(
    tmp_path: Path, podium: Podium
) -> None:
    train: Pictures = {str(seed): ("ab"[seed >= 20], photograph(seed)) for seed in range(32)}
    folder = write_pictures(tmp_path, train, {"x": photograph(99)})
    with_scenes(folder, {str(seed): "all" for seed in range(19, 32)})  # one image of a, all of b
    uneven = {str(seed): int(seed < 4) for seed in range(32)}
    path = write_hand_made(tmp_path / "forum.csv", uneven)
    status, _, err = podium("folds", "-c", "tiny", "--verify", path, "--group", "scene")
    assert status == 1
    assert "differ by more than one group: a" in err


def with_patients(root: Path) -> None:
    """Forty patients, each with two images of one label and two of the other."""
    train: Pictures = {str(number): ("ab"[number % 2], photograph(number)) for number in range(160)}
    folder = write_pictures(root, train, {"x": photograph(999)})
    with_scenes(folder, {str(number): f"patient {number // 4}" for number in range(160)})


@pytest.mark.parametrize(
    ("fold_of", "answer"),
    [
        (lambda patient: patient % 3, ""),
        (lambda patient: max(0, patient - 37), "the folds' images of a class differ by more than one group: a, b"),
        (
            lambda patient: max(-1, patient - 37) if patient > 36 else -1,
            "only 12 of 160 images that could be are validated",
        ),
    ],
)
def test_uneven_folds_of_patients_with_several_labels_are_said_so(
    tmp_path: Path, podium: Podium, fold_of: Callable[[int], int], answer: str
) -> None:
    with_patients(tmp_path)
    path = write_hand_made(tmp_path / "forum.csv", {str(number): fold_of(number // 4) for number in range(160)})
    status, _, err = podium("folds", "-c", "tiny", "--group", "scene", "--verify", path)
    assert status == bool(answer)
    assert answer in err


def test_folds_of_mixed_groups_hold_whatever_the_seed(tmp_path: Path, podium: Podium) -> None:
    with_patients(tmp_path)
    for seed in range(5):
        assert podium("folds", "-c", "tiny", "--group", "scene", "--k", "3", "--seed", str(seed))[0] == 0
        assert podium("folds", "-c", "tiny", "--verify")[0] == 0


def test_a_damaged_store_is_made_anew_before_it_is_compared(tmp_path: Path, podium: Podium, folder: Path) -> None:
    assert podium("audit", "-c", "tiny")[0] == 0
    (said,) = folds_path("tiny", tmp_path).parent.glob("pixels-*/files.jsonl")
    data = said.read_bytes()
    said.write_bytes(b"zz" + data[2:])
    folds_path("tiny", tmp_path).with_name("audit.json").unlink()
    status, _, err = podium("folds", "-c", "tiny", "--k", "2")
    assert status == 0
    assert f"{said} is damaged and is made anew" in err
    assert said.read_bytes() == data


# --- whatever the images ---------------------------------------------------------------------------------


def competition_of(root: Path, rows: list[Row]) -> tuple[Competition, pd.DataFrame]:
    """A competition and its audit."""
    labels, copies, scenes, bad = (list(column) for column in zip(*rows, strict=True))
    ids = [str(number) for number in range(len(rows))]
    train = pd.DataFrame({"id": ids, "target": labels, "image": ids}, dtype=object)
    competition = Competition(
        slug="tiny",
        title="tiny",
        folder=root,
        train=train,
        test=train[:0],
        classes=tuple(sorted(set(labels))),
        metric="accuracy",
        submission_format=SubmissionFormat(("id", "label"), "labels", ""),
        recipe={},
        groups=pd.Series(scenes, name="scene", dtype=object),
        copies="near",
        notes=(),
    )
    copies = ["" if spoilt else group for group, spoilt in zip(copies, bad, strict=True)]
    reasons = ["empty" if spoilt else "" for spoilt in bad]
    return competition, train.assign(role="train", group=copies, reason=reasons)


an_image = st.tuples(
    st.sampled_from("abc"), st.sampled_from(["", "1", "2", "3"]), st.sampled_from(["", "4", "5"]), st.booleans()
)


@given(st.lists(st.tuples(an_image, st.integers(-1, 3)), min_size=1, max_size=40))
def test_the_certificate_counts_what_is_there(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Row, int]]
) -> None:
    folds = [fold for _, fold in rows]
    k = max(folds) + 1
    assume(k > 0 and not all(bad for (*_, bad), _ in rows))
    path = tmp_path_factory.getbasetemp() / "folds.csv"
    path.write_text("whatever")
    competition, audit = competition_of(path.parent, [row for row, _ in rows])
    found = certify(competition, audit, np.array(folds), path, np.array(folds))

    good = [(*row[:3], fold) for row, fold in rows if not row[3]]
    per_class = {name: Counter(fold for label, _, _, fold in good if label == name) for (name, *_), _ in rows}
    validated = {name: [count[fold] for fold in range(k)] for name, count in per_class.items()}
    where: dict[str, set[int]] = defaultdict(set)
    for _, copies, scene, fold in good:
        where[copies].add(fold)
        where[scene].add(fold)
    torn = {group for group, some in where.items() if len(some) > 1}
    assert (found.folds, found.images, found.bad_images) == (k, len(rows), len(rows) - len(good))
    assert found.trained_in_every_fold == [fold for *_, fold in good].count(-1)
    assert set(found.duplicates_across_folds) == torn & {"1", "2", "3"}
    assert set(found.groups_across_folds) == torn & {"4", "5"}
    assert found.largest_difference == max(max(each) - min(each) for each in validated.values())
    assert set(found.classes_never_validated) == {name for name, each in validated.items() if not any(each)}
    assert set(found.classes_partly_validated) == {name for name, each in validated.items() if any(each) != all(each)}
    assert set(found.classes_not_trained) == {
        name for name, each in validated.items() if max(each) == per_class[name].total() > 0
    }


@settings(max_examples=100)
@given(st.lists(an_image, min_size=1, max_size=40), st.integers(2, 4), st.integers(0, 3))
def test_our_own_folds_hold_whatever_the_images(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], k: int, seed: int
) -> None:
    """Where no class has bad images only."""
    root = tmp_path_factory.getbasetemp()
    competition, audit = competition_of(root, [*rows, *((name, "", "", False) for name in "abc")])
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        patch.setattr(folds_module, "load_audit", lambda *given: audit)
        try:
            write_folds(competition, root, k, seed)
        except PodiumError:  # too few to split; see test_folds.py
            return
    assert known(root)["holds"]
    assert known(root)["bad_images"] == sum(bad for *_, bad in rows)


def test_a_class_of_which_no_image_can_be_read_breaks_nothing(tmp_path: Path, podium: Podium, folder: Path) -> None:
    (folder / "train" / "lonely.png").write_bytes(b"")
    assert podium("folds", "-c", "tiny", "--k", "2")[0] == 0
    assert podium("folds", "-c", "tiny", "--verify")[0] == 0


def test_verifying_remembers_the_groups_that_the_folds_were_made_with(
    tmp_path: Path, podium: Podium, folder: Path
) -> None:
    with_scenes(folder, {"2": "park", "4": "park", "3": "sea", "8": "sea"})
    assert podium("folds", "-c", "tiny", "--k", "2", "--group", "scene")[0] == 0
    status, out, _ = podium("folds", "-c", "tiny", "--verify")
    assert status == 0
    assert "holds  groups of scene in different folds: 0" in out


@pytest.mark.parametrize("column", [0, 2])
def test_an_audit_whose_rows_were_changed_is_refused(tmp_path: Path, podium: Podium, folder: Path, column: int) -> None:
    assert podium("folds", "-c", "tiny", "--k", "2")[0] == 0
    path = tmp_path / "data" / "prepared" / "tiny" / "audit.csv"
    lines = path.read_text().splitlines()
    cells = lines[1].split(",")
    cells[column] = "test"
    path.write_text("\n".join([lines[0], ",".join(cells), *lines[2:]]) + "\n")
    status, _, err = podium("folds", "-c", "tiny", "--verify")
    assert status == 1
    assert "audit.csv was changed by hand; delete it" in err
