"""The audit: audit.csv and duplicates.csv are right, and are written again only when the data changes."""

import csv
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from pictures import photograph, saved, write_image_competition, write_table
from podium.basics.disk import sha256
from podium.basics.errors import PodiumError
from podium.competition.find.csv_files import read_table
from podium.competition.load import load
from podium.images import audit as audit_module
from podium.images.audit import audit_path, load_audit
from podium.images.duplicates import Pairs, find_duplicates
from tiny import Podium, assert_says, done, one_line, write_card

HEADER = "role,id,target,image,reason,width,height,format,mode,bytes,sha256,group,doubt"


@pytest.fixture
def compared_counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of images in each comparison since the fixture was set up."""
    counts: list[int] = []

    def find_and_count(thumbs: NDArray[np.uint8], areas: NDArray[np.int64], compared: NDArray[np.int64]) -> Pairs:
        counts.append(len(compared))
        return find_duplicates(thumbs, areas, compared)

    monkeypatch.setattr(audit_module, "find_duplicates", find_and_count)
    return counts


def read_audit(root: Path) -> pd.DataFrame:
    return read_table(audit_path("tiny", root))


def read_duplicates(root: Path) -> pd.DataFrame:
    return read_table(audit_path("tiny", root).with_name("duplicates.csv"))


# --- the two files -----------------------------------------------------------------------------------


def test_audit_csv_has_a_row_for_every_image(tmp_path: Path, podium: Podium, duplicates_folder: Path) -> None:
    done(podium("audit", "-c", "tiny"))
    rows, competition = read_audit(tmp_path), load("tiny", tmp_path)
    assert ",".join(rows.columns) == HEADER
    assert list(rows["role"]) == ["train"] * 12 + ["test"] * 3
    for column in ("id", "image"):
        assert list(rows[column]) == [*competition.train[column], *competition.test[column]]
    assert list(rows["target"]) == [*competition.train["target"], "", "", ""]
    assert list(rows["bytes"]) == [str((duplicates_folder / image).stat().st_size) for image in rows["image"]]
    assert list(rows["sha256"]) == [sha256(duplicates_folder / image) for image in rows["image"]]
    facts = rows.set_index(["role", "id"])[["reason", "width", "height", "format", "mode"]]
    assert facts.loc[("train", "3")].tolist() == ["", "80", "60", "PNG", "RGB"]
    assert facts.loc[("test", "leak")].tolist() == ["", "40", "30", "PNG", "RGB"]
    groups = rows.set_index("image")["group"]
    assert groups[groups != ""].to_dict() == {
        "train/0.png": "train/0.png",
        "train/copy.png": "train/0.png",
        "train/1.png": "train/1.png",
        "train/other.png": "train/1.png",
        "train/2.png": "test/leak.png",
        "test/leak.png": "test/leak.png",
    }


def test_duplicates_csv_has_a_row_for_every_pair_of_duplicates(
    tmp_path: Path, podium: Podium, duplicates_folder: Path
) -> None:
    done(podium("audit", "-c", "tiny"))
    pairs = read_duplicates(tmp_path)
    assert list(pairs.columns) == ["first", "second", "kind", "distance"]
    assert pairs[["first", "second", "kind"]].to_numpy().tolist() == [
        ["test/leak.png", "train/2.png", "same picture"],
        ["train/0.png", "train/copy.png", "same file"],
        ["train/1.png", "train/other.png", "mirrored"],
    ]
    distances = pairs["distance"].astype(float)
    assert distances[3] == 0
    assert (distances < 4).all()


def test_files_of_several_pages_are_named(tmp_path: Path, podium: Podium) -> None:
    images = {str(number): ("ab"[number % 2], photograph(number)) for number in range(4)}
    folder = write_image_competition(tmp_path, images, {"x": photograph(9)})
    (path,) = folder.glob("train*/1.*")
    path.write_bytes(saved(photograph(1), "TIFF", save_all=True, append_images=[photograph(7)]))
    out, _ = done(podium("audit", "-c", "tiny"))
    (line,) = [line for line in out.splitlines() if "page 1 of 2" in line]
    assert path.name in line
    assert "several pages" in out


def test_without_duplicates_the_csv_is_a_header_and_no_image_has_a_group(tmp_path: Path, podium: Podium) -> None:
    train = {str(seed): ("ab"[seed % 2], photograph(seed)) for seed in range(4)}
    write_image_competition(tmp_path, train, {"x": photograph(9)})
    done(podium("audit", "-c", "tiny"))
    with audit_path("tiny", tmp_path).with_name("duplicates.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["first", "second", "kind", "distance"]]
    assert set(read_audit(tmp_path)["group"]) == {""}


def test_unreadable_files_have_a_reason_and_are_not_duplicates_of_each_other(
    tmp_path: Path, podium: Podium, duplicates_folder: Path
) -> None:
    for name in ("4", "copy"):
        (duplicates_folder / "train" / f"{name}.png").write_bytes(b"")
    done(podium("audit", "-c", "tiny"))
    row = read_audit(tmp_path).set_index("image").loc["train/4.png"]
    assert row[["reason", "width", "height", "format", "mode", "bytes", "group"]].tolist() == [
        "the file is empty", "0", "0", "", "", "0", ""
    ]  # fmt: skip


def test_with_exact_in_the_card_only_the_same_file_is_a_duplicate(
    tmp_path: Path, podium: Podium, duplicates_folder: Path
) -> None:
    podium("audit", "-c", "tiny")
    assert set(read_audit(tmp_path)["group"]) > {"", "train/1.png"}
    write_card(tmp_path, 'copies = "exact"')
    out, _ = done(podium("audit", "-c", "tiny"))
    assert "1 group of duplicates" in out
    rows = read_audit(tmp_path)
    assert set(rows["id"][rows["group"] != ""]) == {"0", "copy"}
    assert list(read_duplicates(tmp_path)["kind"]) == ["same file"]
    done(podium("folds", "-c", "tiny", "--k", "2"))
    done(podium("folds", "-c", "tiny", "--verify"))


@pytest.mark.parametrize("size", ["20", "512"])
def test_the_audit_does_not_depend_on_the_stored_pixels(
    tmp_path: Path, podium: Podium, duplicates_folder: Path, size: str
) -> None:
    files = [audit_path("tiny", tmp_path), audit_path("tiny", tmp_path).with_name("duplicates.csv")]
    done(podium("audit", "-c", "tiny", "--store", "off"))
    without_pixels = [file.read_bytes() for file in files]
    (store,) = audit_path("tiny", tmp_path).parent.glob("pixels-*")
    assert (store / "pixels.bin").stat().st_size == 0
    done(podium("audit", "-c", "tiny", "--image-size", size))
    assert [file.read_bytes() for file in files] == without_pixels


# --- unusual names and labels ------------------------------------------------------------------------

NAMES = [
    "a,b",
    'the "best"',
    "naïve 猫",
    "semi;colon",
    "'",
    "two\nlines",
    "half\rway",
    "tab\tbed",
    "\x1b[31m",
    "#",
    "=",
]


@pytest.mark.parametrize("name", NAMES)
def test_file_names_may_hold_any_character(
    tmp_path: Path, podium: Podium, compared_counts: list[int], name: str
) -> None:
    train = {name: ("a", photograph(0)), "copy": ("a", photograph(0)), "other": ("b", photograph(1))}
    write_image_competition(tmp_path, train, {"x": photograph(2), name: photograph(0)})
    out, err = done(podium("audit", "-c", "tiny"))
    assert "\x1b" not in out + err
    rows, pairs = read_audit(tmp_path), read_duplicates(tmp_path)
    assert list(rows["id"]) == [name, "copy", "other", "x", name]
    assert set(pairs["first"]) == {f"test/{name}.png"}
    assert set(pairs["second"]) == {f"train/{name}.png", "train/copy.png"}
    assert set(rows["group"]) == {f"test/{name}.png", ""}
    assert load_audit(load("tiny", tmp_path)).to_numpy().tolist() == rows.to_numpy().tolist()
    assert compared_counts == [5]


@pytest.mark.parametrize("label", [name for name in NAMES if "\n" not in name and "\r" not in name])
def test_labels_may_hold_any_character_but_line_ends(tmp_path: Path, podium: Podium, label: str) -> None:
    train = {str(seed): (label if seed else "usual", photograph(seed)) for seed in range(3)}
    write_image_competition(tmp_path, {**train, "copy": ("usual", photograph(1))}, {"x": photograph(99)})
    out, _ = done(podium("audit", "-c", "tiny"))
    assert "duplicates with different labels: 1" in out
    assert list(read_audit(tmp_path)["target"]) == ["usual", label, label, "usual", ""]


# --- no readable image -------------------------------------------------------------------------------


def make_unreadable(folder: Path, pattern: str) -> None:
    for image in folder.glob(pattern):
        image.write_bytes(b"")


def write_hand_made_folds(folder: Path) -> None:
    """Writes folds.csv for the training images in `folder`."""
    path = audit_path("tiny", folder.parents[2]).with_name("folds.csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    names = [image.stem for image in folder.glob("train/*.png")]
    write_table(path, [("id", "fold"), *((name, str(number % 2)) for number, name in enumerate(names))])


@pytest.mark.parametrize("command", [("audit",), ("folds",), ("folds", "--verify")])
def test_a_competition_without_a_readable_image_is_refused_in_one_line(
    podium: Podium, duplicates_folder: Path, command: tuple[str]
) -> None:
    make_unreadable(duplicates_folder, "*/*.png")
    write_hand_made_folds(duplicates_folder)
    status, out, err = podium(command[0], "-c", "tiny", *command[1:])
    assert (status, out) == (1, "")
    last_line = err.splitlines()[-1]
    assert last_line.startswith(f"podium: error: {duplicates_folder}: none of its 15 images can be read")
    assert_says(last_line, ".png first (the file is empty)", "download it again")


@pytest.mark.parametrize(
    ("readable", "problem"),
    [("", "none of the training images can be read"), ("train/1.png", "nothing could be validated")],
)
def test_folds_of_at_most_one_readable_training_image_are_refused_in_one_line(
    podium: Podium, duplicates_folder: Path, readable: str, problem: str
) -> None:
    """The test images can be read."""
    kept = (duplicates_folder / readable).read_bytes() if readable else b""
    make_unreadable(duplicates_folder, "train/*.png")
    if readable:
        (duplicates_folder / readable).write_bytes(kept)
    done(podium("audit", "-c", "tiny"))
    one_line(podium("folds", "-c", "tiny", "--k", "2"), problem)


def test_folds_without_a_readable_training_image_cannot_be_verified(podium: Podium, duplicates_folder: Path) -> None:
    make_unreadable(duplicates_folder, "train/*.png")
    write_hand_made_folds(duplicates_folder)
    one_line(podium("folds", "-c", "tiny", "--verify"), "none of the training images can be read")


def test_an_image_size_of_zero_is_refused_in_one_line(podium: Podium, duplicates_folder: Path) -> None:
    one_line(podium("audit", "-c", "tiny", "--image-size", "0"), "--image-size")


# --- written once, and again after a change ----------------------------------------------------------


def test_a_second_reading_compares_nothing_and_returns_the_same(
    tmp_path: Path, duplicates_folder: Path, compared_counts: list[int]
) -> None:
    first = load_audit(load("tiny", tmp_path))
    written = audit_path("tiny", tmp_path).read_bytes()
    second = load_audit(load("tiny", tmp_path))
    assert compared_counts == [15]
    assert first.to_numpy().tolist() == second.to_numpy().tolist()
    assert list(first.columns) == list(second.columns)
    assert audit_path("tiny", tmp_path).read_bytes() == written


def change_label(folder: Path, root: Path) -> None:
    path = folder / "train.csv"
    path.write_text(path.read_text().replace('"3","a"', '"3","b"'))


CHANGES: dict[str, Callable[[Path, Path], object]] = {
    "an image": lambda folder, root: photograph(77).save(folder / "train" / "3.png"),
    "a test image": lambda folder, root: photograph(77).save(folder / "test" / "x.png"),
    "the time of an image": lambda folder, root: os.utime(folder / "train" / "3.png", (1, 1)),
    "a label": change_label,
    "the order of the test images": lambda folder, root: write_table(
        folder / "sample_submission.csv", [("id", "label"), ("y", "a"), ("leak", "a"), ("x", "a")]
    ),
    "audit.csv is missing": lambda folder, root: audit_path("tiny", root).unlink(),
    "audit.json is missing": lambda folder, root: audit_path("tiny", root).with_suffix(".json").unlink(),
    "audit.json is not JSON": lambda folder, root: audit_path("tiny", root).with_suffix(".json").write_text("[1"),
    "audit.json is a list": lambda folder, root: audit_path("tiny", root).with_suffix(".json").write_text("[1]"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_after_a_change_the_audit_is_written_again(
    tmp_path: Path, duplicates_folder: Path, compared_counts: list[int], change: str
) -> None:
    load_audit(load("tiny", tmp_path))
    CHANGES[change](duplicates_folder, tmp_path)
    competition = load("tiny", tmp_path)
    rows = load_audit(competition)
    assert compared_counts == [15, 15]
    assert list(rows["sha256"]) == [sha256(duplicates_folder / image) for image in rows["image"]]
    assert list(rows["target"][:12]) == list(competition.train["target"])
    assert list(rows["id"][12:]) == list(competition.test["id"])
    assert read_audit(tmp_path).to_numpy().tolist() == rows.to_numpy().tolist()


def drop_last_row(text: str) -> str:
    return "".join(text.splitlines(keepends=True)[:-1])


def swap_first_rows(text: str) -> str:
    header, first, second, *others = text.splitlines(keepends=True)
    return "".join([header, second, first, *others])


def repeat_last_row(text: str) -> str:
    return text + text.splitlines(keepends=True)[-1]


def rename_column(text: str) -> str:
    return text.replace("reason", "why", 1)


@pytest.mark.parametrize("edit", [drop_last_row, swap_first_rows, repeat_last_row, rename_column])
def test_an_audit_that_was_changed_by_hand_is_refused_until_it_is_deleted(
    tmp_path: Path, podium: Podium, duplicates_folder: Path, edit: Callable[[str], str]
) -> None:
    done(podium("audit", "-c", "tiny"))
    path = audit_path("tiny", tmp_path)
    path.write_text(edit(path.read_text()))
    with pytest.raises(PodiumError, match=r"audit\.csv was changed by hand; delete it and run: .*audit"):
        load_audit(load("tiny", tmp_path))
    one_line(podium("folds", "-c", "tiny", "--k", "2"), str(path))
    path.unlink()
    done(podium("folds", "-c", "tiny", "--k", "2"))


def test_a_damaged_store_is_built_again_before_its_images_are_compared(
    tmp_path: Path, podium: Podium, duplicates_folder: Path
) -> None:
    done(podium("audit", "-c", "tiny"))
    (thumbs,) = audit_path("tiny", tmp_path).parent.glob("pixels-*/thumbs.bin")
    expected = thumbs.read_bytes()
    thumbs.write_bytes(bytes(len(expected)))  # by these thumbnails, all images are duplicates of each other
    out, err = done(podium("audit", "-c", "tiny"))
    assert f"{thumbs} is damaged" in err
    assert "3 groups of duplicates" in out
    assert thumbs.read_bytes() == expected
