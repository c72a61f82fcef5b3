"""podium train with several models or seeds, and --dry-run."""

from pathlib import Path

import pytest

from forked_podium import run_group
from podium.__main__ import main
from podium.models.costs import count_parameters
from podium.saved_runs.run_folder import find_runs
from second_round import first_of
from tiny import FAST, Podium, assert_says, done, one_line, run_of, write_card

TRAIN = ("train", *FAST, "--epochs", "1", "--folds", "0")


def trained(root: Path) -> set[str]:
    return {run.name for run in find_runs("tiny", root)}


def test_models_and_seeds_are_trained_in_turn_and_compared(tiny: Path, podium: Podium) -> None:
    out, err = done(podium(*TRAIN, "--model", "test_vit,test_convnext", "--seeds", "1-2"))
    names = {"test_vit-seed1", "test_vit-seed2", "test_convnext-seed1", "test_convnext-seed2"}
    assert trained(tiny) == names
    assert {run_of(tiny, name).recipe["seed"] for name in names} == {1, 2}
    assert "run 4 of 4, test_convnext-seed2" in err
    comparison = out[out.index("worse than best") :]
    assert all(name in comparison for name in names)


@pytest.mark.annex
def test_models_are_compared_with_the_recipe_of_the_first(tiny: Path, podium: Podium) -> None:
    models = ("test_convnext", "test_vit")  # whose learning rates differ
    out, _ = done(podium(*TRAIN, "--model", *models, "--one-recipe"))
    recipes = [run_of(tiny, name).recipe for name in models]
    shared = ("lr", "epochs", "warmup", "drop_path", "layer_decay", "mix", "image_size", "test_size")
    assert [recipes[0][name] for name in shared] == [recipes[1][name] for name in shared]
    assert recipes[0]["lr"] == 0.00075  # of convnext, for batches of 8
    assert "McNemar" in out
    assert (tiny / "runs/tiny/comparison.svg").exists()
    assert "nothing has changed" in podium(*TRAIN, "--model", *models, "--one-recipe")[2]


def test_a_given_option_and_the_card_come_before_the_recipe_of_the_first(tiny: Path, podium: Podium) -> None:
    (tiny / "data/competitions").mkdir(parents=True, exist_ok=True)
    (tiny / "data/competitions/tiny.toml").write_text("[recipe]\nwarmup = 0.5\n")
    done(podium(*TRAIN, "--model", "test_convnext", "test_vit", "--one-recipe", "--lr", "0.01"))
    assert [run_of(tiny, "test_vit").recipe[name] for name in ("lr", "warmup")] == [0.01, 0.5]


