"""The recipe: where the value of an option comes from, and which values are refused."""

from fnmatch import fnmatchcase

import pytest
import timm

from podium.options.knob import OF_THE_ROW
from podium.options.recipe import KNOBS, NEUTRAL, Recipe, check_options, differences
from podium.options.recipe_defaults import FOUNDATIONS, LEAST_STEPS, Backbone, Data, expand_auto, fill_in_defaults
from tiny import recipe_of


def recipe(**options: object) -> Recipe:
    """Returns the recipe of convnext_small, which timm trains at 224 pixels and tests at 288."""
    return fill_in_defaults({"model": "convnext_small", **options}, {}, Backbone("convnext", "convnext", 224, 288))


# --- where a value comes from ------------------------------------------------------------------------


def test_an_option_given_by_the_user_wins_over_the_card_and_the_card_over_the_family() -> None:
    plain = recipe()
    assert (plain.weights, plain.image_size, plain.layer_decay) == ("pretrained", 224, 0.8)
    card = {"layer_decay": 0.5, "mirror": 0}
    assert fill_in_defaults({"model": "m"}, card, Backbone("convnext", "convnext", 224, 288)).layer_decay == 0.5
    assert isinstance(fill_in_defaults({"model": "m"}, card, Backbone("convnext", "convnext", 224, 288)).mirror, float)
    assert (
        fill_in_defaults(
            {"model": "m", "layer_decay": 0.7}, card, Backbone("convnext", "convnext", 224, 288)
        ).layer_decay
        == 0.7
    )
    assert fill_in_defaults({"model": "m"}, {}, Backbone("unknown_family", "batch norm", 64, 64)).layer_decay == 1


def test_a_small_data_set_has_enough_steps_and_only_a_large_one_is_mixed() -> None:
    backbone = Backbone("efficientnet", "batch norm", 224, 224)
    small, large = (fill_in_defaults({"model": "m"}, {}, backbone, Data(images)) for images in (800, 50_000))
    assert small.epochs * (800 // small.batch_size) >= LEAST_STEPS
    assert small.epochs > large.epochs
    assert (small.mix, large.mix) == (0, 0.5)
    assert fill_in_defaults({"model": "m", "epochs": 3}, {}, backbone, Data(800)).epochs == 3


def test_images_are_mixed_instead_of_labels_smoothed_where_the_metric_is_a_loss_of_probabilities() -> None:
    backbone, data = Backbone("efficientnet", "batch norm", 224, 224), Data(800, is_loss_of_probabilities=True)

    def chosen(data: Data, **options: object) -> tuple[float, float]:
        recipe = fill_in_defaults({"model": "m", **options}, {}, backbone, data)
        return recipe.smoothing, recipe.mix

    assert chosen(data) == (0, 0.5)
    assert chosen(data, weights="none") == (0.1, 0)
    assert chosen(Data(800)) == (0.1, 0)


def test_the_default_learning_rate_grows_with_the_square_root_of_the_batch_and_a_given_one_does_not() -> None:
    assert recipe(batch_size=128).lr == 1e-4
    assert recipe(batch_size=512).lr == 2e-4
    assert recipe(batch_size=512, lr=3e-4).lr == 3e-4


def test_training_from_scratch_has_defaults_of_its_own() -> None:
    pretrained, scratch = recipe(), recipe(weights="none")
    assert scratch.lr > 10 * pretrained.lr
    assert scratch.layer_decay == 1
    assert scratch.epochs > pretrained.epochs


def test_a_level_sets_several_options_and_a_given_option_wins() -> None:
    light, strong = recipe(level="light"), recipe(level="strong", mix=0.1)
    assert light.crop > strong.crop
    assert (light.ops, strong.ops) == (0, 2)
    assert strong.mix == 0.1
    assert recipe(level="default").values() == recipe().values()
    assert (
        fill_in_defaults({"model": "m"}, {"level": "strong", "crop": 0.9}, Backbone("", "batch norm", 64, 64)).crop
        == 0.9
    )


def test_views_and_test_size_have_defaults_that_fit_the_other_options() -> None:
    assert (recipe().views, recipe(mirror=0.0).views) == ("mirror", "none")
    assert recipe().test_size == 288  # as timm tests convnext_small
    assert recipe(image_size=320).test_size == 320  # trained at another size, it is tested at that size
    assert recipe(weights="none").test_size == 224
    assert recipe(test_size=256).test_size == 256


def test_auto_is_a_model_that_suits_the_device_and_given_options_win() -> None:
    assert expand_auto({"model": "auto"}, "cpu")["weights"] == "none"
    assert expand_auto({"model": "auto"}, "cpu with bfloat16")["optimizer"] == "muon"
    assert expand_auto({"model": "auto"}, "cuda") == {"model": "convnext_small"}
    assert expand_auto({"model": "auto", "epochs": 3}, "cpu")["epochs"] == 3
    assert "mix" not in expand_auto({"model": "auto", "level": "strong"}, "cpu")  # the level sets it
    assert expand_auto({"model": "test_vit"}, "cpu") == {"model": "test_vit"}


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("vit_small_patch16_dinov3", {"freeze": 0.5, "pool": "both", "layer_decay": 1.0, "lr": 1.27e-4}),
        ("vit_base_patch16_siglip_224", {"layer_decay": 0.65, "lr": 7.07e-5, "pool": "default", "freeze": 0.0}),
        ("vit_pe_core_tiny_patch16_384", {"layer_decay": 0.65, "drop_path": 0.0, "epochs": 12}),
        ("eva02_tiny_patch14_336", {"layer_decay": 0.8, "smoothing": 0.2, "lr": 1.77e-5, "warmup": 2.0}),
        ("vit_base_patch16_siglip_224.webli", {"layer_decay": 0.75, "lr": 7.07e-5}),  # the first SigLIP: a ViT
        ("convnext_tiny.dinov3_lvd1689m", {"layer_decay": 0.8, "freeze": 0.0}),
    ],
)
def test_foundation_models_are_fine_tuned_as_published(model: str, expected: dict[str, object]) -> None:
    filled = recipe_of(model, "pretrained")
    assert {name: getattr(filled, name) for name in expected} == expected
    scratch = recipe_of(model, "none")
    assert (scratch.freeze, scratch.pool) == (0.0, "default")  # there is nothing to keep, and nothing to pool as before


