"""Heads in the place of the classifier: Podium's own of several layers, and those of a project's file."""

import signal
from pathlib import Path

import pytest
import torch
from torch import nn

from extension_file import write_extension
from podium.basics.errors import PodiumError
from podium.models.build import build_model
from podium.models.model_file import load_model, save_model
from podium.options.extensions.extension_files import load_extensions
from podium.options.layers.heads import NamedHead, add_further_outputs, drop_further_outputs, output_layers
from podium.options.moves.fitted_head import FittedHead
from podium.training.head_start import start_head
from tiny import FAST, Podium, assert_same_fold, done, one_line, recipe_of, run_of, stop_in_step
from training.learners import learner_of

HEADS = """
from torch import nn

from podium import extend


@extend.head
class Deep(nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(features, outputs), nn.ReLU(), nn.Linear(outputs, outputs))

    def forward(self, features):
        return self.layers(features)


@extend.head
def three(features, outputs):
    return nn.Sequential(nn.LayerNorm(features), nn.Dropout(0.2), nn.Linear(features, outputs))
"""
TRAIN = ("train", *FAST, "--model", "test_efficientnet", "--epochs", "2", "--folds", "0")


@pytest.fixture
def heads(tiny: Path) -> Path:
    return write_extension(tiny, HEADS)


def head_of(model: nn.Module) -> NamedHead:
    (head,) = (module for module in model.modules() if isinstance(module, NamedHead))
    return head


@pytest.mark.parametrize("head", ["Deep", "three", "mlp", "dropouts"])
@pytest.mark.parametrize(("name", "pool"), [("test_vit", "both"), ("test_convnext", "gem")])
def test_a_saved_model_has_the_head_and_training_goes_on_from_it(
    heads: Path, tmp_path: Path, head: str, name: str, pool: str
) -> None:
    load_extensions(heads.parent)
    recipe, path = recipe_of(name, head=head, pool=pool), tmp_path / "model.safetensors"
    model, spec = build_model(recipe, ["a", "b", "c"])
    assert spec.as_json()["head"] == head
    save_model(path, model, spec)
    images = torch.rand(2, 3, 64, 64)
    for other in (load_model(path)[0], build_model(recipe, ["a", "b", "c"], start=path)[0]):
        assert torch.equal(other.eval()(images), model.eval()(images))


@torch.no_grad()
def test_the_mean_of_dropouts_is_one_layer_in_prediction_and_random_in_training() -> None:
    model, _ = build_model(recipe_of("test_vit", head="dropouts"), ["a", "b", "c"])
    head, features = head_of(model), torch.randn(5, 64)
    layer = head.head
    assert isinstance(layer, nn.Linear)
    assert torch.equal(head.eval()(features), nn.functional.linear(features, layer.weight, layer.bias))
    torch.manual_seed(0)
    many = torch.stack([head.train()(features) for _ in range(2000)])
    assert torch.allclose(many.mean(0), head.eval()(features), atol=0.1)
    alone = torch.stack([nn.functional.linear(nn.functional.dropout(features), layer.weight) for _ in range(2000)])
    assert float(many.var(0).mean()) == pytest.approx(float(alone.var(0).mean()) / 5, rel=0.1)


def test_the_layer_that_a_head_ends_with_is_found_though_others_have_its_width(heads: Path) -> None:
    load_extensions(heads.parent)
    model, _ = build_model(recipe_of("test_vit", head="Deep"), ["a", "b", "c"])
    head = head_of(model)
    assert isinstance(head.head.layers, nn.Sequential)
    assert output_layers(model, 3) == [head.head.layers[2]]
    no_end = HEADS.replace("return self.layers(features)", "return self.layers(features).softmax(1)")
    load_extensions(write_extension(heads.parent, no_end).parent)
    assert output_layers(build_model(recipe_of("test_vit", head="Deep"), ["a", "b", "c"])[0], 3) == []


