"""A tiny pretraining: which command starts it, and the objects that it is made of."""

from pathlib import Path

import torch

from podium_annex.pretraining.pretraining_learner import DinoLearner
from podium_annex.pretraining.pretraining_plan import PretrainRequest, plan_pretraining

# Three epochs of four steps: 25 training and 7 test images.
PRETRAIN = (
    *("pretrain", "-c", "tiny", "--model", "test_vit", "--image-size", "64", "--epochs", "3", "--batch-size", "8"),
    *("--local-crops", "2", "--outputs", "32", "--device", "cpu", "--workers", "0"),
)
TRAIN = (
    *("train", "-c", "tiny", "--model", "test_vit", "--image-size", "64", "--epochs", "1", "--batch-size", "8"),
    *("--device", "cpu", "--workers", "0", "--folds", "0"),
)


def folder_of(root: Path, name: str = "dino-test_vit") -> Path:
    return root / "runs" / "tiny" / name


def dino_learner_of(root: Path, model: str = "test_vit", **options: object) -> DinoLearner:
    given = {"model": model, "image_size": 64, "epochs": 3, "batch_size": 8, "lr": 1e-3, **options}
    request = PretrainRequest(given, small_crops=2, outputs=32)
    return DinoLearner(plan_pretraining("tiny", root, request), 32, torch.device("cpu"), torch.float32)
