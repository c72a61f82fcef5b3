"""Learning from finished runs: what the teacher sees, what the student learns, and which teachers are refused."""

import json
import math
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from podium.competition.load import load
from podium.disk import sha256
from podium.images.store import open_store
from podium.models.normalise import Normaliser
from podium.models.build import build_model
from podium.models.model_file import load_model, save_model
from podium.models.device import pick_precision
from podium.models.predict import predict_proba
from podium.training.augment import TestView
from podium.training.distill import TEMPERATURE, Teacher, separate_heads
from podium.training.loader import ImageDataset, batches_in_order, load_batches
from podium.training.loop import Fold
from podium.training.run_folder import Run
from tiny import FAST, Podium, Stopper, recipe_of, weights, write_image

CPU = torch.device("cpu")
DEIT = "deit_tiny_distilled_patch16_224"


@pytest.fixture
def taught(tiny: Path, podium: Podium) -> Path:
    """The tiny competition with two teachers: at 32 pixels, and at 48 with another mean and deviation."""
    for model, *knobs in (("test_convnext", "--epochs", 8), ("test_vit", "--epochs", 2, "--image-size", 48)):
        status, _, err = podium("train", *FAST, "--model", model, *knobs)
        assert status == 0, err
    return tiny


def student(podium: Podium, name: str, *words: object, model: str = "test_resnet") -> tuple[int, str, str]:
    return podium("train", *FAST, "--model", model, "--epochs", "2", "--name", name, *words)


def refusal(podium: Podium, root: Path, *words: object) -> str:
    """The one line that a student is refused with, before it begins."""
    status, out, err = student(podium, "student", *words)
    assert (status, out) == (1, "")
    assert not (root / "runs" / "tiny" / "student" / "recipe.json").exists()
    last = err.splitlines()[-1]
    assert last.startswith("podium: error: ")
    assert "; " in last  # a remedy
    return last


def saved(path: Path, model: str, size: int, **spec: object) -> Path:
    """A model as a fold would save it."""
    torch.manual_seed(len(model) + size)
    built, known = build_model(recipe_of(model, "none", size), ("a", "b", "c"))
    save_model(path / "fold0" / "model.safetensors", built, replace(known, **spec))  # type: ignore[arg-type]
    return path


# --- what the teacher sees ---------------------------------------------------------------------------


def test_a_teacher_sees_the_image_with_its_own_mean_and_deviation_and_at_its_own_size(tmp_path: Path) -> None:
    run = Run(saved(tmp_path, "test_resnet", 64, mean=(0.1, 0.5, 0.9), std=(0.3, 0.2, 0.1)))
    own, spec = load_model(run.fold(0) / "model.safetensors")
    mine = Normaliser(replace(spec, mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.4)), CPU)
    its = Normaliser(spec, CPU)
    images = torch.randint(0, 256, (3, 64, 64, 3), dtype=torch.uint8)
    (member,) = Teacher([run], 0, mine, torch.float32).members
    assert torch.allclose(member.see(mine(images)), its(images), atol=1e-4)
    assert member.see(mine(images)).is_contiguous(memory_format=torch.channels_last)

    smooth = torch.linspace(0, 255, 32).round().to(torch.uint8).view(1, 1, 32, 1).expand(2, 32, 32, 3).contiguous()
    large = F.interpolate(smooth.permute(0, 3, 1, 2).float(), (64, 64), mode="bilinear", antialias=True)
    wanted = its(large.permute(0, 2, 3, 1))
    assert member.see(mine(smooth)).shape == (2, 3, 64, 64)
    assert torch.allclose(member.see(mine(smooth)), wanted, atol=1e-3)
    with torch.inference_mode():
        says = own.eval()(its(images)).softmax(1)
    assert torch.allclose(Teacher([run], 0, mine, torch.float32)(mine(images)).exp(), says, atol=1e-5)


def test_several_teachers_are_the_mean_of_their_probabilities(tmp_path: Path) -> None:
    runs = [
        Run(saved(tmp_path / "a", "test_vit", 32, mean=(0.5, 0.4, 0.3))),
        Run(saved(tmp_path / "b", "test_resnet", 48, std=(0.2, 0.3, 0.4))),
    ]
    spec = load_model(runs[0].fold(0) / "model.safetensors")[1]
    normalise = Normaliser(replace(spec, mean=(0.1,) * 3), CPU)
    inputs = normalise(torch.randint(0, 256, (5, 40, 40, 3), dtype=torch.uint8))
    apart = [Teacher([run], 0, normalise, torch.float32)(inputs).exp() for run in runs]
    together = Teacher(runs, 0, normalise, torch.float32)(inputs)
    assert torch.allclose(together.exp(), torch.stack(apart).mean(0), atol=1e-6)
    assert not torch.allclose(apart[0], apart[1], atol=1e-3)
    assert not together.requires_grad


