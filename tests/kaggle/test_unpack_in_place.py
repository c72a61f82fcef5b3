"""A plain folder with archives in it is read as if they were unpacked; the archives stay."""

from pathlib import Path

import pytest

from archives import make_7z, make_tar, make_zip
from layouts import IMAGE, IMAGES, SLUG, TABLES, card_path, raw_path, write_files
from podium.competition.load import load
from tiny import Podium, done, one_line, write_file

TRAIN = {name.removeprefix("train/"): IMAGE for name in IMAGES if name.startswith("train/")}
TEST = {name.removeprefix("test/"): IMAGE for name in IMAGES if name.startswith("test/")}


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("make", [make_zip, make_tar, make_7z])
@pytest.mark.parametrize("command", ["data", "folds"])
def test_archives_in_the_folder_are_unpacked_beside_themselves(
    tmp_path: Path, podium: Podium, make: object, command: str
) -> None:
    ending = {make_zip: "zip", make_tar: "tar.gz", make_7z: "7z"}[make]  # type: ignore[index]
    write_files(raw_path(tmp_path), [], TABLES)
    raw_path(tmp_path, f"train.{ending}").write_bytes(make(TRAIN))  # type: ignore[operator]
    raw_path(tmp_path, f"test.{ending}").write_bytes(make({f"test/{name}": data for name, data in TEST.items()}))  # type: ignore[operator]
    status, _, err = podium(command, "-c", SLUG, *(("--k", "2") if command == "folds" else ()))
    assert f"unpacked test.{ending}, train.{ending}" in err
    assert status == (0 if command == "data" else 1), err  # these images cannot be decoded
    competition = load(SLUG, tmp_path)
    assert (len(competition.train), len(competition.test)) == (3, 2)
    assert files_below(raw_path(tmp_path)) == {*IMAGES, *TABLES, f"train.{ending}", f"test.{ending}"}
    assert "unpacked" not in podium("data", "-c", SLUG)[2]


def test_only_the_test_images_are_in_an_archive(tmp_path: Path, podium: Podium) -> None:
    write_files(raw_path(tmp_path), IMAGES[:3], {"train.csv": TABLES["train.csv"]})
    raw_path(tmp_path, "test.zip").write_bytes(make_zip(TEST))
    raw_path(tmp_path, "notes.zip").write_bytes(make_zip({"notes.txt": b""}))
    done(podium("data", "-c", SLUG))
    assert len(load(SLUG, tmp_path).test) == 2


def test_an_archive_that_is_not_needed_is_left_alone(tmp_path: Path, podium: Podium) -> None:
    write_files(raw_path(tmp_path), IMAGES, TABLES)
    raw_path(tmp_path, "mine.zip").write_bytes(make_zip({"cat/9.jpg": IMAGE}))
    done(podium("data", "-c", SLUG))
    assert files_below(raw_path(tmp_path)) == {*IMAGES, *TABLES, "mine.zip"}


def test_a_folder_beside_the_archive_that_it_came_from_counts_once(tmp_path: Path, podium: Podium) -> None:
    inner = {"test.zip": make_zip(TEST), "train.zip": make_zip(TRAIN), "test/4.jpg": IMAGE}
    outer = make_zip(inner | {name: text.encode() for name, text in TABLES.items()})
    raw_path(tmp_path).parent.mkdir(parents=True)
    raw_path(tmp_path).with_suffix(".zip").write_bytes(outer)
    done(podium("data", "-c", SLUG))
    assert load(SLUG, tmp_path).test["image"].tolist() == ["test/5.jpg", "test/4.jpg"]


def test_other_content_under_the_same_name_is_refused(tmp_path: Path, podium: Podium) -> None:
    write_files(raw_path(tmp_path), [], TABLES)
    raw_path(tmp_path, "test.zip").write_bytes(make_zip(TEST))
    write_files(raw_path(tmp_path), [], {"test/4.jpg": "another"})
    message = one_line(podium("data", "-c", SLUG), "test.zip", "4.jpg twice")
    assert "delete" not in message
    assert files_below(raw_path(tmp_path)) == {*TABLES, "test.zip", "test/4.jpg"}


def test_a_folder_that_may_not_be_written_gets_a_place_of_its_own(
    tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(raw_path(tmp_path), [name for name in IMAGES if name.startswith("train/")], TABLES)
    raw_path(tmp_path, "more").mkdir()
    raw_path(tmp_path, "more", "test.zip").write_bytes(make_zip(TEST))
    before = files_below(raw_path(tmp_path))
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write everywhere
    done(podium("data", "-c", SLUG))
    assert files_below(raw_path(tmp_path)) == before
    competition = load(SLUG, tmp_path)
    assert competition.folder == tmp_path / "data" / "prepared" / SLUG / "files"
    assert (len(competition.train), len(competition.test)) == (3, 2)


def test_a_broken_archive_is_named_and_never_to_be_deleted(tmp_path: Path, podium: Podium) -> None:
    write_files(raw_path(tmp_path), [], TABLES | {"train.zip": "no archive"})
    message = one_line(podium("data", "-c", SLUG), "train.zip: not a valid zip archive")
    assert "delete" not in message
    assert raw_path(tmp_path, "train.zip").exists()


def test_a_mistake_in_the_card_unpacks_nothing(tmp_path: Path, podium: Podium) -> None:
    write_files(raw_path(tmp_path), IMAGES, TABLES)
    raw_path(tmp_path, "mine.zip").write_bytes(make_zip({"cat/9.jpg": IMAGE}))
    card = card_path(tmp_path)
    write_file(card, 'target_column = "nothing"')
    assert "target_column" in one_line(podium("data", "-c", SLUG))
    assert files_below(raw_path(tmp_path)) == {*IMAGES, *TABLES, "mine.zip"}


def test_after_a_failure_the_folder_that_may_not_be_written_is_tried_again(
    tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(raw_path(tmp_path), [], TABLES | {"train.zip": "broken"})
    raw_path(tmp_path, "test.zip").write_bytes(make_zip(TEST))
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert "train.zip: not a valid zip archive" in one_line(podium("data", "-c", SLUG))
    raw_path(tmp_path, "train.zip").write_bytes(make_zip(TRAIN))
    done(podium("data", "-c", SLUG))
    assert len(load(SLUG, tmp_path).train) == 3
