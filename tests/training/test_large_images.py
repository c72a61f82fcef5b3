"""Large images: the last epochs at a larger size, and activations that are computed again."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from podium.models.model_file import load_model
from podium.options.recipe import describe
from podium.training.learner import Learner
from podium.training.timing.fold_work import FoldWork
from second_round import first_of
from tiny import FAST, Podium, assert_stopped_and_resumed_alike, done, one_line, run_of, weights_hash
from training.learners import a_batch, learner_of
from training.test_augment import recipe

TRAIN = ("train", *FAST, "--device", "cpu", "--folds", "0", "--batch-size", "4", "--epochs", "3")
WORDS = ("--image-size", "28", "--norm", "train", "--checkpointing")
FINISH = (*TRAIN, "--model", "test_resnet", "--finish", "48:1")


def test_the_last_epochs_see_the_larger_size() -> None:
    own = recipe(image_size=32, epochs=5, finish="48x64:2", grow=0.0)
    assert [own.size_at(epoch) for epoch in range(5)] == [32, 32, 32, "48x64", "48x64"]
    assert (own.largest_size, own.test_size) == ("48x64", "48x64")
    assert FoldWork(own, 100, 10).training[-1] == pytest.approx(100 * (3 + 2 * 3))
    assert "48x64 px in the last 2 epochs" in describe(own)[1]
    assert recipe(image_size=32, linear=True, finish="48:1").test_size == 32  # a head has no epochs
    grown = recipe(image_size=80, epochs=6, grow=0.5, finish="96:1")
    assert [grown.size_at(epoch) for epoch in range(6)] == [32, 48, 64, 80, 80, 96]


def test_a_run_trains_and_predicts_at_the_larger_size_and_resumes(tiny: Path, podium: Podium) -> None:
    assert_stopped_and_resumed_alike(podium, tiny, 7, *FINISH)
    _, spec = load_model(run_of(tiny, "undisturbed").weights_path(0))
    assert (spec.image_size, spec.test_size) == (32, 48)
    done(podium("submit", "-c", "tiny", "--runs", "undisturbed", "--device", "cpu"))


def test_a_run_goes_on_at_a_larger_size(tiny: Path, podium: Podium) -> None:
    done(podium(*TRAIN, "--model", "test_resnet", "--name", "first"))
    done(podium("train", "-c", "tiny", "--from", "first", "--finish", "48:1", "--workers", "0"))
    assert run_of(tiny, "first-more").recipe["test_size"] == 48


def test_a_model_that_takes_one_size_only_is_refused(tiny: Path, podium: Podium) -> None:
    message = one_line(
        podium(*TRAIN, "--model", "mixer_s32_224", "--image-size", "224", "--finish", "256:1"),
        "cannot take images of 256 pixels",
    )
    assert message.endswith("besides its own size; leave out --finish")


# --- activations -------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", first_of(["test_vit"], ["test_vit", "test_convnext"]))
def test_activations_that_are_computed_again_give_the_same_bits(tiny: Path, podium: Podium, model: str) -> None:
    command = (*TRAIN, "--model", model, "--drop-path", "0.2", "--mix", "0.5")
    for name, flags in (("kept", ()), ("again", ("--checkpointing",))):
        done(podium(*command, *flags, "--name", name))
    assert weights_hash(tiny, "kept") == weights_hash(tiny, "again")


def numbers_kept(learner: Learner, inputs: Tensor, targets: Tensor) -> int:
    """Returns how many numbers the forward pass keeps for the backward pass."""
    sizes = []

    def keep(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        learner.loss(inputs, targets)
    return sum(sizes)


def test_the_backward_pass_keeps_fewer_activations(tiny: Path) -> None:
    kept: dict[bool, int] = {}
    for is_on in (False, True):
        learner = learner_of(tiny, model="test_vit")
        if is_on:
            learner.model.set_grad_checkpointing(True)  # type: ignore[operator]
        inputs, targets = learner.prepare(*a_batch())
        kept[is_on] = numbers_kept(learner, inputs, targets)
    assert kept[True] < 0.5 * kept[False]


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("test_resnet", "would count each batch twice in the statistics of batch norm; add --norm frozen"),
        ("crossvit_tiny_240", "crossvit_tiny_240 has no --checkpointing; leave it out, or take another model"),
    ],
)
def test_a_model_that_cannot_compute_them_again_is_refused(
    tiny: Path, podium: Podium, model: str, problem: str
) -> None:
    assert problem in one_line(podium(*TRAIN, "--model", model, *WORDS))
