"""Several backbones under one head: each sees the colours of its own weights; the file rebuilds all of them."""

from pathlib import Path

import pytest
import torch

from podium.basics.errors import PodiumError
from podium.models.build import build_model
from podium.models.device import DTYPES
from podium.models.model_file import load_model, save_model
from podium.models.place import place_model
from podium.models.timm_file import export_model
from podium.training.frozen_features import features_of
from tiny import FAST, Podium, compared_scores, done, one_line, podium_at, recipe_of, run_of, weights_hash
from training.learners import CPU

FIRST, SECOND = "test_vit", "test_byobnet"  # their weights expect other colours
BOTH = f"{FIRST}+{SECOND}"
LINEAR = ("train", *FAST, "--model", BOTH, "--linear")


def placed(model: torch.nn.Module, spec: object, images: torch.Tensor) -> torch.Tensor:
    """Returns the features that Podium computes of images."""
    normalise = place_model(model.eval(), spec, CPU, DTYPES["float32"])  # type: ignore[arg-type]
    with torch.inference_mode():
        return features_of(model, normalise(images))


def test_the_features_are_those_of_each_backbone_alone() -> None:
    images = torch.randint(256, (3, 64, 64, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    model, spec = build_model(recipe_of(BOTH), ("a", "b"))
    assert spec.architecture == BOTH
    together = placed(model, spec, images)
    alone = []
    for number, name in enumerate((FIRST, SECOND)):
        backbone, own = build_model(recipe_of(name), ())
        backbone.load_state_dict(model.backbones[number].state_dict())  # type: ignore[index, union-attr]
        alone.append(placed(backbone, own, images))
    assert alone[0].shape != alone[1].shape or not torch.equal(*alone)
    assert torch.allclose(together, torch.cat(alone, 1), atol=1e-4)
    with torch.inference_mode():
        assert model(torch.zeros(2, 3, 64, 64)).shape == (2, 2)


def test_the_file_rebuilds_the_model(tmp_path: Path) -> None:
    model, spec = build_model(recipe_of(BOTH), ("a", "b"))
    save_model(tmp_path / "model.safetensors", model, spec)
    again, own = load_model(tmp_path / "model.safetensors")
    assert own == spec
    image = torch.rand(1, 3, 64, 64)
    with torch.inference_mode():
        assert torch.equal(model.eval()(image), again.eval()(image))


def test_a_head_is_fitted_and_predicts_the_test(tiny: Path, podium: Podium) -> None:
    podium_at(tiny, "folds", "-c", "tiny", "--k", "2")
    done(podium(*LINEAR))
    name = f"{FIRST}-and-{SECOND}-linear"  # + stands between the names of runs
    run = run_of(tiny, name)
    assert run.recipe["model"] == BOTH
    assert run.finished() == [0, 1]
    first = weights_hash(tiny, name)
    done(podium("submit", "-c", "tiny", "--runs", name))
    done(podium(*LINEAR, "--name", "again"))
    assert weights_hash(tiny, "again") == first
    assert compared_scores(podium, "tiny").keys() == {name, "again"}


def test_seeds_and_other_models_can_follow(tiny: Path, podium: Podium) -> None:
    podium_at(tiny, "folds", "-c", "tiny", "--k", "2")
    done(podium("train", *FAST, "--linear", "--folds", "0", "--model", BOTH, SECOND))
    assert run_of(tiny, f"{SECOND}-linear").finished() == run_of(tiny, f"{FIRST}-and-{SECOND}-linear").finished() == [0]


@pytest.mark.annex
@pytest.mark.all
def test_the_whole_model_can_be_exported(tiny: Path, podium: Podium) -> None:
    podium_at(tiny, *LINEAR, "--folds", "0", "--name", "both")
    done(podium("export", "both", "-c", "tiny", "--torch", "--views", "none"))


def test_timm_cannot_have_the_model(tiny: Path) -> None:
    podium_at(tiny, *LINEAR, "--folds", "0", "--name", "both")
    with pytest.raises(PodiumError, match="is no model of timm"):
        export_model(run_of(tiny, "both").weights_path(0), tiny / "model.safetensors")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", BOTH), "one head sees the features of all; add --linear"),
        (("--model", BOTH, "--linear", "--pool", "mean"), "--pool changes the end of one model"),
        (("--model", f"{FIRST}+test_vot", "--linear"), "no model 'test_vot'"),
        (("--model", f"{FIRST}+", "--linear"), "which model?"),
    ],
)
def test_what_it_cannot_do_is_refused(tiny: Path, podium: Podium, words: tuple[str, ...], message: str) -> None:
    assert message in one_line(podium("train", *FAST, *words))


def test_one_file_is_not_the_weights_of_several(tiny: Path, podium: Podium) -> None:
    file = tiny / "own.safetensors"
    file.touch()
    words = ("train", "-c", "tiny", "--model", BOTH, "--linear", "--weights", file)
    assert "--weights cannot be one file for several models" in one_line(podium(*words))


@pytest.mark.annex
def test_a_pretraining_takes_one_model(tiny: Path, podium: Podium) -> None:
    one_line(podium("pretrain", "-c", "tiny", "--model", BOTH, "--weights", "none"), "pretraining takes one")
