"""Runs of nearest neighbours: blind to the held-out images, as good as their files, and from which runs they start."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from by_array import targets_of
from podium.basics.errors import PodiumError
from podium.folds.folds import Folds
from podium.models.model_file import load_model, read_spec
from podium.models.tensors import load_tensors
from podium.saved_runs.run_folder import Run
from podium.training.context import Context
from podium.training.frozen_features import Features
from podium.training.nearest_images import TEMPERATURES, VOTERS, choose_voting
from podium.training.request import Request, check_request
from second_round import first_of
from tiny import FAST, Podium, assert_same_fold, done, one_line, run_of
from training.learners import context_of

TRAIN = ("train", *FAST, "--model", "test_resnet")
NEIGHBOURS = (*TRAIN, "--linear", "--head", "neighbours")


def gallery_of(run: Run, fold: int) -> torch.Tensor:
    tensors, _ = load_tensors(run.weights_path(fold))
    (gallery,) = [tensor for name, tensor in tensors.items() if name.endswith("gallery")]
    return gallery


def backbone_of(run: Run, fold: int) -> dict[str, torch.Tensor]:
    """Returns the tensors without those of the head: test_resnet calls it fc."""
    return {name: tensor for name, tensor in load_tensors(run.weights_path(fold))[0].items() if "fc." not in name}


# --- from the files to a submission ------------------------------------------------------------------


@pytest.mark.annex
@pytest.mark.slow
def test_it_goes_all_the_way_to_a_submission_and_blends(tiny: Path, podium: Podium) -> None:
    out, err = done(podium(*NEIGHBOURS))
    assert "over 2 of 2 folds" in out
    run = run_of(tiny, "test_resnet-neighbours")
    assert run.recipe["head"] == "neighbours"
    (record,) = run.history(0)
    assert record.neighbours in VOTERS
    assert record.temperature in TEMPERATURES
    assert f"{record.neighbours} neighbour" in err
    done(podium(*TRAIN, "--linear"))
    for runs in (("test_resnet-neighbours",), ("test_resnet-neighbours", "test_resnet-linear")):
        out, _ = done(podium("submit", "-c", "tiny", "--workers", "0", "--runs", *runs))
        scored = json.loads(podium("score", out.strip(), "--solution", tiny / "solution.csv")[1].splitlines()[-1])
        assert scored["score"] >= 0.8


@pytest.mark.slow
def test_the_saved_model_gives_the_out_of_fold_predictions(tiny: Path, podium: Podium) -> None:
    done(podium(*NEIGHBOURS, "--folds", "0", "--name", "near"))
    run = run_of(tiny, "near")
    held_out = run.out_of_fold(0)
    folder = tiny / "data" / "raw" / "tiny" / "train_image"
    out, _ = done(podium("predict", "near", "-c", "tiny", *(folder / f"{name}.jpg" for name in held_out.id)))
    assert len(held_out.id) > 8
    model, spec = load_model(run.weights_path(0))
    assert spec.neighbours == (len(gallery_of(run, 0)), model.get_classifier().k)  # type: ignore[operator]
    for name, probs in zip(held_out.id, held_out.probs, strict=True):
        (line,) = [line for line in out.splitlines() if f"{name}.jpg" in line]
        assert held_out.classes[probs.argmax()] in line


@pytest.mark.annex
@pytest.mark.slow
def test_a_fold_is_repeated_to_the_bit(tiny: Path, podium: Podium) -> None:
    done(podium(*NEIGHBOURS, "--folds", "0", "--name", "near"))
    done(podium(*NEIGHBOURS, "--folds", "0", "--name", "again"))
    assert_same_fold(run_of(tiny, "near"), run_of(tiny, "again"))
    before = (run_of(tiny, "near").fold_folder(0) / "oof.npz").read_bytes()
    (run_of(tiny, "near").fold_folder(0) / "oof.npz").unlink()  # as if it had been stopped
    done(podium(*NEIGHBOURS, "--name", "near"))
    assert (run_of(tiny, "near").fold_folder(0) / "oof.npz").read_bytes() == before
    assert run_of(tiny, "near").finished() == [0, 1]
    out, _ = done(podium("verify", "near", "-c", "tiny", "--workers", "0"))
    assert "is the same to the bit" in out


@pytest.mark.annex
@pytest.mark.slow
@pytest.mark.parametrize("form", first_of(["--torch"], ["--torch", "--onnx"]))
def test_it_is_exported(tiny: Path, podium: Podium, form: str) -> None:
    done(podium(*NEIGHBOURS, "--folds", "0", "--name", "near"))
    out, _ = done(podium("export", "-c", "tiny", "near", form, "--views", "none"))
    assert Path(out.strip()).is_file()  # it was compared with the model before


@pytest.mark.annex
@pytest.mark.slow
def test_it_is_explained(tiny: Path, podium: Podium) -> None:
    done(podium(*NEIGHBOURS, "--folds", "0", "--name", "near", "--image-size", "64"))
    done(podium("explain", "near", "-c", "tiny", "--what", "grad_cam"))


# --- from a run --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [(), pytest.param(("--head", "arcface", "--pool", "gem", "--mix", "0"), marks=pytest.mark.all)],
    ids=["plain", "arcface"],
)
def test_each_fold_takes_the_backbone_of_the_same_fold_and_its_training_images(
    tiny: Path, podium: Podium, options: tuple[str, ...]
) -> None:
    done(podium(*TRAIN, "--epochs", "1", "--name", "first", *options))
    _, err = done(podium("train", "-c", "tiny", "--workers", "0", "--from", "first", *NEIGHBOURS[-3:]))
    assert "with the fold's own model of first" in err
    first, near = run_of(tiny, "first"), run_of(tiny, "first-neighbours")
    assert near.recipe["start"] == "first"
    assert set(near.recipe["start_sha256"]) == {"0", "1"}
    for fold in (0, 1):
        own, others = backbone_of(near, fold), [backbone_of(first, number) for number in (fold, 1 - fold)]
        assert all(torch.equal(tensor, others[0][name]) for name, tensor in own.items())
        assert any(not torch.equal(tensor, others[1][name]) for name, tensor in own.items())
        trained_on = 25 - len(near.out_of_fold(fold).id)
        assert len(gallery_of(near, fold)) == trained_on == read_spec(near.weights_path(fold)).neighbours[0]  # type: ignore[index]
    done(podium("submit", "-c", "tiny", "--workers", "0", "--runs", "first", "first-neighbours"))


@pytest.mark.slow
def test_a_logistic_head_takes_the_backbones_of_a_run_too(tiny: Path, podium: Podium) -> None:
    words = ("--epochs", "1", "--name", "first", "--head", "arcface", "--smoothing", "0", "--folds", "0")
    done(podium(*TRAIN, *words))
    done(podium("train", "-c", "tiny", "--workers", "0", "--from", "first", "--linear"))
    first, linear = run_of(tiny, "first"), run_of(tiny, "first-linear")
    assert linear.recipe["head"] == "linear"
    own, others = backbone_of(linear, 0), backbone_of(first, 0)
    assert own.keys() == others.keys()
    assert all(torch.equal(tensor, others[name]) for name, tensor in own.items())


# --- the choice --------------------------------------------------------------------------------------


def planted(context: Context, classes: int, per_class: int, noise: float) -> tuple[Context, Features]:
    """Returns a context of many identities in three folds, and features that point to them."""
    rng = np.random.default_rng(0)
    class_of = np.repeat(np.arange(classes), per_class)
    directions = rng.normal(size=(classes, 32))[class_of]
    values = (directions + noise * rng.normal(size=directions.shape)).astype(np.float32)[None]
    folds = Folds.of(np.arange(len(class_of)) % 3)
    competition = replace(context.competition, classes=tuple(map(str, range(classes))))
    plan = replace(context.plan, folds=folds, competition=competition)
    rows = np.arange(len(class_of))
    planted_context = context.with_plan(plan).with_images(
        folds=folds, targets=targets_of(class_of), competition=competition
    )
    return planted_context, Features(rows, values, np.ones(len(rows), np.int64))


@pytest.mark.parametrize(("per_class", "noise", "few"), [(3, 0.4, True), (60, 4.0, False)])
def test_few_vote_where_classes_have_few_images(tiny: Path, per_class: int, noise: float, few: bool) -> None:
    with context_of(tiny, model="test_vit", linear=True, head="neighbours") as context:
        own, features = planted(context, 300 // per_class, per_class, noise)
        voting = choose_voting(own, 0, features, own.images.training_rows(0))
        assert (voting.voters <= 3) == few
        assert voting.loss < np.log(300 // per_class)  # that of guessing
        hidden = features.values.copy()
        hidden[:, own.images.held_out_rows(0)] = np.nan
        assert choose_voting(own, 0, replace(features, values=hidden), own.images.training_rows(0)) == voting


def test_a_given_number_of_voters_is_taken(tiny: Path) -> None:
    with context_of(tiny, model="test_vit", linear=True, head="neighbours:7") as context:
        own, features = planted(context, 10, 12, 1.0)
        assert choose_voting(own, 0, features, own.images.training_rows(0)).voters == 7


# --- refusals ----------------------------------------------------------------------------------------


def test_a_model_that_is_to_be_chosen_is_refused(tiny: Path) -> None:
    with pytest.raises(PodiumError, match="name a model for --head neighbours"):
        check_request("tiny", tiny, Request({"model": "auto", "linear": True, "head": "neighbours"}))


@pytest.mark.annex
@pytest.mark.slow
def test_it_goes_into_no_soup_and_is_no_start(tiny: Path, podium: Podium) -> None:
    done(podium(*NEIGHBOURS, "--name", "near"))
    assert "blend it instead" in one_line(podium("soup", "-c", "tiny", "near", "near"))
    assert "that run is a head on a frozen model" in one_line(
        podium("train", "-c", "tiny", "--from", "near", "--epochs", "1")
    )
