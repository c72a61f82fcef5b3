"""Files of the project's own parts: they are loaded, mistakes in them are one line, and runs remember them."""

import json
import multiprocessing
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from by_array import targets_of
from extension_file import PARTS, write_extension
from forked_podium import run_group
from podium.basics.errors import PodiumError
from podium.competition.card import read_card
from podium.competition.load import load
from podium.models.model_file import load_model
from podium.models.predict import views_of
from podium.options.extensions.extension_files import load_extensions, loaded_extensions
from podium.options.moves.losses import LOSSES
from podium.options.recipe import Recipe, check_options
from podium.options.recipe_defaults import Backbone, fill_in_defaults
from podium.options.recipe_options import AUGMENTATIONS
from podium.tasks.metrics import METRICS, evaluate
from podium.tasks.task import SEVERAL_TARGETS
from podium.training.augment import TrainView
from podium.training.fold_loss import make_label_loss
from podium.training.loader import ImageDataset, batches_in_order, load_batches
from second_round import first_of
from tiny import FAST, Podium, assert_same_fold, done, one_line, run_of, stop_in_step, write_card, write_file
from training.test_augment import SPEC, noise

HEAD = "from podium import extend\n"


def refusal(root: Path) -> str:
    with pytest.raises(PodiumError) as refused:
        load_extensions(root)
    assert "\n" not in str(refused.value)
    assert loaded_extensions() == ()
    return str(refused.value)


# --- loading -----------------------------------------------------------------------------------------


def test_registered_parts_are_known_and_belong_to_their_project(tmp_path: Path) -> None:
    write_extension(tmp_path)
    read_card("tiny", tmp_path)
    assert evaluate("mistakes", targets_of(np.array([0, 1])), np.eye(2)[[0, 0]]) == 10
    assert METRICS["mistakes"]().better == -1
    check_options({"views": "mirror+rolls", "loss": "distance", "augment": "dark"})
    images = torch.rand(2, 3, 8, 8)
    assert len(views_of(images, "mirror+rolls")) == 6
    assert (
        fill_in_defaults({"model": "m", "views": "mirror+rolls"}, {}, Backbone("", "batch norm", 64, 64)).view_count
        == 6
    )
    read_card("tiny", tmp_path / "elsewhere")  # a project without extensions
    assert not {"mistakes", "distance", "dark"} & {*METRICS, *LOSSES, *AUGMENTATIONS}
    with pytest.raises(PodiumError, match=r"--augment must be none \(docs/extend.md"):
        check_options({"augment": "dark"})
    with pytest.raises(PodiumError, match="no view 'rolls'; restore the file"):
        views_of(images, "rolls")


def test_podium_toml_and_the_card_may_both_name_files(tmp_path: Path) -> None:
    (tmp_path / "podium.toml").write_text('extend = ["a.py"]')
    write_card(tmp_path, 'extend = "own/b.py"\nmetric = "b"')
    for name in ("a", "own/b"):
        source = HEAD + f"@extend.metric\ndef {name[-1]}(targets, probs):\n    return 1"
        write_file(tmp_path / f"{name}.py", source)
    assert read_card("tiny", tmp_path)["metric"] == "b"
    assert {"a", "b"} <= set(METRICS)


def test_a_metric_of_an_own_file_says_which_tasks_it_is_defined_for(tmp_path: Path) -> None:
    source = HEAD + "@extend.metric(tasks=['several_labels'])\ndef first(targets, probs):\n    return probs[0, 0]"
    write_extension(tmp_path, source)
    load_extensions(tmp_path)
    assert evaluate("first", targets_of(np.array([[1, 0]])), np.array([[0.25, 0.5]])) == 0.25
    with pytest.raises(PodiumError, match="first is not defined for one label an image"):
        evaluate("first", targets_of(np.array([1])), np.array([[0.25, 0.75]]))


def test_a_metric_of_an_own_file_gets_0_and_1_of_several_targets(tmp_path: Path) -> None:
    source = HEAD + "@extend.metric(tasks=['several_targets'])\ndef marks(targets, probs):\n    return targets.sum()"
    write_extension(tmp_path, source)
    load_extensions(tmp_path)
    classes = ["a=0", "a=1", "b=x", "b=y"]
    targets = SEVERAL_TARGETS.encode(["a=0|b=y", "a=1|b=x"], classes)
    assert targets.values.tolist() == [[1, 0, 0, 1], [0, 1, 1, 0]]
    assert evaluate("marks", targets, np.full((2, 4), 0.5)) == 4


