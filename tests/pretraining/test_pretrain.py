"""`podium pretrain`: from the images to weights that `podium train --weights NAME` starts from."""

import json
import signal
from pathlib import Path

import cv2
import pytest
import torch
from torch import Tensor

from podium.basics.disk import sha256
from podium.models.build import build_model
from podium.models.tensors import load_tensors
from podium.saved_runs.checkpoint import checkpoints
from podium.training.learner import Learner
from podium_annex.pretraining.pretraining_learner import DinoLearner
from pretraining.pretrainings import PRETRAIN, TRAIN, dino_learner_of, folder_of
from second_round import first_of
from templates import copied
from tiny import Podium, done, one_line, podium_at, recipe_of, run_of, tiny_with_folds, write_image


def with_a_pretraining(root: Path) -> None:
    tiny_with_folds(root)
    podium_at(root, *PRETRAIN)


pretrained = copied(with_a_pretraining)  # The tiny competition with a pretraining named dino-test_vit.


# --- the files ---------------------------------------------------------------------------------------


def test_a_pretraining_writes_weights_a_record_metrics_and_a_picture(pretrained: Path) -> None:
    folder = folder_of(pretrained)
    files = {path.name for path in folder.iterdir()} - {".lock"}
    assert files == {"pretrain.json", "metrics.jsonl", "attention.png", "backbone.safetensors"}
    record = json.loads((folder / "pretrain.json").read_text())
    assert (record["images"], record["local_size"], record["model"]) == (32, 32, "test_vit")
    assert {"images_sha256", "versions", "seed", "lr"} <= set(record)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    for line in lines:
        assert 0 <= line["image_entropy"] <= line["teacher_entropy"] <= 1.000001
        assert 0 <= line["knn_accuracy"] <= 1
    tensors, _ = load_tensors(folder / "backbone.safetensors")
    expected, _ = build_model(recipe_of("test_vit"), ("a", "b"))
    assert set(tensors) == {name for name in expected.state_dict() if not name.startswith("head.")}


def test_the_picture_has_a_row_per_image_and_a_column_per_head(pretrained: Path) -> None:
    picture = cv2.imread(str(folder_of(pretrained) / "attention.png"))
    model, _ = build_model(recipe_of("test_vit"), ("a", "b"))
    heads = model.blocks[-1].attn.num_heads  # type: ignore[union-attr, index]
    assert picture is not None
    height, width = picture.shape[:2]
    assert 6 * 116 < height < 7 * 116
    assert width == max((heads + 2) * 116 - 4 + 2 * 12, 480)


@pytest.mark.parametrize("model", first_of(["test_resnet"], ["cpvt_nano", "test_resnet"]))
def test_models_that_take_any_size_are_pretrained(tiny: Path, podium: Podium, model: str) -> None:
    out, err = done(podium(*PRETRAIN, "--model", model, "--epochs", "1"))
    assert out.strip() == str(folder_of(tiny, f"dino-{model}") / "backbone.safetensors")
    has_class_token = model == "cpvt_nano"
    assert (folder_of(tiny, f"dino-{model}") / "attention.png").exists() == has_class_token
    assert ("there is no attention.png" in err) != has_class_token


def test_images_that_cannot_be_read_are_left_out(tiny: Path, podium: Podium) -> None:
    (tiny / "data" / "raw" / "tiny" / "test_image" / "000.jpg").write_bytes(b"no image")
    _, err = done(podium(*PRETRAIN, "--epochs", "1"))
    assert "1 image cannot be read" in err
    assert json.loads((folder_of(tiny) / "pretrain.json").read_text())["images"] == 31


# --- training from it --------------------------------------------------------------------------------


