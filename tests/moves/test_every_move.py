"""What holds for each move: it is described, resumes to the bit, and without its options changes no bit."""

import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from podium.models.build import build_model
from podium.options.knob import OF_THE_ROW, Knob
from podium.options.moves import MOVES
from podium.options.moves.adjusting import Adjusting
from podium.options.moves.augmentations import Augmentations
from podium.options.moves.averaging import Averaging
from podium.options.moves.balancing import Balancing
from podium.options.moves.batch_norm import BatchNorm
from podium.options.moves.cleaning import Cleaning
from podium.options.moves.depth import Depth
from podium.options.moves.fast_operators import FastOperators
from podium.options.moves.fitted_head import FittedHead
from podium.options.moves.joining import Joining
from podium.options.moves.layer_rates import LayerRates
from podium.options.moves.losses import Losses
from podium.options.moves.low_rank import LowRank
from podium.options.moves.mixing import Mixing
from podium.options.moves.move import Move
from podium.options.moves.optimizing import Optimizing
from podium.options.moves.pooled_features import PooledFeatures
from podium.options.moves.seen_parts import SeenParts
from podium.options.moves.shape import Shape
from podium.options.moves.sharpness import Sharpness
from podium.options.moves.sizes import Sizes
from podium.options.recipe import Recipe, describe
from podium.training.learner import Learner
from podium.training.learner_state import learner_state, restore_learner
from tiny import recipe_of
from training.learners import a_batch, learner_of

Options = dict[str, object]
# Of each move: options that switch it on, and those with which it changes nothing.
CASES: dict[type[Move], tuple[Options, Options]] = {
    Adjusting: ({"adjust": 1.0}, {"adjust": 0.0}),
    Augmentations: (
        {"crop": 0.5, "mirror": 0.5, "colour": 0.2, "erase": 0.5, "ops": 1},
        {"crop": 1.0, "mirror": 0.0, "colour": 0.0, "erase": 0.0, "ops": 0},
    ),
    Averaging: ({"ema": 0.5}, {"ema": 0.0}),
    Balancing: ({"balance": 0.5}, {"balance": 0.0}),
    BatchNorm: ({"norm": "frozen"}, {"norm": "train"}),
    Cleaning: ({"clean": "drop"}, {"clean": "none"}),
    Depth: ({"drop_path": 0.5, "model": "test_vit"}, {"drop_path": 0.0, "model": "test_vit"}),
    FastOperators: ({"operators": "fast"}, {"operators": "timm"}),
    FittedHead: ({"head_first": True, "keep": 0.3}, {"head_first": False, "keep": 0.0}),
    Optimizing: ({"weight_decay": 0.1, "warmup": 1.0}, {"weight_decay": 0.05, "warmup": 0.0}),
    Joining: ({"extra_weight": 0.5}, {"extra_weight": 0.0}),
    LayerRates: ({"layer_decay": 0.8, "freeze": 0.3}, {"layer_decay": 1.0, "freeze": 0.0}),
    Losses: (
        {"loss": "focal", "class_weights": "balanced", "smoothing": 0.1},
        {"loss": "cross_entropy", "class_weights": "none", "smoothing": 0.0},
    ),
    LowRank: ({"lora": 2, "model": "test_vit"}, {"lora": 0, "model": "test_vit"}),
    Mixing: ({"mix": 1.0, "plain": 0.0}, {"mix": 0.0}),
    PooledFeatures: ({"pool": "gem"}, {"pool": "default"}),
    SeenParts: ({"region": "border"}, {"region": ""}),
    Shape: ({"fit": "pad"}, {"fit": "crop"}),
    Sharpness: ({"sam": 0.05}, {"sam": 0.0}),
    Sizes: ({"grow": 0.5, "finish": "48:1"}, {"grow": 0.0, "finish": ""}),
}


# They change images, labels, the start or the end, and not what a learner does with a batch.
ELSEWHERE = (Augmentations, Balancing, Cleaning, FastOperators, FittedHead, Joining, SeenParts, Shape, Sizes)


def name_of(move: type[Move]) -> str:
    return move.__name__.lower()


each = pytest.mark.parametrize("move", MOVES, ids=name_of)


def learner_with(root: Path, options: Options) -> Learner:
    return learner_of(root, **cast(Any, {"model": "test_resnet", "drop_path": 0.0, **options}))


def train(learner: Learner, steps: int) -> None:
    for step in range(learner.progress.step, learner.progress.step + steps):
        torch.manual_seed(step)
        learner.step(*a_batch())


def weights_of(learner: Learner) -> list[torch.Tensor]:
    return [*learner.model.state_dict().values(), *learner.trained_model.state_dict().values()]


def are_same(one: Learner, other: Learner) -> bool:
    return all(torch.equal(*pair) for pair in zip(weights_of(one), weights_of(other), strict=True))


def test_each_move_is_tried() -> None:
    assert CASES.keys() == set(MOVES)


@each
def test_it_is_described_and_survives_recipe_json(move: type[Move]) -> None:
    options = CASES[move][0]
    recipe = recipe_of(**cast(Any, {"model": "test_resnet", "image_size": 32, "epochs": 4, **options}))
    assert any(isinstance(own, move) for own in recipe.moves)
    assert Recipe.of(json.loads(json.dumps(recipe.values()))) == recipe
    assert recipe.but(seed=recipe.seed) == recipe
    if move is not FastOperators:  # it computes the same
        assert describe(recipe) != describe(recipe.but(**CASES[move][1]))


@each
def test_its_file_says_where_it_comes_from_and_where_it_was_measured(move: type[Move]) -> None:
    text = sys.modules[move.__module__].__doc__ or ""
    assert "benchmarks.md" in text or "not been measured" in text
    knobs: list[Knob] = [own.metadata["knob"] for own in fields(move)]
    assert all(knob.why for knob in knobs if knob.default is not OF_THE_ROW)


@each
def test_it_resumes_to_the_bit(move: type[Move], tiny: Path) -> None:
    options = CASES[move][0]
    whole, first, second = (learner_with(tiny, options) for _ in range(3))
    train(whole, 4)
    train(first, 2)
    restore_learner(second, *learner_state(first))
    train(second, 2)
    assert are_same(whole, second)
    assert not are_same(whole, first)


@pytest.mark.parametrize("move", [move for move in MOVES if move is not Optimizing], ids=name_of)
def test_without_its_options_it_changes_no_bit(move: type[Move], tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were no such move; without the schedule of its rate, no training would be the same."""
    neutral = learner_with(tiny, CASES[move][1])
    train(neutral, 3)
    different = learner_with(tiny, CASES[move][0])
    train(different, 3)
    others = [own for own in MOVES if own is not move]
    monkeypatch.setattr("podium.options.recipe.MOVES", others)
    without = learner_with(tiny, CASES[move][1])
    train(without, 3)
    assert are_same(neutral, without)
    if move not in ELSEWHERE:
        assert not are_same(neutral, different)


def test_a_frozen_backbone_is_built_with_the_statistics_of_its_recipe() -> None:
    recipe = recipe_of("test_resnet", norm="frozen", linear=True)
    assert build_model(recipe, ["a", "b"])[1].norm == "frozen"
