"""An optimizer and a schedule of the project's own: what they get, and that runs resume with them."""

import signal
from pathlib import Path

import pytest
import torch

from extension_file import write_extension
from podium.options.extensions.extension_files import load_extensions
from podium.training.optimizer import create_optimizer
from tiny import FAST, Podium, assert_same_fold, done, one_line, recipe_of, run_of, stop_in_step

OWN = """
import torch

from podium import extend


@extend.optimizer
def sgd(groups):
    return torch.optim.SGD(groups, momentum=0.9)


@extend.schedule
def straight(done):
    return 1 - done
"""
TRAIN = ("train", *FAST, "--model", "test_efficientnet", "--epochs", "2", "--folds", "0", "--optimizer", "sgd")


@pytest.fixture
def file(tiny: Path) -> Path:
    path = write_extension(tiny, OWN)
    load_extensions(tiny)
    return path


@pytest.mark.usefixtures("file")
def test_an_optimizer_gets_the_groups_that_adamw_has() -> None:
    import timm

    model = timm.create_model("test_vit", num_classes=3)
    groups = []
    for name in ("sgd", "adamw"):
        recipe = recipe_of("test_vit", optimizer=name, layer_decay=0.8, weight_decay=0.3)
        made = create_optimizer(model, recipe)
        keys = ("lr", "weight_decay", "lr_scale")
        groups.append(
            [(*(group[key] for key in keys), [id(part) for part in group["params"]]) for group in made.param_groups]
        )
        assert isinstance(made, torch.optim.SGD) == (name == "sgd")
    assert groups[0] == groups[1]
    assert len({rate for *_, rate, _ in groups[0]}) > 2


@pytest.mark.usefixtures("file")
def test_a_schedule_follows_the_warm_up() -> None:
    usual = recipe_of("test_vit", lr=0.1, warmup=1.0)
    own = usual.but(schedule="straight")
    rates = [own.rate_at(step, 20, 2) for step in range(20)]
    assert rates[:2] == [usual.rate_at(step, 20, 2) for step in range(2)]
    assert rates[2:] == pytest.approx([0.1 * (1 - step / 18) for step in range(18)])


def test_a_run_with_both_resumes_to_the_bit_and_their_code_belongs_to_it(file: Path, podium: Podium) -> None:
    root, words = file.parent, (*TRAIN, "--schedule", "straight", "--name")
    _, err = done(podium(*words, "whole"))
    assert "(sgd)" in err
    assert "schedule straight" in err
    stop_in_step(podium, 0, *words, "stopped", number=signal.SIGINT)
    done(podium(*words, "stopped"))
    assert_same_fold(run_of(root, "whole"), run_of(root, "stopped"))
    assert set(run_of(root, "whole").recipe["own_parts"]) == {"optimizer sgd", "schedule straight"}
    for old, new in (("0.9", "0.8"), ("1 - done", "1 - done**2")):
        file.write_text(OWN.replace(old, new))
        assert "the code of own parts changed" in one_line(podium(*words, "whole"))
    done(podium("submit", "-c", "tiny", "--runs", "whole", "--anyway"))  # predictions need neither


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("return torch.optim.SGD(groups, momentum=0.9)", "return groups", "the optimizer sgd returned list, not an"),
        ("momentum=0.9", "momenta=0.9", "line 9: the optimizer sgd: TypeError"),
        ("1 - done", "done - 1", "the schedule straight returned -0."),
        ("def sgd", "def muon", "there is an optimizer 'muon' already"),
    ],
)
def test_what_is_none_is_refused(file: Path, podium: Podium, old: str, new: str, why: str) -> None:
    file.write_text(OWN.replace(old, new))
    assert "mine.py" in one_line(podium(*TRAIN, "--schedule", "straight"), why)
