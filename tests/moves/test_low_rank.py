"""Low-rank updates: what learns, that they begin at nothing, and that the saved model is a plain one."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from podium.basics.errors import PodiumError
from podium.models.build import build_model
from podium.models.model_file import load_model
from podium.options.layers.heads import output_layers
from podium.options.layers.low_rank_layers import LowRankLinear, add_low_rank_updates, low_rank_parameters, merged
from podium.options.recipe_options import OPTIMIZERS
from podium.training.head_start import start_head
from podium.training.loop import final_model
from tiny import FAST, Podium, done, recipe_of, run_of
from training.learners import a_batch, copy_state, learner_of

MODELS = {"test_vit": 64, "eva02_tiny_patch14_224": 56, "vit_pe_core_tiny_patch16_384": 32}


def with_updates(name: str, image_size: int, rank: int = 4) -> tuple[nn.Module, nn.Module]:
    """Returns a model, and the same with updates that have begun."""
    torch.manual_seed(0)
    recipe = recipe_of(name, image_size=image_size, lora=rank, drop_path=0.0)
    model, _ = build_model(recipe, ["a", "b", "c"])
    for layer in output_layers(model, 3):
        nn.init.normal_(layer.weight, std=0.3)  # some of timm's begin at nearly zero
    updated = copy.deepcopy(model)
    add_low_rank_updates(updated, rank, np.random.default_rng(0), name)
    return model.eval(), updated.eval()


def begin(model: nn.Module) -> None:
    for layer in model.modules():
        if isinstance(layer, LowRankLinear):
            nn.init.normal_(layer.up, std=0.02)


@pytest.mark.parametrize("name", MODELS)
def test_updates_begin_at_nothing_and_are_merged_into_a_plain_model(name: str) -> None:
    model, updated = with_updates(name, MODELS[name])
    images = torch.rand(2, 3, MODELS[name], MODELS[name])
    with torch.inference_mode():
        assert torch.equal(updated(images), model(images))
        begin(updated)
        plain = merged(updated)
        assert not torch.allclose(plain(images), model(images), atol=1e-3)
        assert torch.allclose(plain(images), updated(images), atol=1e-5)
    model.load_state_dict(plain.state_dict())  # names and shapes are timm's
    assert {type(layer) for layer in plain.modules()} == {type(layer) for layer in model.modules()}
    assert low_rank_parameters(updated)  # the copy took nothing away
    assert merged(plain) is plain


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_only_updates_norms_and_head_learn_and_updates_ten_times_as_fast(tiny: Path, optimizer: str) -> None:
    learner = learner_of(tiny, model="test_vit", lora=2, optimizer=optimizer, weight_decay=0.0, head_first=False)
    before = copy_state(learner)
    for _ in range(3):
        learner.step(*a_batch())
    changed = {name for name, tensor in learner.model.state_dict().items() if not torch.equal(tensor, before[name])}
    kinds = {".".join(name.split(".")[-2:]) for name in changed}
    assert {"qkv.up", "qkv.down", "proj.up", "proj.down", "norm1.weight", "norm.bias", "head.weight"} <= kinds
    assert not {name for name in kinds if name.startswith(("fc", "patch_embed")) or name.endswith("fixed")}
    rates = {id(weight): group["lr"] for group in learner.optimizer.param_groups for weight in group["params"]}
    slow = rates[id(learner.model.get_parameter("head.weight"))]
    assert [rates[id(weight)] / slow for weight in low_rank_parameters(learner.model)] == pytest.approx([10] * 24)


def test_what_is_kept_lies_on_the_line_between_both_ends(tiny: Path) -> None:
    learner = learner_of(tiny, model="test_vit", lora=2, head_first=True, keep=0.5, ema=0.0)
    start_head(learner)
    assert learner.kept is not None
    start = {name: tensor.clone() for name, tensor in learner.kept.weights.state_dict().items()}
    begin(learner.model)
    end = merged(learner.model).state_dict()
    model, share = final_model(learner)
    assert share in (0, 0.5)
    learner.kept._mix_with(merged(learner.model))
    for name, tensor in learner.kept.between.state_dict().items():
        assert torch.allclose(tensor, (start[name] + end[name]) / 2, atol=1e-6)
    assert not low_rank_parameters(model)


@pytest.mark.slow
def test_a_run_leaves_plain_models_and_computes_features_once(tiny: Path, podium: Podium) -> None:
    words = (*("--model", "test_vit"), *("--epochs", "1"), "--head-first")
    done(podium("train", *FAST, *words, "--lora", "2", "--name", "lora"))
    run = run_of(tiny, "lora")
    names = set(load_model(run.weights_path(0))[0].state_dict())
    assert "blocks.0.attn.qkv.weight" in names
    assert not {name for name in names if name.endswith((".up", ".down", ".fixed"))}
    assert run.recipe["lora"] == 2
    assert len(list((tiny / "data" / "prepared" / "tiny").glob("features-*"))) == 1
    done(podium("train", "-c", "tiny", "--from", "lora", "--epochs", "1", "--workers", "0"))
    assert run_of(tiny, "lora-more").finished() == [0, 1]


def test_a_model_without_attention_is_refused(tiny: Path) -> None:
    with pytest.raises(PodiumError, match=r"test_resnet has no attention .* leave it out"):
        learner_of(tiny, model="test_resnet", lora=2)


def test_all_layers_learn_at_one_rate_by_default() -> None:
    plain, low_rank = (recipe_of("test_vit", "pretrained", lora=rank) for rank in (0, 8))
    assert (plain.layer_decay, low_rank.layer_decay, low_rank.lr) == (0.75, 1.0, plain.lr)