@torch.no_grad()
def test_what_is_learned_beside_the_answers_and_an_exported_file_know_the_head(heads: Path) -> None:
    load_extensions(heads.parent)
    for head in ("Deep", "dropouts"):
        model, _ = build_model(recipe_of("test_vit", head=head), ["a", "b", "c"])
        example, images = torch.rand(2, 3, 64, 64), torch.rand(3, 3, 64, 64)
        program = torch.export.export(model.eval(), (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
        assert torch.allclose(program.module()(images), model(images), atol=1e-4)
        assert add_further_outputs(model, 3, 2)
        assert model.train()(images).shape == (3, 5)
        assert model.eval()(images).shape == (3, 3)
        assert head_of(drop_further_outputs(model)).last is not None


@pytest.mark.parametrize("head", ["Deep", "three", "mlp", "dropouts"])
def test_a_head_is_fitted_before_the_first_step_where_it_is_one_layer(
    heads: Path, head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    load_extensions(heads.parent)
    learner = learner_of(heads.parent, model="test_efficientnet", head=head, head_first=True)
    hidden = {name: value.clone() for name, value in head_of(learner.model).state_dict().items()}
    start_head(learner)
    is_fitted = head == "dropouts"
    assert bool(learner.progress.history) == is_fitted
    assert ("is not one linear layer on its features" in capsys.readouterr().err) == (not is_fitted)
    changed = {
        name for name, value in head_of(learner.model).state_dict().items() if not torch.equal(value, hidden[name])
    }
    last = {"Deep": "layers.2.", "three": "2.", "mlp": "2.", "dropouts": ""}[head]
    assert changed == {f"head.{last}weight", f"head.{last}bias"}


def test_only_a_head_that_can_be_fitted_leaves_a_start_to_keep(heads: Path) -> None:
    load_extensions(heads.parent)
    for head, settled in {"linear": {}, "dropouts": {}, "mlp": {"keep": 0.0}, "three": {"keep": 0.0}}.items():
        recipe = recipe_of("test_vit", head_first=True, keep=0.5, head=head)
        assert FittedHead.of(recipe).settled(recipe) == settled
    assert FittedHead.of(recipe).why_settled(recipe) == "--keep 0.5 needs a fitted head to start from; leave it out"


def test_a_run_with_ones_own_head_resumes_to_the_bit_and_its_code_belongs_to_it(heads: Path, podium: Podium) -> None:
    root, words = heads.parent, (*TRAIN, "--head", "Deep", "--name")
    _, err = done(podium(*words, "whole"))
    assert "head Deep" in err
    stop_in_step(podium, 0, *words, "stopped", number=signal.SIGINT)
    done(podium(*words, "stopped"))
    assert_same_fold(run_of(root, "whole"), run_of(root, "stopped"))
    assert set(run_of(root, "whole").recipe["own_parts"]) == {"head Deep"}
    done(podium("train", "-c", "tiny", "--from", "whole", "--epochs", "1", "--workers", "0", "--name", "more"))
    assert run_of(root, "more").recipe["head"] == "Deep"
    done(podium("train", "-c", "tiny", "--from", "whole", "--linear", "--workers", "0", "--name", "frozen"))
    assert run_of(root, "frozen").recipe["head"] == "linear"
    done(podium("submit", "-c", "tiny", "--runs", "whole", "more", "frozen"))
    heads.write_text(HEADS.replace("nn.ReLU()", "nn.GELU()"))
    assert "the code of own parts changed" in one_line(podium(*words, "whole"))
    _, err = done(podium("submit", "-c", "tiny", "--runs", "whole", "--name", "edited"))
    assert "head Deep (mine.py)" in err
    heads.write_text(HEADS.replace("class Deep", "class Deeper"))
    assert "no head 'Deep'; restore the file" in one_line(
        podium("submit", "-c", "tiny", "--runs", "whole", "--name", "x")
    )


def test_the_weights_must_fit_the_head(heads: Path, tmp_path: Path) -> None:
    load_extensions(heads.parent)
    recipe, path = recipe_of("test_vit", head="three"), tmp_path / "model.safetensors"
    save_model(path, *build_model(recipe, ["a", "b"]))
    write_extension(heads.parent, HEADS.replace("nn.Dropout(0.2)", "nn.Linear(features, features)"))
    load_extensions(heads.parent)
    with pytest.raises(PodiumError, match="these weights do not fit test_vit"):
        build_model(recipe, ["a", "b"], start=path)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            "nn.Linear(features, outputs))\n",
            "nn.Linear(features, 7))\n",
            "the head three makes torch.float32 of shape (2, 7)",
        ),
        ("    return nn.Seq", "    return nn.Nothing, nn.Seq", "line 19: the head three: AttributeError"),
        ("nn.LayerNorm(features)", "nn.LayerNorm(features + 1)", "the head three: RuntimeError"),
        ("    return nn.Sequential(nn.Layer", "    return (nn.Layer", "the head three returned tuple, not a module"),
        ("def three", "def mlp", "there is a head 'mlp' already"),
    ],
)
def test_a_head_that_is_none_is_refused(heads: Path, podium: Podium, old: str, new: str, why: str) -> None:
    heads.write_text(HEADS.replace(old, new))
    assert "mine.py" in one_line(podium(*TRAIN, "--head", "three"), why)


@pytest.mark.parametrize("head", ["mlp", "three"])
def test_it_is_not_for_frozen_features(heads: Path, podium: Podium, head: str) -> None:
    one_line(podium(*TRAIN, "--linear", "--head", head), "--linear cannot be combined with --head")