def test_an_edited_file_is_loaded_again(tmp_path: Path) -> None:
    path = write_extension(tmp_path)
    load_extensions(tmp_path)
    path.write_text(PARTS.replace("* 10", "* 20"))
    load_extensions(tmp_path)
    assert evaluate("mistakes", targets_of(np.array([0, 1])), np.eye(2)[[0, 0]]) == 20


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ("extends = 'mine.py'", "no setting 'extends'; did you mean extend?"),
        ("extend = 3", "extend must be the name of a file, or a list of names, not 3"),
        ("extend = ['a.py', 3]", "or a list of names, not ['a.py', 3]"),
        ("extend = '../mine.py'", ".py files below the project's folder, not '../mine.py'"),
        ("extend = 'mine.txt'", ".py files below the project's folder, not 'mine.txt'"),
        ("extend = ", "Invalid value"),
    ],
)
def test_a_mistake_in_podium_toml_is_refused_with_its_file(tmp_path: Path, settings: str, problem: str) -> None:
    (tmp_path / "podium.toml").write_text(settings)
    message = refusal(tmp_path)
    assert message.startswith(f"{tmp_path / 'podium.toml'}: ")
    assert problem in message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write_extension(tmp_path).unlink()
    assert re.search(r"mine\.py: No such file or directory; `extend` names it", refusal(tmp_path))


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("x = 1\nx = y\n", "mine.py, line 2: NameError: name 'y' is not defined; correct that file"),
        ("x = (\n", "mine.py, line 1: SyntaxError: "),
        ("import sys\nsys.exit(3)", "mine.py, line 2: SystemExit: 3"),
        (HEAD + "@extend.metric\ndef accuracy(t, p):\n    return 1", "there is a metric 'accuracy' already"),
        (HEAD + "@extend.loss\ndef focal(x, t):\n    return 1", "there is a loss 'focal' already"),
        (HEAD + "@extend.view\ndef none(x):\n    return 1", "there is a view 'none' already"),
        (HEAD + "@extend.metric(tasks='boxes')\ndef m(t, p):\n    return 1", "several_targets or numbers, not 'boxes'"),
        (HEAD + "@extend.metric(better='more')\ndef m(t, p):\n    return 1", "higher or lower, not 'more'"),
    ],
)
def test_a_mistake_in_a_file_is_one_line_with_its_place(tmp_path: Path, source: str, problem: str) -> None:
    write_extension(tmp_path, source)
    message = refusal(tmp_path)
    assert message.startswith(f"{tmp_path / 'mine.py'}, line ")
    assert problem in message


def test_a_function_that_fails_or_returns_something_else_is_named(tmp_path: Path) -> None:
    source = PARTS.replace("* 10", "/ missing").replace(".sum(1)", "").replace(".astype(np.uint8)", "")
    write_extension(tmp_path, source.replace("images.roll(1, -1), ", ""))
    load_extensions(tmp_path)
    with pytest.raises(PodiumError, match=r"mine.py, line 7: the metric mistakes: NameError: .*missing.*; correct it"):
        evaluate("mistakes", targets_of(np.array([0])), np.eye(2)[[0]])
    recipe: Recipe = fill_in_defaults(
        {"model": "m", "augment": "dark", "loss": "distance"}, {}, Backbone("", "batch norm", 48, 48)
    )
    with pytest.raises(PodiumError, match=r"the augmentation dark returned float64 .*, not uint8 of shape"):
        TrainView(recipe, SPEC)(noise(60, 60), 0, 0)
    with pytest.raises(PodiumError, match=r"the loss distance returned .*\(2, 3\), not a tensor with one number"):
        make_label_loss(recipe, targets_of(np.arange(3)), 3, torch.device("cpu"))(torch.zeros(2, 3), torch.eye(3)[:2])
    with pytest.raises(PodiumError, match="the view rolls did not return a list of 2"):
        views_of(torch.zeros(1, 3, 8, 8), "rolls")


