"""Exported files answer as the run does, for any number of images, and their card says what they are."""

import importlib.util
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import pytest
import torch

import bars
import podium as library
from podium.images.decode import read_image
from podium.models.model_file import load_model
from podium.models.tensors import load_tensors
from podium.models.timm_file import export_model
from podium.saved_runs.run_folder import Run
from podium.training.fold_model import FoldModel, prepare
from podium_annex.exporting import export_run
from podium_annex.exporting.file_forms import FORMS, Form, facts_of
from podium_annex.exporting.model_card import _preparation
from podium_annex.exporting.whole_model import WholeModel
from second_round import first_of
from templates import copied
from tiny import FAST, Podium, done, one_line, podium_at, run_of, tiny_with_folds
from training.learners import TASKS, learner_of_task

TRAIN = (
    *("train", *FAST, "--device", "cpu", "--model", "test_vit", "--epochs", "1", "--name", "first"),
    *("--precision", "float32"),  # as the exported file, on every processor
)


def with_a_trained_run(root: Path) -> None:
    tiny_with_folds(root)
    podium_at(root, *TRAIN, "--folds", "0,1")


trained = copied(with_a_trained_run)


def pixels_of(run: Run, paths: list[Path]) -> Any:
    _, spec = load_model(run.weights_path(0))
    return np.stack([prepare(read_image(path), spec) for path in paths])


@pytest.mark.slow
@pytest.mark.parametrize("views", first_of(["none"], ["none", "mirror"]))
def test_the_file_answers_as_the_run_does(tiny: Path, podium: Podium, views: str) -> None:
    done(podium(*TRAIN, "--folds", "0,1", "--views", views))
    out, _ = done(podium("export", "-c", "tiny", "first", "--onnx"))
    run, path = run_of(tiny, "first"), Path(out.strip())
    paths = sorted((tiny / "data" / "raw" / "tiny").rglob("*.jpg"))[:5]
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (answers,) = session.run(None, {"images": pixels_of(run, paths)})
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["transform"])["input_size"] == [3, 32, 32]
    frame = library.runs(library.load("tiny", root=tiny), "first")[0].predict(paths, machine="cpu")
    assert len(answers) == 5
    assert np.allclose(answers, frame[json.loads(about["classes"])].to_numpy(), atol=1e-4)
    card = Path(f"{path}.md").read_text()
    assert "The mean of 2 models (test_vit): folds 0, 1, each trained on the images outside its fold." in card
    assert "[any number, 32, 32, 3]" in card
    assert path.name in card
    assert "- accuracy: " in card


@pytest.mark.slow
def test_one_fold_without_views_goes_to_another_file(trained: Path, podium: Podium, tmp_path: Path) -> None:
    words = ("--torch", "--folds", "1", "--views", "none", "--output", tmp_path / "one.pt2")
    out, _ = done(podium("export", "-c", "tiny", "first", *words))
    assert out.strip() == str(tmp_path / "one.pt2")
    assert "Views averaged: none" in (tmp_path / "one.pt2.md").read_text()
    run = run_of(trained, "first")
    model, spec = load_model(run.weights_path(1))
    images = torch.randint(256, (3, 32, 32, 3), dtype=torch.uint8)
    exported = torch.export.load(tmp_path / "one.pt2").module()(images)
    assert torch.allclose(exported, WholeModel([model.eval()], [spec], "none")(images), atol=1e-5)


@pytest.mark.parametrize(
    ("slug", "write"), [*(pytest.param(*task, marks=pytest.mark.all) for task in TASKS[:-1]), TASKS[-1]]
)
def test_every_task_is_answered_as_its_fold_model_answers(
    tmp_path: Path, podium: Podium, slug: str, write: Callable[[Path], object]
) -> None:
    learner_of_task(tmp_path, slug, write)
    words = ("--weights", "none", "--model", "test_vit", "--image-size", "32", "--epochs", "1", "--workers", "0")
    done(
        podium(
            "--root", tmp_path, "train", "-c", slug, *words, "--folds", "0", "--device", "cpu", "--precision", "float32"
        )
    )
    run = Run(tmp_path / "runs" / slug / "test_vit")
    fold_model = FoldModel.load(run, 0, "cpu")
    model, spec = load_model(run.weights_path(0))
    images = torch.randint(256, (4, 32, 32, 3), dtype=torch.uint8)
    whole = WholeModel([model.eval()], [spec], run.recipe["views"])
    assert np.allclose(whole(images).detach().numpy(), fold_model.predict_prepared(images), atol=1e-3)
    if slug == bars.SLUG:  # numbers have scales of their own
        assert len(spec.scales) == 2
        out, _ = done(podium("--root", tmp_path, "export", "-c", slug, "test_vit", "--torch"))
        assert "a number for each name" in Path(f"{out.strip()}.md").read_text()