@pytest.mark.parametrize("size", first_of([1], [1, 2]))
def test_several_processes_get_the_recipe_of_the_first(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """What the processes are told, to one process in place of a group and to a group."""

    def launch(count: int, device: str, words: list[str]) -> None:  # torchrun takes seconds to start
        own = words[: words.index("--processes")] + words[words.index("--processes") + 2 :]
        assert count == 2
        if size == 1:
            assert main(own) == 0
        else:
            assert run_group(count, own, tiny / "group.log") == [0] * count, (tiny / "group.log").read_text()

    monkeypatch.setattr("podium.training.processes.launch_processes", launch)
    words = (*TRAIN, "--model", "test_convnext", "test_vit", "--one-recipe", "--processes", "2", "--device", "cpu")
    done(podium(*words))
    assert run_of(tiny, "test_vit").recipe["lr"] == run_of(tiny, "test_convnext").recipe["lr"] == 0.00075


def test_a_pattern_stands_for_all_models_that_it_matches(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.training.dry_run.measure_training", lambda *_: 100.0)
    out, _ = done(podium(*TRAIN, "--model", "test_*vit3", "--one-recipe", "--dry-run"))
    assert "test_vit3" in out
    assert "no model matches 'rood_*'" in one_line(podium(*TRAIN, "--model", "rood_*"))


def test_seeds_follow_the_name_of_the_run(tiny: Path, podium: Podium) -> None:
    done(podium(*TRAIN, "--model", "test_vit", "--name", "mine", "--seeds", "3"))
    assert trained(tiny) == {"mine-seed3"}


def test_all_models_are_checked_before_the_first_is_trained(tiny: Path, podium: Podium) -> None:
    assert "no model 'test_vot'" in one_line(podium(*TRAIN, "--model", "test_vit", "test_vot"))
    assert not (tiny / "runs").exists()


def test_a_run_that_fails_does_not_keep_the_others_from_training(tiny: Path, podium: Podium) -> None:
    # test_vit takes only multiples of its patch's 16 pixels.
    status, out, err = podium(*TRAIN, "--image-size", "40", "--model", "test_vit", "test_resnet")
    assert status == 1
    assert "test_vit cannot take images of 40 pixels" in err
    assert "1 of 2 runs failed: test_vit" in err.splitlines()[-1]
    assert trained(tiny) == {"test_resnet"}
    assert "test_resnet" in out


def test_the_smallest_model_gives_the_first_linear_look(tiny: Path, podium: Podium) -> None:
    models = ("test_vit", "test_efficientnet")
    assert count_parameters(models[0]) > count_parameters(models[1])
    _, err = done(podium(*TRAIN, "--linear", "--model", *models))
    assert "run 1 of 2, test_efficientnet" in err


def test_the_model_auto_gives_its_name_to_the_run(tiny: Path, podium: Podium) -> None:
    done(podium(*TRAIN, "--model", "auto"))
    assert trained(tiny) == {"auto"}


# --- what a run would do ------------------------------------------------------------------------------


def test_a_dry_run_shows_every_option_with_its_origin_and_trains_nothing(tiny: Path, podium: Podium) -> None:
    write_card(tiny, "[recipe]\nmirror = 0.0\n")
    out, _ = done(podium("train", *FAST, "--model", "test_vit", "--level", "light", "--dry-run"))
    origins = {words[0]: " ".join(words[2:]) for words in map(str.split, out.splitlines()) if len(words) > 2}
    expected = {
        **{"batch_size": "flag", "weights": "flag", "mirror": "card", "crop": "--level light"},
        **{"epochs": "family vision_transformer, from scratch", "ema": "default", "test_size": "model"},
    }
    assert expected.items() <= origins.items()
    assert_says(out, "2 folds left to train", "from a quick measurement")
    assert not (tiny / "runs").exists()


def test_a_dry_run_of_auto_says_which_options_come_from_it(tiny: Path, podium: Podium) -> None:
    out, _ = done(podium("train", *FAST, "--device", "cpu", "--model", "auto", "--mix", "0.1", "--dry-run"))
    rows = {words[0]: (words[1], " ".join(words[2:])) for words in map(str.split, out.splitlines()) if len(words) > 2}
    assert rows["model"] == ("resnet10t", "--model auto")
    assert rows["plain"] == ("0.3", "--model auto")
    assert rows["mix"] == ("0.1", "flag")


def test_a_run_shows_its_recipe_before_it_trains(tiny: Path, podium: Podium) -> None:
    _, err = done(podium(*TRAIN, "--model", "test_vit", "--lr", "0.002"))
    assert "1 epoch in batches of 8, lr 0.002 (adamw)" in err
    assert "crop 0.6, mirror 0.5, colour 0.2, erase 0.1, mix 0.2, views mirror" in err
    assert err.index("lr 0.002") < err.index("epoch 1/1")


# --- going on from a finished run ---------------------------------------------------------------------


def test_a_finished_run_goes_on_under_another_name(tiny: Path, podium: Podium) -> None:
    options = ("--model", "test_vit", "--lr", "3e-3", "--mix", "0", "--crop", "1")
    done(podium("train", *FAST, *options, "--epochs", "5", "--name", "first"))
    first = run_of(tiny, "first")
    done(podium("train", "-c", "tiny", "--workers", "0", "--from", "first", "--epochs", "2"))
    more = run_of(tiny, "first-more")
    assert more.recipe["start"] == "first"
    assert more.recipe["start_sha256"] == {str(fold): first.check_weights(fold) for fold in (0, 1)}
    taken_over = ("lr", "mix", "crop", "batch_size", "image_size", "model")
    assert all(more.recipe[name] == first.recipe[name] for name in taken_over)
    assert (more.recipe["epochs"], more.recipe["seed"]) == (2, first.recipe["seed"] + 1)
    for fold in (0, 1):  # it begins where the first run ended, not at its beginning
        assert more.history(fold)[0].loss < first.history(fold)[0].loss
    done(podium("train", "-c", "tiny", "--workers", "0", "--from", "first", "--epochs", "2"))  # resumes
    done(podium("submit", "-c", "tiny", "--runs", "first-more", "--anyway"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--from", "test_vot"), "no run 'test_vot'"),
        (("--from", "test_vit", "--model", "test_resnet"), "that run is a test_vit"),
        (("--from", "test_vit", "--name", "test_vit"), "cannot go on from itself"),
        (("--from", "test_vit", "--folds", "1"), "has not finished fold 1"),
    ],
)
def test_a_run_that_cannot_go_on_is_refused(
    one_run: Path, podium: Podium, words: tuple[str, ...], message: str
) -> None:
    assert message in one_line(podium("train", "-c", "tiny", "--workers", "0", "--epochs", "2", *words))
    assert trained(one_run) == {"test_vit"}
