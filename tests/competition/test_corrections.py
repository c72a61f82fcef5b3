"""Corrections of labels: which tables are read, what is refused, what changes, and how two files are merged."""

from pathlib import Path

import pytest

from layouts import IMAGES, SLUG, TABLES, TRAIN, load_files, table, train_labels
from podium.basics.errors import PodiumError
from podium.competition.build.corrections import corrections_path
from podium.competition.describe import describe
from podium.competition.load import Competition, load
from tiny import write_file

HEADER = "id,label,why"
IMAGES_OF_SIX = [*IMAGES, "train/6.jpg", "train/007.jpg"]
TABLES_OF_SIX = TABLES | {"train.csv": TRAIN + "6,dog\n007,bird\n"}


@pytest.fixture
def plain(tmp_path: Path) -> Competition:
    """Images 1 and 3 are cats, 2 and 6 dogs, and 007 is the only bird."""
    return load_files(tmp_path, IMAGES_OF_SIX, TABLES_OF_SIX)


def correct(root: Path, *lines: str, header: str = HEADER) -> Competition:
    write_file(corrections_path(SLUG, root), table(header, *lines))
    return load(SLUG, root)


def refusal(root: Path, *lines: str, header: str = HEADER) -> str:
    with pytest.raises(PodiumError) as refused:
        correct(root, *lines, header=header)
    message = str(refused.value)
    assert message.startswith(str(corrections_path(SLUG, root)))
    assert "\n" not in message
    return message


# --- applying ----------------------------------------------------------------------------------------


def test_labels_change_and_images_are_dropped_but_not_the_classes(plain: Competition, tmp_path: Path) -> None:
    corrected = correct(tmp_path, "1,dog,looks like one", "007,drop,")
    assert train_labels(corrected) == {
        **{image: label for image, label in train_labels(plain).items() if "007" not in image},
        "train/1.jpg": "dog",
    }
    assert corrected.classes == plain.classes == ("bird", "cat", "dog")
    assert list(corrected.train.index) == list(range(4))
    assert corrected.test.equals(plain.test)
    assert corrected.train_in_files.equals(plain.train)
    no_bird, *_, note = corrected.notes
    assert "1 label changed, 1 image dropped" in note
    assert str(corrections_path(SLUG, tmp_path)) in note
    assert "without a training image: bird" in no_bird
    assert "classes  3" in describe(corrected)


def test_without_corrections_nothing_is_noted_or_hashed(plain: Competition, tmp_path: Path) -> None:
    assert plain.corrections.sha256 is None
    for lines in ((), ("1,cat,I have looked at it",)):
        same = correct(tmp_path, *lines)
        assert same.corrections.sha256 is None
        assert same.train.equals(plain.train)
        assert [note for note in same.notes if "corrects" in note] == [
            note for note in same.notes if "confirmed" in note
        ]
    corrections_path(SLUG, tmp_path).write_bytes(b"")
    assert load(SLUG, tmp_path).notes == plain.notes


def test_the_hash_is_of_what_changes(plain: Competition, tmp_path: Path) -> None:
    first = correct(tmp_path, "1,dog,me", "007,drop,you")
    assert correct(tmp_path, "007,drop,", "3,cat,confirmed", "1,dog,").corrections.sha256 == first.corrections.sha256
    others = [correct(tmp_path, *lines) for lines in (("1,dog,",), ("007,drop,",), ("1,dog,", "007,dog,"))]
    assert len({first.corrections.sha256, *(other.corrections.sha256 for other in others)}) == 4
    assert {other.train_hash for other in others} == {plain.train_hash}


def test_groups_follow_their_images(tmp_path: Path) -> None:
    rows = table("id,target,patient", "1,cat,p", "2,dog,q", "3,cat,r")
    load_files(tmp_path, IMAGES, TABLES | {"train.csv": rows}, 'group_column = "patient"\n')
    corrected = correct(tmp_path, "1,drop,")
    assert corrected.groups is not None
    assert corrected.groups.to_dict() == {0: "q", 1: "r"}
    assert corrected.train["id"].tolist() == ["2", "3"]


