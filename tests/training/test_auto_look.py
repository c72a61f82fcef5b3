"""`--model auto` looks at the training images before it chooses."""

import math
import signal
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from podium.folds.folds import Folds
from podium.image_size import area_of
from podium.models import hub, weight_packages
from podium.recipe import Options, Recipe
from podium.recipe_defaults import AUTO_MANY_IMAGES, AUTO_PRETRAINED, AUTO_WITH_MANY
from podium.saved_runs.run_folder import Run
from podium.training import auto_look
from podium.training.auto_look import Choice, choose, look_first, oblong_size, will_look
from podium.training.learner import Diverged, Learner
from podium.training.linear_probe import Inner
from podium.training.looks import Look, Looks, Trial
from podium.training.plan import Plan, make_plan
from podium.training.request import Request, check_before_plan
from second_round import first_of
from tiny import Podium, one_line, podium_at, run_of, signal_in_step, write_image

WORDS = (
    *("--image-size", "32", "--batch-size", "8", "--epochs", "1"),
    *("--folds", "0", "--device", "cpu", "--workers", "0"),
)
AUTO = ("train", "-c", "tiny", "--model", "auto", *WORDS)


def plan_of(root: Path, **options: object) -> Plan:
    return make_plan(check_before_plan("tiny", root, Request({"model": "auto", **options}, folds=(0,))))


# --- what is chosen, given what the looks see ----------------------------------------------------------


class SeenBefore(Looks):
    """Looks whose results are given: the loss of a head at each size, and of a trial of each model."""

    def __init__(
        self,
        plan: Plan,
        heads: dict[Any, float],
        trials: dict[str, float],
        megapixels_per_s: float,
        seconds: float = 55.0,
    ) -> None:
        super().__init__(plan, seconds)
        self.heads, self.trials, self.speed = heads, trials, megapixels_per_s * 1e6
        self.asked_for: list[Any] = []

    def head(self, options: Options, tries_mirror: bool = False) -> Look:
        self.asked_for.append(options["image_size"])
        loss = self.heads[options["image_size"]]
        return Look(options, loss, loss / 2.0, loss < 0.05, 1 - loss)

    def trial(self, options: Options, seconds: float) -> Trial:
        self.asked_for.append(options["model"])
        loss = self.trials[str(options["model"])]
        return Trial(loss, 1 - loss)

    def seconds_of(self, recipe: Recipe) -> float:
        steps = 1 if recipe.linear else 3 * recipe.epochs
        return steps * 1_000 * area_of(recipe.image_size) / self.speed


@pytest.fixture
def decide(tiny: Path) -> Callable[..., tuple[Choice, list[Any]]]:
    """Returns the choice for square images, and what it looked at."""

    def decide(
        heads: dict[Any, float],
        speed: float = 100.0,
        shape: float = 1.0,
        options: Options | None = None,
        **trials: float,
    ) -> tuple[Choice, list[Any]]:
        plan = plan_of(tiny, **(options or {}))
        looks = SeenBefore(replace(plan, data=plan.data._replace(shape=shape)), heads, trials, speed)
        return choose(looks), looks.asked_for

    return decide


def test_larger_sizes_are_taken_as_long_as_they_pay(decide: Callable[..., tuple[Choice, list[Any]]]) -> None:
    choice, seen = decide({96: 0.2, 128: 0.15, 160: 0.145, 224: 0.1})
    assert seen == [96, 128, 160]  # 160 px do not pay, so 224 are not tried
    assert (choice.options["model"], choice.options["image_size"]) == (AUTO_PRETRAINED, 128)
    assert "linear" not in choice.options
    assert choice.head.options["image_size"] == 128


def test_where_the_head_leaves_little_it_is_the_choice(decide: Callable[..., tuple[Choice, list[Any]]]) -> None:
    choice, seen = decide({96: 0.2, 128: 0.1, 160: 0.02, 224: 0.02})
    assert seen == [96, 128, 160, 224]
    assert (choice.options["linear"], choice.options["image_size"]) == (True, 160)


def test_without_time_for_the_best_size_a_trial_at_a_smaller_one_decides(
    decide: Callable[..., tuple[Choice, list[Any]]],
) -> None:
    heads = {96: 0.24, 128: 0.2, 160: 0.15, 224: 0.15}
    for loss, size, is_linear in ((0.23, 160, True), (0.18, 96, False)):
        choice, seen = decide(heads, speed=2.0, **{AUTO_PRETRAINED: loss})
        assert seen[-1] == AUTO_PRETRAINED
        assert choice.options["image_size"] == size
        assert choice.options.get("linear", False) == is_linear


