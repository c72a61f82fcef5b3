"""--adjacent: a net sees an image of a series between its neighbours, as channels."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from podium.basics.errors import PodiumError
from podium.competition.load import load
from podium.images.store import open_store
from podium.models import build
from podium.models.build import ModelSpec, build_model
from podium.models.device import CPU
from podium.models.model_file import load_model, read_spec
from podium.models.normalise import Normaliser
from podium.training.augment import TestView, TrainView
from podium.training.series import are_grey, as_run_sees, channels_of, series_of
from series import FAST, SLICES, SLUG, write_series
from tiny import Podium, done, recipe_of, write_card

NEAR = {"adjacent": 3}


def spec_of(**changes: object) -> ModelSpec:
    spec = build_model(recipe_of("test_resnet", image_size=32), ["a", "b"])[1]
    return replace(spec, **changes)  # type: ignore[arg-type]


def test_a_series_is_the_images_of_an_answer_in_the_natural_order_of_their_names(tmp_path: Path) -> None:
    write_series(tmp_path)
    series = series_of(load(SLUG, tmp_path), "")
    assert len(series) == 12
    assert series[0] == [f"train/p0_{number}.png" for number in range(SLICES)]
    assert series[-1][-1] == f"test/p11_{SLICES - 1}.png"


def test_a_column_gives_the_order(tmp_path: Path) -> None:
    write_series(tmp_path)
    assert series_of(load(SLUG, tmp_path), "z")[0][:2] == ["train/p0_10.png", "train/p0_9.png"]


def test_groups_are_series_where_a_row_is_for_one_image(tmp_path: Path) -> None:
    write_series(tmp_path, with_answers=False)
    competition = load(SLUG, tmp_path)
    assert competition.answers is None
    assert [len(names) for names in series_of(competition, "")] == [SLICES] * 12
    without = load(SLUG, tmp_path, group_column="")
    with pytest.raises(PodiumError, match="group_column"):
        series_of(without, "")


def test_the_store_reads_an_image_between_its_neighbours_and_repeats_the_ends(tmp_path: Path) -> None:
    write_series(tmp_path)
    competition = load(SLUG, tmp_path)
    alone = open_store(competition, 32)
    store = as_run_sees(alone, competition, NEAR)
    names = [f"train/p0_{number}.png" for number in range(SLICES)]
    read, single = (one.reader(one.positions(names)) for one in (store, alone))
    for number, beside in ((0, (0, 0, 1)), (5, (4, 5, 6)), (10, (9, 10, 10))):
        assert np.array_equal(read(number), np.stack([single(place) for place in beside]))
    assert as_run_sees(alone, competition, {}) is alone  # of a run from before the option
    first = store.positions(names)[4:5]
    assert store.digest(first) != alone.digest(first)


def test_the_neighbour_that_cannot_be_read_is_the_image_itself(tmp_path: Path) -> None:
    write_series(tmp_path)
    (tmp_path / "data/raw" / SLUG / "train/p0_4.png").write_bytes(b"no image")
    competition = load(SLUG, tmp_path)
    store = as_run_sees(open_store(competition, 32), competition, NEAR)
    read = store.reader(store.positions(["train/p0_5.png"]))
    before, own, after = read(0)
    assert np.array_equal(before, own)
    assert not np.array_equal(own, after)


@pytest.mark.parametrize(("in_colour", "channels"), [(False, (0, 3, 6)), (True, tuple(range(9)))])
def test_grey_images_are_one_channel_each(tmp_path: Path, in_colour: bool, channels: tuple[int, ...]) -> None:
    write_series(tmp_path, in_colour=in_colour)
    competition = load(SLUG, tmp_path)
    store = as_run_sees(open_store(competition, 32), competition, NEAR)
    assert channels_of(store, competition.train) == channels
    assert are_grey(store, np.arange(4)) is not in_colour


@pytest.mark.parametrize("options", [{}, {"ops": 2, "colour": 0.5, "erase": 1.0}])
def test_all_that_is_seen_at_once_is_changed_alike(options: dict[str, Any]) -> None:
    image = np.random.default_rng(0).integers(0, 256, (40, 36, 3)).astype(np.uint8)
    recipe = recipe_of("test_resnet", image_size=32, **options)
    spec = spec_of(channels=tuple(range(9)))
    seen = TrainView(recipe, spec)(np.stack([image] * 3), 0, 5)
    assert seen.shape == (32, 32, 9)
    for start in (0, 3, 6):
        assert np.array_equal(seen[..., start : start + 3], TrainView(recipe, spec_of())(image, 0, 5))
    assert TestView(spec)(np.stack([image] * 3)).shape == (32, 32, 9)


def test_one_image_alone_is_refused() -> None:
    with pytest.raises(PodiumError, match="--adjacent"):
        TestView(spec_of(channels=(0, 3, 6)))(np.zeros((40, 40, 3), np.uint8))


def test_pretrained_weights_of_the_first_layer_are_repeated(tmp_path: Path) -> None:
    recipe = recipe_of("test_resnet", image_size=32)
    plain, _ = build_model(recipe, ["a", "b"])
    save_file(dict(plain.state_dict()), tmp_path / "w.safetensors")
    wide, spec = build_model(recipe.but(weights=str(tmp_path / "w.safetensors")), ["a", "b"], channels=tuple(range(9)))
    name = build._weights_config("test_resnet").first_conv
    own, repeated = (model.state_dict()[f"{name}.weight"] for model in (plain, wide))
    assert torch.allclose(repeated, own.repeat(1, 3, 1, 1) / 3)
    spread = Normaliser(replace(spec, mean=(0.1, 0.2, 0.3)), CPU).shift.flatten()
    assert torch.equal(spread[:3], spread[3:6])


def test_a_run_of_colour_images_trains_resumes_and_submits(tmp_path: Path, podium: Podium) -> None:
    write_series(tmp_path, in_colour=True)
    done(podium("folds", "-c", SLUG, "--k", "2"))
    words = ("--model", "test_resnet", "--adjacent", "3", "--order-column", "z", "--epochs", "1", "--name", "near")
    done(podium("train", *FAST, *words))
    run = tmp_path / "runs" / SLUG / "near"
    recipe = json.loads((run / "recipe.json").read_text())
    assert (recipe["adjacent"], recipe["order_column"]) == (3, "z")
    model, spec = load_model(run / "fold0/model.safetensors")
    assert spec.channel_count == 9
    assert model(torch.zeros(1, 9, 32, 32)).shape == (1, 2)
    done(podium("train", *FAST, "--model", "test_resnet", "--adjacent", "3", "--linear", "--name", "head"))
    done(podium("train", *FAST, *words))  # finished: nothing to do
    status, _, err = podium("train", *FAST, "--model", "test_resnet", "--teacher", "near", "--name", "pupil")
    assert status != 0
    assert "--teacher near: it sees 9 channels" in err
    done(podium("submit", "-c", SLUG, "--runs", "near"))
    with (tmp_path / "submissions" / SLUG / "near.csv").open() as file:
        assert [row["patient_id"] for row in csv.DictReader(file)] == [f"p{patient}" for patient in range(8, 12)]
    status, _, err = podium("predict", "near", str(tmp_path / "data/raw" / SLUG / "test"), "-c", SLUG)
    assert status != 0
    assert "--adjacent" in err
    status, _, err = podium("export", "near", "-c", SLUG, "--onnx")
    assert status != 0
    assert "--adjacent" in err


def test_grey_series_keep_three_channels_and_a_fitted_head_sees_them(tmp_path: Path, podium: Podium) -> None:
    write_series(tmp_path)
    done(podium("folds", "-c", SLUG, "--k", "2"))
    done(podium("train", *FAST, "--model", "test_resnet", "--adjacent", "3", "--linear", "--name", "head"))
    assert read_spec(tmp_path / "runs" / SLUG / "head/fold0/model.safetensors").channels == (0, 3, 6)
    done(podium("submit", "-c", SLUG, "--runs", "head"))


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--adjacent", "2"), "odd"),
        (("--order-column", "z"), "add --adjacent 3"),
        (("--adjacent", "3", "--model", "test_resnet+test_vit", "--linear"), "name one model"),
        (("--adjacent", "3", "--region", "border"), "--region"),
        (("--adjacent", "3", "--order-column", "nothing"), "nothing"),
        (("--adjacent", "3", "--order-column", "label"), "label"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(
    tmp_path: Path, podium: Podium, words: tuple[str, ...], what: str
) -> None:
    write_series(tmp_path)
    done(podium("folds", "-c", SLUG, "--k", "2"))
    status, _, err = podium("train", *FAST, "--model", "test_resnet", *words)
    assert status != 0
    assert what in err
    assert "Traceback" not in err


def test_images_without_series_are_refused(tiny: Path, podium: Podium) -> None:
    write_card(tiny, "")
    status, _, err = podium("train", "-c", "tiny", *FAST[2:], "--model", "test_resnet", "--adjacent", "3")
    assert status != 0
    assert "group_column" in err