def test_the_loss_is_nothing_where_both_agree_and_its_gradient_keeps_its_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(saved(tmp_path, "test_vit", 32))
    spec = load_model(run.fold(0) / "model.safetensors")[1]
    teacher = Teacher([run], 0, Normaliser(spec, CPU), torch.float32)
    inputs = torch.randn(4, 3, 32, 32)
    says = teacher(inputs)
    assert teacher.loss(inputs, says + 3, None).item() == pytest.approx(0, abs=1e-6)
    pulls = []
    for temperature in (TEMPERATURE, 50.0, 100.0):
        monkeypatch.setattr("podium.training.distill.TEMPERATURE", temperature)
        logits = torch.tensor([[1.0, 0.0, -1.0]] * 4, requires_grad=True)
        teacher.loss(inputs, logits, None).backward()
        assert logits.grad is not None
        pulls.append(logits.grad.norm().item())
    assert pulls[1] == pytest.approx(pulls[2], rel=0.05)
    assert 0.3 < pulls[0] / pulls[1] < 3
    decided = says.argmax(1)
    sure = F.one_hot(decided, 3).float() * 100
    assert teacher.loss(inputs, torch.zeros(4, 3), sure).item() == pytest.approx(0, abs=1e-6)
    assert teacher.loss(inputs, sure, -sure).item() == pytest.approx(100 + math.log(2))
    assert teacher.loss(inputs, sure, torch.zeros(4, 3)).item() == pytest.approx(math.log(3))


@pytest.mark.parametrize(
    ("model", "heads"), [(DEIT, 2), ("pit_ti_distilled_224", 2), ("pit_ti_224", 1), ("resnet10t", 1)]
)
def test_a_model_with_a_head_for_the_teacher_is_known_by_what_it_answers(model: str, heads: int) -> None:
    size = 224 if model.startswith("pit") else 32
    built, _ = build_model(recipe_of(model, "none", size), ("a", "b"))
    separate_heads(built)
    answer = built.train()(torch.zeros(2, 3, size, size))
    assert (len(answer) if isinstance(answer, tuple) else 1) == heads
    assert built.eval()(torch.zeros(2, 3, size, size)).shape == (2, 2)


# --- what the student learns -------------------------------------------------------------------------


def test_students_go_all_the_way_to_a_submission(taught: Path, podium: Podium) -> None:
    for model, teacher in (
        ("test_vit", "test_convnext"),
        (DEIT, "test_vit"),
        ("test_resnet", "test_vit+test_convnext"),
    ):
        status, out, err = student(podium, f"of-{model}", "--teacher", teacher, model=model)
        assert status == 0, err
        assert f"taught by {' and '.join(teacher.split('+'))}" in err
        assert "over 2 of 2 folds" in out
        recipe = Run(taught / "runs" / "tiny" / f"of-{model}").recipe
        assert (recipe["teacher"], recipe["distil"]) == (teacher, 0.5)
        assert recipe["teacher_sha256"] == {
            str(fold): "+".join(weights(taught, name, fold) for name in teacher.split("+")) for fold in (0, 1)
        }
    status, out, err = podium("submit", "-c", "tiny", "--workers", "0")
    assert status == 0, err
    status, out, _ = podium("score", out.splitlines()[-1], "--solution", taught / "solution.csv")
    assert status == 0
    assert json.loads(out.splitlines()[-1])["score"] >= 0.7


def test_a_share_for_no_teacher_is_refused(tiny: Path, podium: Podium) -> None:
    assert "name it with --teacher, or leave --distil out" in refusal(podium, tiny, "--distil", "0.5")


def test_the_student_depends_on_its_teacher(taught: Path, podium: Podium) -> None:
    found = {}
    for name, *words in (
        ("alone",),
        ("nothing", "--teacher", "test_vit", "--distil", "0"),
        ("vit", "--teacher", "test_vit"),
        ("again", "--teacher", "test_vit"),
        ("convnext", "--teacher", "test_convnext"),
        ("both", "--teacher", "test_vit+test_convnext"),
        ("more", "--teacher", "test_vit", "--distil", "0.9"),
    ):
        status, _, err = student(podium, name, "--folds", "0", *words)
        assert status == 0, err
        found[name] = weights(taught, name)
    assert found["nothing"] == found["alone"]
    assert found["again"] == found["vit"]
    assert len(set(found.values())) == 5