def test_a_set_that_is_too_large_gets_fewer_epochs(decide: Callable[..., tuple[Choice, list[Any]]]) -> None:
    heads = {96: 0.2, 128: 0.2}
    fast, slow = (decide(heads, speed=speed)[0].options for speed in (100.0, 1.0))
    assert "epochs" not in fast
    assert slow["epochs"] == int(210 / (3 * 1_000 * 96**2 / 1e6))
    asked = decide(heads, speed=1.0, options={"epochs": 50})[0].options
    assert asked["epochs"] == 50


def test_many_images_allow_a_higher_rate_unless_the_user_chose_one(tiny: Path) -> None:
    def chosen(training: int, **options: object) -> Options:
        looks = Looks(plan_of(tiny, **options))
        looks.training = training
        recipe = asdict(looks.recipe_of({"image_size": 96}))
        return {name: recipe[name] for name in ("lr", "norm")}

    assert chosen(AUTO_MANY_IMAGES) == AUTO_WITH_MANY
    few = chosen(AUTO_MANY_IMAGES - 1)
    assert few["norm"] == "frozen"
    assert few["lr"] < AUTO_WITH_MANY["lr"]
    assert chosen(AUTO_MANY_IMAGES, lr=0.002) == {"lr": 0.002, "norm": "frozen"}
    assert chosen(AUTO_MANY_IMAGES, batch_size=32)["norm"] == "frozen"


def test_where_features_know_little_a_model_from_scratch_may_win(
    decide: Callable[..., tuple[Choice, list[Any]]],
) -> None:
    heads = {96: 0.9, 128: 0.9}
    small = plan_model(decide, heads, resnet10t=0.2, **{AUTO_PRETRAINED: 0.3})
    large = plan_model(decide, heads, resnet10t=0.3, **{AUTO_PRETRAINED: 0.2})
    assert (small, large) == ("resnet10t", AUTO_PRETRAINED)
    _, seen = decide({96: 0.2, 128: 0.2})
    assert seen == [96, 128]  # here it is not tried
    choice, seen = decide(heads, resnet10t=1.0)
    assert seen == [96, 128, "resnet10t"]  # worse than the head that fine-tuning starts from
    assert choice.options["model"] == AUTO_PRETRAINED


def plan_model(decide: Callable[..., tuple[Choice, list[Any]]], heads: dict[Any, float], **trials: float) -> str:
    choice, seen = decide(heads, **trials)
    assert set(trials) <= set(seen)
    return str(choice.options["model"])


def test_oblong_images_keep_their_shape_unless_squares_are_clearly_better(
    decide: Callable[..., tuple[Choice, list[Any]]],
) -> None:
    heads = {"96x72": 0.20, 96: 0.196, "128x96": 0.17, "160x120": 0.17, 128: 0.1, 160: 0.1}
    choice, seen = decide(heads, shape=0.75)
    assert seen == ["96x72", 96, "128x96", "160x120"]
    assert (choice.options["image_size"], choice.options["fit"]) == ("128x96", "squash")
    choice, seen = decide({**heads, 96: 0.15}, shape=0.75)
    assert seen == ["96x72", 96, 128, 160]
    assert (choice.options["image_size"], choice.options["fit"]) == (128, "squash")
    choice, seen = decide(heads, shape=0.75, options={"fit": "pad"})
    assert seen[0] == 96


def test_the_sides_of_oblong_images_have_their_shape() -> None:
    assert oblong_size(96, 0.75) == "96x72"
    assert oblong_size(224, 16 / 9) == "128x224"
    assert oblong_size(96, 0.01) == "96x8"


def test_options_that_are_given_are_not_changed(decide: Callable[..., tuple[Choice, list[Any]]]) -> None:
    choice, seen = decide(
        {64: 0.5}, options={"image_size": 64, "mirror": 0.0, "lr": 1e-4}, **{AUTO_PRETRAINED: 0.2, "resnet10t": 0.4}
    )
    assert seen == [64, "resnet10t", AUTO_PRETRAINED]
    assert (choice.options["image_size"], choice.options["lr"], choice.options["mirror"]) == (64, 1e-4, 0.0)
    choice, seen = decide({64: 0.5}, options={"image_size": 64, "linear": True})
    assert seen == [64]
    assert choice.options["linear"]
    _, seen = decide({96: 0.1, 128: 0.1}, shape=0.75, options={"views": "turn"})
    assert seen == [96, 128]  # images that are turned have to be squares


@pytest.mark.parametrize("option", [{"linear": False}, {"loss": "focal"}, {"class_weights": "balanced"}])
def test_a_head_is_no_choice_where_the_user_wants_what_only_training_has(
    decide: Callable[..., tuple[Choice, list[Any]]], option: Options
) -> None:
    assert decide({96: 0.01, 128: 0.01})[0].options["linear"]
    choice, seen = decide({96: 0.01, 128: 0.01}, options=option)
    assert seen == [96, 128]
    assert not choice.options.get("linear")


