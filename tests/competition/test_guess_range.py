"""Arrays of NumPy are images where no image file is, and are shown in one range, which is guessed or the card's."""

import io
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from contained import write_digit_recognizer
from layouts import SLUG, card_path, load_error, load_files, raw_path, table
from podium.competition.build.complete_card import as_toml
from podium.competition.describe import describe
from podium.competition.load import Competition, load
from podium.images.decode import read_image
from podium.images.store import open_store
from podium.images.usual_shape import usual_shape
from podium.models.model_file import read_spec
from podium.saved_runs.run_folder import Run
from tiny import FAST, Podium, assert_says, done, write_file

TRAIN = table("id,target", *(f"a{number},{number % 2}" for number in range(8)))
SAMPLE = table("id,target", "b1,0.5", "b0,0.5")
TABLES = {"train_labels.csv": TRAIN, "sample_submission.csv": SAMPLE}


def write_array(root: Path, name: str, array: NDArray[np.generic]) -> None:
    path = raw_path(root, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, array)


def write_seti(root: Path, dtype: str = "float16", spoil: float = 0.0) -> None:
    """SETI: six planes of an array, in folders called after the first letter of the id."""
    rng = np.random.default_rng(0)
    for number in range(10):
        name = f"train/a/a{number}.npy" if number < 8 else f"test/b/b{number - 8}.npy"
        array = rng.normal(number % 2, 1, (6, 9, 8))
        array[0, 0, 0] = spoil or array[0, 0, 0]
        write_array(root, name, array.astype(dtype))


def load_seti(root: Path) -> Competition:
    write_seti(root)
    return load_files(root, [], TABLES)


def test_seti(tmp_path: Path) -> None:
    competition = load_seti(tmp_path)
    assert competition.train["image"].tolist() == [f"train/a/a{number}.npy" for number in range(8)]
    assert competition.test["image"].tolist() == ["test/b/b1.npy", "test/b/b0.npy"]
    planes, ends = competition.notes
    assert_says(planes, "train/a/a0.npy", "6 planes of 9 x 8", "54 x 8")
    low, high = competition.card["range"]
    assert -3 < low < -1 < 2 < high < 4
    assert f"range = [{low:g}, {high:g}]" in ends
    assert str(card_path(tmp_path)) in ends
    assert "guess" in ends
    assert usual_shape(competition) == pytest.approx(8 / 54)


def test_the_guessed_range_is_the_one_of_every_image(tmp_path: Path) -> None:
    competition = load_seti(tmp_path)
    low, high = competition.card["range"]
    array = np.load(competition.folder / "test/b/b0.npy").astype(np.float32).reshape(54, 8)
    expected = ((array - low) * 255 / (high - low) + 0.5).clip(0, 255).astype(np.uint8)
    store = open_store(competition, 128)
    (position,) = store.positions(["test/b/b0.npy"])
    stored = store.reader(np.array([position]))(0)
    assert abs(stored[..., 0].astype(int) - expected).max() <= 1
    assert np.array_equal(stored, read_image(competition.folder / "test/b/b0.npy", (low, high)))
    assert store.files[position].format == "NumPy"


def test_the_guess_written_in_the_card_reads_the_same_competition(tmp_path: Path) -> None:
    competition = load_seti(tmp_path)
    text = as_toml(SLUG, competition.settings)
    (line,) = [line for line in text.splitlines() if line.startswith("range")]
    assert "guess" in line
    assert "range" in describe(competition)
    write_file(card_path(tmp_path), text)
    again = load(SLUG, tmp_path)
    assert again.card.value_range == competition.card.value_range
    assert not [note for note in again.notes if "range =" in note]


@pytest.mark.slow
def test_the_range_goes_into_the_models_of_a_run(tmp_path: Path, podium: Podium) -> None:
    competition = load_seti(tmp_path)
    done(podium("folds", "-c", SLUG, "--k", "2"))
    words = ("-c", SLUG, *FAST[2:], "--model", "test_vit", "--folds", "0", "--epochs", "1", "--name", "a")
    done(podium("train", *words))
    run = Run(tmp_path / "runs" / SLUG / "a")
    assert read_spec(run.weights_path(0)).value_range == competition.card.value_range
    done(podium("submit", "-c", SLUG))
    with np.load(run.fold_folder(0) / "test.npz") as file:
        expected = dict(zip(file["id"].tolist(), file["probs"].tolist(), strict=True))
    out, _ = done(podium("predict", "a", "-c", SLUG, raw_path(tmp_path, "test"), "--csv"))
    predicted = pd.read_csv(io.StringIO(out))
    assert [Path(image).stem for image in predicted["image"]] == ["b0", "b1"]
    assert np.allclose(predicted[["0", "1"]], [expected["b0"], expected["b1"]], atol=1e-6)


