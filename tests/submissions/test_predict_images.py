"""podium predict: images of one's own, with a run or with the blend of a submission."""

import io
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from podium.basics.errors import PodiumError
from podium.images.decode import read_image
from podium.submissions.predict_images import ImagePredictions, find_models, predict_images
from podium.training.own_images import BLOCK, list_images
from tiny import COLOURS, Podium, assert_says, done, one_line, run_of, write_image


def test_a_submission_predicts_its_test_images_as_it_was_written(two_runs: Path, podium: Podium) -> None:
    _, out, err = podium("submit", "-c", "tiny", "--blend", "equal-calibrated")
    csv = Path(out.strip())
    assert csv.exists(), err
    out, _ = done(podium("predict", csv, two_runs / "data/raw/tiny/test_image", "--csv"))
    predicted = pd.read_csv(io.StringIO(out))
    ids = [Path(image).stem for image in predicted["image"]]
    submitted = pd.read_csv(csv, dtype=str)
    assert dict(zip(ids, predicted["prediction"], strict=True)) == dict(submitted.to_numpy().tolist())
    assert list(predicted.columns) == ["image", "prediction", "blue", "green", "lonely", "red"]


def test_a_class_that_is_called_like_another_column_has_a_column_of_its_own() -> None:
    classes, probs = ("image", "prediction", "id"), np.array([[0.5, 0.3, 0.2]])
    frame = ImagePredictions([Path("a.png")], classes, probs, {}).frame()
    assert list(frame.columns) == ["image", "prediction", "class image", "class prediction", "id"]
    assert frame.iloc[0].to_list() == ["a.png", "image", 0.5, 0.3, 0.2]
    numbers = ImagePredictions([Path("a.png")], classes, probs, {}, are_numbers=True).frame()
    assert list(numbers.columns) == ["image", "class image", "prediction", "id"]


def test_a_run_predicts_the_mean_of_its_fold_models(two_runs: Path, podium: Podium) -> None:
    done(podium("submit", "-c", "tiny", "--runs", "good"))
    run = run_of(two_runs, "good")
    predictions = [np.load(run.fold_folder(fold) / "test.npz") for fold in (0, 1)]
    mean = np.mean([file["probs"].astype(float) for file in predictions], axis=0)
    files = [two_runs / f"data/raw/tiny/test_image/{name}.jpg" for name in predictions[0]["id"]]
    for images in (files, [read_image(file) for file in files]):  # files and arrays give the same
        predicted = predict_images(*find_models("good", "tiny", two_runs), images)
        np.testing.assert_allclose(predicted.probs, mean, atol=1e-6)


def test_the_table_shows_the_most_probable_classes_first(two_runs: Path, podium: Podium) -> None:
    write_image(two_runs / "mine.jpg", COLOURS["red"], seed=5)
    (two_runs / "broken.jpg").write_text("no image")
    run_folder = two_runs / "runs/tiny/good"
    files = two_runs / "mine.jpg", two_runs / "broken.jpg"
    out, err = done(podium("predict", run_folder, *files, "--top", "2"))
    header, mine, broken = (line.split() for line in out.splitlines())
    assert header == ["image", "most", "probable", "no.", "2"]
    assert mine[:2] == [str(two_runs / "mine.jpg"), "red"]
    assert len(mine) == 5
    assert broken[1:] == ["?", "?"]
    assert "1 image cannot be read" in err


