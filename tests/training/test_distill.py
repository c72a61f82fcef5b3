"""Learning from finished runs: what the teacher sees and what the student learns."""

import math
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from podium.models.build import build_model
from podium.models.device import pick_precision
from podium.models.model_file import load_model, save_model
from podium.models.normalise import Normaliser
from podium.models.place import place_model
from podium.models.predict import predict_proba
from podium.saved_runs.run_folder import Run
from podium.training import distill
from podium.training import learner as learner_module
from podium.training.augment import TestView
from podium.training.distill import TEMPERATURE, Teacher, separate_heads
from podium.training.learner import Learner
from podium.training.loader import batches_in_order, load_batches
from tiny import FAST, Podium, done, recipe_of, run_of, signal_in_step, weights_hash
from training.learners import CPU, context_of

DEIT = "deit_tiny_distilled_patch16_224"  # has a head for the teacher


def teach(podium: Podium, name: str, *words: object, model: str = "test_resnet") -> tuple[int, str, str]:
    return podium("train", *FAST, "--model", model, "--epochs", "2", "--name", name, *words)


def save_fold(path: Path, model: str, size: int, **spec: object) -> Run:
    """Saves a model as training does; returns its run."""
    torch.manual_seed(len(model) + size)
    recipe = recipe_of(model, "none", size)
    Run(path).begin(recipe.values(), {"folds": 1, "metric": "accuracy"})
    built, default_spec = build_model(recipe, ("a", "b", "c"))
    save_model(path / "fold0" / "model.safetensors", built, replace(default_spec, **spec))  # type: ignore[arg-type]
    return Run(path)


# --- what the teacher sees ---------------------------------------------------------------------------


def test_a_teacher_sees_images_with_its_own_mean_deviation_and_size(tmp_path: Path) -> None:
    run = save_fold(tmp_path, "test_resnet", 64, mean=(0.1, 0.5, 0.9), std=(0.3, 0.2, 0.1))
    model, spec = load_model(run.weights_path(0))
    of_student = Normaliser(replace(spec, mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.4)), CPU)
    of_teacher = Normaliser(spec, CPU)
    images = torch.randint(0, 256, (3, 64, 64, 3), dtype=torch.uint8)
    teacher = Teacher([run], 0, of_student, torch.float32)
    (member,) = teacher.members
    assert torch.allclose(member.adapt(of_student(images)), of_teacher(images), atol=1e-4)
    assert member.adapt(of_student(images)).is_contiguous(memory_format=torch.channels_last)

    small = torch.linspace(0, 255, 32).round().to(torch.uint8).view(1, 1, 32, 1).expand(2, 32, 32, 3).contiguous()
    enlarged = F.interpolate(small.permute(0, 3, 1, 2).float(), (64, 64), mode="bilinear", antialias=True)
    assert member.adapt(of_student(small)).shape == (2, 3, 64, 64)
    assert torch.allclose(member.adapt(of_student(small)), of_teacher(enlarged.permute(0, 2, 3, 1)), atol=1e-3)
    with torch.inference_mode():
        probs = model.eval()(of_teacher(images)).softmax(1)
    assert torch.allclose(teacher(of_student(images)).exp(), probs, atol=1e-5)


def test_several_teachers_are_the_mean_of_their_probabilities(tmp_path: Path) -> None:
    runs = [
        save_fold(tmp_path / "a", "test_vit", 32, mean=(0.5, 0.4, 0.3)),
        save_fold(tmp_path / "b", "test_resnet", 48, std=(0.2, 0.3, 0.4)),
    ]
    spec = load_model(runs[0].weights_path(0))[1]
    normalise = Normaliser(replace(spec, mean=(0.1,) * 3), CPU)
    inputs = normalise(torch.randint(0, 256, (5, 40, 40, 3), dtype=torch.uint8))
    apart = [Teacher([run], 0, normalise, torch.float32)(inputs).exp() for run in runs]
    together = Teacher(runs, 0, normalise, torch.float32)(inputs)
    assert torch.allclose(together.exp(), torch.stack(apart).mean(0), atol=1e-6)
    assert not torch.allclose(apart[0], apart[1], atol=1e-3)
    assert not together.requires_grad