def test_training_starts_from_the_pretraining_that_is_named(
    pretrained: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[dict[str, Tensor]] = []
    step = Learner.step

    def first_weights(learner: Learner, images: Tensor, labels: Tensor) -> Tensor:
        if learner.progress.step == 0:
            started.append({name: value.clone() for name, value in learner.model.state_dict().items()})
        return step(learner, images, labels)

    monkeypatch.setattr(Learner, "step", first_weights)
    done(podium(*TRAIN, "--weights", "dino-test_vit", "--name", "fine"))
    backbone, _ = load_tensors(folder_of(pretrained) / "backbone.safetensors")
    assert all(torch.equal(started[0][name], value) for name, value in backbone.items())
    recipe = run_of(pretrained, "fine").recipe
    assert recipe["weights"] == "dino-test_vit"
    assert recipe["layer_decay"] == 1.0  # as from scratch
    assert recipe["weights_source"] == f"dino-test_vit sha256:{sha256(folder_of(pretrained) / 'backbone.safetensors')}"
    _, err = done(podium(*TRAIN, "--weights", "dino-test_vit", "--name", "fine"))
    assert "fine was trained already" in err
    done(podium("submit", "-c", "tiny", "--name", "csv", "--device", "cpu", "--anyway"))  # takes no pretraining
    done(podium("lineage", pretrained / "submissions" / "tiny" / "csv.csv"))
    lineage = (pretrained / "submissions" / "tiny" / "csv.json").read_text()
    assert f"dino-test_vit sha256:{sha256(folder_of(pretrained) / 'backbone.safetensors')}" in lineage


def test_a_model_with_as_many_classes_as_timms_still_gets_a_new_head(pretrained: Path) -> None:
    path = folder_of(pretrained) / "backbone.safetensors"
    model, _ = build_model(recipe_of("test_vit", "dino-test_vit"), [str(n) for n in range(1000)], backbone=path)
    assert torch.equal(model.state_dict()["cls_token"], load_tensors(path)[0]["cls_token"])


def test_weights_of_another_model_or_an_unknown_name_are_refused(pretrained: Path, podium: Podium) -> None:
    one_line(
        podium(*TRAIN, "--model", "test_resnet", "--weights", "dino-test_vit", "--name", "other"),
        "does not hold the weights of test_resnet",
    )
    one_line(
        podium(*TRAIN, "--weights", "dino-vit", "--name", "other"),
        "--weights dino-vit",
        "there are the pretrainings dino-test_vit",
    )


# --- resuming ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "optimizer"), [("test_vit", "adamw"), pytest.param("test_resnet", "muon", marks=pytest.mark.all)]
)
def test_a_stopped_pretraining_resumes_to_the_same_bits(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch, model: str, optimizer: str
) -> None:
    command = (*PRETRAIN, "--model", model, "--optimizer", optimizer)
    done(podium(*command, "--name", "whole"))
    step = DinoLearner.step
    # Within an epoch, at its end, within the next, and after the last step.
    stops = {2: signal.SIGTERM, 4: signal.SIGINT, 7: signal.SIGINT, 12: signal.SIGTERM}

    def signalled(learner: DinoLearner, rows: Tensor) -> None:
        step(learner, rows)
        if learner.progress.step in stops:
            signal.raise_signal(stops.pop(learner.progress.step))

    monkeypatch.setattr(DinoLearner, "step", signalled)
    for _ in range(4):
        status, _, err = podium(*command, "--name", "parts")
        assert status == 75, err
        assert "all is saved" in err
        assert checkpoints(folder_of(tiny, "parts"))
    _, err = done(podium(*command, "--name", "parts"))
    assert "resumes from step 12 of 12" in err
    whole, parts = folder_of(tiny, "whole"), folder_of(tiny, "parts")
    assert sha256(whole / "backbone.safetensors") == sha256(parts / "backbone.safetensors")
    records = [
        [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()] for folder in (whole, parts)
    ]
    assert [set(record) for record in records[0]] == [set(record) for record in records[1]]
    for record in (*records[0], *records[1]):  # time differs
        del record["seconds"], record["images_per_s"]
    assert records[0] == records[1]
    assert not checkpoints(parts)


