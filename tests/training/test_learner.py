"""A training step: what it changes, by how much, and what it never changes."""

from pathlib import Path
from typing import Any

import pytest
import torch

from podium.basics.errors import PodiumError
from podium.options.recipe_options import OPTIMIZERS
from podium.training import learner as learner_module
from podium.training.learner import split
from training.learners import a_batch, copy_state, learner_of, spoil_inputs


def test_layer_decay_reaches_the_step_and_never_freezes_the_stem_of_a_deep_model(tiny: Path) -> None:
    learner = learner_of(tiny, model="convnext_atto", layer_decay=0.8)  # in which timm counts 13 layers
    learner.progress.step = 1
    learner.step(torch.zeros(8, 32, 32, 3, dtype=torch.uint8), torch.zeros(8, dtype=torch.int64))
    rates = [group["lr"] for group in learner.optimizer.param_groups]
    assert min(rates) / max(rates) == pytest.approx(0.8**12)
    total, per_epoch = learner.progress.total_steps, learner.sampler.per_epoch
    assert max(rates) == pytest.approx(learner.recipe.rate_at(1, total, per_epoch))


@pytest.mark.parametrize("options", [{}, {"loss": "focal", "class_weights": "balanced"}], ids=["plain", "weighted"])
def test_micro_batches_have_the_gradient_of_the_whole_batch(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    images, labels = a_batch()
    gradients = []
    for limit, accumulate in ((100, 1), (3, 1), (100, 4)):
        monkeypatch.setattr(learner_module, "micro_batch_limit", lambda *_, limit=limit: limit)
        learner = learner_of(tiny, model="test_vit", drop_path=0.0, mix=0.0, accumulate=accumulate, **options)
        learner.step(images, labels)
        weights = [weight for weight in learner.model.parameters() if weight.grad is not None]
        gradients.append(torch.cat([weight.grad.flatten() for weight in weights if weight.grad is not None]))
    for of_parts in gradients[1:]:
        assert torch.allclose(gradients[0], of_parts, atol=1e-6)
        assert not torch.equal(gradients[0], of_parts)  # summed in another order: it was computed in parts
    assert gradients[0].abs().max() > 1e-4


@pytest.mark.parametrize(("images", "limit", "sizes"), [(8, 100, [8]), (8, 3, [3, 3, 2]), (5, 1, [3, 2]), (1, 1, [1])])
def test_no_micro_batch_has_a_single_image_unless_the_batch_has(images: int, limit: int, sizes: list[int]) -> None:
    parts = split(torch.arange(images), torch.arange(images), limit)
    assert [len(part) for part, _ in parts] == sizes
    assert torch.cat([part for part, _ in parts]).tolist() == list(range(images))
    assert all(torch.equal(part, targets) for part, targets in parts)


def test_a_sharpness_aware_step_differs_and_keeps_the_batch_statistics_of_its_starting_point(tiny: Path) -> None:
    images, labels = a_batch()
    plain, sharp = (learner_of(tiny, model="test_resnet", sam=radius) for radius in (0.0, 0.5))
    for learner in (plain, sharp):
        learner.step(images, labels)
    plain_state, sharp_state = plain.model.state_dict(), sharp.model.state_dict()
    statistics = {name for name in plain_state if name.endswith(("running_mean", "running_var", "num_batches_tracked"))}
    differing = {name for name in plain_state if not torch.equal(plain_state[name], sharp_state[name])}
    assert statistics
    assert not statistics & differing
    assert "conv1.0.weight" in differing
    # The weights came back from the place where the gradient was taken: none moved further than two updates.
    rate = plain.optimizer.param_groups[0]["lr"]
    assert all((plain_state[name] - sharp_state[name]).abs().max() <= 2.1 * rate for name in differing)


def test_the_averaged_weights_predict_and_without_an_average_the_last_weights(tiny: Path) -> None:
    for share in (0.5, 0.0):
        learner = learner_of(tiny, model="resnet10t", ema=share)
        initial = copy_state(learner)
        for _ in range(4):
            learner.step(*a_batch())
        last, final = learner.model.state_dict(), learner.trained_model.state_dict()
        assert not torch.equal(final["fc.weight"], initial["fc.weight"])
        is_last = all(torch.equal(last[name], final[name]) for name in last)
        assert is_last == (share == 0)
        assert all(torch.isfinite(tensor).all() for tensor in final.values() if tensor.is_floating_point())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_whose_gradients_are_not_finite_changes_nothing(tiny: Path, optimizer: str) -> None:
    learner = learner_of(tiny, model="test_resnet", optimizer=optimizer)
    learner.step(*a_batch())
    weights = copy_state(learner)
    moments = [
        {slot: torch.as_tensor(value).clone() for slot, value in slots.items()}
        for slots in learner.optimizer.state.values()
    ]
    scale = learner.normalise.scale
    spoil_inputs(learner)
    learner.step(*a_batch())
    assert learner.progress.skipped.item() == 1
    assert learner.progress.loss_sum.isfinite()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in learner.model.state_dict().items())
    for before, slots in zip(moments, learner.optimizer.state.values(), strict=True):
        assert all(torch.equal(torch.as_tensor(value), before[slot]) for slot, value in slots.items())
    learner.normalise.scale = scale
    learner.step(*a_batch())
    assert not torch.equal(learner.model.state_dict()["conv1.0.weight"], weights["conv1.0.weight"])


def test_muon_updates_all_directions_of_a_matrix_alike(tiny: Path) -> None:
    spread = {}
    for optimizer in OPTIMIZERS:
        learner = learner_of(tiny, model="test_resnet", optimizer=optimizer, weight_decay=0.0)
        weight = dict(learner.model.named_parameters())["conv1.0.weight"]
        before = weight.detach().clone()
        learner.step(*a_batch())
        lengths = torch.linalg.svdvals((weight.detach() - before).flatten(1))
        spread[optimizer] = (lengths[0] / lengths[-1]).item()
    assert spread["muon"] < 1.5 < 3 < spread["adamw"]


def test_a_model_of_one_size_cannot_grow(tiny: Path) -> None:
    with pytest.raises(PodiumError, match=r"test_vit3 cannot take images of 32 pixels.*; use --grow 0"):
        learner_of(tiny, model="test_vit3", epochs=2, image_size=64, grow=0.5)
