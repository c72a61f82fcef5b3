"""A file in int8 is smaller, answers nearly the same, and says what that costs on images that its models never saw."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime  # type: ignore[import-untyped]
import pytest
import torch

import podium as library
from podium.models.model_file import load_model
from podium.saved_runs.run_folder import Run
from podium.training.fold_model import FoldModel
from podium_annex.exporting import int8_loss
from podium_annex.exporting.int8_loss import Int8Loss, ReadyImages, open_images
from templates import copied
from tiny import FAST, Podium, done, one_line, podium_at, run_of, tiny_with_folds

TRAIN = ("train", *FAST, "--device", "cpu", "--epochs", "1")


@pytest.fixture
def images(trained: Path) -> ReadyImages:
    _, spec = load_model(run_of(trained, "test_convnext").weights_path(0))
    return open_images(library.load("tiny", root=trained), run_of(trained, "test_convnext"), spec)


def with_a_trained_convnext(root: Path) -> None:
    tiny_with_folds(root)
    podium_at(root, *TRAIN, "--model", "test_convnext", "--folds", "0,1")


trained = copied(with_a_trained_convnext)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "how"), [("test_resnet", "static"), pytest.param("test_vit", "dynamic", marks=pytest.mark.all)]
)
def test_an_int8_file_is_smaller_and_its_card_says_what_that_costs(
    tiny: Path, podium: Podium, model: str, how: str
) -> None:
    done(podium(*TRAIN, "--model", model, "--folds", "0"))
    out, err = done(podium("export", "-c", "tiny", model, "--onnx", "--int8", "--views", "none"))
    path, run = Path(out.strip()), run_of(tiny, model)
    assert path.name == f"{model}-int8.onnx"
    assert path.stat().st_size < 0.7 * run.weights_path(0).stat().st_size
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert json.loads(session.get_modelmeta().custom_metadata_map["classes"]) == ["blue", "green", "lonely", "red"]
    noise = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), np.uint8)
    (answers,) = session.run(None, {"images": noise})
    assert np.allclose(answers.sum(1), 1, atol=1e-4)
    graph = onnx.load(path).graph
    weights = [onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer]
    largest = [np.abs(weight.astype(int)).max() for weight in weights if weight.dtype == np.int8 and weight.ndim > 1]
    assert 60 < max(largest) <= 64  # seven bits: products of eight overflow on processors without VNNI
    if how == "static":  # only those that follow an addition are left: the others are a part of their layer
        made_by = {output: node.op_type for node in graph.node for output in node.output}
        assert {made_by[node.input[0]] for node in graph.node if node.op_type == "Relu"} == {"Add"}
    assert not list(run.path.glob("*prepared*"))
    card = Path(f"{path}.md").read_text()
    assert f"({how})" in card
    held_out = run.out_of_fold(0)
    for text in (card, err):
        assert f"On {len(held_out.id)} held-out images".lower() in text.lower()
        assert "- accuracy " in card
        assert "MB in place of" in text
    before = run.history(0)[-1].scores["log_loss"]  # with the view mirror
    stated = float(card.split("- log_loss ")[-1].split(" in place of ")[1].split()[0])
    assert stated == pytest.approx(before, abs=0.05)


def test_ranges_are_measured_on_no_image_of_the_fold(images: ReadyImages, trained: Path) -> None:
    held_out = run_of(trained, "test_convnext").out_of_fold(0).id
    others = set(images.positions) - set(held_out)
    pixels = {image_id: next(iter(images.batches([image_id])))[0].numpy().tobytes() for image_id in images.positions}
    seen = {image.numpy().tobytes() for batch in images.sample(held_out) for image in batch}
    assert seen == {pixels[image_id] for image_id in others}
    assert seen.isdisjoint({pixels[image_id] for image_id in held_out})


def test_every_model_is_judged_on_its_own_fold(
    images: ReadyImages, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(trained, "test_convnext")
    truths = {image_id: label for fold in (0, 1) for image_id, label in truth_of(run, fold).items()}
    calibrated, judged = [], []

    def answers(path: Path, images: ReadyImages, ids: list[str], description: str) -> np.ndarray:
        judged.append(ids)
        right = np.eye(4, dtype=np.float32)[[truths[image_id] for image_id in ids]]
        return right if "float32" in description else np.roll(right, 1, axis=1)

    monkeypatch.setattr(int8_loss, "write_onnx", lambda whole, spec, path: None)
    monkeypatch.setattr(
        int8_loss, "quantise", lambda before, after, spec, batches, bits: calibrated.append(list(batches))
    )
    monkeypatch.setattr(int8_loss, "_answers", answers)
    whole = type("Whole", (), {"models": [None] * 2, "specs": [images.spec] * 2, "views": "none"})()
    monkeypatch.setattr(int8_loss, "WholeModel", lambda *parts: type("Single", (), {"eval": lambda self: None})())
    loss = int8_loss.measure_loss(run, [0, 1], whole, images, trained / "whole.onnx", 7)
    assert loss.images == len(truths)
    assert (loss.before["accuracy"], loss.after["accuracy"]) == (1.0, 0.0)
    assert [sorted(ids) for ids in judged[::2]] == [sorted(run.out_of_fold(fold).id) for fold in (0, 1)]
    assert judged[::2] == judged[1::2]
    monkeypatch.setattr(int8_loss, "MOST_JUDGED", 6)
    assert int8_loss.measure_loss(run, [0, 1], whole, images, trained / "whole.onnx", 7).images == 6


@pytest.mark.slow
def test_weights_have_all_bits_on_request(trained: Path, podium: Podium) -> None:
    out, _ = done(
        podium("export", "-c", "tiny", "test_convnext", "--onnx", "--int8", "8", "--folds", "0", "--views", "none")
    )
    weights = [onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(out.strip()).graph.initializer]
    assert max(np.abs(weight.astype(int)).max() for weight in weights if weight.dtype == np.int8) > 120
    assert "weights are int8 with all bits" in Path(f"{out.strip()}.md").read_text()
    assert "invalid choice: 6 (choose from 7, 8)" in one_line(
        podium("export", "test_convnext", "--onnx", "--int8", "6")
    )


@pytest.mark.parametrize("region", ["border", "boxes.csv"])
def test_images_are_those_that_the_run_sees(tiny: Path, podium: Podium, region: str) -> None:
    rows = library.load("tiny", root=tiny)
    lines = [f"{image},2,3,9,8" for part in (rows.train, rows.test) for image in part["image"]]
    (tiny / "boxes.csv").write_text("\n".join(["image,x,y,width,height", *lines]) + "\n")
    path = region if region == "border" else str(tiny / region)
    done(podium(*TRAIN, "--model", "test_resnet", "--folds", "0", "--region", path))
    run = run_of(tiny, "test_resnet")
    held_out = run.out_of_fold(0)
    model = FoldModel.load(run, 0, "cpu")
    seen = open_images(rows, run, model.spec).of_fold(0)
    images = torch.cat(list(seen.batches(held_out.id.tolist())))
    assert np.allclose(model.predict_prepared(images), held_out.probs, atol=1e-4)


def truth_of(run: Run, fold: int) -> dict[str, int]:
    held_out = run.out_of_fold(fold)
    return dict(zip(held_out.id.tolist(), held_out.target.values.tolist(), strict=True))


def test_a_loss_is_told_with_its_sign() -> None:
    before, after = {"accuracy": 0.9512, "log_loss": 0.2}, {"accuracy": 0.9487, "log_loss": 0.21}
    loss = Int8Loss(1200, before, after, 7, 4_000_000, 10**6)
    assert "1.0 MB in place of 4.0 MB" in str(loss)
    assert "1,200 held-out images" in str(loss)
    assert "accuracy 0.9487 in place of 0.9512 (-0.0025)" in str(loss)
    assert "(+0.0100)" in str(loss)


def test_int8_is_for_onnx(trained: Path, podium: Podium) -> None:
    one_line(
        podium("export", "-c", "tiny", "test_convnext", "--torch", "--int8"), "--int8 is for ONNX files; give --onnx"
    )


def test_a_model_that_cannot_be_made_int8_leaves_no_file(
    trained: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    from podium_annex.exporting import export_run
    from podium_annex.exporting.file_forms import FORMS

    def fail(*_: object) -> None:
        raise ValueError("no ranges\nand more")

    copy = FORMS["onnx"]._replace(write=lambda whole, spec, path: path.write_text(""), open=lambda path: lambda x: x)
    monkeypatch.setitem(FORMS, "onnx", copy)
    monkeypatch.setattr(export_run, "_largest_difference", lambda whole, exported: 0.0)
    monkeypatch.setattr(export_run, "quantise", fail)
    one_line(
        podium("export", "-c", "tiny", "test_convnext", "--onnx", "--int8"),
        "test_convnext cannot be exported as int8 (no ranges)",
    )
    assert not list(trained.rglob("*.onnx*"))