# --- reading -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["\ufeffid;label;why\r\n007;cat;\r\n", "label,id\ncat,007\n", "id\tlabel\n007\tcat\n"])
def test_tables_are_read_as_other_tables_are(plain: Competition, tmp_path: Path, text: str) -> None:
    path = corrections_path(SLUG, tmp_path)
    write_file(path, text.encode())
    assert train_labels(load(SLUG, tmp_path))["train/007.jpg"] == "cat"


def test_one_image_may_be_named_twice_with_one_label(plain: Competition, tmp_path: Path) -> None:
    assert train_labels(correct(tmp_path, "1,dog,me", "1,dog,you"))["train/1.jpg"] == "dog"


@pytest.mark.parametrize(
    ("header", "lines", "parts"),
    [
        ("id,why", ("1,x",), ("no column 'label'", "its columns are id, why")),
        ("image,label", ("1,cat",), ("no column 'id'",)),
        (HEADER, ("1,dog,", "9,cat,", "8,dog,"), ("line 3", "no training image has the id 9, 8", "delete")),
        (HEADER, ("7,cat,",), ("line 2", "did you mean 007?")),
        (HEADER, ("1,dog,", "1,bird,"), ("line 3", "id '1' has another label above", "delete")),
        (HEADER, ("1,dgo,",), ("line 2", "no class 'dgo'", "did you mean dog?")),
        (HEADER, ("1,Drop,",), ("did you mean drop?",)),
        (HEADER, ("1,,",), ("no class ''", "bird, cat, dog")),
        (HEADER, ("1,dog,", "3,dog,", "007,drop,"), ("fewer than two classes", "delete")),
    ],
)
def test_mistakes_are_refused(
    plain: Competition, tmp_path: Path, header: str, lines: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    message = refusal(tmp_path, *lines, header=header)
    for part in parts:
        assert part in message


def test_a_class_may_be_called_drop(tmp_path: Path) -> None:
    labels, sample = table("id,target", "1,drop", "2,dog", "3,dog", "6,dog", "007,dog"), table("id,target", "4,dog")
    load_files(tmp_path, IMAGES_OF_SIX, {"train.csv": labels, "sample_submission.csv": sample})
    corrected = correct(tmp_path, "2,drop,", "3,(drop),")
    expected = {"train/1.jpg": "drop", "train/2.jpg": "drop", "train/6.jpg": "dog", "train/007.jpg": "dog"}
    assert train_labels(corrected) == expected


# --- merging -----------------------------------------------------------------------------------------


def test_new_lines_win_and_are_counted(plain: Competition, tmp_path: Path) -> None:
    correct(tmp_path, "1,dog,old", "2,cat,old")
    new = tmp_path / "new.csv"
    new.write_text(table("id;label", "1;dog", "2;bird", "007;drop"))
    before = corrections_path(SLUG, tmp_path).read_text()
    competition = load(SLUG, tmp_path, new)
    assert "2 labels changed, 1 image dropped" in competition.notes[-1]
    assert f"3 lines, 3 new from {new}" in competition.notes[-1]
    assert corrections_path(SLUG, tmp_path).read_text() == before
    competition.corrections.save()
    assert corrections_path(SLUG, tmp_path).read_text() == "id,label,why\n1,dog,\n2,bird,\n007,drop,\n"
    assert load(SLUG, tmp_path).corrections.sha256 == competition.corrections.sha256
    for file in (new, corrections_path(SLUG, tmp_path)):
        assert "0 new" in load(SLUG, tmp_path, file).notes[-1]


def test_a_file_with_a_mistake_changes_nothing(plain: Competition, tmp_path: Path) -> None:
    path, new = corrections_path(SLUG, tmp_path), tmp_path / "new.csv"
    for line in ("1,dgo,", "1,drop,\n3,drop,\n007,drop,"):
        new.write_text(table(HEADER, line))
        with pytest.raises(PodiumError):
            load(SLUG, tmp_path, new)
    new.write_text(table(HEADER))
    with pytest.raises(PodiumError, match="holds no corrections"):
        load(SLUG, tmp_path, new)
    with pytest.raises(PodiumError, match="does not exist; correct the path"):
        load(SLUG, tmp_path, tmp_path / "none.csv")
    assert not path.exists()
