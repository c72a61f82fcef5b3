"""folds.csv: duplicates and groups stay together, and a mistake in a hand-made file is refused."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import ImageOps

from pictures import LabelledImages, add_scenes, photograph, write_image_competition
from podium.basics.errors import PodiumError
from podium.competition.find.csv_files import read_table
from podium.competition.load import load
from podium.folds.folds_csv import folds_path, read_folds, write_folds
from podium.folds.strategies import Split
from tiny import Podium, assert_says, done, one_line, write_card, write_competition, write_file

QUICK_TRAINING = ("train", "-c", "tiny", "--model", "test_vit", "--weights", "none", "--epochs", "1")


def split(root: Path, podium: Podium, *words: object) -> dict[str, int]:
    """Runs `podium folds`; returns the fold of every id."""
    done(podium("folds", "-c", "tiny", *words))
    rows = read_table(folds_path("tiny", root))
    return dict(zip(rows["id"], rows["fold"].astype(int), strict=True))


def groups_in_file(root: Path) -> dict[str, str]:
    rows = read_table(folds_path("tiny", root))
    return dict(zip(rows["id"], rows["group"], strict=True))


def images_of_two_classes(count: int = 12) -> LabelledImages:
    return {str(seed): ("ab"[seed % 2], photograph(seed)) for seed in range(count)}


# --- duplicates and groups ---------------------------------------------------------------------------


def test_duplicates_share_a_fold_also_if_resized_and_mirrored(tmp_path: Path, podium: Podium) -> None:
    train = images_of_two_classes()
    for seed in range(6):
        train[f"copy {seed}"] = (train[str(seed)][0], ImageOps.mirror(photograph(seed)).resize((60, 45)))
    write_image_competition(tmp_path, train, {"x": photograph(99)})
    for seed in range(3):
        folds = split(tmp_path, podium, "--k", "3", "--seed", seed)
        assert [folds[f"copy {number}"] for number in range(6)] == [folds[str(number)] for number in range(6)]
        assert set(folds.values()) == {0, 1, 2}
    assert groups_in_file(tmp_path) == {name: name.removeprefix("copy ") for name in train}


@pytest.mark.parametrize("source", ["flag", "card"])
def test_images_of_a_group_share_a_fold(tmp_path: Path, podium: Podium, source: str) -> None:
    folder = write_image_competition(tmp_path, images_of_two_classes(16), {"x": photograph(99)})
    scenes = {str(number): f"scene {number % 4}, north" for number in range(12)}
    add_scenes(folder, scenes)
    without_groups = split(tmp_path, podium, "--k", "2")
    folds_of_scene = [{without_groups[name] for name in scenes if scenes[name] == scene} for scene in scenes.values()]
    assert any(len(folds) > 1 for folds in folds_of_scene)
    if source == "card":
        write_card(tmp_path, 'group_column = "scene"\n')
    with_groups = split(tmp_path, podium, "--k", "2", *(["--group", "scene"] if source == "flag" else []))
    for scene in set(scenes.values()):
        assert len({with_groups[name] for name in scenes if scenes[name] == scene}) == 1
    assert {name: int(group) for name, group in groups_in_file(tmp_path).items()} == {
        **{str(number): number % 4 for number in range(12)},
        **{str(number): number for number in range(12, 16)},  # images without a scene are no group
    }


def test_the_flag_and_the_card_give_the_same_folds_and_the_flag_wins(tmp_path: Path, podium: Podium) -> None:
    folder = write_image_competition(tmp_path, images_of_two_classes(), {"x": photograph(99)})
    add_scenes(folder, {str(number): str(number // 3) for number in range(12)})
    by_flag = split(tmp_path, podium, "--k", "2", "--group", "scene")
    write_card(tmp_path, 'group_column = "scene"\n')
    assert split(tmp_path, podium, "--k", "2") == by_flag
    write_card(tmp_path, 'group_column = "label"\n')
    assert split(tmp_path, podium, "--k", "2", "--group", "scene") == by_flag


def test_a_group_column_that_does_not_exist_is_refused_with_the_columns_that_do(tmp_path: Path, podium: Podium) -> None:
    write_image_competition(tmp_path, images_of_two_classes(), {"x": photograph(99)})
    one_line(podium("folds", "-c", "tiny", "--group", "patient"), '"patient"', "column", "id, label")


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_group_column_is_refused(tmp_path: Path, podium: Podium, name: str) -> None:
    write_competition(tmp_path)
    one_line(podium("folds", "-c", "tiny", "--group", name), "--group", "name of a column")


def test_duplicates_and_groups_link_images_into_one_group(tmp_path: Path, podium: Podium) -> None:
    """1 is a copy of 0 and shares a scene with 2; 4 is a copy of 2 and shares a scene with 7."""
    train = images_of_two_classes(16)
    train["1"], train["4"] = ("b", ImageOps.mirror(photograph(0))), ("a", photograph(2).resize((60, 45)))
    folder = write_image_competition(tmp_path, train, {"x": photograph(99)})
    add_scenes(folder, {"1": "park", "2": "park", "4": "sea", "7": "sea", "8": "wood", "9": "wood"})
    for seed in range(4):
        folds = split(tmp_path, podium, "--k", "2", "--group", "scene", "--seed", seed)
        assert len({folds[name] for name in ("0", "1", "2", "4", "7")}) == 1
        assert folds["8"] == folds["9"]
    first_of_group = {"1": "0", "2": "0", "4": "0", "7": "0", "9": "8"}
    assert groups_in_file(tmp_path) == {name: first_of_group.get(name, name) for name in train}


def test_a_copy_in_the_test_set_makes_no_group(tmp_path: Path, podium: Podium) -> None:
    write_image_competition(tmp_path, images_of_two_classes(), {"x": photograph(0), "y": photograph(1)})
    split(tmp_path, podium, "--k", "2")
    assert groups_in_file(tmp_path) == {name: name for name in images_of_two_classes()}


def test_a_split_is_refused_with_a_remedy_if_all_images_count_as_duplicates(tmp_path: Path, podium: Podium) -> None:
    train = {str(seed): ("ab"[seed % 2], photograph(0)) for seed in range(30)}
    write_image_competition(tmp_path, train, {"x": photograph(9)})
    one_line(
        podium("folds", "-c", "tiny"),
        "nothing could be validated",
        "30 training images count as duplicates",
        f'write copies = "exact" in {tmp_path}/data/competitions/tiny.toml',
    )
    write_card(tmp_path, 'copies = "exact"\n')
    status, _, err = podium("folds", "-c", "tiny")
    assert status == 1  # all of them are the same file
    assert "nothing could be validated" in err


# --- unreadable images -------------------------------------------------------------------------------


def test_unreadable_images_get_fold_minus_1_and_do_not_count_for_their_class(tmp_path: Path, podium: Podium) -> None:
    rare = {"c1": ("c", photograph(50)), "c2": ("c", photograph(51))}
    folder = write_image_competition(tmp_path, {**images_of_two_classes(), **rare}, {"x": photograph(99)})
    for name in ("3", "6", "c2"):
        (folder / "train" / f"{name}.png").write_bytes(b"")
    folds = split(tmp_path, podium, "--k", "2")
    assert {name for name, fold in folds.items() if fold == -1} == {"3", "6", "c1", "c2"}  # c has one image left
    assert groups_in_file(tmp_path)["3"] == "3"
    for fold in (0, 1):
        assert sorted(int(name) % 2 for name in folds if folds[name] == fold) in ([0, 0, 0, 1, 1], [0, 0, 1, 1, 1])


@pytest.mark.parametrize(("caller", "flag"), [("", "--drop-bad"), ("make", "ARGS=--drop-bad")])
def test_images_that_training_will_refuse_are_said_last_with_the_remedy(
    tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch, caller: str, flag: str
) -> None:
    monkeypatch.setenv("PODIUM_CALLED_BY", caller)
    folder = write_image_competition(tmp_path, images_of_two_classes(), {"x": photograph(99)})
    for name in ("3", "6"):
        (folder / "train" / f"{name}.png").write_bytes(b"")
    *_, warning, following = podium("folds", "-c", "tiny", "--k", "2")[2].splitlines()
    assert warning.startswith("podium: warning: training will refuse 2 images")
    assert "train/3.png (" in warning
    assert warning.endswith(f" {flag}")
    assert following.endswith(f" {flag}")
    done(podium("audit", "-c", "tiny", "--drop-bad"))
    assert "cannot be read" not in podium("folds", "-c", "tiny", "--k", "3")[2]


def test_an_unreadable_image_does_not_keep_its_group_out_of_the_folds(tmp_path: Path, podium: Podium) -> None:
    folder = write_image_competition(tmp_path, images_of_two_classes(), {"x": photograph(99)})
    add_scenes(folder, {"0": "park", "2": "park", "4": "park", "1": "sea", "3": "sea"})
    (folder / "train" / "2.png").write_bytes(b"")
    folds = split(tmp_path, podium, "--k", "2", "--group", "scene")
    assert [name for name, fold in folds.items() if fold == -1] == ["2"]
    assert folds["0"] == folds["4"]
    assert folds["1"] == folds["3"]
    done(podium("folds", "-c", "tiny", "--verify", "--group", "scene"))


# --- the file that `podium folds` writes -------------------------------------------------------------


def test_the_file_has_four_columns_and_a_class_with_one_image_is_in_no_fold(tmp_path: Path, podium: Podium) -> None:
    write_competition(tmp_path)
    out, err = done(podium("folds", "-c", "tiny", "--k", "4"))
    path = folds_path("tiny", tmp_path)
    lines = path.read_text().splitlines()
    assert lines[0] == "id,target,fold,group"
    assert lines[-1] == "024,lonely,-1,024"
    assert "classes that no fold validates: 1 (lonely)" in out
    assert f"next: podium --root {tmp_path} compete -c tiny" in err
    before = path.read_bytes()
    _, _, err = podium("folds", "-c", "tiny", "--k", "4")
    assert f"{path} is unchanged" in err
    assert "wrote" not in err
    assert path.read_bytes() == before


def test_python_callers_may_write_paths_as_text(tmp_path: Path) -> None:
    write_competition(tmp_path, per_class=3, test_images=1)
    competition = load("tiny", str(tmp_path))
    with pytest.raises(PodiumError, match="k must be a whole number of folds, such as 5, not '3'"):
        write_folds(competition, Split("3"))  # type: ignore[arg-type]
    write_folds(competition, Split(3))
    assert set(read_folds(competition).of_image) == {-1, 0, 1, 2}


def test_a_file_that_does_not_exist_is_a_wrong_path(tiny: Path, podium: Podium) -> None:
    one_line(podium("folds", "-c", "tiny", "--verify", "nofile.csv"), "nofile.csv does not exist; correct the path")
    folds_path("tiny", tiny).unlink()
    assert "split the training images with: " in one_line(podium("folds", "-c", "tiny", "--verify"))


@pytest.mark.parametrize("k", ["1", "0", "-3", "9"])
def test_an_impossible_number_of_folds_is_refused(tmp_path: Path, podium: Podium, k: str) -> None:
    write_competition(tmp_path, per_class=3, test_images=1)
    one_line(podium("folds", "-c", "tiny", "--k", k), "--k")


def test_ids_with_line_ends_are_written_and_read_back(tmp_path: Path, podium: Podium) -> None:
    train = {f"{seed}\r\n\n{seed}": ("ab"[seed % 2], photograph(seed)) for seed in range(8)}
    write_image_competition(tmp_path, train, {"x": photograph(9)})
    done(podium("folds", "-c", "tiny", "--k", "2"))
    done(podium("folds", "-c", "tiny", "--verify"))


# --- the audit that the folds are made from ----------------------------------------------------------


def test_a_damaged_store_is_built_again_before_images_are_compared_for_folds(tmp_path: Path, podium: Podium) -> None:
    write_image_competition(tmp_path, images_of_two_classes(), {"x": photograph(99)})
    done(podium("audit", "-c", "tiny"))
    (records,) = folds_path("tiny", tmp_path).parent.glob("pixels-*/files.jsonl")
    data = records.read_bytes()
    records.write_bytes(b"zz" + data[2:])
    folds_path("tiny", tmp_path).with_name("audit.json").unlink()
    _, err = done(podium("folds", "-c", "tiny", "--k", "2"))
    assert f"podium: warning: {records} is damaged" in err
    assert records.read_bytes() == data


@pytest.mark.parametrize("column", [0, 2])
def test_an_audit_with_a_changed_row_is_refused(tmp_path: Path, podium: Podium, column: int) -> None:
    write_image_competition(tmp_path, images_of_two_classes(), {"x": photograph(99)})
    done(podium("folds", "-c", "tiny", "--k", "2"))
    path = folds_path("tiny", tmp_path).with_name("audit.csv")
    lines = path.read_text().splitlines()
    cells = lines[1].split(",")
    cells[column] = "test"
    path.write_text("\n".join([lines[0], ",".join(cells), *lines[2:]]) + "\n")
    one_line(podium("folds", "-c", "tiny", "--verify"), "audit.csv was changed by hand; delete it")


# --- reading a file that was made by hand ------------------------------------------------------------


def drop_image_001(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("001,"))


# The edit of folds.csv, the problem in the message, and the remedy.
MISTAKES: dict[str, tuple[Callable[[str], str], str, str]] = {
    "a missing column": (lambda text: text.replace("fold", "split", 1), "no column 'fold'", "add or rename one"),
    "an id twice": (lambda text: text + "000,red,1,000\n", "line 27: id '000' appears twice", "delete one"),
    "a fold that is not a number": (
        lambda text: text.replace("001,red,", "001,red,x", 1),
        "line 3: fold 'x",
        "correct that line",
    ),
    "an unknown id": (
        lambda text: text.replace("\n001,", "\nzzz,", 1),
        "line 3: no training image has the id 'zzz'",
        "correct or delete that line",
    ),
    "a missing image": (drop_image_001, "1 training image without a fold, '001' first", "folds -c tiny"),
    "another label": (
        lambda text: text.replace("001,red", "001,blue", 1),
        "id '001' has the label 'blue' here, but 'red'",
        "folds -c tiny",
    ),
    "a fold without images": (lambda text: text.replace(",0,", ",2,"), "no image in fold 0", "without gaps"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_training_refuses_a_file_with_a_mistake(tmp_path: Path, podium: Podium, mistake: str) -> None:
    write_competition(tmp_path)
    done(podium("folds", "-c", "tiny", "--k", "2"))
    path = folds_path("tiny", tmp_path)
    edit, problem, remedy = MISTAKES[mistake]
    path.write_text(edit(path.read_text()))
    one_line(podium(*QUICK_TRAINING), problem, remedy, str(path))


def test_a_file_with_only_ids_and_folds_is_enough_to_train(tmp_path: Path, podium: Podium) -> None:
    write_competition(tmp_path)
    path = folds_path("tiny", tmp_path)
    write_file(path, "fold,id\n" + "".join(f"{number % 2},{number:03d}\n" for number in range(25)))
    out, _ = done(podium(*QUICK_TRAINING, "--image-size", "32", "--folds", "1"))
    assert out.splitlines()[1].split()[:2] == ["1", "12"]


def test_training_without_folds_says_how_to_make_them(tmp_path: Path, podium: Podium) -> None:
    write_competition(tmp_path)
    one_line(podium(*QUICK_TRAINING), "folds.csv does not exist", f"podium --root {tmp_path} folds -c tiny")


def test_training_a_fold_that_does_not_exist_names_the_folds(tmp_path: Path, podium: Podium) -> None:
    write_competition(tmp_path)
    done(podium("folds", "-c", "tiny", "--k", "2"))
    one_line(podium(*QUICK_TRAINING, "--folds", "0,2"), "no fold 2", "0 to 1")


def test_training_warns_unless_the_folds_are_verified(tmp_path: Path, podium: Podium) -> None:
    write_competition(tmp_path)
    done(podium("folds", "-c", "tiny", "--k", "2"))
    assert "not verified" not in podium(*QUICK_TRAINING, "--image-size", "32", "--folds", "0")[2]
    path = folds_path("tiny", tmp_path)
    path.with_suffix(".json").unlink()
    err = podium(*QUICK_TRAINING, "--image-size", "32", "--folds", "1")[2]
    assert_says(err, f"podium: warning: {path}: ", "not verified", "folds -c tiny --verify")


def test_training_says_that_verified_folds_leak(tmp_path: Path, podium: Podium) -> None:
    folder = write_competition(tmp_path)
    (folder / "train_image" / "copy.jpg").write_bytes((folder / "train_image" / "000.jpg").read_bytes())
    table = (folder / "train.csv").read_text()
    label = table.splitlines()[1].partition(",")[2]
    (folder / "train.csv").write_text(f"{table}copy,{label}\n")
    done(podium("folds", "-c", "tiny", "--k", "2"))
    path = folds_path("tiny", tmp_path)
    rows = path.read_text()
    path.write_text(re.sub(r"^(copy,\w+),([01])", lambda row: f"{row[1]},{1 - int(row[2])}", rows, flags=re.MULTILINE))
    assert podium("folds", "-c", "tiny", "--verify")[0] == 1
    err = podium(*QUICK_TRAINING, "--image-size", "32", "--folds", "1")[2]
    assert "not verified" not in err
    assert_says(err, f"podium: warning: {path}: these folds leak", "folds -c tiny --verify says where")


def test_test_images_among_the_training_images_are_a_warning_everywhere(tmp_path: Path, podium: Podium) -> None:
    folder = write_competition(tmp_path)
    rows = (folder / "train.csv").read_text()
    assert "pseudo-labels" not in podium("folds", "-c", "tiny", "--k", "2")[2]
    for number, image in enumerate(sorted((folder / "test_image").iterdir())):
        (folder / "train_image" / f"copy{number}.jpg").write_bytes(image.read_bytes())
        rows += f"copy{number},{('red', 'green', 'blue')[number % 3]}\n"
    (folder / "train.csv").write_text(rows)
    warning = "7 of 7 test images are among the training images, too"
    assert warning in podium("audit", "-c", "tiny")[1]
    assert warning in podium("folds", "-c", "tiny", "--k", "2")[2]
    assert warning in podium("folds", "-c", "tiny", "--verify")[2]
    _, err = done(podium(*QUICK_TRAINING, "--folds", "0"))
    assert warning in err
    path = folds_path("tiny", tmp_path)
    path.write_text(re.sub(r"^(copy[3-6],\w+),\d", r"\1,-1", path.read_text(), flags=re.MULTILINE))  # as it advises
    assert "pseudo-labels" not in podium(*QUICK_TRAINING, "--folds", "1", "--name", "b")[2]  # these are not verified
    warning = "3 of 7 test images are among the training images that are validated, too"
    assert warning in podium("folds", "-c", "tiny", "--verify")[2]
    path.write_text(re.sub(r"^(copy\d,\w+),\d", r"\1,-1", path.read_text(), flags=re.MULTILINE))
    out, err = done(podium("folds", "-c", "tiny", "--verify"))
    assert "pseudo-labels" not in err
    assert "duplicate among the training images: 7 of 7" in out
    assert "pseudo-labels" not in podium(*QUICK_TRAINING, "--folds", "0", "--name", "c")[2]
