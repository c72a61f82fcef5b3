"""What is searched, and what is not: the user's options, the card's, and those that a model has no use for."""

import optuna
import pytest

from podium.options.recipe import KNOBS, recipe_options
from podium.options.search_values import Factor
from podium_annex.searching.search_space import Space, searched_options
from tiny import recipe_of

CLOSED_BY_ROW = {"test_vit": set(), "test_resnet": {"layer_decay", "drop_path"}}


def drawn(space: Space, seed: int = 0) -> dict[str, object]:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    return dict(space.draw(study.ask()))


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.mark.parametrize("model", CLOSED_BY_ROW)
def test_an_option_that_the_row_of_the_model_closes_is_not_searched(model: str) -> None:
    space = Space(recipe_of(model, weights="pretrained"), fixed=())
    assert searched_options().keys() - space.rows.keys() == CLOSED_BY_ROW[model]


def test_a_model_from_scratch_has_no_start_to_keep_and_one_rate_for_all_layers() -> None:
    assert not {"keep", "layer_decay"} & Space(recipe_of("test_vit"), fixed=()).rows.keys()


def test_nothing_that_mixes_is_searched_for_arcface() -> None:
    assert not {"mix", "level"} & Space(recipe_of("test_vit", head="arcface"), fixed=()).rows.keys()


def test_given_options_and_sizes_without_a_choice_are_not_searched() -> None:
    space = Space(recipe_of("test_vit"), fixed={"lr", "mix"}, sizes=(64,))
    assert not {"lr", "mix", "image_size"} & space.rows.keys()
    assert "image_size" in Space(recipe_of("test_vit"), fixed=(), sizes=(64, 96)).rows


@pytest.mark.parametrize("seed", range(20))
def test_every_value_is_one_that_a_run_can_have(seed: int) -> None:
    defaults = recipe_of("test_vit", weights="pretrained")
    options = drawn(Space(defaults, fixed=(), sizes=(64, "96x64")), seed)
    for name, value in options.items():
        assert not recipe_options()[name][0].problem(value, KNOBS[name].limits), name
    assert defaults.lr / 4 <= options["lr"] <= defaults.lr * 4  # type: ignore[operator]


def test_the_trial_of_the_defaults_lies_within_the_bounds() -> None:
    for model in CLOSED_BY_ROW:
        space = Space(recipe_of(model, weights="pretrained", smoothing=0.5), fixed=(), sizes=(64, 96))
        study = optuna.create_study()
        study.enqueue_trial(space.drawn_for_defaults())
        trial = study.ask()
        space.draw(trial)
        assert trial.params == space.drawn_for_defaults()
        assert space.rows["lr"].value(trial.params["lr"], 1e-4) == 1e-4


def test_a_factor_keeps_whole_numbers_whole() -> None:
    assert Factor(0.5, 2).value(0.5, 1) == 1
    assert Factor(0.5, 2).value(1.26, 12) == 15
    assert Factor(0.25, 4).value(1.23456, 1e-4) == 1.23e-4
