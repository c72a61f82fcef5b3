"""ArcFace: what the head and its loss compute, where classes start, and what it does not go with."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from podium.basics.errors import PodiumError
from podium.models.build import build_model
from podium.models.model_file import load_model, save_model
from podium.options.layers.heads import SCALE, CosineHead, classifier_of
from podium.training.fold_loss import add_margins, class_margins
from podium.training.head_start import start_head
from podium.training.request import Request, check_request
from tiny import FAST, Podium, done, recipe_of, run_of
from training.learners import a_batch, copy_state, learner_of

ARCFACE = {"model": "test_efficientnet", "head": "arcface"}


def test_outputs_depend_on_directions_only() -> None:
    head, features = CosineHead(8, 3, bias=False), torch.randn(5, 8)
    expected = SCALE * F.cosine_similarity(features[:, None], head.weight[None], dim=2)
    assert torch.allclose(head(features), expected, atol=1e-4)
    assert torch.allclose(head(7 * features), expected, atol=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.allclose(head(features), expected, atol=1e-4)  # not rounded to 16 bits


def test_the_angle_to_the_own_class_grows_by_its_margin() -> None:
    angles = torch.tensor([[0.3, 1.0], [2.9, 0.2], [1.5, 3.0]])
    targets, margins = torch.eye(2)[[0, 0, 1]], torch.tensor([0.5, 0.1])
    moved = add_margins(SCALE * angles.cos(), targets, margins)
    assert torch.allclose(moved[0], SCALE * torch.tensor([math.cos(0.8), math.cos(1.0)]), atol=1e-3)
    assert torch.allclose(moved[2], SCALE * torch.tensor([math.cos(1.5), math.cos(3.1)]), atol=1e-3)
    assert moved[1, 0] < -SCALE  # 2.9 + 0.5 is more than 180 degrees: it goes on to fall
    cosines = torch.linspace(-1, 1, 1000, requires_grad=True)
    outputs = add_margins(SCALE * cosines[:, None], torch.ones(1000, 1), torch.tensor([0.5]))
    assert (outputs.diff(dim=0) >= 0).all()
    outputs.sum().backward()
    assert cosines.grad is not None
    assert cosines.grad.isfinite().all()


def test_rare_classes_have_larger_margins() -> None:
    margins = class_margins(np.array([10_000, 100, 1, 0]))
    assert margins[[0, 2, 3]] == pytest.approx([0.05, 0.5, 0.5])
    assert 0.05 < margins[1] < 0.3
    assert class_margins(np.array([7, 7])) == pytest.approx([0.5, 0.5])  # ArcFace's own


@pytest.mark.parametrize(
    ("name", "pool"),
    [("test_vit", "both"), pytest.param("test_convnext", "gem", marks=pytest.mark.all), ("test_resnet", "default")],
)
def test_a_saved_model_answers_as_the_trained_one_and_training_goes_on_from_it(
    tmp_path: Path, name: str, pool: str
) -> None:
    recipe, path = recipe_of(name, head="arcface", pool=pool), tmp_path / "model.safetensors"
    model, spec = build_model(recipe, ["a", "b", "c"])
    save_model(path, model, spec)
    loaded, loaded_spec = load_model(path)
    going_on, _ = build_model(recipe, ["a", "b", "c"], start=path)
    images = torch.rand(2, 3, 64, 64)
    assert loaded_spec == spec
    for other in (loaded, going_on):
        assert torch.equal(other.eval()(images), model.eval()(images))
    assert "head" not in build_model(recipe_of(name), ["a"])[1].as_json()


def test_classes_start_from_the_mean_direction_of_their_images(tiny: Path) -> None:
    learner = learner_of(tiny, **ARCFACE, head_first=True)
    before = copy_state(learner)
    start_head(learner)
    classifier = classifier_of(learner.model)
    assert classifier is not None
    changed = (before[f"{classifier.name}.weight"] != classifier.layer.weight).all(1)
    counts = learner.context.images.targets[learner.context.images.training_rows(0)].counts(4)
    assert changed.tolist() == (counts > 0).tolist()
    assert torch.allclose(classifier.layer.weight.norm(dim=1), torch.ones(4), atol=1e-5)
    assert not learner.progress.history  # no linear head was fitted, whose score would be the start's


def test_training_adds_margins_that_prediction_does_not(tiny: Path) -> None:
    learner = learner_of(tiny, **ARCFACE, smoothing=0.0)
    images, labels = a_batch()
    inputs, targets = learner.prepare(images, labels)
    learner.model.eval()
    with torch.no_grad():
        plain = F.cross_entropy(learner.model(inputs), targets)
        assert learner.label_loss(learner.model(inputs), targets) > plain + 1
    before = copy_state(learner)
    learner.step(images, labels)
    assert any(not torch.equal(tensor, before[name]) for name, tensor in learner.model.state_dict().items())


def test_the_head_can_be_exported() -> None:
    model, _ = build_model(recipe_of("test_vit", head="arcface"), ["a", "b", "c"])
    example, images = torch.rand(2, 3, 64, 64), torch.rand(3, 3, 64, 64)
    program = torch.export.export(model.eval(), (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    assert torch.allclose(program.module()(images), model(images), atol=1e-4)


@pytest.mark.slow
def test_a_run_learns_predicts_and_goes_on(tiny: Path, podium: Podium) -> None:
    words = ("--model", "test_efficientnet", "--head", "arcface", "--pool", "gem", "--epochs", "2", "--name", "arc")
    done(podium("train", *FAST, *words))
    done(podium("train", "-c", "tiny", "--from", "arc", "--epochs", "1", "--workers", "0"))
    assert run_of(tiny, "arc-more").recipe["head"] == "arcface"
    out, _ = done(podium("submit", "-c", "tiny", "--runs", "arc", "arc-more", "--anyway"))
    assert Path(out.strip().splitlines()[-1]).is_file()


def test_models_that_it_does_not_suit_are_refused(tiny: Path) -> None:
    with pytest.raises(PodiumError, match="name a model for --head arcface"):
        check_request("tiny", tiny, Request({"model": "auto", "head": "arcface"}))
    with pytest.raises(PodiumError, match="several classifiers, or none; leave it out"):
        build_model(recipe_of("deit_tiny_distilled_patch16_224", image_size=224, head="arcface"), ["a", "b"])