@pytest.mark.parametrize("scale", first_of(["rank"], ["rank", "log1p"]))
def test_numbers_on_a_scale_are_answered_in_their_own_unit(tmp_path: Path, podium: Podium, scale: str) -> None:
    bars.write_competition(tmp_path, bars.COLUMNS["two"])
    done(podium("--root", tmp_path, "folds", "-c", bars.SLUG, "--k", "3"))
    words = (*bars.FAST, "--model", "test_vit", "--epochs", "1", "--folds", "0", "--device", "cpu")
    done(podium("--root", tmp_path, "train", *words, "--target-scale", scale, "--name", "a"))
    out, _ = done(podium("--root", tmp_path, "export", "-c", bars.SLUG, "a", "--onnx", "--views", "none"))
    run = Run(tmp_path / "runs" / bars.SLUG / "a")
    model, spec = load_model(run.weights_path(0))
    images = torch.randint(256, (5, 32, 32, 3), dtype=torch.uint8)
    expected = WholeModel([model.eval()], [spec], "none")(images).detach().numpy()
    session = onnxruntime.InferenceSession(out.strip(), providers=["CPUExecutionProvider"])
    assert np.allclose(session.run(None, {"images": images.numpy()})[0], expected, rtol=1e-3)
    assert (expected[:, 0] > 1000).all()
    export_model(run.weights_path(0), tmp_path / "timm.safetensors")
    about = json.loads(load_tensors(tmp_path / "timm.safetensors")[1]["timm"])
    assert ("curves" in about) == (scale == "rank")
    assert {"rank": "curves", "log1p": "exponential"}[scale] in about["outputs"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "one of the arguments --onnx --torch is required"),
        (("--onnx", "--folds", "2"), "fold 2 is not finished; train it first"),
        (
            ("--onnx", "--views", "mirror+zoom"),
            "the view zoom cannot be exported; choose others, such as --views mirror",
        ),
        (("--onnx", "--output", "model.pt2"), "call the file model.onnx"),
        (("--torch", "--output", "no/such/model.pt2"), "cannot be written; name a file in a folder that exists"),
    ],
)
def test_what_cannot_be_exported_is_refused_at_once(
    trained: Path, podium: Podium, words: tuple[str, ...], problem: str
) -> None:
    assert problem in one_line(podium("export", "-c", "tiny", "first", *words))


def test_packages_that_are_missing_are_named(trained: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "onnxscript" else find(name, *rest)
    )
    one_line(
        podium("export", "-c", "tiny", "first", "--onnx"),
        "--onnx needs onnxscript, not installed here",
        "pip install 'podium[onnx]'",
    )


@pytest.mark.parametrize("difference", [0.5, float("nan")])
def test_a_file_that_differs_is_not_kept(
    trained: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch, difference: float
) -> None:
    empty = Form(".pt2", lambda whole, spec, path: path.write_text(""), lambda path: lambda images: images)
    monkeypatch.setitem(FORMS, "torch", empty)
    monkeypatch.setattr(export_run, "_largest_difference", lambda whole, exported: difference)
    assert f"differs from that of first by {difference}" in one_line(podium("export", "-c", "tiny", "first", "--torch"))
    assert not list(trained.rglob("*.pt2"))
    assert not list(trained.rglob("first*.md"))


def test_an_exporter_that_fails_is_reported_in_one_line(
    trained: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(whole: object, spec: object, path: Path) -> None:
        raise RuntimeError("no operator aten::strange\nand more")

    monkeypatch.setitem(FORMS, "torch", FORMS["torch"]._replace(write=fail))
    one_line(
        podium("export", "-c", "tiny", "first", "--torch"),
        "first cannot be exported as torch (no operator aten::strange",
        "try --folds 0, or the other format",
    )


def test_a_card_says_how_an_image_is_prepared(trained: Path) -> None:
    _, spec = load_model(run_of(trained, "first").weights_path(0))
    assert "Resize the whole image to 32 x 32 pixels" in _preparation(spec)
    assert "0.875 of it" in _preparation(replace(spec, fit="crop", crop=0.875))
    assert "[124, 116, 104]" in _preparation(replace(spec, fit="pad", mean=(0.485, 0.456, 0.406)))


def test_a_file_says_which_part_of_an_image_its_models_see(trained: Path) -> None:
    _, spec = load_model(run_of(trained, "first").weights_path(0))
    assert "part" not in facts_of(spec)
    assert facts_of(replace(spec, part="border"))["part"] == "border"
