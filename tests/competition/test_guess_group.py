"""Images of one patient share a fold although no card says so: a guess, by a column's name or by the test images."""

from pathlib import Path

import pytest

from layouts import load_files, table
from podium.competition.load import Competition

TRAIN, TEST = range(40), range(40, 60)
IMAGES = [f"train/{number}.jpg" for number in TRAIN] + [f"test/{number}.jpg" for number in TEST]


def read(root: Path, column: str, of_train: list[object], of_test: list[object], card: str = "") -> Competition:
    tables = {
        "train.csv": table(
            f"id,label,{column}",
            *(f"{n},{'cat' if n % 3 else 'dog'},{value}" for n, value in zip(TRAIN, of_train, strict=True)),
        ),
        "test.csv": table(f"id,{column}", *(f"{n},{value}" for n, value in zip(TEST, of_test, strict=True))),
        "sample_submission.csv": table("id,label", *(f"{n},cat" for n in TEST)),
    }
    return load_files(root, IMAGES, tables, card)


PATIENTS = [f"p{n // 4}" for n in TRAIN]


@pytest.mark.parametrize("column", ["patient_id", "PatientID", "subject", "StudyInstanceUID"])
def test_a_column_is_guessed_by_its_name(tmp_path: Path, column: str) -> None:
    competition = read(tmp_path, column, list(PATIENTS), [f"p{n % 10}" for n in TEST])
    assert competition.groups is not None
    assert competition.groups.tolist() == PATIENTS
    (note,) = [note for note in competition.notes if "share a fold is a guess" in note]
    assert f'group_column = "{column}"' in note


def test_a_column_is_guessed_where_the_test_images_have_other_values(tmp_path: Path) -> None:
    competition = read(tmp_path, "camera", list(PATIENTS), [f"q{n // 4}" for n in TEST])
    assert competition.groups is not None
    assert any("test images have others" in note for note in competition.notes)
    assert read(tmp_path, "camera", list(PATIENTS), [f"p{n % 10}" for n in TEST]).groups is None


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("patient_id", list(range(40))),  # each image is of another one
        ("patient_id", ["same"] * 40),
        ("patient_id", ["", *PATIENTS[1:]]),
        ("subject", ["a" if n % 3 else f"b{n % 5}" for n in TRAIN]),  # one class would be in a single group
        ("width", [100 + n % 7 for n in TRAIN]),
    ],
)
def test_other_columns_are_no_groups(tmp_path: Path, column: str, values: list[object]) -> None:
    assert read(tmp_path, column, values, [100 + n % 7 for n in TEST]).groups is None


def test_the_card_decides(tmp_path: Path) -> None:
    competition = read(tmp_path, "patient_id", list(PATIENTS), ["x"] * 20, 'group_column = ""')
    assert competition.groups is None
    assert not any("a guess" in note and "fold" in note for note in competition.notes)
    competition = read(tmp_path, "patient_id", list(PATIENTS), ["x"] * 20, 'group_column = "patient_id"')
    assert competition.groups is not None
    assert not any("share a fold is a guess" in note for note in competition.notes)


def test_a_card_turns_known_groups_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.competition.card.known_cards", lambda: {"it": {"group_column": "patient_id"}})
    assert read(tmp_path, "patient_id", list(PATIENTS), ["x"] * 20).groups is not None
    assert read(tmp_path, "patient_id", list(PATIENTS), ["x"] * 20, 'group_column = ""').groups is None


def test_both_sides_of_one_share_a_fold(tmp_path: Path) -> None:
    def read_sides(root: Path, names: list[str], card: str = "") -> Competition:
        rows = [f"{name},{number // 2 % 2}" for number, name in enumerate(names)]
        tables = {
            "train.csv": table("image,level", *rows),
            "sample_submission.csv": table("image,level", *(f"{n}_left,0" for n in TEST)),
        }
        return load_files(root, [f"train/{n}.jpg" for n in names] + [f"test/{n}_left.jpg" for n in TEST], tables, card)

    pairs = [f"{n // 2}_{('left', 'right')[n % 2]}" for n in TRAIN]
    competition = read_sides(tmp_path / "a", pairs)
    assert competition.groups is not None
    assert competition.groups.tolist() == [str(n // 2) for n in TRAIN]
    assert any("its other side share a fold is a guess" in note for note in competition.notes)
    assert read_sides(tmp_path / "b", pairs, 'group_column = ""').groups is None
    alone = [f"{n}_{('left', 'right')[n % 2]}" for n in TRAIN]
    assert read_sides(tmp_path / "c", alone).groups is None  # nobody has both sides: a label, perhaps
    assert read_sides(tmp_path / "d", [*pairs[1:], "upside"]).groups is None


def test_a_table_beside_class_folders_says_whose_each_image_is(tmp_path: Path) -> None:
    def read_folders(root: Path, whose: list[str], card: str = "") -> Competition:
        images = [f"imgs/train/c{n % 2}/img_{n}.jpg" for n in TRAIN] + [f"imgs/test/img_{n}.jpg" for n in TEST]
        rows = [f"{name},c{n % 2},img_{n}.jpg" for n, name in zip(TRAIN, whose, strict=True)]
        tables = {
            "list.csv": table("subject,classname,img", *rows),
            "sample_submission.csv": table("img,c0,c1", *(f"img_{n}.jpg,0.5,0.5" for n in TEST)),
        }
        return load_files(root, images, tables, card)

    competition = read_folders(tmp_path / "a", PATIENTS)
    assert competition.groups is not None
    by_image = dict(zip(competition.train["image"], competition.groups, strict=True))
    assert by_image == {f"imgs/train/c{n % 2}/img_{n}.jpg": PATIENTS[n] for n in TRAIN}
    assert any("'subject' of list.csv share a fold is a guess" in note for note in competition.notes)
    assert read_folders(tmp_path / "b", PATIENTS, 'group_column = ""').groups is None
    assert read_folders(tmp_path / "c", [str(n) for n in TRAIN]).groups is None  # each image is of another one