def test_other_options_under_the_same_name_are_refused(pretrained: Path, podium: Podium) -> None:
    one_line(podium(*PRETRAIN, "--lr", "0.5"), "lr was", "--name")
    before = sha256(folder_of(pretrained) / "backbone.safetensors")
    _, err = done(podium(*PRETRAIN))
    assert "pretrained already" in err
    assert sha256(folder_of(pretrained) / "backbone.safetensors") == before


def test_changed_images_are_refused(pretrained: Path, podium: Podium) -> None:
    write_image(pretrained / "data" / "raw" / "tiny" / "test_image" / "000.jpg", (9, 9, 9), seed=5)
    assert "the images changed" in one_line(podium(*PRETRAIN))


def test_runs_and_pretrainings_keep_their_folders_apart(pretrained: Path, podium: Podium) -> None:
    one_line(podium(*TRAIN, "--weights", "none", "--name", "dino-test_vit"), "holds a pretraining", "--name")
    done(podium(*TRAIN, "--weights", "none", "--name", "run"))
    assert "holds a run" in one_line(podium(*PRETRAIN, "--name", "run"))
    out, _ = done(podium("compare", "-c", "tiny", "--csv"))
    assert "dino" not in out


# --- refusals and the step ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--model", "teaching_vit_nano", "--image-size", "32"), ("teaching_vit_nano", "smaller than 32", "ConvNet")),
        (("--model", "test_vti"), ("no model 'test_vti'", "test_vit")),
        (("--model", "auto"), ("--model auto", "cpvt_nano")),
        (("--method", "mae"), ("--method", "dino")),
        (("--epochs", "0"), ("--epochs", "between 1")),
        (("--outputs", "1"), ("--outputs", "at least 2")),
        (("--image-size", "50"), ("test_vit", "50 pixels")),
        (("--weights", "nowhere.safetensors"), ("nowhere.safetensors", "no such file")),
        (("--learning-rate", "1"), ("--learning-rate", "--lr")),
    ],
)
def test_wrong_flags_are_refused_in_one_line(
    tiny: Path, podium: Podium, flags: tuple[str, ...], words: tuple[str, ...]
) -> None:
    refusal = one_line(podium(*PRETRAIN, *flags))
    assert all(word in refusal for word in words), refusal


def test_a_batch_is_computed_in_parts_that_memory_holds(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = dino_learner_of(tiny)
    rows = torch.randint(256, (8, 2 * 64 * 64 * 3 + 2 * 32 * 32 * 3), dtype=torch.uint8)
    assert len(learner.micro_batches(rows)) == 1
    monkeypatch.setattr("podium_annex.pretraining.pretraining_learner.micro_batch_limit", lambda device, size: 4)
    parts = learner.micro_batches(rows)  # the crops of an image have the pixels of two and a half images
    assert [len(part) for part in parts] == [2, 2, 2, 2]
    losses = [learner.loss(part, 0.25)[0].item() for part in parts]
    assert learner.progress.sums.loss.item() == pytest.approx(sum(losses), rel=1e-4)


def test_the_last_layer_stays_during_the_first_epoch(tiny: Path) -> None:
    learner = dino_learner_of(tiny)
    rows = torch.randint(256, (8, 2 * 64 * 64 * 3 + 2 * 32 * 32 * 3), dtype=torch.uint8)
    before = learner.student.head.last.clone()
    for _ in range(4):
        assert torch.equal(learner.student.head.last, before)
        learner.step(rows)
    assert torch.equal(learner.student.head.last, before)
    learner.step(rows)
    assert not torch.equal(learner.student.head.last, before)
    assert not any(parameter.requires_grad for parameter in learner.teacher.parameters())


def test_a_diverged_pretraining_says_what_to_do(tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "podium_annex.pretraining.pretraining_learner.dino_loss", lambda student, targets: student.sum() * float("nan")
    )
    one_line(podium(*PRETRAIN), "not finite", "--lr")
