"""Runs may start from the model of another competition's run: --weights SLUG/RUN."""

import shutil
from pathlib import Path

import torch
from PIL import Image

from pictures import photograph
from podium.competition.load import load
from podium.models.model_file import load_model
from podium.saved_runs.foreign_weights import find_copies_in_weights
from podium.saved_runs.run_folder import Run
from templates import copied
from tiny import FAST, Podium, assert_says, done, one_line, podium_at, run_of, tiny_with_folds
from training.learners import context_of

SMALL = ("--weights", "none", "--image-size", "32", "--batch-size", "8", "--workers", "0", "--device", "cpu")


def with_a_run_elsewhere(root: Path) -> None:
    tiny_with_folds(root)
    folder = root / "data" / "raw" / "birds"
    for number in range(8):
        (folder / "train" / ("owl", "wren")[number % 2]).mkdir(parents=True, exist_ok=True)
        photograph(number).save(folder / "train" / ("owl", "wren")[number % 2] / f"{number}.png")
    podium_at(root, "folds", "-c", "birds", "--k", "2")
    podium_at(root, "train", "-c", "birds", *SMALL, "--model", "test_vit", "--epochs", "1", "--name", "base")


elsewhere = copied(with_a_run_elsewhere)


def test_a_run_starts_from_its_backbone_and_not_from_its_head(elsewhere: Path) -> None:
    own = load_model(elsewhere / "runs" / "birds" / "base" / "fold0" / "model.safetensors")[0].state_dict()
    with context_of(elsewhere, "run", model="test_vit", weights="birds/base") as context:
        from podium.training.learner import Learner

        learner = Learner(context, 0)
    assert torch.equal(learner.model.state_dict()["blocks.0.attn.qkv.weight"], own["blocks.0.attn.qkv.weight"])
    assert learner.model.state_dict()["head.weight"].shape != own["head.weight"].shape
    assert learner.spec.source.startswith("birds/base sha256:")


def test_the_recipe_names_the_run_and_its_weights(elsewhere: Path, podium: Podium) -> None:
    words = ("train", *FAST, "--weights", "birds/base", "--model", "test_vit", "--folds", "0", "--epochs", "1")
    _, err = done(podium(*words))
    assert "weights: birds/base sha256:" in err
    recipe = run_of(elsewhere).recipe
    assert recipe["weights"] == "birds/base"
    assert recipe["weights_source"].startswith("birds/base sha256:")
    assert "none of the 4 images that birds/base has learned is a copy" in err
    assert recipe["weights_copies"] == {"of": "birds/base", "searched": 4, "copies": 0, "first_ids": []}
    done(podium(*words))  # trained already
    done(podium("submit", "-c", "tiny", "--anyway"))


def test_runs_of_this_competition_and_unknown_ones_are_refused(elsewhere: Path, podium: Podium) -> None:
    done(podium("train", *FAST, "--model", "test_vit", "--folds", "0", "--epochs", "1", "--name", "own"))
    words = ("train", *FAST, "--model", "test_vit", "--name", "run", "--weights")
    assert "with --from own" in one_line(podium(*words, "tiny/own"))
    assert "no such file" in one_line(podium(*words, "birds/nobody"))
    assert "test_resnet" in one_line(podium("train", *FAST, "--model", "test_resnet", "--weights", "birds/base"))


def put_copy(root: Path) -> str:
    """Puts an image that birds/base has learned, saved again and smaller, in the place of a training image here."""
    held_out = set(Run(root / "runs" / "birds" / "base").out_of_fold(0).id)
    birds = root / "data" / "raw" / "birds" / "train"
    bird = next(
        path for path in sorted(birds.glob("*/*.png")) if not {path.stem, path.name} & {Path(i).stem for i in held_out}
    )
    with Image.open(bird) as image:
        smaller = image.convert("RGB").resize((image.width * 2 // 3, image.height * 2 // 3))
    smaller.save(root / "data" / "raw" / "tiny" / "train_image" / "003.jpg", quality=90)
    return bird.name


def test_the_training_warns_of_copies_and_of_images_that_it_could_not_search(elsewhere: Path, podium: Podium) -> None:
    name = put_copy(elsewhere)
    words = ("train", *FAST, "--weights", "birds/base", "--model", "test_vit", "--folds", "0", "--epochs", "1")
    podium("folds", "-c", "tiny", "--k", "2", "--force")
    _, err = done(podium(*words))
    (warning,) = (line for line in err.splitlines() if "birds/base has learned" in line)
    assert warning.startswith("podium: warning: 1 training image of ")
    assert name in warning
    assert_says(warning, "003", "--weights pretrained")
    found = run_of(elsewhere).recipe["weights_copies"]
    assert (found["searched"], found["copies"], found["first_ids"]) == (4, 1, ["003"])
    shutil.rmtree(elsewhere / "data" / "raw" / "birds")
    _, err = done(podium(*words, "--name", "blind"))
    (warning,) = (line for line in err.splitlines() if "not searched" in line)
    assert "bring data/raw/birds" in warning
    assert run_of(elsewhere, "blind").recipe["weights_copies"]["searched"] == 0


def test_copies_of_images_that_the_model_held_out_are_none(elsewhere: Path) -> None:
    put_copy(elsewhere)
    competition = load("tiny", elsewhere)
    counts = [
        find_copies_in_weights(
            elsewhere / "runs" / "birds" / "base" / f"fold{fold}" / "model.safetensors", competition
        )["weights_copies"]["copies"]
        for fold in (0, 1)
    ]
    assert counts == [1, 0]
