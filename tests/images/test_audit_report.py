"""The report of `podium audit`: what a person reads about files, duplicates, leaks and classes."""

import re
from pathlib import Path

from pictures import photograph, saved, write_image_competition, write_table
from podium.competition.find.csv_files import read_table
from podium.images.audit import audit_path
from tiny import Podium, done


def test_the_report_counts_files_duplicates_leaks_and_classes(
    tmp_path: Path, podium: Podium, duplicates_folder: Path
) -> None:
    out, err = done(podium("audit", "-c", "tiny"))
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "train 12 0 80 x 60 (91.7%), 2 sizes PNG RGB 12" in lines
    assert re.search(r"duplicates .*: 3 groups of duplicates\n", out)
    assert re.search(r"\b4 training images .*duplicate among the training images", out)
    assert re.search(r"\b1 test image .*duplicate among the training images", out)
    assert "33.33%" in out
    assert lines[lines.index("duplicates with different labels: 1") + 1] == "train/1.png 'a', train/other.png 'b'"
    assert [line.split()[:2] for line in lines[-2:]] == [["b", "7"], ["a", "5"]]
    assert "not readable images" not in out
    assert str(audit_path("tiny", tmp_path)) in err
    assert err.splitlines()[-1].startswith("next: podium ")
    assert err.splitlines()[-1].endswith("folds -c tiny")


def test_the_report_says_that_there_are_no_duplicates(tmp_path: Path, podium: Podium) -> None:
    train = {str(seed): ("ab"[seed % 2], photograph(seed)) for seed in range(4)}
    write_image_competition(tmp_path, train, {"x": photograph(9)})
    assert "duplicates: none" in podium("audit", "-c", "tiny")[1].splitlines()


def test_a_test_image_that_is_also_a_training_image_counts_as_leaked(tmp_path: Path, podium: Podium) -> None:
    folder = tmp_path / "data" / "raw" / "tiny" / "images"
    folder.mkdir(parents=True)
    for seed in range(6):
        photograph(seed).save(folder / f"{seed}.png")
    labelled = [(str(seed), "ab"[seed % 2]) for seed in range(5)]
    write_table(folder.parent / "train.csv", [("id", "label"), *labelled])
    write_table(folder.parent / "sample_submission.csv", [("id", "label"), ("4", "a"), ("5", "a")])
    assert "50.00%" in podium("audit", "-c", "tiny")[1]


def test_a_large_group_of_copies_gives_a_warning_with_a_remedy(tmp_path: Path, podium: Podium) -> None:
    copies = {str(seed): ("ab"[seed % 2], photograph(0)) for seed in range(12)}
    others = {f"other {seed}": ("a", photograph(seed)) for seed in range(1, 12)}
    write_image_competition(tmp_path, copies | others, {"x": photograph(99)})
    _, out, _ = podium("audit", "-c", "tiny")
    assert "warning: 12 training images count as duplicates" in out
    assert f'write copies = "exact" in {tmp_path}/data/competitions/tiny.toml' in out
    conflict = out[out.index("duplicates with different labels: 1\n") :].splitlines()[1]
    assert conflict.count("train/") == 5
    assert "(12 in all)" in conflict


def test_unreadable_files_are_listed_with_their_reasons(podium: Podium, duplicates_folder: Path) -> None:
    (duplicates_folder / "train" / "4.png").write_bytes(b"")
    (duplicates_folder / "train" / "copy.png").write_bytes(b"")
    (duplicates_folder / "test" / "x.png").write_bytes(b"<html>")
    lines = podium("audit", "-c", "tiny")[1].splitlines()
    start = lines.index("files that are not readable images: 3")
    assert [line.strip() for line in lines[start + 1 : start + 4]] == [
        "train/4.png: the file is empty",
        "train/copy.png: the file is empty",
        "test/x.png: it is a web page, not a JPEG, PNG, BMP, GIF, WebP or TIFF",
    ]
    assert [line.split()[1:3] for line in lines if line.startswith(("train", "test"))] == [["12", "2"], ["3", "1"]]


def test_damaged_images_that_can_be_read_are_listed_and_used(
    tmp_path: Path, podium: Podium, duplicates_folder: Path
) -> None:
    jpeg = saved(photograph(5), "JPEG")
    (duplicates_folder / "train" / "5.png").write_bytes(jpeg[:-2] + bytes(9) + jpeg[-2:])
    lines = podium("audit", "-c", "tiny")[1].splitlines()
    row = read_table(audit_path("tiny", tmp_path)).set_index("image").loc["train/5.png"]
    assert row["doubt"].endswith("extraneous bytes before marker 0xd9")
    assert row[["reason", "width"]].tolist() == ["", str(photograph(5).width)]
    (title,) = [number for number, line in enumerate(lines) if line.startswith("damaged images")]
    assert lines[title].endswith(": 1")
    assert lines[title + 1] == f"  train/5.png: {row['doubt']}"


def test_the_first_ten_very_small_or_very_oblong_images_are_listed(tmp_path: Path, podium: Podium) -> None:
    train = {f"{seed:02d}": ("ab"[seed % 2], photograph(seed, (15, 40))) for seed in range(12)}
    train |= {"strip": ("a", photograph(20, (162, 20))), "fits": ("a", photograph(21, (160, 20)))}
    write_image_competition(tmp_path, train, {"x": photograph(99, (16, 16))})
    lines = podium("audit", "-c", "tiny")[1].splitlines()
    start = lines.index("very small or very oblong images: 13")
    assert [line.strip() for line in lines[start + 1 : start + 11]] == [
        f"train/{i:02d}.png: 15 x 40" for i in range(10)
    ]
    assert lines[start + 11].strip() == "... and 3 more in audit.csv"
