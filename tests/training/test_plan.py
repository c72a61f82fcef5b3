"""The plan of a run: what is refused before training, for Python as for the command line."""

from collections.abc import Callable, Mapping
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
from tiny import FAST, Podium, done, one_line, podium_at, run_of, write_card
from training.learners import other_tasks, plan_of_task

TRAIN = ("train", *FAST, "--model", "test_vit", "--epochs", "1", "--folds", "0")
FINISH = ("--epochs", "3", "--finish")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "which model? For example: --model"),
        ({"model": "convnxt"}, "no model 'convnxt'"),
        ({"model": "test_vit", "epoch": 1}, "no option 'epoch'; did you mean epochs?"),
        ({"model": "test_vit", "epochs": 1.7}, "--epochs must be a whole number, not 1.7"),
        ({"model": "test_vit", "epochs": "1"}, "--epochs must be a whole number, not '1'"),
        ({"model": "test_vit", "level": "medium"}, "--level must be one of"),
        ({"model": "test_vit", "lr": float("nan")}, "--lr must be between"),
        ({"model": "test_vit", "views": "mirror+"}, "--views must be none, or some of mirror, flip, turn, zoom"),
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
    "columns": "film",
    "adjacent": 3,
    "region": "border",
    "start": "other",
}


@pytest.mark.parametrize(("name", "other"), [(name, other) for name, own in KNOBS.items() for other in own.against])
def test_options_that_do_not_go_together_are_refused_with_both_names(
    tiny: Path, podium: Podium, name: str, other: str
) -> None:
    if other == "start":  # which is read first
        done(podium(*TRAIN, "--name", A_VALUE[other], "--epochs", "1"))
    words = [word for one in (name, other) for word in (flag_of(one), A_VALUE[one])]
    one_line(
        podium(*TRAIN, *words),
        f"{KNOBS[name].against[other]}; leave out one of them",
        f"--{name.replace('_', '-')}",
        f" and {flag_of(other)}",
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        *(
            (("--linear", *words), f"--linear cannot be combined with {words[0]}")
            for words in (
                *(("--budget", "1h"), ("--balance", "0.5"), ("--clean", "drop"), ("--finish", "48:1")),
                *(("--head", "arcface"), ("--lora", "4"), ("--teacher", "other")),
            )
        ),
        (("--balance", "2"), "--balance must be between 0 and 1"),
        (("--clean", "all"), "--clean must be one of none, drop, soften"),
        (("--accumulate=-1",), "--accumulate"),
        (("--head", "neighbours"), "it compares frozen features; add --linear"),
        (("--head", "neighbours:0", "--linear"), "--head must be neighbours:K with K between 1 and 100"),
        (("--head", "neighbours:x", "--linear"), "--head must be neighbours:K with K between 1 and 100"),
        (("--head", "arcface:3", "--linear"), "--head must be one of linear, dropouts, mlp, arcface, neighbours"),
        (("--head", "arcface", "--mix", "0.5"), "--mix 0.5 mixes two; add --mix 0"),
        (("--head", "arcface", "--keep", "0.2", "--head-first"), "--keep 0.2 needs a fitted head to start from"),
        ((*FINISH, "48:1", "--test-size", "32"), "--test-size 32 is smaller than --finish 48:1; use --test-size 48"),
        ((*FINISH, "48:3"), "--finish 48:3 leaves no epoch of 3 at 32 px; use fewer, or --image-size 48"),
        ((*FINISH, "48:1", "--budget", "9m"), "--budget may cut off the end of a run, which --finish needs"),
        ((*FINISH, "24:1"), "--finish 24:1 is smaller than --image-size 32; the last epochs need larger images"),
        ((*FINISH, "48"), "'48' is not SIZE:EPOCHS as in 320:2"),
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


@other_tasks
def test_what_needs_images_of_one_class_each_is_refused(
    tmp_path: Path, slug: str, write: Callable[[Path], object]
) -> None:
    write(tmp_path)
    podium_at(tmp_path, "folds", "-c", slug, "--k", "3")
    for options in ({"head": "arcface"}, {"head": "neighbours", "linear": True}, {"balance": 0.5}):
        (name, value), *_ = options.items()
        with pytest.raises(PodiumError, match=rf"--{name}( {value})?[ ,].* one class each"):
            plan_of_task(tmp_path, slug, model="test_resnet", **options)


def test_another_recipe_or_other_folds_are_refused_before_an_image_is_read(one_run: Path, podium: Podium) -> None:
    for path in (one_run / "data" / "raw" / "tiny" / "train_image").iterdir():
        path.write_bytes(b"no image")  # reading one would be another error
    one_line(podium(*TRAIN, "--lr", "0.5"), "was started with other options: lr was", "--name")
    folds = one_run / "data" / "prepared" / "tiny" / "folds.csv"
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


def test_a_model_may_be_named_as_on_the_hub(tiny: Path) -> None:
    for name in ("hf-hub:timm/test_vit", "timm/test_vit", "test_vit"):
        plan = make_plan(check_before_plan("tiny", tiny, Request({"model": name, "weights": "none", "image_size": 32})))
        assert (plan.recipe.model, plan.run.name) == ("test_vit", "test_vit")


def test_a_part_of_a_name_lists_the_models_that_contain_it(podium: Podium) -> None:
    one_line(podium("train", "--model", "dinov2"), "no model 'dinov2'", "vit_small_patch14_dinov2")


@pytest.mark.parametrize(("metric", "is_loss"), [("log_loss", True), ("brier", True), ("roc_auc", False)])
def test_a_ranking_by_probabilities_is_no_loss_of_them(tiny: Path, metric: str, is_loss: bool) -> None:
    write_card(tiny, f'metric = "{metric}"\n')
    competition = load("tiny", tiny)
    folds = Folds.of(np.zeros(len(competition.train), np.int64))
    assert data_of(competition, folds).is_loss_of_probabilities == is_loss


def test_a_teacher_that_is_not_there_is_told_before_weights_are_sought(
    podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", "/nowhere")
    one_line(podium("train", "-c", "tiny", "--model", "convnext_small", "--teacher", "nobody"), "no run 'nobody'")


def test_a_dry_run_needs_no_network(tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", "/nowhere")
    words = ("train", "-c", "tiny", "--model", "test_vit", "--image-size", "32")
    out, err = done(podium(*words, "--dry-run"))
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
    done(podium(*TRAIN, "--folds", "0"))  # the name is free
    recipe = run_of(tiny).path / "recipe.json"
    before = recipe.read_bytes()
    assert podium(*TRAIN, "--lr", "1e-2")[0] == 1
    assert recipe.read_bytes() == before