def test_the_loss_is_zero_where_both_agree_and_the_temperature_keeps_its_gradient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = save_fold(tmp_path, "test_vit", 32)
    teacher = Teacher([run], 0, Normaliser(load_model(run.weights_path(0))[1], CPU), torch.float32)
    inputs = torch.randn(4, 3, 32, 32)
    log_probs = teacher(inputs)
    assert teacher.loss(inputs, log_probs + 3, None).item() == pytest.approx(0, abs=1e-6)
    gradients = []
    for temperature in (TEMPERATURE, 50.0, 100.0):
        monkeypatch.setattr(distill, "TEMPERATURE", temperature)
        logits = torch.tensor([[1.0, 0.0, -1.0]] * 4, requires_grad=True)
        teacher.loss(inputs, logits, None).backward()
        assert logits.grad is not None
        gradients.append(logits.grad.norm().item())
    assert gradients[1] == pytest.approx(gradients[2], rel=0.05)
    assert 0.3 < gradients[0] / gradients[1] < 3


def test_a_head_for_the_teacher_learns_its_decision(tmp_path: Path) -> None:
    run = save_fold(tmp_path, "test_vit", 32)
    teacher = Teacher([run], 0, Normaliser(load_model(run.weights_path(0))[1], CPU), torch.float32)
    inputs = torch.randn(4, 3, 32, 32)
    confident = F.one_hot(teacher(inputs).argmax(1), 3).float() * 100
    assert teacher.loss(inputs, torch.zeros(4, 3), confident).item() == pytest.approx(0, abs=1e-6)
    assert teacher.loss(inputs, confident, -confident).item() == pytest.approx(100 + math.log(2))
    assert teacher.loss(inputs, confident, torch.zeros(4, 3)).item() == pytest.approx(math.log(3))


@pytest.mark.parametrize(
    ("model", "heads"),
    [
        (DEIT, 2),
        pytest.param("pit_ti_distilled_224", 2, marks=pytest.mark.all),
        pytest.param("pit_ti_224", 1, marks=pytest.mark.all),
        ("resnet10t", 1),
    ],
)
def test_a_model_with_a_head_for_the_teacher_is_known_by_its_output(model: str, heads: int) -> None:
    size = 224 if model.startswith("pit") else 32
    built, _ = build_model(recipe_of(model, "none", size), ("a", "b"))
    separate_heads(built)
    output = built.train()(torch.zeros(2, 3, size, size))
    assert (len(output) if isinstance(output, tuple) else 1) == heads
    assert built.eval()(torch.zeros(2, 3, size, size)).shape == (2, 2)


# --- what the student learns -------------------------------------------------------------------------


@pytest.mark.annex
@pytest.mark.slow
def test_the_student_depends_on_its_teacher(taught: Path, podium: Podium) -> None:
    hashes = {}
    for name, *words in (
        ("alone",),
        ("vit", "--teacher", "test_vit"),
        ("again", "--teacher", "test_vit"),
        ("convnext", "--teacher", "test_convnext"),
        ("both", "--teacher", "test_vit+test_convnext"),
    ):
        done(teach(podium, name, "--folds", "0", "--epochs", "1", *words))
        hashes[name] = weights_hash(taught, name)
    assert hashes["again"] == hashes["vit"]
    assert len(set(hashes.values())) == 4


