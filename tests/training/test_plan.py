"""The plan of a run: what is refused before training, for Python as for the command line."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

from podium.basics.errors import PodiumError
from podium.competition.load import load
from podium.folds.folds import Folds
from podium.options.recipe import KNOBS, flag_of
from podium.training.plan import data_of, make_plan
from podium.training.request import Request, check_before_plan
from tiny import FAST, Podium, one_line, run_of

TRAIN = ("train", *FAST, "--model", "test_vit", "--epochs", "1", "--folds", "0")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "which model? For example: --model"),
        ({"model": "convnxt"}, "no model 'convnxt'"),
        ({"model": "test_vit", "epoch": 1}, "no option 'epoch'; did you mean epochs?"),
        ({"model": "test_vit", "epochs": 1.7}, "--epochs must be a whole number, not 1.7"),
        ({"model": "test_vit", "epochs": "1"}, "--epochs must be a whole number, not '1'"),
        ({"model": "test_vit", "weights": "no.pth"}, "--weights no.pth: no such file"),
    ],
)
def test_python_gets_the_same_refusals_as_the_command_line(
    tiny: Path, options: Mapping[str, object], message: str
) -> None:
    with pytest.raises(PodiumError) as refusal:
        make_plan(check_before_plan("tiny", tiny, Request(options)))
    assert message in str(refusal.value)


A_VALUE = {
    "adjust": 1,
    "class_weights": "balanced",
    "balance": 0.5,
    "teacher": "other",
    "lora": 4,
    "freeze": 0.5,
    "head": "arcface",
}


@pytest.mark.parametrize(("name", "other"), [(name, other) for name, own in KNOBS.items() for other in own.against])
def test_options_that_do_not_go_together_are_refused_with_both_names(
    tiny: Path, podium: Podium, name: str, other: str
) -> None:
    words = [word for one in (name, other) for word in (flag_of(one), A_VALUE[one])]
    message = one_line(podium(*TRAIN, *words))
    assert f"{KNOBS[name].against[other]}; leave out one of them" in message
    assert f"--{name.replace('_', '-')}" in message
    assert f" and {flag_of(other)}" in message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--linear", "--budget", "1h"), "--linear cannot be combined with --budget"),
        (("--distil", "0.5"), "there is no such option any more: a teacher has half of the loss"),
        (("--folds", "0,7"), "there is no fold 7; the folds of tiny are 0 to 1"),
        (("--weights", "nowhere.safetensors"), "--weights nowhere.safetensors: no such file"),
        (("--weights", "pretraind"), "--weights pretraind: no such file (nor 'pretrained' or 'none'); a model's name"),
    ],
)
def test_a_request_that_contradicts_itself_is_refused(
    tiny: Path, podium: Podium, words: tuple[str, ...], message: str
) -> None:
    assert message in one_line(podium(*TRAIN, *words))
    assert not (tiny / "runs").exists()


def test_another_recipe_or_other_folds_are_refused_before_an_image_is_read(tiny: Path, podium: Podium) -> None:
    assert podium(*TRAIN)[0] == 0
    for path in (tiny / "data" / "raw" / "tiny" / "train_image").iterdir():
        path.write_bytes(b"no image")  # reading one would be another error
    message = one_line(podium(*TRAIN, "--lr", "0.5"))
    assert "was started with other options: lr was" in message
    assert "--name" in message
    folds = tiny / "data" / "prepared" / "tiny" / "folds.csv"
    folds.write_text(folds.read_text() + "\n")
    assert "the folds changed" in one_line(podium(*TRAIN))


def test_a_budget_keeps_the_number_of_epochs_of_its_first_call(tiny: Path) -> None:
    options = {"model": "test_vit", "weights": "none", "image_size": 32}
    started = make_plan(check_before_plan("tiny", tiny, Request({**options, "epochs": 3})))
    started.run.fold_folder(0).mkdir(parents=True)
    started.run.begin(started.identity(), {"folds": 2, "metric": "accuracy"})
    (started.run.fold_folder(0) / "checkpoint-000000001.safetensors").touch()
    assert make_plan(check_before_plan("tiny", tiny, Request(options, budget=60.0))).run.has_begun()
    with pytest.raises(PodiumError, match="epochs was 3"):
        make_plan(check_before_plan("tiny", tiny, Request(options)))


def test_a_mistake_in_the_card_is_refused(tiny: Path, podium: Podium) -> None:
    card = tiny / "data" / "competitions" / "tiny.toml"
    card.parent.mkdir()
    card.write_text("[recipe]\nepochs = 2.5\n")
    assert f"{card}: [recipe]: epochs must be a whole number, not 2.5" in one_line(podium(*TRAIN))


def test_a_model_may_be_named_as_on_the_hub(tiny: Path) -> None:
    for name in ("hf-hub:timm/test_vit", "timm/test_vit", "test_vit"):
        plan = make_plan(check_before_plan("tiny", tiny, Request({"model": name, "weights": "none", "image_size": 32})))
        assert (plan.recipe.model, plan.run.name) == ("test_vit", "test_vit")


def test_a_part_of_a_name_lists_the_models_that_contain_it(podium: Podium) -> None:
    message = one_line(podium("train", "--model", "dinov2"))
    assert "no model 'dinov2'" in message
    assert "vit_small_patch14_dinov2" in message


@pytest.mark.parametrize(("metric", "is_loss"), [("log_loss", True), ("brier", True), ("roc_auc", False)])
def test_a_ranking_by_probabilities_is_no_loss_of_them(tiny: Path, metric: str, is_loss: bool) -> None:
    card = tiny / "data" / "competitions" / "tiny.toml"
    card.parent.mkdir(parents=True, exist_ok=True)
    card.write_text(f'metric = "{metric}"\n')
    competition = load("tiny", tiny)
    folds = Folds.of(np.zeros(len(competition.train), np.int64))
    assert data_of(competition, folds).is_loss_of_probabilities == is_loss


def test_a_teacher_that_is_not_there_is_told_before_weights_are_sought(
    podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", "/nowhere")
    message = one_line(podium("train", "-c", "tiny", "--model", "convnext_small", "--teacher", "nobody"))
    assert "no run 'nobody'" in message


def test_a_dry_run_needs_no_network(tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", "/nowhere")
    words = ("train", "-c", "tiny", "--model", "test_vit", "--image-size", "32")
    status, out, err = podium(*words, "--dry-run")
    assert status == 0, err
    assert "note: the pretrained weights of test_vit are not available" in err
    assert "images/s" in out
    assert "not available" in one_line(podium(*words))
    assert "no such file" in one_line(podium(*words, "--dry-run", "--weights", "nowhere.pth"))


@pytest.mark.parametrize("spoil", ["weights", "model"])
def test_a_start_that_fails_leaves_no_folder(tiny: Path, podium: Podium, spoil: str) -> None:
    weights = tiny / "weights.pth"
    torch.save({"x": torch.zeros(1)}, weights)
    wrong = ("--weights", weights) if spoil == "weights" else ("--lr", "1e-3", "--image-size", "31")
    status, _, _ = podium("train", "-c", "tiny", "--model", "test_vit", "--weights", "none", "--workers", "0", *wrong)
    assert status == 1
    assert not (tiny / "runs" / "tiny").exists() or not list((tiny / "runs" / "tiny").iterdir())
    assert podium(*TRAIN, "--folds", "0")[0] == 0  # the name is free
    recipe = run_of(tiny).path / "recipe.json"
    before = recipe.read_bytes()
    assert podium(*TRAIN, "--lr", "1e-2")[0] == 1
    assert recipe.read_bytes() == before