def test_every_foundation_is_known_by_the_names_that_timm_gives_its_weights() -> None:
    names = timm.list_pretrained()
    found = {key: [name for name in names if fnmatchcase(name, known.weights)] for key, known in FOUNDATIONS.items()}
    assert all(len(models) > 5 for models in found.values())
    together = [name for models in found.values() for name in models]
    assert len(set(together)) == len(together)  # no two rows compete for a model


def test_low_rank_updates_reach_the_layers_that_would_be_frozen() -> None:
    assert recipe_of("vit_small_patch16_dinov3", "pretrained", lora=8).freeze == 0
    assert recipe_of("vit_small_patch16_dinov3", "pretrained", lora=8, freeze=0.2).freeze == 0.2


def test_images_grow_from_half_the_size_to_the_whole_size() -> None:
    growing = recipe(image_size=80, epochs=10, grow=0.6)
    assert [growing.size_at(epoch) for epoch in range(10)] == [32, 32, 48, 48, 64, 64, 80, 80, 80, 80]
    assert {recipe(image_size=80, grow=0.0).size_at(epoch) for epoch in range(10)} == {80}
    assert recipe(image_size=40, epochs=10, grow=1.0).size_at(0) == 32
    assert recipe(image_size=8, epochs=10, grow=1.0).size_at(0) == 8


# --- refusals ----------------------------------------------------------------------------------------


def test_differences_between_two_recipes_are_listed() -> None:
    old, new = {"lr": 0.1, "folds_sha256": "a", "seed": 0}, {"lr": 0.2, "folds_sha256": "b", "seed": 0}
    assert differences(old, new) == ["lr was 0.1 and is 0.2", "the folds changed"]


def test_neutral_values_and_defaults_are_values_of_their_options() -> None:
    check_options(NEUTRAL)
    check_options({name: own.default for name, own in KNOBS.items() if own.default is not OF_THE_ROW})


def test_every_default_has_a_reason() -> None:
    """That of the rest is in the row of the kind of model, or it follows from other options."""
    assert all(own.why for own in KNOBS.values() if own.default is not OF_THE_ROW)


# The first version of Podium recorded these, so no recipe.json lacks one of them.
FIRST = {
    *("model", "weights", "image_size", "test_size", "epochs", "batch_size", "lr", "layer_decay", "weight_decay"),
    *("warmup", "drop_path", "smoothing", "ema", "mix", "crop", "mirror", "views", "colour", "erase"),
    *("precision", "seed"),
}


def test_only_the_first_options_need_no_neutral_value() -> None:
    """Else a new option would lock users out of all runs that were begun without it."""
    assert KNOBS.keys() - NEUTRAL.keys() == FIRST
