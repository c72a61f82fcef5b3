"""`--model auto` looks at the training images before it chooses."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from podium.models import hub, weight_packages
from podium.recipe import Options
from podium.recipe_defaults import AUTO_PRETRAINED
from podium.training import auto_look
from podium.training.auto_look import Look, Looks, look_first, will_look
from podium.training.plan import Plan, Request, make_plan
from podium.training.run_folder import Run
from tiny import Podium, one_line, run_of

WORDS = (
    *("--image-size", "32", "--batch-size", "8", "--epochs", "1"),
    *("--folds", "0", "--device", "cpu", "--workers", "0"),
)
AUTO = ("train", "-c", "tiny", "--model", "auto", *WORDS)


def plan_of(root: Path, **options: object) -> Plan:
    return make_plan("tiny", root, Request({"model": "auto", "image_size": 32, "batch_size": 8, **options}, folds=(0,)))


@pytest.mark.slow
def test_auto_records_what_it_saw_and_does_not_look_again(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Looks.trial
    monkeypatch.setattr(Looks, "trial", lambda *words: real(*words)._replace(score=2.0))  # the features are not enough
    status, out, err = podium(*AUTO)
    assert status == 0, err
    assert "auto looks at up to 2,000 training images of fold 0" in err
    assert "32 px, crop: frozen head accuracy" in err
    assert all(word in out for word in ("quick", "good (chosen)", "best"))
    recipe = run_of(tiny, "auto").recipe
    assert recipe["auto"]["fold"] == 0
    assert recipe["auto"]["options"]["model"] == recipe["model"]
    assert {"image_size", "loss", "score"} <= recipe["auto"]["looks"][0].keys()
    status, _, err = podium(*AUTO)
    assert status == 0, err
    assert "auto looks" not in err
    assert "nothing has changed" in err
    message = one_line(podium(*AUTO[:-4], "--epochs", "2"))
    assert "epochs" in message


def test_without_pretrained_weights_auto_trains_from_scratch(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (hub, weight_packages):
        monkeypatch.setattr(module, "PACKAGES", ())
    status, _, err = podium(*AUTO)
    assert status == 0, err
    assert f"no weights of {AUTO_PRETRAINED} are here" in err
    assert run_of(tiny, "auto").recipe["weights"] == "none"


def test_a_named_model_weights_of_none_and_a_begun_run_are_not_looked_at(tiny: Path) -> None:
    assert will_look(plan_of(tiny))
    assert not will_look(plan_of(tiny, weights="none"))
    named = make_plan("tiny", tiny, Request({"model": "test_vit", "weights": "none"}))
    assert not will_look(named)
    assert look_first(named) is named


@pytest.mark.slow
def test_the_look_sees_no_label_of_the_held_out_images(tiny: Path, tmp_path: Path) -> None:
    plan = plan_of(tiny)
    other = plan.competition.train.copy()
    held_out = np.flatnonzero(plan.fold_of_image == 0)
    other.loc[other.index[held_out], "target"] = plan.competition.classes[0]
    blind = replace(plan, competition=replace(plan.competition, train=other))
    seen = [Looks(replace(each, run=Run(tmp_path / "trial"))).look({"image_size": 32}, True) for each in (plan, blind)]
    assert (seen[0].loss, seen[0].score) == (seen[1].loss, seen[1].score)


@pytest.mark.slow
def test_where_features_know_little_a_model_from_scratch_may_win(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_look, "KNOWS_LITTLE", -1.0)
    real, scores = Looks.trial, {"fine": 0.5, "resnet10t": 2.0}

    def trial(looks: Looks, options: Options, what: str) -> Look:
        return real(looks, options, what)._replace(score=scores[what.split("-")[0].split()[0]])

    monkeypatch.setattr(Looks, "trial", trial)
    status, _, err = podium(*AUTO)
    assert status == 0, err
    assert "resnet10t from scratch, 1 epoch: accuracy" in err
    assert run_of(tiny, "auto").recipe["model"] == "resnet10t"


@pytest.mark.slow
@pytest.mark.parametrize(("score", "is_linear"), [(-1.0, True), (2.0, False)])
def test_where_fine_tuning_does_not_beat_the_head_auto_takes_the_head(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch, score: float, is_linear: bool
) -> None:
    real = Looks.trial
    monkeypatch.setattr(Looks, "trial", lambda *words: real(*words)._replace(score=score))
    monkeypatch.setattr(auto_look, "KNOWS_LITTLE", 10.0)
    status, _, err = podium(*AUTO)
    assert status == 0, err
    assert ("fine-tuning does not beat the frozen head" in err) == is_linear
    recipe = run_of(tiny, "auto").recipe
    assert (recipe["model"], recipe["linear"]) == (AUTO_PRETRAINED, is_linear)
    assert {"trial", "epochs", "loss", "score"} <= recipe["auto"]["looks"][-1].keys()
    assert podium(*AUTO)[0] == 0  # it resumes


@pytest.mark.slow
def test_a_set_that_is_too_large_gets_fewer_epochs(tiny: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Looks, "seconds_of", lambda looks, recipe: 60.0 * recipe.epochs)
    looks = Looks(replace(plan_of(tiny), run=Run(tmp_path / "trial")))
    look = looks.look({"image_size": 32})
    assert looks.options_of_run(look)["epochs"] == looks.seconds_allowed / 60
    assert Looks(plan_of(tiny, epochs=50)).options_of_run(look)["epochs"] == 50


def test_few_images_are_allowed_less_time(tiny: Path) -> None:
    assert Looks(plan_of(tiny)).seconds_allowed == 240
