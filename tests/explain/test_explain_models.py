"""The command: pictures and arrays of a run, of several runs, of a model without a run; what it refuses."""

import re
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from podium.models.model_file import load_model, save_model
from podium_annex.explain.picture_names import PICTURES
from templates import copied
from tiny import FAST, Podium, done, one_line, podium_at, run_of, tiny_with_folds

VIT, CONVNET = "teaching_vit_nano", "test_resnet"
SIZE = {VIT: "32", CONVNET: "64"}  # the last map of the second is a single place for 32 pixels


def with_two_models(root: Path) -> None:
    tiny_with_folds(root)
    for model in (VIT, CONVNET):
        words = ("--epochs", "1", "--folds", "1", "--device", "cpu", "--image-size", SIZE[model])
        podium_at(root, "train", *FAST, "--model", model, *words)


trained = copied(with_two_models)


def arrays_of(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "explain.npz", allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def test_a_run_is_explained_with_images_that_its_fold_held_out(trained: Path, podium: Podium) -> None:
    out, err = done(podium("explain", "-c", "tiny", VIT))
    folder = run_of(trained, VIT).path / "explain"
    drawn = set(PICTURES) - {"grad_cam"}
    assert {path.name for path in folder.iterdir()} == {PICTURES[name] for name in drawn} | {"explain.npz"}
    assert [Path(line) for line in out.splitlines()] == [
        folder / PICTURES[name] for name in PICTURES if name in drawn
    ] + [folder / "explain.npz"]
    (missing,) = (line for line in err.splitlines() if "no grad_cam.png" in line)
    assert "class_attention" in missing
    for path in folder.glob("*.png"):
        assert cv2.imread(str(path)) is not None
    assert (folder / "attention_distance.svg").read_text().count("<circle") == 6 * 3
    arrays = arrays_of(folder)
    assert drawn <= set(arrays)
    assert arrays["class_attention"].shape == (6, 3, 8, 8)
    held_out = run_of(trained, VIT).out_of_fold(1)
    assert set(arrays["names"]) <= set(held_out.id)
    assert set(held_out.target.values[np.isin(held_out.id, arrays["names"])]) == set(held_out.target.values)
    np.testing.assert_allclose(arrays["probabilities"].sum(1), 1, rtol=1e-5)


def test_runs_are_compared_in_one_picture(trained: Path, podium: Podium) -> None:
    output = trained / "pictures"
    words = ("--what", "receptive_field", "grad_cam", "--fold", "1", "--output", output)
    out, _ = done(podium("explain", "-c", "tiny", VIT, run_of(trained, CONVNET).path, *words))
    names = {str(path.relative_to(output)) for path in output.rglob("*.*")}
    vit, convnet = f"{VIT}-fold1", f"{CONVNET}-fold1"
    assert names == {
        *(f"{folder}/{name}" for folder in (vit, convnet) for name in ("receptive_field.png", "explain.npz")),
        f"{convnet}/grad_cam.png",
        f"{vit}/receptive_fields.png",
    }
    assert len(out.splitlines()) == len(names)
    alone, together = (cv2.imread(str(output / vit / f"receptive_field{s}.png")) for s in ("", "s"))
    assert alone is not None
    assert together is not None
    assert together.shape[1] > alone.shape[1]


def test_images_are_named_by_id_or_file(trained: Path, podium: Podium) -> None:
    file = trained / "data" / "raw" / "tiny" / "test_image" / "002.jpg"
    held_out = run_of(trained, VIT).out_of_fold(1).id
    in_training = next(name for name in (f"{number:03d}" for number in range(24)) if name not in held_out)
    words = ("--what", "class_attention", "--images", in_training, held_out[0], file)
    done(podium("explain", "-c", "tiny", VIT, *words))
    arrays = arrays_of(run_of(trained, VIT).path / "explain")
    assert arrays["names"].tolist() == [in_training, held_out[0], "002.jpg"]


def test_the_texts_say_what_is_true_and_what_is_predicted(trained: Path) -> None:
    from podium_annex.explain.subjects import subject_of_run

    held_out = run_of(trained, VIT).out_of_fold(1)
    in_training = next(name for name in (f"{number:03d}" for number in range(24)) if name not in held_out.id)
    subject = subject_of_run(VIT, "tiny", trained, None, [str(held_out.id[0]), in_training])
    first, second = subject.texts()
    assert first[0] == held_out.id[0]
    assert f"true: {held_out.classes[held_out.target.values[0]]}" in first
    assert "(trained on)" not in first
    assert "(trained on)" in second
    best = subject.probs[0].max()
    assert first[-2:] == [f"predicted: {subject.classes[subject.probs[0].argmax()]}", f"probability {best:.2f}"]


def test_a_model_without_a_run_is_explained(trained: Path, podium: Podium) -> None:
    file = trained / "data" / "raw" / "tiny" / "test_image" / "002.jpg"
    out, _ = done(podium("explain", "-c", "tiny", "--model", "test_vit", "--weights", "none", "--images", file))
    folder = trained / "runs" / "tiny" / "explain-test_vit"
    assert str(folder / "class_attention.png") in out
    assert len(arrays_of(folder)["classes"]) == 1000
    assert "tench" in str(arrays_of(folder)["classes"][0])


def test_the_weights_of_a_fold_know_their_classes(trained: Path, podium: Podium) -> None:
    file = trained / "data" / "raw" / "tiny" / "test_image" / "002.jpg"
    weights = run_of(trained, CONVNET).weights_path(1)
    words = ("--weights", weights, "--images", file, "--output", trained / "out")
    done(podium("explain", "-c", "tiny", "--model", CONVNET, *words))
    assert set(arrays_of(trained / "out")["classes"]) == {"red", "green", "blue", "lonely"}
    assert "use --model test_resnet" in one_line(podium("explain", "-c", "tiny", "--model", "test_vit", *words))


def test_the_weights_of_a_pretraining_have_no_classifier(trained: Path, podium: Podium) -> None:
    model, spec = load_model(run_of(trained, CONVNET).weights_path(1))
    model.reset_classifier(0)  # type: ignore[operator]
    save_model(trained / "backbone.safetensors", model, replace(spec, classes=()))
    words = ("--model", CONVNET, "--weights", trained / "backbone.safetensors", "--images", trained)
    assert re.search("no classifier; train with --weights", one_line(podium("explain", "-c", "tiny", *words)))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "--model NAME --images"),
        (("nothing",), "no run 'nothing'"),
        ((VIT, "--fold", "0"), "fold 0 .* its finished folds are 1"),
        ((VIT, "--images", "nowhere.jpg"), "'nowhere.jpg' is neither an id of tiny nor a file"),
        ((VIT, "--what", "grad_cam"), "no grad_cam.png.*class_attention"),
        ((VIT, "--what", "gradcam"), "invalid choice: 'gradcam'"),
        (("--model", "test_vit"), "--images FILE"),
        (("--model", "test_vit", "--weights", "none.pt", "--images", "."), "none.pt: no such file"),
    ],
)
def test_what_cannot_be_explained_is_refused(
    words: tuple[str, ...], expected: str, trained: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained)
    assert re.search(expected, one_line(podium("explain", "-c", "tiny", *words)))


def test_too_many_images_are_refused(trained: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium_annex.explain.subjects.MOST_IMAGES", 2)
    folder = trained / "data" / "raw" / "tiny"
    assert "name at most 2" in one_line(podium("explain", "-c", "tiny", VIT, "--images", folder))