def test_time_grows_with_the_images_and_a_budget_replaces_it(tiny: Path) -> None:
    looks = Looks(plan_of(tiny))
    assert auto_look.seconds_allowed(looks) == auto_look.SECONDS[0]
    looks.training = 1_000_000
    assert auto_look.seconds_allowed(looks) == auto_look.SECONDS[1]
    plan = make_plan(check_before_plan("tiny", tiny, Request({"model": "auto"}, budget=1000.0)))
    assert 400 < auto_look.seconds_allowed(Looks(plan)) < 500  # of two folds


def test_the_look_ends_in_time_and_leaves_some_for_a_trial(tiny: Path) -> None:
    def seen_by(seconds: float, of_a_look: float, heads: dict[Any, float]) -> tuple[list[Any], Choice]:
        looks = SeenBefore(plan_of(tiny), heads, {AUTO_PRETRAINED: 0.2}, 2.0, seconds)
        looks.seen_pixels, looks.seconds_of_seeing = 96.0**2, of_a_look
        choice = choose(looks)
        return looks.asked_for, choice

    heads = {"96x72": 0.4, 96: 0.4, "128x96": 0.3, "160x120": 0.2, "224x168": 0.1}
    assert seen_by(100.0, 1.0, heads)[0] == [*heads, AUTO_PRETRAINED]
    assert seen_by(100.0, 15.0, heads)[0][:-1] == ["96x72", 96, "128x96", "160x120"]  # 82 s would leave too few
    little = {**heads, "160x120": 0.04, "224x168": 0.045}
    assert seen_by(100.0, 15.0, little)[0] == list(little)  # no trial is needed
    seen, choice = seen_by(4.0, 0.1, heads)
    assert seen == list(heads)  # nothing can be tried, so the head that was seen is the choice
    assert choice.options["linear"]


def test_a_small_budget_shortens_the_look(tiny: Path) -> None:
    request = Request({"model": "auto"}, budget=100.0)
    assert auto_look.seconds_to_look(make_plan(check_before_plan("tiny", tiny, request))) == 20.0
    assert auto_look.seconds_to_look(plan_of(tiny)) == auto_look.LOOK_SECONDS <= 60


def test_the_less_a_trial_has_trained_the_more_a_whole_run_gains() -> None:
    assert auto_look.gain_of_run(0.1, share=0.5) == pytest.approx(0.2)
    assert auto_look.gain_of_run(0.1, share=0.0625) == pytest.approx(0.4)
    assert auto_look.gain_of_run(-0.1, share=0.01) == 0.0


# --- with real images and weights -----------------------------------------------------------------------


@pytest.mark.slow
def test_auto_records_what_it_saw_and_does_not_look_again(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Inner, "leaves_little", lambda *_: False)
    monkeypatch.setattr(auto_look, "KNOWS_LITTLE", 10.0)
    status, out, err = podium(*AUTO)
    assert status == 0, err
    assert "auto looks at training images of fold 0" in err
    assert "frozen features at 32 px" in err
    assert all(word in out for word in ("quick", "good (chosen)"))
    recipe = run_of(tiny, "auto").recipe
    assert recipe["auto"]["fold"] == 0
    assert recipe["auto"]["options"]["model"] == recipe["model"] == AUTO_PRETRAINED
    assert {"image_size", "loss", "score"} <= recipe["auto"]["looks"][0].keys()
    head = run_of(tiny, "auto-head")  # what auto chose may end below it
    assert head.recipe["linear"]
    assert head.finished() == [0]
    assert "auto-head, the best frozen head that auto has seen: accuracy" in err
    status, _, err = podium(*AUTO)
    assert status == 0, err
    assert "auto looks" not in err
    assert "nothing has changed" in err
    message = one_line(podium(*AUTO[:-4], "--epochs", "2"))
    assert "epochs" in message


@pytest.mark.slow
@pytest.mark.all
@pytest.mark.parametrize(("leaves_little", "model"), [(True, AUTO_PRETRAINED), (False, "resnet10t")])
def test_a_head_and_a_model_from_scratch_are_trained_and_resumed_too(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch, leaves_little: bool, model: str
) -> None:
    monkeypatch.setattr(Inner, "leaves_little", lambda *_: leaves_little)
    monkeypatch.setattr(auto_look, "KNOWS_LITTLE", 0.0)
    trial = Looks.trial

    def prefer_scratch(looks: Looks, options: Options, seconds: float) -> Trial:
        found = trial(looks, options, seconds)
        return found._replace(loss=0.0 if options["model"] == "resnet10t" else 1.0)

    monkeypatch.setattr(Looks, "trial", prefer_scratch)
    status, out, err = podium(*AUTO)
    assert status == 0, err
    recipe = run_of(tiny, "auto").recipe
    assert (recipe["model"], recipe["linear"]) == (model, leaves_little)
    assert ("from scratch at 32 px for 1 epoch" in err) == (not leaves_little)
    assert "(chosen)" in out
    status, _, err = podium(*AUTO)
    assert status == 0, err
    assert "nothing has changed" in err


