"""What holds for each move: it is described, resumes to the bit, and without its options changes no bit."""

import json
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from podium.models.build import build_model
from podium.options.knob import ALWAYS_RECORDED, OF_THE_ROW, Knob
from podium.options.moves import MOVES
from podium.options.moves.fast_operators import FastOperators
from podium.options.moves.move import Move
from podium.options.moves.optimizing import Optimizing
from podium.options.moves.shape import Shape
from podium.options.recipe import Recipe, describe, file_hashes
from podium.training.learner import Learner
from podium.training.learner_state import learner_state, restore_learner
from tiny import recipe_of, tell_classes, write_card
from training.learners import a_batch, learner_of

Options = Mapping[str, Any]
# What a learner asks of a move; the others change images, labels, the start or the end.
OF_A_LEARNER = (
    *("average", "batch", "gradient", "label_loss", "learns", "model_options", "optimizer_options", "rate", "rates"),
    *("set_training", "spec"),
)
RECORDED_ONLY = (FastOperators, Shape)  # by `spec`: they compute the same, or change images


def name_of(move: type[Move]) -> str:
    return move.__name__.lower()


def switched_on(move: type[Move], folder: Path) -> Options:
    """Returns the options with which a move is tried; writes the files that they name."""
    options = dict(move.tried)
    for name in file_hashes().values() & options.keys():
        path = folder / name
        path.write_text(options[name])
        options[name] = str(path)
    return options


def switched_off(move: type[Move]) -> Options:
    """Returns the same options where the move changes nothing."""
    knobs: dict[str, Knob] = {own.name: own.metadata["knob"] for own in fields(move)}
    off = {name: knob.off for name, knob in knobs.items() if knob.off is not ALWAYS_RECORDED}
    return {**move.tried, **off, **move.neutral}


each = pytest.mark.parametrize("move", MOVES, ids=name_of)


def learner_with(root: Path, options: Options) -> Learner:
    if "columns" in options:
        tell_classes(root)
    if "adjacent" in options:
        write_card(root, "group_pattern = '(..)'\n")
    return learner_of(root, **{"model": "test_resnet", "drop_path": 0.0, **options})


def train(learner: Learner, steps: int) -> None:
    for step in range(learner.progress.step, learner.progress.step + steps):
        torch.manual_seed(step)
        learner.step(*a_batch(learner.spec.column_count, learner.spec.channel_count))


def weights_of(learner: Learner) -> list[torch.Tensor]:
    return [*learner.model.state_dict().values(), *learner.trained_model.state_dict().values()]


def are_same(one: Learner, other: Learner) -> bool:
    return all(torch.equal(*pair) for pair in zip(weights_of(one), weights_of(other), strict=True))


@each
def test_it_is_described_and_survives_recipe_json(move: type[Move], tmp_path: Path) -> None:
    options = switched_on(move, tmp_path)
    recipe = recipe_of(**{"model": "test_resnet", "image_size": 32, "epochs": 4, **options})
    assert any(isinstance(own, move) for own in recipe.moves)
    assert Recipe.of(json.loads(json.dumps(recipe.values()))) == recipe
    assert recipe.but(seed=recipe.seed) == recipe
    if move is not FastOperators:  # it computes the same
        assert describe(recipe) != describe(recipe.but(**switched_off(move)))


@each
def test_its_file_says_where_it_comes_from_and_where_it_was_measured(move: type[Move]) -> None:
    text = sys.modules[move.__module__].__doc__ or ""
    assert "benchmarks.md" in text or "not been measured" in text
    knobs: list[Knob] = [own.metadata["knob"] for own in fields(move)]
    assert all(knob.why for knob in knobs if knob.default is not OF_THE_ROW)


@each
def test_it_resumes_to_the_bit(move: type[Move], tiny: Path) -> None:
    options = switched_on(move, tiny)
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
    neutral = learner_with(tiny, switched_off(move))
    train(neutral, 3)
    different = learner_with(tiny, switched_on(move, tiny))
    train(different, 3)
    others = [own for own in MOVES if own is not move]
    monkeypatch.setattr("podium.options.recipe.MOVES", others)
    without = learner_with(tiny, switched_off(move))
    train(without, 3)
    assert are_same(neutral, without)
    is_asked = any(getattr(move, name) is not getattr(Move, name) for name in OF_A_LEARNER)
    if is_asked and move not in RECORDED_ONLY:
        assert not are_same(neutral, different)


def test_a_frozen_backbone_is_built_with_the_statistics_of_its_recipe() -> None:
    recipe = recipe_of("test_resnet", norm="frozen", linear=True)
    assert build_model(recipe, ["a", "b"])[1].norm == "frozen"
