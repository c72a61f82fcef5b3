"""The audit: what every file is, which show the same picture, and that both are known until a file changes."""

import csv
import os
import re
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image, ImageOps

from pictures import photograph, write_pictures, write_table
from podium import PodiumError
from podium.competition.csv_files import read_table
from podium.competition.load import load
from podium.disk import sha256
from podium.images import audit as audit_module
from podium.images import duplicates
from podium.images.audit import audit_path, load_audit
from tiny import Podium

COLUMNS = [
    "role",
    "id",
    "target",
    "image",
    "reason",
    "width",
    "height",
    "format",
    "mode",
    "bytes",
    "sha256",
    "group",
    "doubt",
]


def mirrored(seed: int) -> Image.Image:
    return ImageOps.mirror(photograph(seed)).resize((120, 90))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of each kind of copy one, each in a place of its own."""
    train = {str(seed): ("a" if seed % 2 else "b", photograph(seed)) for seed in range(10)}
    train["copy"] = ("b", photograph(0))  # of 0, with its label
    train["other"] = ("b", mirrored(1))  # of 1, with another
    return write_pictures(
        tmp_path, train, {"x": photograph(100), "leak": photograph(2).resize((40, 30)), "y": photograph(101)}
    )


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images were compared, each time that they are."""
    counts: list[int] = []

    def find(*given: object) -> duplicates.Pairs:
        counts.append(len(given[0]))  # type: ignore[arg-type]
        return duplicates.find_copies(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(audit_module, "find_copies", find)
    return counts


def rows_of(root: Path) -> pd.DataFrame:
    return read_table(audit_path("tiny", root)).set_index(["role", "id"])


# --- what is written -------------------------------------------------------------------------------------


def test_audit_csv_has_a_row_for_every_image_that_says_what_it_is(tmp_path: Path, podium: Podium, folder: Path) -> None:
    assert podium("audit", "-c", "tiny")[0] == 0
    rows = read_table(audit_path("tiny", tmp_path))
    competition = load("tiny", tmp_path)
    assert list(rows.columns) == COLUMNS
    assert list(rows["role"]) == ["train"] * 12 + ["test"] * 3
    for column in ("id", "image"):
        assert list(rows[column]) == [*competition.train[column], *competition.test[column]]
    assert list(rows["target"]) == [*competition.train["target"], "", "", ""]
    assert list(rows["bytes"]) == [str((folder / image).stat().st_size) for image in rows["image"]]
    assert list(rows["sha256"]) == [sha256(folder / image) for image in rows["image"]]
    by_id = rows.set_index(["role", "id"])[["reason", "width", "height", "format", "mode"]]
    assert by_id.loc[("train", "3")].tolist() == ["", "80", "60", "PNG", "RGB"]
    assert by_id.loc[("test", "leak")].tolist() == ["", "40", "30", "PNG", "RGB"]
    groups = rows.set_index("image")["group"]
    assert groups[groups != ""].to_dict() == {
        "train/0.png": "train/0.png",
        "train/copy.png": "train/0.png",
        "train/1.png": "train/1.png",
        "train/other.png": "train/1.png",
        "train/2.png": "test/leak.png",
        "test/leak.png": "test/leak.png",
    }


def test_duplicates_csv_has_a_row_for_every_pair_and_its_kind(tmp_path: Path, podium: Podium, folder: Path) -> None:
    assert podium("audit", "-c", "tiny")[0] == 0
    pairs = read_table(audit_path("tiny", tmp_path).with_name("duplicates.csv"))
    assert list(pairs.columns) == ["first", "second", "kind", "distance"]
    assert pairs[["first", "second", "kind"]].to_numpy().tolist() == [
        ["test/leak.png", "train/2.png", "same picture"],
        ["train/0.png", "train/copy.png", "same file"],
        ["train/1.png", "train/other.png", "mirrored"],
    ]
    distances = pairs["distance"].astype(float)
    assert distances[3] == 0
    assert (distances < 4).all()


def test_what_was_found_is_said_with_the_next_command(tmp_path: Path, podium: Podium, folder: Path) -> None:
    status, out, err = podium("audit", "-c", "tiny")
    assert status == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "train 12 0 80 x 60 (91.7%), 2 in all PNG RGB 12" in lines
    assert re.search(r"duplicates .*: 3 groups\n", out)
    assert re.search(r"\b4 training images .*copy among the training images", out)
    assert re.search(r"\b1 test images? .*copy among the training images", out)
    assert "33.33%" in out
    assert lines[lines.index("copies with different labels: 1") + 1] == "train/1.png 'a', train/other.png 'b'"
    assert [line.split()[:2] for line in lines[-2:]] == [["b", "7"], ["a", "5"]]
    assert "no images" not in out
    assert str(audit_path("tiny", tmp_path)) in err
    assert err.splitlines()[-1].startswith("next: podium ")
    assert err.splitlines()[-1].endswith("folds -c tiny")


def test_without_copies_there_is_a_header_and_no_groups(tmp_path: Path, podium: Podium) -> None:
    write_pictures(tmp_path, {str(seed): ("ab"[seed % 2], photograph(seed)) for seed in range(4)}, {"x": photograph(9)})
    status, out, _ = podium("audit", "-c", "tiny")
    assert status == 0
    assert "duplicates: none" in out.splitlines()
    with audit_path("tiny", tmp_path).with_name("duplicates.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["first", "second", "kind", "distance"]]
    assert set(rows_of(tmp_path)["group"]) == {""}


def test_a_test_image_that_is_trained_on_itself_counts_as_leaked(tmp_path: Path, podium: Podium) -> None:
    folder = tmp_path / "data" / "raw" / "tiny" / "images"
    folder.mkdir(parents=True)
    for seed in range(6):
        photograph(seed).save(folder / f"{seed}.png")
    labelled = [(str(seed), "ab"[seed % 2]) for seed in range(5)]
    write_table(folder.parent / "train.csv", [("id", "label"), *labelled])
    write_table(folder.parent / "sample_submission.csv", [("id", "label"), ("4", "a"), ("5", "a")])
    assert "50.00%" in podium("audit", "-c", "tiny")[1]


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
def test_names_may_hold_anything(tmp_path: Path, podium: Podium, compared: list[int], name: str) -> None:
    train = {name: ("a", photograph(0)), "copy": ("a", photograph(0)), "other": ("b", photograph(1))}
    write_pictures(tmp_path, train, {"x": photograph(2), name: photograph(0)})
    status, out, err = podium("audit", "-c", "tiny")
    assert status == 0
    assert "\x1b" not in out + err
    rows = read_table(audit_path("tiny", tmp_path))
    assert list(rows["id"]) == [name, "copy", "other", "x", name]
    pairs = read_table(audit_path("tiny", tmp_path).with_name("duplicates.csv"))
    assert set(pairs["first"]) == {f"test/{name}.png"}
    assert set(pairs["second"]) == {f"train/{name}.png", "train/copy.png"}
    assert set(rows["group"]) == {f"test/{name}.png", ""}
    assert load_audit(load("tiny", tmp_path), tmp_path).to_numpy().tolist() == rows.to_numpy().tolist()
    assert compared == [5]


@pytest.mark.parametrize("label", [name for name in NAMES if "\n" not in name and "\r" not in name])
def test_labels_may_hold_anything(tmp_path: Path, podium: Podium, label: str) -> None:
    train = {str(seed): (label if seed else "usual", photograph(seed)) for seed in range(3)}
    write_pictures(tmp_path, {**train, "copy": ("usual", photograph(1))}, {"x": photograph(99)})
    status, out, _ = podium("audit", "-c", "tiny")
    assert status == 0
    assert "copies with different labels: 1" in out
    assert list(rows_of(tmp_path)["target"]) == ["usual", label, label, "usual", ""]


def test_only_the_same_file_is_a_copy_where_the_card_says_so(tmp_path: Path, podium: Podium, folder: Path) -> None:
    podium("audit", "-c", "tiny")
    assert set(rows_of(tmp_path)["group"]) > {"", "train/1.png"}
    (tmp_path / "data" / "competitions").mkdir()
    (tmp_path / "data" / "competitions" / "tiny.toml").write_text('copies = "exact"')
    status, out, _ = podium("audit", "-c", "tiny")
    assert status == 0
    assert "1 group" in out
    rows = rows_of(tmp_path)
    assert {name for (_, name), group in rows["group"].items() if group} == {"0", "copy"}
    kinds = read_table(audit_path("tiny", tmp_path).with_name("duplicates.csv"))["kind"]
    assert list(kinds) == ["same file"]
    assert podium("folds", "-c", "tiny", "--k", "2")[0] == 0
    assert podium("folds", "-c", "tiny", "--verify")[0] == 0


def test_many_images_that_hang_together_are_pointed_out(tmp_path: Path, podium: Podium) -> None:
    alike = {str(seed): ("ab"[seed % 2], photograph(0)) for seed in range(12)}
    others = {f"other {seed}": ("a", photograph(seed)) for seed in range(1, 12)}
    write_pictures(tmp_path, alike | others, {"x": photograph(99)})
    _, out, _ = podium("audit", "-c", "tiny")
    assert "warning: 12 training images hang together as copies" in out
    assert 'write copies = "exact"' in out
    listed = out[out.index("copies with different labels: 1\n") :].splitlines()[1]
    assert listed.count("train/") == 5
    assert "(12 in all)" in listed


# --- bad and odd -----------------------------------------------------------------------------------------


def test_bad_files_are_listed_by_name_and_are_no_copies_of_one_another(
    tmp_path: Path, podium: Podium, folder: Path
) -> None:
    (folder / "train" / "4.png").write_bytes(b"")
    (folder / "train" / "copy.png").write_bytes(b"")
    (folder / "test" / "x.png").write_bytes(b"<html>")
    status, out, _ = podium("audit", "-c", "tiny")
    assert status == 0
    found = out.splitlines()
    at = found.index("files that are no images: 3")
    assert [line.strip() for line in found[at + 1 : at + 4]] == [
        "train/4.png: the file is empty",
        "train/copy.png: the file is empty",
        "test/x.png: it is a web page, no JPEG, PNG, BMP, GIF, WebP or TIFF",
    ]
    assert [line.split()[1:3] for line in found if line.startswith(("train", "test"))] == [["12", "2"], ["3", "1"]]
    row = rows_of(tmp_path).loc[("train", "4")]
    assert row[["reason", "width", "height", "format", "mode", "bytes", "group"]].tolist() == [
        "the file is empty", "0", "0", "", "", "0", ""
    ]  # fmt: skip


def test_damaged_images_that_can_be_read_are_listed_and_used(tmp_path: Path, podium: Podium, folder: Path) -> None:
    saved = BytesIO()
    photograph(5).save(saved, "JPEG")
    (folder / "train" / "5.png").write_bytes(saved.getvalue()[:-2] + bytes(9) + saved.getvalue()[-2:])
    status, out, _ = podium("audit", "-c", "tiny")
    assert status == 0
    found = out.splitlines()
    at = found.index("damaged images, which are used as far as they can be read: 1")
    row = rows_of(tmp_path).loc[("train", "5")]
    assert row["doubt"].endswith("extraneous bytes before marker 0xd9")
    assert row[["reason", "width"]].tolist() == ["", str(photograph(5).width)]
    assert found[at + 1] == f"  train/5.png: {row['doubt']}"


def test_very_small_and_very_oblong_images_are_listed_and_of_many_the_first_ten(tmp_path: Path, podium: Podium) -> None:
    train = {f"{seed:02d}": ("ab"[seed % 2], photograph(seed, (15, 40))) for seed in range(12)}
    train |= {"strip": ("a", photograph(20, (162, 20))), "fits": ("a", photograph(21, (160, 20)))}
    write_pictures(tmp_path, train, {"x": photograph(99, (16, 16))})
    found = podium("audit", "-c", "tiny")[1].splitlines()
    at = found.index("very small or very oblong images: 13")
    assert [line.strip() for line in found[at + 1 : at + 11]] == [f"train/{i:02d}.png: 15 x 40" for i in range(10)]
    assert found[at + 11].strip() == "... and 3 more in audit.csv"


def spoil(folder: Path, pattern: str) -> None:
    for image in folder.glob(pattern):
        image.write_bytes(b"")


@pytest.mark.parametrize("command", [("audit",), ("folds",), ("folds", "--verify")])
def test_a_competition_without_a_single_image_is_one_line(podium: Podium, folder: Path, command: tuple[str]) -> None:
    spoil(folder, "*/*.png")
    audit_path("tiny", folder.parents[2]).parent.mkdir(parents=True)
    names = [path.stem for path in folder.glob("train/*.png")]
    rows = [(name, str(number % 2)) for number, name in enumerate(names)]
    write_table(audit_path("tiny", folder.parents[2]).with_name("folds.csv"), [("id", "fold"), *rows])
    status, out, err = podium(command[0], "-c", "tiny", *command[1:])
    assert (status, out) == (1, "")
    assert err.splitlines()[-1] == f"podium: error: {folder}: not one of its 15 images can be read"


@pytest.mark.parametrize(
    ("left", "answer"),
    [("", "not one training image can be read"), ("train/1.png", "nothing could be validated")],
)
def test_training_images_of_which_none_or_one_can_be_read_are_one_line_too(
    podium: Podium, folder: Path, left: str, answer: str
) -> None:
    """While the test images are sound."""
    kept = (folder / left).read_bytes() if left else b""
    spoil(folder, "train/*.png")
    if left:
        (folder / left).write_bytes(kept)
    assert podium("audit", "-c", "tiny")[0] == 0
    status, out, err = podium("folds", "-c", "tiny", "--k", "2")
    assert (status, out) == (1, "")
    assert answer in err.splitlines()[-1]


def test_a_size_that_cannot_be_is_refused_in_one_line(podium: Podium, folder: Path) -> None:
    status, out, err = podium("audit", "-c", "tiny", "--image-size", "0")
    assert (status, out) == (1, "")
    assert "--image-size" in err


# --- once ------------------------------------------------------------------------------------------------


def test_a_second_reading_compares_nothing_and_says_the_same(tmp_path: Path, folder: Path, compared: list[int]) -> None:
    competition = load("tiny", tmp_path)
    made = load_audit(competition, tmp_path)
    written = audit_path("tiny", tmp_path).read_bytes()
    read = load_audit(load("tiny", tmp_path), tmp_path)
    assert compared == [15]
    assert made.to_numpy().tolist() == read.to_numpy().tolist()
    assert list(made.columns) == list(read.columns)
    assert audit_path("tiny", tmp_path).read_bytes() == written


def relabel(folder: Path, root: Path) -> None:
    table = folder / "train.csv"
    table.write_text(table.read_text().replace('"3","a"', '"3","b"'))


CHANGES: dict[str, Callable[[Path, Path], object]] = {
    "an image": lambda folder, root: photograph(77).save(folder / "train" / "3.png"),
    "a test image": lambda folder, root: photograph(77).save(folder / "test" / "x.png"),
    "the time of an image": lambda folder, root: os.utime(folder / "train" / "3.png", (1, 1)),
    "a label": relabel,
    "the order of the test images": lambda folder, root: write_table(
        folder / "sample_submission.csv", [("id", "label"), ("y", "a"), ("leak", "a"), ("x", "a")]
    ),
    "the audit is gone": lambda folder, root: audit_path("tiny", root).unlink(),
    "what it was of is gone": lambda folder, root: audit_path("tiny", root).with_suffix(".json").unlink(),
    "what it was of is broken": lambda folder, root: audit_path("tiny", root).with_suffix(".json").write_text("[1"),
    "what it was of is something else": lambda folder, root: (
        audit_path("tiny", root).with_suffix(".json").write_text("[1]")
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_when_anything_changes_it_is_made_anew(tmp_path: Path, folder: Path, compared: list[int], change: str) -> None:
    load_audit(load("tiny", tmp_path), tmp_path)
    CHANGES[change](folder, tmp_path)
    competition = load("tiny", tmp_path)
    rows = load_audit(competition, tmp_path)
    assert compared == [15, 15]
    assert list(rows["sha256"]) == [sha256(folder / image) for image in rows["image"]]
    assert list(rows["target"][:12]) == list(competition.train["target"])
    assert list(rows["id"][12:]) == list(competition.test["id"])
    assert read_table(audit_path("tiny", tmp_path)).to_numpy().tolist() == rows.to_numpy().tolist()


def without_a_row(text: str) -> str:
    return "".join(text.splitlines(keepends=True)[:-1])


def two_rows_swapped(text: str) -> str:
    header, first, second, *rest = text.splitlines(keepends=True)
    return "".join([header, second, first, *rest])


def a_row_twice(text: str) -> str:
    return text + text.splitlines(keepends=True)[-1]


def a_column_renamed(text: str) -> str:
    return text.replace("reason", "why", 1)


@pytest.mark.parametrize("edit", [without_a_row, two_rows_swapped, a_row_twice, a_column_renamed])
def test_an_audit_that_was_changed_by_hand_is_refused_until_it_is_deleted(
    tmp_path: Path, podium: Podium, folder: Path, edit: Callable[[str], str]
) -> None:
    assert podium("audit", "-c", "tiny")[0] == 0
    path = audit_path("tiny", tmp_path)
    path.write_text(edit(path.read_text()))
    with pytest.raises(PodiumError, match=r"audit\.csv was changed by hand; delete it and run: .*audit"):
        load_audit(load("tiny", tmp_path), tmp_path)
    status, _, err = podium("folds", "-c", "tiny", "--k", "2")
    assert status == 1
    assert str(path) in err
    path.unlink()
    assert podium("folds", "-c", "tiny", "--k", "2")[0] == 0


@pytest.mark.parametrize("size", ["20", "512"])
def test_the_audit_is_the_same_without_kept_pixels_and_for_any_size(
    tmp_path: Path, podium: Podium, folder: Path, size: str
) -> None:
    files = [audit_path("tiny", tmp_path), audit_path("tiny", tmp_path).with_name("duplicates.csv")]
    assert podium("audit", "-c", "tiny", "--store", "off")[0] == 0
    before = [file.read_bytes() for file in files]
    (kept,) = audit_path("tiny", tmp_path).parent.glob("pixels-*")
    assert (kept / "pixels.bin").stat().st_size == 0
    assert podium("audit", "-c", "tiny", "--image-size", size)[0] == 0
    assert [file.read_bytes() for file in files] == before


def test_a_store_that_was_damaged_is_made_anew_first(tmp_path: Path, podium: Podium, folder: Path) -> None:
    assert podium("audit", "-c", "tiny")[0] == 0
    (thumbs,) = audit_path("tiny", tmp_path).parent.glob("pixels-*/thumbs.bin")
    wanted = thumbs.read_bytes()
    thumbs.write_bytes(bytes(len(wanted)))  # by it all images are copies of one
    status, out, err = podium("audit", "-c", "tiny")
    assert status == 0
    assert f"{thumbs} is damaged and is made anew" in err
    assert re.search(r"duplicates .*: 3 groups\n", out)
    assert thumbs.read_bytes() == wanted