def test_a_few_extreme_values_do_not_set_the_range(tmp_path: Path) -> None:
    write_seti(tmp_path, spoil=60000.0)
    low, high = load_files(tmp_path, [], TABLES).card["range"]
    assert -4 < low < high < 5


@pytest.mark.parametrize("dtype", ["uint8", "bool"])
def test_pixels_of_8_bits_need_no_range(tmp_path: Path, dtype: str) -> None:
    write_seti(tmp_path, dtype)
    assert "range" not in load_files(tmp_path, [], TABLES).card


def test_the_range_of_the_card_is_taken(tmp_path: Path) -> None:
    write_seti(tmp_path)
    competition = load_files(tmp_path, [], TABLES, "range = [0, 1]\n")
    assert competition.card.value_range == (0.0, 1.0)
    assert not [note for note in competition.notes if "guess" in note]


def test_arrays_beside_images_change_nothing(tmp_path: Path) -> None:
    images = [*(f"train/a{number}.jpg" for number in range(8)), "test/b0.jpg", "test/b1.jpg"]
    for name in ("embeddings.npy", "train/a0.npy", "extra/c/1.npy", "extra/d/1.npy"):
        write_array(tmp_path, name, np.zeros((4, 4)))
    competition = load_files(tmp_path, images, TABLES)
    assert competition.train["image"].tolist() == images[:8]
    assert not competition.notes
    assert "range" not in competition.card


def test_an_array_beside_rows_of_pixels_changes_nothing(tmp_path: Path) -> None:
    write_array(tmp_path, "means.npy", np.zeros((28, 28)))
    write_digit_recognizer(tmp_path)
    assert load(SLUG, tmp_path).train["image"].iloc[0] == "train.csv#1"


def test_arrays_beside_a_picture_that_is_none_of_them_are_found_by_their_ids(tmp_path: Path) -> None:
    write_seti(tmp_path)
    competition = load_files(tmp_path, ["overview.png", "more/detail.png"], TABLES)
    assert competition.train["image"].iloc[0] == "train/a/a0.npy"
    assert competition.test["image"].iloc[0] == "test/b/b1.npy"


def test_an_id_without_an_array_is_named_with_its_line(tmp_path: Path) -> None:
    write_seti(tmp_path)
    assert_says(
        load_error(tmp_path, [], {**TABLES, "train_labels.csv": TRAIN + "a9,1\n"}), "train_labels.csv", "a9", "line 10"
    )


def test_a_folder_of_arrays_for_each_class(tmp_path: Path) -> None:
    for number in range(4):
        write_array(tmp_path, f"train/{'cat' if number % 2 else 'dog'}/{number}.npy", np.zeros((4, 4), np.uint8))
    competition = load_files(tmp_path, [], {})
    assert competition.classes == ("cat", "dog")
    assert len(competition.train) == 4


def test_a_stray_picture_beside_folders_of_arrays_changes_nothing(tmp_path: Path) -> None:
    for number in range(12):
        write_array(tmp_path, f"train/{'cat' if number % 2 else 'dog'}/{number}.npy", np.zeros((4, 4), np.uint8))
    competition = load_files(tmp_path, ["overview.png"], {})
    assert competition.classes == ("cat", "dog")
    assert len(competition.train) == 12
    assert not competition.notes


def test_a_pipe_and_a_damaged_array_do_not_keep_the_others_from_being_read(tmp_path: Path) -> None:
    write_seti(tmp_path)
    expected = load_files(tmp_path, [], TABLES).card["range"]
    pipe, damaged = raw_path(tmp_path, "train/a/a0.npy"), raw_path(tmp_path, "train/a/a7.npy")
    pipe.unlink()
    os.mkfifo(pipe)
    damaged.write_bytes(damaged.read_bytes()[:500])
    competition = load_files(tmp_path, [], TABLES)
    assert competition.card["range"] == pytest.approx(expected, abs=0.5)
    bad = open_store(competition, 128).files
    assert [record.image for record in bad if record.reason] == ["train/a/a0.npy", "train/a/a7.npy"]