def test_a_folder_names_the_images_that_it_leaves_out(
    two_runs: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.competition.find.image_names.find_spec", lambda name: None)
    folder = two_runs / "photos"
    write_image(folder / "mine.jpg", COLOURS["red"], seed=5)
    for name in ("b.HEIC", "a.heic", "scan.dcm", "notes.txt"):
        (folder / name).write_bytes(b"in another format")
    out, err = done(podium("predict", two_runs / "runs/tiny/good", folder))
    assert len(out.splitlines()) == 2
    (warning,) = [line for line in err.splitlines() if "warning" in line]
    assert_says(warning, "2 .heic (HEIC), 1 .dcm (DICOM)", "a.heic, b.HEIC, scan.dcm", "pillow-heif")
    (folder / "mine.jpg").unlink()
    one_line(
        podium("predict", two_runs / "runs/tiny/good", folder), "no images that can be read, but 2 .heic", "pillow-heif"
    )


def test_a_folder_of_arrays_is_predicted_and_arrays_beside_images_are_named(two_runs: Path, podium: Podium) -> None:
    folder = two_runs / "arrays"
    folder.mkdir()
    np.save(folder / "red.npy", np.full((8, 8, 3), COLOURS["red"], np.uint8))
    out, err = done(podium("predict", two_runs / "runs/tiny/good", folder))
    assert "red" in out.splitlines()[1]
    assert "warning" not in err
    write_image(folder / "mine.jpg", COLOURS["red"], seed=5)
    out, err = done(podium("predict", two_runs / "runs/tiny/good", folder))
    assert len(out.splitlines()) == 2
    (warning,) = [line for line in err.splitlines() if "warning" in line]
    assert_says(warning, "red.npy", "name them")


def test_more_images_than_fit_into_a_block_keep_their_order(two_runs: Path) -> None:
    colours = [np.full((8, 8, 3), COLOURS[name], np.uint8) for name in ("red", "green", "blue")]
    images = [colours[number % 3] for number in range(BLOCK + 5)]
    frame = predict_images(*find_models("good", "tiny", two_runs), images).frame()
    assert list(frame["image"]) == list(range(BLOCK + 5))
    assert all(len(set(frame["prediction"][start::3])) == 1 for start in range(3))


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("good", "nope.jpg"), "nope.jpg: no such file or folder"),
        (("god", "."), "no run 'god' in runs/tiny; did you mean good?"),
        (("good", "empty"), "empty: no images below it"),
        (("nope.csv", "."), "nope.json"),
    ],
)
def test_what_does_not_exist_is_named(
    words: tuple[str, str], problem: str, two_runs: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(two_runs)
    (two_runs / "empty").mkdir()
    assert problem.replace("runs/tiny", str(two_runs / "runs/tiny")) in one_line(
        podium("predict", "-c", "tiny", *words)
    )


def test_a_submission_whose_run_was_trained_again_is_refused(csv: Path, two_runs: Path, podium: Podium) -> None:
    weights = run_of(two_runs, "good").weights_path(0)
    weights.write_bytes(run_of(two_runs, "idle").weights_path(0).read_bytes())
    assert "was damaged or replaced" in one_line(podium("predict", csv, two_runs / "data/raw/tiny/test_image"))


def test_an_array_must_hold_rgb_pixels() -> None:
    assert len(list_images(np.zeros((4, 4, 3), np.uint8))) == 1
    assert len(list_images(np.zeros((2, 4, 4, 3), np.uint8))) == 2
    assert len(list_images([np.zeros((4, 4, 3), np.uint8), Image.new("RGB", (5, 6))])) == 2  # of any sizes
    assert len(list_images(Image.new("RGB", (5, 6)))) == 1
    with pytest.raises(PodiumError, match="there are no images"):
        list_images([])


@pytest.mark.parametrize("array", [np.zeros((4, 4, 3)), np.zeros((4, 4), np.uint8), np.zeros((4, 4, 4), np.uint8)])
def test_other_arrays_are_refused(array: np.ndarray, two_runs: Path) -> None:
    with pytest.raises(PodiumError, match="array of uint8, height x width x 3"):
        predict_images(*find_models("good", "tiny", two_runs), [array])


def test_a_name_that_is_not_utf_8_is_refused(two_runs: Path, podium: Podium) -> None:
    path = os.fsdecode(os.fsencode(two_runs) + b"/caf\xe9.jpg")
    write_image(Path(path), COLOURS["red"], seed=5)
    one_line(podium("predict", "good", path, "--csv"), "caf\\xe9.jpg' is not UTF-8; rename it")
    with pytest.raises(PodiumError, match="is not UTF-8; rename it"):
        list_images([path])


def test_a_fold_whose_weights_are_gone_is_named(two_runs: Path, podium: Podium) -> None:
    run_of(two_runs, "good").weights_path(1).unlink()
    one_line(
        podium("predict", "good", two_runs / "data/raw/tiny/test_image"),
        "fold1/model.safetensors is missing; restore it, or delete",
    )
