"""A pooling of the project's own: what it gets of each kind of model, and that runs keep it."""

from pathlib import Path

import pytest
import torch

from extension_file import write_extension
from podium.models.build import build_model
from podium.models.model_file import load_model, save_model
from podium.options.extensions.extension_files import load_extensions
from podium.training.frozen_features import features_of
from tiny import FAST, Podium, done, one_line, recipe_of, run_of

POOLINGS = """
import torch
from torch import nn

from podium import extend


@extend.pooling
class Attended(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.attention = nn.Linear(features, 1)

    def forward(self, places):
        return (self.attention(places).softmax(1) * places).sum(1)


@extend.pooling
class average(nn.Module):
    def __init__(self, features):
        super().__init__()

    def forward(self, places):
        return places.mean(1)
"""
KINDS = ["test_vit", "test_vit2", "test_convnext", "test_efficientnet", "test_resnet", "swin_tiny_patch4_window7_224"]
TRAIN = ("train", *FAST, "--model", "test_efficientnet", "--epochs", "1", "--folds", "0")


@pytest.fixture
def file(tiny: Path) -> Path:
    path = write_extension(tiny, POOLINGS)
    load_extensions(tiny)
    return path


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize("name", KINDS)
def test_the_features_of_all_places_are_pooled_whatever_the_kind_of_model(name: str) -> None:
    size = 224 if "swin" in name else 64
    models = []
    for pool in ("average", "mean"):
        torch.manual_seed(0)
        models.append(build_model(recipe_of(name, image_size=size, pool=pool), ["a", "b"])[0].eval())
    images = torch.rand(2, 3, size, size)
    own, timms = (features_of(model, images) for model in models)
    assert torch.allclose(own, timms, atol=1e-5)


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize(
    ("name", "head"), [("test_vit", "linear"), ("test_convnext", "mlp"), ("test_resnet", "arcface")]
)
def test_a_saved_model_pools_as_the_trained_one_and_training_goes_on_from_it(
    tmp_path: Path, name: str, head: str
) -> None:
    recipe, path = recipe_of(name, pool="Attended", head=head), tmp_path / "model.safetensors"
    model, spec = build_model(recipe, ["a", "b", "c"])
    save_model(path, model, spec)
    images = torch.rand(2, 3, 64, 64)
    for other in (load_model(path)[0], build_model(recipe, ["a", "b", "c"], start=path)[0]):
        assert torch.equal(other.eval()(images), model.eval()(images))


def test_a_run_has_it_and_its_code_belongs_to_it(file: Path, podium: Podium) -> None:
    root = file.parent
    done(podium(*TRAIN, "--pool", "Attended", "--name", "own"))
    done(podium(*TRAIN, "--pool", "Attended", "--name", "frozen", "--linear"))
    assert set(run_of(root, "own").recipe["own_parts"]) == {"pool Attended"}
    done(podium("submit", "-c", "tiny", "--runs", "own", "frozen"))
    file.write_text(POOLINGS.replace("softmax(1)", "sigmoid()"))
    assert "the code of own parts changed" in one_line(podium(*TRAIN, "--pool", "Attended", "--name", "own"))
    assert "pool Attended (mine.py)" in done(podium("submit", "-c", "tiny", "--runs", "frozen", "--name", "edited"))[1]
    done(podium(*TRAIN, "--pool", "Attended", "--name", "again", "--linear"))  # whose features are others by now
    (first, again) = (run_of(root, name).out_of_fold(0) for name in ("frozen", "again"))
    assert not (first.probs == again.probs).all()
    file.write_text(POOLINGS.replace("class Attended", "class Other"))
    assert "no pooling 'Attended'; restore" in one_line(podium("submit", "-c", "tiny", "--runs", "own", "--name", "x"))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            ".sum(1)\n",
            ".sum()\n",
            "the pooling Attended makes torch.float32 of shape () of features of shape (2, 9, 256)",
        ),
        ("self.attention(places)", "self.nothing(places)", "line 15: the pooling Attended: AttributeError"),
    ],
)
def test_a_pooling_that_is_none_is_refused(file: Path, podium: Podium, old: str, new: str, why: str) -> None:
    file.write_text(POOLINGS.replace(old, new))
    assert "mine.py" in one_line(podium(*TRAIN, "--pool", "Attended"), why)