# --- augmentation ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", first_of(["fork"], ["fork", "spawn"]))
def test_loader_processes_of_any_kind_augment_as_one_process_does(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_extension(tmp_path)
    load_extensions(tmp_path)
    view = TrainView(fill_in_defaults({"model": "m", "augment": "dark"}, {}, Backbone("", "batch norm", 48, 48)), SPEC)
    images = ImageDataset(np.broadcast_to(noise(40, 40), (4, 40, 40, 3)).__getitem__, np.arange(4), view, np.arange(4))
    before = multiprocessing.get_start_method()
    multiprocessing.set_start_method(method, force=True)
    try:
        batches = [
            torch.cat([batch.clone() for batch, _ in load_batches(images, batches_in_order(4, 2), workers)])
            for workers in (0, 1)
        ]
    finally:
        multiprocessing.set_start_method(before, force=True)
    assert torch.equal(*batches)
    assert len({image.numpy().tobytes() for image in batches[0]}) == 4


# --- models ------------------------------------------------------------------------------------------

MODELS = """
from timm.models import register_model
from torch import nn

@register_model
def my_net(pretrained=False, num_classes=10, **options):
    return nn.Sequential(nn.Conv2d(3, 8, 4, stride=4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, num_classes))
"""


@pytest.mark.usefixtures("timm_registry")
def test_a_model_of_ones_own_is_trained_and_takes_no_weights(
    tiny: Path, podium: Podium, caplog: pytest.LogCaptureFixture
) -> None:
    write_extension(tiny, MODELS)
    _, err = done(podium("train", *FAST, "--model", "my_net", "--epochs", "1", "--folds", "0"))
    assert "layer-decay" not in err
    _, _, err = podium(
        "train", *FAST, "--model", "my_net", "--epochs", "1", "--layer-decay", "0.8", "--name", "decayed"
    )
    assert err.count("--layer-decay has no effect: my_net lacks timm's group_matcher") == 1
    assert "Layer-wise" not in caplog.text
    shutil.rmtree(run_of(tiny, "decayed").path)
    done(podium("submit", "-c", "tiny"))
    weights = run_of(tiny, "my_net").weights_path(0)
    one_line(
        podium("train", *FAST, "--model", "my_net", "--weights", weights, "--name", "other"),
        "my_net takes no weights",
        "--weights none",
    )
    assert "did you mean my_net?" in one_line(podium("train", *FAST, "--model", "my_nett"))
    words = ("train", "-c", "tiny", "--workers", "0", "--epochs", "1", "--lr", "1e-9", "--from", "my_net")
    _, err = done(podium(*words))
    assert "goes on from my_net" in err
    first, more = (load_model(run_of(tiny, name).weights_path(0))[0].state_dict() for name in ("my_net", "my_net-more"))
    assert torch.allclose(first["0.weight"], more["0.weight"], atol=1e-5)
    (tiny / "mine.py").write_text(MODELS.replace("8", "9"))
    one_line(podium(*words, "--name", "changed"), f"{weights}: these weights do not fit my_net")


@pytest.mark.annex
@pytest.mark.usefixtures("timm_registry")
def test_a_model_that_timm_builds_takes_a_file_of_weights(tiny: Path, podium: Podium) -> None:
    source = """
from timm.models import build_model_with_cfg, register_model
from timm.models.resnet import BasicBlock, ResNet

@register_model
def my_resnet(pretrained=False, **options):
    shape = {"block": BasicBlock, "layers": (1, 1, 1, 1), "channels": (8, 8, 8, 8)}
    return build_model_with_cfg(ResNet, "my_resnet", pretrained, **shape, **options)
"""
    write_extension(tiny, source)
    words = ("train", *FAST, "--model", "my_resnet", "--epochs", "1", "--folds", "0", "--lr", "1e-9")
    done(podium(*words))
    weights = run_of(tiny, "my_resnet").weights_path(0)
    done(podium(*words, "--weights", weights, "--name", "tuned", "--seed", "5"))
    first, tuned = (load_model(run_of(tiny, name).weights_path(0))[0].state_dict() for name in ("my_resnet", "tuned"))
    assert torch.allclose(first["conv1.weight"], tuned["conv1.weight"], atol=1e-5)
    assert "mine.py can be loaded" in podium("doctor", "-c", "tiny", "--model", "my_resnet")[1]


@pytest.mark.usefixtures("timm_registry")
def test_a_model_of_timm_is_not_replaced(tmp_path: Path) -> None:
    import timm

    write_extension(tmp_path, MODELS.replace("my_net", "test_vit"))
    assert "Overwriting test_vit" in refusal(tmp_path)
    assert timm.models.model_entrypoint("test_vit").__module__.startswith("timm.")


# --- runs and submissions ----------------------------------------------------------------------------

OWN = ("--loss", "distance", "--augment", "dark", "--views", "mirror+rolls", "--epochs", "2", "--model", "test_vit")


def test_a_run_with_ones_own_parts_resumes_to_the_same_bits_and_not_after_an_edit(tiny: Path, podium: Podium) -> None:
    path = write_extension(tiny)
    done(podium("train", *FAST, *OWN, "--folds", "0", "--name", "one"))
    stop_in_step(podium, 0, "train", *FAST, *OWN, "--folds", "0", "--name", "two", number=signal.SIGINT)
    done(podium("train", *FAST, *OWN, "--folds", "0", "--name", "two"))
    assert_same_fold(run_of(tiny, "one"), run_of(tiny, "two"))
    path.write_text(PARTS.replace("* 10", "* 20"))  # in the metric, which the models do not depend on
    done(podium("train", *FAST, *OWN, "--folds", "0", "--name", "one"))
    path.write_text(PARTS.replace("roll(2", "roll(3"))
    one_line(podium("train", *FAST, *OWN, "--folds", "0", "--name", "one"), "the code of own parts changed", "--name")
    (tiny / "podium.toml").unlink()
    assert "--views must be none, or some of" in one_line(podium("train", *FAST, *OWN, "--name", "one"))


def test_a_run_without_extensions_records_none_and_resumes_with_the_same_command(tiny: Path, podium: Podium) -> None:
    words = ("train", *FAST, "--model", "test_vit", "--epochs", "1", "--folds", "0")
    done(podium(*words))
    path = run_of(tiny).path / "recipe.json"
    recipe = json.loads(path.read_text())
    assert "own_parts_sha256" not in recipe
    for name in ("loss", "class_weights", "augment"):  # as an older Podium wrote it
        del recipe[name]
    path.write_text(json.dumps(recipe))
    done(podium(*words))
    write_extension(tiny)  # of which this run uses nothing
    done(podium(*words))


@pytest.mark.annex
def test_ones_own_metric_serves_the_card_blending_and_score(tiny: Path, podium: Podium) -> None:
    write_extension(tiny)
    write_card(tiny, 'metric = "mistakes"')
    assert load("tiny", tiny).metric == "mistakes"
    for name in ("one", "two"):
        done(podium("train", *FAST, "--model", "test_vit", "--epochs", "1", "--name", name, "--seed", len(name)))
    out, err = done(podium("submit", "-c", "tiny", "--runs", "one", "two"))
    assert "mistakes" in err
    words = ("score", out.strip(), "--solution", tiny / "solution.csv", "--metric")
    scored, _ = done(podium(*words, "mistakes"))
    assert json.loads(scored)["score"] % 10 == 0
    assert "no metric 'mistake'; did you mean mistakes?" in one_line(podium(*words, "mistake"))


def test_a_lineage_records_extensions_and_a_rebuild_names_their_changes(tiny: Path, podium: Podium) -> None:
    path = write_extension(tiny)
    done(podium("train", *FAST, *OWN, "--folds", "0"))
    csv = Path(podium("submit", "-c", "tiny")[1].strip())
    assert set(json.loads(csv.with_suffix(".json").read_text())["extensions"]) == {"mine.py"}
    assert "extensions   mine.py" in podium("lineage", csv)[1]
    path.write_text(PARTS + "# a comment changes no prediction\n")
    lineage = csv.with_suffix(".json")
    _, err = done(podium("submit", "--from", lineage))
    assert "warning: the extension mine.py has changed" in err
    lineage.write_text(re.sub('"sha256": "[0-9a-f]+"', f'"sha256": "{"0" * 64}"', lineage.read_text(), count=1))
    one_line(podium("submit", "--from", lineage), "give another CSV", "the extension mine.py has changed")


@pytest.mark.parametrize(
    ("flag", "value"), [("--loss", "focal"), ("--class-weights", "balanced"), ("--augment", "dark")]
)
def test_linear_evaluation_refuses_options_that_it_cannot_use(
    tiny: Path, podium: Podium, flag: str, value: str
) -> None:
    write_extension(tiny)
    one_line(
        podium("train", *FAST, "--model", "test_vit", "--linear", flag, value),
        f"--linear cannot be combined with {flag}",
    )


@pytest.mark.slow
def test_several_processes_load_the_extensions(tiny: Path, podium: Podium) -> None:
    write_extension(tiny)
    words = ("train", *FAST, *OWN, "--folds", "0", "--drop-path", "0", "--precision", "float32", "--device", "cpu")
    done(podium(*words, "--name", "one"))
    log = tiny / "group.log"
    assert run_group(2, ("--root", tiny, *words, "--name", "two", "--parallel", "data"), log) == [0, 0], log.read_text()
    one, two = (run_of(tiny, name).out_of_fold(0).probs for name in ("one", "two"))
    assert np.allclose(one, two, atol=1e-3)