@pytest.mark.slow
def test_a_student_of_the_teacher_alone_follows_it_against_the_labels(
    taught: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step gets wrong labels: only the teacher knows the colours."""
    step = Learner.step

    def step_with_wrong_labels(learner: Learner, images: Tensor, labels: Tensor) -> Tensor:
        return step(learner, images, (labels + 1) % 4)

    monkeypatch.setattr(Learner, "step", step_with_wrong_labels)
    agreement = {}
    for share in (0, 1):
        monkeypatch.setattr(learner_module, "TEACHERS_SHARE", float(share))
        words = ("--teacher", "test_convnext", "--folds", "0", "--epochs", "10", "--mix", "0")
        done(teach(podium, f"misled{share}", *words, model="test_convnext"))
        classes = [run_of(taught, name).out_of_fold(0).probs.argmax(1) for name in ("test_convnext", f"misled{share}")]
        agreement[share] = (classes[0] == classes[1]).mean()
    assert agreement[1] > 0.75
    assert agreement[0] < 0.5


def test_micro_batches_are_taught_like_the_whole_batch(
    taught: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--teacher", "test_vit", "--folds", "0", "--drop-path", "0", "--epochs", "1")
    losses = []
    for name, limit in (("whole", 100), ("parts", 3)):
        monkeypatch.setattr(learner_module, "micro_batch_limit", lambda *_, limit=limit: limit)
        done(teach(podium, name, *words, model="test_vit"))
        losses.append(run_of(taught, name).history(0)[0].loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_both_heads_of_a_distilled_model_learn_and_its_file_gives_the_reported_predictions(
    taught: Path, podium: Podium
) -> None:
    words = ("--teacher", "test_convnext", "--folds", "0", "--mirror", "0")
    done(teach(podium, "student", *words, model=DEIT))
    run = run_of(taught, "student")
    held_out = run.out_of_fold(0)
    model, spec = load_model(run.weights_path(0))
    with context_of(taught, "other", model=DEIT) as context:
        rows = context.images.held_out_rows(0)
        batches = list(load_batches(context.images.of_rows(rows, TestView(spec)), batches_in_order(len(rows), 8), 0))
        assert context.competition.train["id"].iloc[rows].tolist() == held_out.id.tolist()
    precision = pick_precision("auto", CPU)
    normalise = place_model(model, spec, CPU, precision)
    probs = predict_proba(model, batches, normalise, precision, "none")
    assert np.array_equal(probs, held_out.probs)
    heads = model.get_classifier()  # type: ignore[operator]
    assert len(heads) == 2
    for head in heads:
        assert head.bias.abs().max() > 1e-4  # it starts with zeros
    for head in heads:
        head.weight.data.zero_()
        without_head = predict_proba(model, batches, normalise, precision, "none")
        assert not np.allclose(without_head, probs, atol=1e-4)  # each head takes part in the output


# --- teachers that change ----------------------------------------------------------------------------


def test_other_weights_of_the_teacher_are_refused_for_a_fold_that_has_begun(taught: Path, podium: Podium) -> None:
    words = ("--teacher", "test_vit", "--folds", "0")
    with pytest.MonkeyPatch.context() as patch:
        signal_in_step(patch, 1, signal.SIGINT)
        assert teach(podium, "student", *words)[0] == 75
    teacher, student = run_of(taught, "test_vit").path, run_of(taught, "student").path
    shutil.move(teacher, taught / "old teacher")
    done(podium("train", *FAST, "--model", "test_vit", "--epochs", "1", "--image-size", "48"))
    status, _, err = teach(podium, "student", *words)
    assert status == 1
    message = err.splitlines()[-1]
    assert f"{student}/fold0 was started with other weights of teacher test_vit" in message
    assert "restore those, or delete that folder" in message
    shutil.copytree(student, taught / "begun student")
    shutil.rmtree(student / "fold0")
    done(teach(podium, "student", *words))  # nothing is left that the old weights began
    assert Run(student).recipe["teacher_sha256"] == {"0": weights_hash(taught, "test_vit")}

    shutil.rmtree(student)
    shutil.move(taught / "begun student", student)
    done(teach(podium, "student", *words[:2], "--folds", "1"))  # this fold has had no other teacher
    shutil.rmtree(teacher)
    shutil.move(taught / "old teacher", teacher)
    done(teach(podium, "student", *words))
    shutil.rmtree(teacher)
    _, err = done(teach(podium, "student", *words))  # a finished fold needs its teacher no more
    assert "fold 0 is trained already" in err
    assert set(Run(student).recipe["teacher_sha256"]) == {"0", "1"}
