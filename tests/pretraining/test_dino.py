"""DINO's loss, centre and teacher against values computed by hand."""

import math

import pytest
import torch

from podium_annex.pretraining.dino import (
    FIRST_MOMENTUM,
    FIRST_TEACHER_TEMPERATURE,
    STUDENT_TEMPERATURE,
    TEACHER_TEMPERATURE,
    Head,
    dino_loss,
    momentum_at,
    move_centre,
    move_teacher,
    teacher_probs,
    teacher_temperature_at,
)
from podium_annex.pretraining.pretrain import knn_accuracy


def test_the_teachers_words_are_centred_and_sharpened() -> None:
    outputs, centre = torch.tensor([0.3, 0.1]), torch.tensor([0.1, 0.1])
    # (0.2 - 0.0) / 0.05 = 4, and 1 / (1 + exp(-4))
    assert teacher_probs(outputs, centre, 0.05)[0].item() == pytest.approx(1 / (1 + math.exp(-4)), rel=1e-5)


def test_the_loss_compares_each_large_crop_with_all_other_crops() -> None:
    # One image, two outputs, two large crops and a small one. A probability p has the logit log(p / (1 - p)).
    student_probs = (0.5, 0.8, 0.9)
    first = [STUDENT_TEMPERATURE * math.log(p / (1 - p)) for p in student_probs]
    student = torch.tensor([[[logit, 0.0]] for logit in first])
    targets = torch.tensor([[[1.0, 0.0]], [[0.25, 0.75]]])
    pairs = (
        -math.log(0.8),  # the teacher saw crop 0, the student crop 1
        -math.log(0.9),  # 0 and 2
        -math.log(0.5),  # 1 and 0: both outputs have one half
        -(0.25 * math.log(0.9) + 0.75 * math.log(0.1)),  # 1 and 2
    )
    assert dino_loss(student, targets).item() == pytest.approx(sum(pairs) / 4, rel=1e-5)


def test_the_loss_is_the_mean_over_the_images() -> None:
    generator = torch.Generator().manual_seed(0)
    student = torch.randn(5, 6, 7, generator=generator)
    targets = torch.randn(2, 6, 7, generator=generator).softmax(-1)
    alone = [dino_loss(student[:, [image]], targets[:, [image]]) for image in range(6)]
    assert dino_loss(student, targets).item() == pytest.approx(torch.stack(alone).mean().item(), rel=1e-5)


def test_the_centre_moves_a_tenth_towards_the_mean_output() -> None:
    outputs = torch.tensor([[[1.0, 0.0], [3.0, 0.0]], [[5.0, 0.0], [7.0, 4.0]]])  # two crops of two images
    moved = move_centre(torch.tensor([2.0, 1.0]), outputs)
    assert moved.tolist() == pytest.approx([0.9 * 2 + 0.1 * 4, 0.9 * 1 + 0.1 * 1])


def test_the_teacher_moves_towards_the_student() -> None:
    teacher, student = torch.nn.Linear(1, 1, bias=False), torch.nn.Linear(1, 1, bias=False)
    teacher.weight.data.fill_(1.0)
    student.weight.data.fill_(3.0)
    move_teacher(teacher, student, 0.75)
    assert (teacher.weight.item(), student.weight.item()) == (1.5, 3.0)


def test_the_momentum_rises_to_one_and_the_temperature_to_its_end() -> None:
    assert momentum_at(0, 100) == pytest.approx(FIRST_MOMENTUM)
    assert momentum_at(50, 100) == pytest.approx((1 + FIRST_MOMENTUM) / 2)
    assert momentum_at(100, 100) == pytest.approx(1)
    assert teacher_temperature_at(0, 100) == FIRST_TEACHER_TEMPERATURE
    assert teacher_temperature_at(99, 100) == pytest.approx(TEACHER_TEMPERATURE)
    assert teacher_temperature_at(9, 10) == FIRST_TEACHER_TEMPERATURE


def test_the_outputs_of_the_head_are_cosines() -> None:
    torch.manual_seed(0)
    head = Head(8, 16)
    features = torch.randn(4, 8) * 100
    with torch.no_grad():
        outputs = head(features)
        head.last.mul_(3)  # the length of its rows does not matter
        assert torch.allclose(outputs, head(features), atol=1e-6)
    assert outputs.shape == (4, 16)
    assert outputs.abs().max() <= 1


def test_neighbours_vote_for_the_class_and_no_image_for_itself() -> None:
    features = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9], [0.05, 1.0]])
    assert knn_accuracy(features, torch.tensor([0, 0, 1, 1, 1]), 2) == 1
    assert knn_accuracy(features, torch.tensor([0, 1, 1, 1, 1]), 2) < 1