def test_a_student_of_the_teacher_alone_follows_it_against_the_labels(taught: Path, podium: Podium) -> None:
    """The labels of the training folds are exchanged in what the step is given: only the teacher knows the colours."""
    step = Fold.step

    def misled(fold: Fold, images: torch.Tensor, labels: torch.Tensor) -> None:
        step(fold, images, (labels + 1) % 4)

    scores = {}
    for distil in ("0", "1"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Fold, "step", misled)
            words = ("--teacher", "test_convnext", "--distil", distil, "--folds", "0", "--epochs", "10", "--mix", "0")
            status, _, err = student(podium, f"misled{distil}", *words, model="test_convnext")
        assert status == 0, err
        teacher, follower = (Run(taught / "runs" / "tiny" / name) for name in ("test_convnext", f"misled{distil}"))
        agree = teacher.out_of_fold(0).probs.argmax(1) == follower.out_of_fold(0).probs.argmax(1)
        scores[distil] = agree.mean()
    assert scores["1"] > 0.75
    assert scores["0"] < 0.5


def test_a_batch_in_parts_is_taught_as_the_whole(taught: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--teacher", "test_vit", "--folds", "0", "--drop-path", "0", "--epochs", "1")
    found = []
    for name, count in (("whole", 100), ("parts", 3)):
        monkeypatch.setattr("podium.training.loop.micro_batch_limit", lambda *_, count=count: count)
        status, _, err = student(podium, name, *words, model="test_vit")
        assert status == 0, err
        found.append(Run(taught / "runs" / "tiny" / name).history(0)[0]["loss"])
    assert found[0] == pytest.approx(found[1], rel=1e-3)


@pytest.mark.parametrize(("model", "grow"), [("test_resnet", "0.6"), (DEIT, "0")])
def test_a_student_stopped_anywhere_ends_with_the_same_bits(
    taught: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch, model: str, grow: str
) -> None:
    words = (
        "--teacher",
        "test_vit+test_convnext",
        "--folds",
        "0",
        "--epochs",
        "3",
        "--batch-size",
        "4",
        "--mix",
        "0.7",
    )
    size = ("--grow", grow, "--image-size", "64")
    assert student(podium, "whole", *words, *size, model=model)[0] == 0
    for at, number in ((1, signal.SIGINT), (7, signal.SIGTERM)):
        with monkeypatch.context() as patch:
            Stopper(patch, at, number)
            assert student(podium, "stopped", *words, *size, model=model)[0] == 75
    status, _, err = student(podium, "stopped", *words, *size, model=model)
    assert status == 0, err
    assert weights(taught, "stopped") == weights(taught, "whole")
    whole, stopped = (Run(taught / "runs" / "tiny" / name) for name in ("whole", "stopped"))
    assert np.array_equal(whole.out_of_fold(0).probs, stopped.out_of_fold(0).probs)
    assert [entry["loss"] for entry in whole.history(0)] == [entry["loss"] for entry in stopped.history(0)]


@pytest.mark.parametrize("distil", ["0.5", "1"])
def test_both_heads_of_a_distilled_model_learn_and_its_file_predicts_what_was_reported(
    taught: Path, podium: Podium, distil: str
) -> None:
    words = ("--teacher", "test_convnext", "--distil", distil, "--folds", "0", "--mirror", "0")
    status, _, err = student(podium, "deit", *words, model=DEIT)
    assert status == 0, err
    run, competition = Run(taught / "runs" / "tiny" / "deit"), load("tiny", taught)
    held_out = run.out_of_fold(0)
    model, spec = load_model(run.fold(0) / "model.safetensors")
    rows = np.flatnonzero(competition.train["id"].isin(held_out.id))
    store = open_store(competition, taught, 128)
    images = ImageDataset(
        store.reader(store.positions(competition.train["image"].iloc[rows])),
        np.zeros(len(rows), np.int64),
        TestView(spec),
        rows,
    )
    in_turn = list(load_batches(images, batches_in_order(len(rows), 8), 0))
    precision = pick_precision("auto", CPU)
    again = predict_proba(model, in_turn, Normaliser(spec, CPU), precision, "none")
    assert competition.train["id"].iloc[rows].tolist() == held_out.id.tolist()
    assert np.array_equal(again, held_out.probs)
    heads = model.get_classifier()  # type: ignore[operator]
    assert len(heads) == 2
    for head in heads:  # which begins with zeros
        assert head.bias.abs().max() > 1e-4
    for head in heads:
        head.weight.data.zero_()
        other = predict_proba(model, in_turn, Normaliser(spec, CPU), precision, "none")
        assert not np.allclose(other, again, atol=1e-4)  # each has its part in the answer


# --- refusals ----------------------------------------------------------------------------------------


def test_a_teacher_that_cannot_teach_is_refused_in_one_line_before_anything_begins(
    taught: Path, podium: Podium
) -> None:
    assert "did you mean test_vit?" in refusal(podium, taught, "--teacher", "test_vot")
    assert "did you mean test_vit?" in refusal(podium, taught, "--teacher", "test_convnext+test_vot")
    assert "'student' cannot be its own teacher" in refusal(podium, taught, "--teacher", "test_vit+student")
    assert "--distil must be between 0 and 1" in student(podium, "x", "--teacher", "test_vit", "--distil", "2")[2]

    assert student(podium, "half", "--folds", "1")[0] == 0
    said = refusal(podium, taught, "--teacher", "test_vit+half")
    assert "the teacher half has not finished fold 0" in said
    assert "--folds among 1" in said
    begun = taught / "runs" / "tiny" / "begun"
    begun.mkdir()
    shutil.copy2(taught / "runs" / "tiny" / "half" / "recipe.json", begun)
    assert "run 'begun' has no finished fold yet" in refusal(podium, taught, "--teacher", "begun")
    assert student(podium, "of-half", "--teacher", "half", "--folds", "1")[0] == 0

    model = taught / "runs" / "tiny" / "half" / "fold1" / "model.safetensors"
    model.write_bytes(model.read_bytes() + b"x")
    said = refusal(podium, taught, "--teacher", "half", "--folds", "1")
    assert "is not what was trained" in said


def test_a_teacher_of_other_classes_folds_or_data_is_refused(taught: Path, podium: Podium) -> None:
    teacher = Run(taught / "runs" / "tiny" / "test_vit")
    held_out = teacher.out_of_fold(1)
    replace(held_out, classes=("a", "b", "c", "d")).save(teacher.fold(1) / "oof.npz")
    assert "test_vit was trained on other classes" in refusal(podium, taught, "--teacher", "test_vit")
    held_out.save(teacher.fold(1) / "oof.npz")

    folds = taught / "data" / "prepared" / "tiny" / "folds.csv"
    kept = folds.read_text()
    assert podium("folds", "-c", "tiny", "--k", "2", "--seed", "7")[0] == 0
    assert "test_vit was trained on other folds" in refusal(podium, taught, "--teacher", "test_vit")
    folds.write_text(kept)
    write_image(taught / "data" / "raw" / "tiny" / "train_image" / "003.jpg", (1, 2, 3), 99, (50, 50))
    assert "test_vit was trained on other data" in refusal(podium, taught, "--teacher", "test_vit+test_convnext")


def test_other_weights_of_the_teacher_are_refused_for_a_fold_that_has_begun(
    taught: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--teacher", "test_vit", "--folds", "0")
    with monkeypatch.context() as patch:
        Stopper(patch, 1, signal.SIGINT)
        assert student(podium, "student", *words)[0] == 75
    teacher = taught / "runs" / "tiny" / "test_vit"
    shutil.move(teacher, taught / "kept")
    status, _, err = podium("train", *FAST, "--model", "test_vit", "--epochs", "1", "--image-size", "48")
    assert status == 0, err
    status, _, err = student(podium, "student", *words)
    assert status == 1
    last = err.splitlines()[-1]
    assert "was begun with other weights of its teacher test_vit; restore those, or delete that folder" in last
    folder = taught / "runs" / "tiny" / "student"
    shutil.copytree(folder, taught / "anew")
    shutil.rmtree(folder / "fold0")
    assert student(podium, "student", *words)[0] == 0  # what was begun with the old ones is gone
    assert Run(folder).recipe["teacher_sha256"] == {"0": weights(taught, "test_vit")}

    shutil.rmtree(folder)
    shutil.move(taught / "anew", folder)
    assert student(podium, "student", *words[:2], "--folds", "1")[0] == 0  # a fold that no other has taught
    shutil.rmtree(teacher)
    shutil.move(taught / "kept", teacher)
    assert student(podium, "student", *words)[0] == 0
    shutil.rmtree(teacher)
    status, _, err = student(podium, "student", *words)  # what is finished needs no teacher any more
    assert status == 0
    assert "fold 0 is trained already" in err
    assert set(Run(folder).recipe["teacher_sha256"]) == {"0", "1"}


def test_another_teacher_is_another_recipe(taught: Path, podium: Podium) -> None:
    assert student(podium, "student", "--teacher", "test_vit", "--folds", "0")[0] == 0
    before = sha256(taught / "runs" / "tiny" / "student" / "recipe.json")
    status, _, err = student(podium, "student", "--teacher", "test_convnext", "--folds", "1")
    assert status == 1
    assert "teacher was test_vit and is test_convnext" in err
    assert sha256(taught / "runs" / "tiny" / "student" / "recipe.json") == before