@pytest.mark.slow
def test_a_head_that_auto_chose_goes_on_within_a_budget(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Inner, "leaves_little", lambda *_: True)
    for folds in ("0", "0,1"):
        status, _, err = podium(*AUTO, "--folds", folds, "--budget", "3h")
        assert status == 0, err
    run = run_of(tiny, "auto")
    assert (run.recipe["linear"], run.finished()) == (True, [0, 1])


@pytest.mark.slow
def test_a_trial_that_diverges_or_is_stopped_leaves_nothing(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_of(tiny, image_size=32, batch_size=8, epochs=1)
    looks = Looks(replace(plan, run=Run(tiny / "looks")))
    options = looks.options_of_pretrained({"image_size": 32})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "check_weights", diverge)
        assert looks.trial(options, 30.0).loss == math.inf
    with pytest.MonkeyPatch.context() as patch:
        signal_in_step(patch, 0, signal.SIGINT)
        with pytest.raises(KeyboardInterrupt, match="nothing has begun"):
            looks.trial(options, 30.0)
    assert looks.trial(options, 30.0).loss < 10
    assert "fold0" not in [path.name for path in (tiny / "looks").iterdir()]
    assert "stopped after step" not in capsys.readouterr().err


def diverge(learner: Learner) -> None:
    raise Diverged("the weights are not finite")


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
    named = make_plan(check_before_plan("tiny", tiny, Request({"model": "test_vit", "weights": "none"})))
    assert not will_look(named)
    assert look_first(named) is named


@pytest.mark.slow
@pytest.mark.parametrize("is_rolling", first_of([True], [False, True]))
def test_the_looks_see_no_label_of_the_held_out_images(tiny: Path, tmp_path: Path, is_rolling: bool) -> None:
    """Nor, in a rolling split, of later images."""
    plan = plan_of(tiny, image_size=32, batch_size=8)
    if is_rolling:  # a third of the images, of all classes, is early
        block = np.arange(len(plan.folds)) % 3
        plan = replace(plan, folds=Folds.of(block - 1, block))
        assert plan.folds.is_rolling
    other = plan.competition.train.copy()
    unseen = np.flatnonzero(~plan.folds.trains(0))
    assert len(unseen) > plan.folds.validates(0).sum() or not is_rolling
    other.loc[other.index[unseen], "target"] = plan.competition.classes[0]
    blind = replace(plan, competition=replace(plan.competition, train=other))
    seen = []
    for number, each in enumerate((plan, blind)):
        looks = Looks(replace(each, run=Run(tmp_path / f"trial{number}")))
        head = looks.head({"image_size": 32}, tries_mirror=True)
        trial = looks.trial(looks.options_of_pretrained({"image_size": 32, "epochs": 1}), seconds=100.0)
        seen.append((head.loss, head.score, trial.loss, trial.score))
    assert seen[0] == seen[1]
    assert not list(tmp_path.glob("trial*/fold*"))


@pytest.mark.slow
def test_mirrored_images_are_left_out_where_they_lose_their_class(tiny: Path, tmp_path: Path) -> None:
    """Images that are bright at the left or at the right: mirrored, they belong to the other class."""
    folder = tiny / "data" / "raw" / "tiny"
    rows = ["id,target"]
    for number in range(40):
        path = folder / "train_image" / f"{number:03d}.jpg"
        write_image(path, (90, 90, 90), number, size=(40, 40))
        rows.append(f"{number:03d},{('left', 'right')[number % 2]}")
        brighten_side(path, number % 2)
    (folder / "train.csv").write_text("\n".join(rows) + "\n")
    podium_at(tiny, "folds", "-c", "tiny", "--k", "2", "--force")
    plan = plan_of(tiny, image_size=64, batch_size=8)
    look = Looks(replace(plan, run=Run(tmp_path / "trial"))).head({"image_size": 64}, tries_mirror=True)
    assert look.options["mirror"] == 0.0


def brighten_side(path: Path, side: int) -> None:
    pixels = np.asarray(Image.open(path)).astype(int)
    pixels[:, 20 * side : 20 * (side + 1)] += 120
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)
