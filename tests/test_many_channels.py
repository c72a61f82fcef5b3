"""Images in several files of one channel each, more than three: `channels` in the card."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bands import CHANNELS, FAST, SLUG, write_bands
from podium.basics.errors import PodiumError
from podium.competition.load import load
from podium.images.decode import shrink
from podium.images.store import open_store
from podium.models.model_file import load_model, read_spec
from podium.training.augment import TestView, TrainView
from podium.training.series import as_run_sees, channels_of
from tiny import Podium, done, recipe_of, write_card

SIX = (*CHANNELS, "ch5", "ch6")


def greys_of(root: Path, name: str, channels: tuple[str, ...] = CHANNELS) -> np.ndarray:
    folder = root / "data/raw" / SLUG / "train"
    return np.stack([np.asarray(Image.open(folder / f"{name}_{channel}.png")) for channel in channels], -1)


@pytest.mark.parametrize("channels", [CHANNELS, SIX])
def test_the_store_holds_all_channels_that_the_card_names(tmp_path: Path, channels: tuple[str, ...]) -> None:
    write_bands(tmp_path, channels=channels)
    competition = load(SLUG, tmp_path)
    for keep in (True, False):
        store = open_store(competition, 36, keep)
        read = store.reader(store.examples(competition.train).first)
        assert np.array_equal(read(3), greys_of(tmp_path, "i003", channels))
        assert read(0).flags.c_contiguous
    assert channels_of(store, competition.train) == tuple(range(len(channels)))
    assert any(" are used, 0 files are not" in note for note in competition.notes)


def test_the_order_is_that_of_the_card_and_three_are_an_image_as_ever(tmp_path: Path) -> None:
    write_bands(tmp_path)
    write_card(tmp_path, 'channels = ["yellow", "red", "blue"]\n', SLUG)
    competition = load(SLUG, tmp_path)
    store = open_store(competition, 36)
    read = store.reader(store.examples(competition.train).first)
    assert np.array_equal(read(3), greys_of(tmp_path, "i003", ("yellow", "red", "blue")))
    assert channels_of(store, competition.train) == ()


def test_without_the_key_red_green_and_blue_are_taken(tmp_path: Path) -> None:
    write_bands(tmp_path)
    write_card(tmp_path, "", SLUG)
    competition = load(SLUG, tmp_path)
    store = open_store(competition, 36)
    assert np.array_equal(store.reader(store.examples(competition.train).first)(3), greys_of(tmp_path, "i003")[..., :3])
    assert channels_of(store, competition.train) == ()


def test_views_change_all_channels_alike() -> None:
    from podium.models.build import build_model

    recipe = recipe_of("test_resnet", image_size=32)
    spec = build_model(recipe, ["a", "b"], channels=tuple(range(5)))[1]
    grey = np.random.default_rng(0).integers(0, 256, (40, 36, 1)).astype(np.uint8)
    image = grey.repeat(5, 2)
    seen = TrainView(recipe.but(erase=0.0), spec)(image, 0, 3)
    assert seen.shape == (32, 32, 5)
    assert (seen == seen[..., :1]).all()
    assert TestView(spec)(shrink(image, 34)).shape == (32, 32, 5)
    with pytest.raises(PodiumError, match="channels"):
        TestView(spec)(image[..., :3])


def test_a_run_learns_from_the_fourth_channel_and_predicts(tmp_path: Path, podium: Podium) -> None:
    write_bands(tmp_path)
    done(podium("audit", "-c", SLUG))
    done(podium("folds", "-c", SLUG, "--k", "2"))
    words = ("--model", "test_resnet", "--epochs", "12", "--lr", "3e-3", "--name", "wide", "--colour", "0")
    done(podium("train", *FAST, *words))
    run = tmp_path / "runs" / SLUG / "wide"
    assert json.loads((run / "recipe.json").read_text())["channels"] == list(CHANNELS)
    model, spec = load_model(run / "fold0/model.safetensors")
    assert spec.channel_count == 4
    assert {tensor.shape[1] for name, tensor in model.state_dict().items() if name == "conv1.weight"} <= {4}
    done(podium("train", *FAST, *words))
    done(podium("submit", "-c", SLUG, "--runs", "wide"))
    with (tmp_path / "submissions" / SLUG / "wide.csv").open() as file:
        right = [(float(row["odd"]) > 0.5) == bool(int(row["id"][1:]) % 2) for row in csv.DictReader(file)]
    assert sum(right) >= 7
    done(podium("report", "-c", SLUG))
    status, _, err = podium(
        "train", *FAST, "--model", "test_resnet", "--mix", "0.5", "--name", "pupil", "--epochs", "1"
    )
    assert status == 0, err
    for command in (
        ("predict", "wide", str(tmp_path / "data/raw" / SLUG / "test"), "-c", SLUG),
        ("explain", "wide", "-c", SLUG),
        ("export", "wide", "-c", SLUG, "--onnx"),
    ):
        status, _, err = podium(*command)
        assert status != 0
        assert "channels" in err
        assert "Traceback" not in err


def test_heads_on_frozen_features_and_boxes_see_all_channels(tmp_path: Path, podium: Podium) -> None:
    write_bands(tmp_path, count=16)
    done(podium("folds", "-c", SLUG, "--k", "2"))
    plain = (*FAST, "--model", "test_resnet")
    done(podium("train", *plain, "--linear", "--name", "head"))
    done(podium("train", *plain, "--region", "tiles:2", "--epochs", "1", "--name", "tiles"))
    done(podium("train", *plain, "--head-first", "--epochs", "1", "--name", "first"))
    done(podium("submit", "-c", SLUG, "--runs", "head,tiles,first"))
    for run in ("head", "tiles", "first"):
        assert read_spec(tmp_path / "runs" / SLUG / run / "fold0/model.safetensors").channel_count == 4
    status, _, err = podium("pretrain", "-c", SLUG, "--model", "test_vit", "--image-size", "32")
    assert status != 0
    assert "three channels" in err


@pytest.mark.parametrize("channels", ['["red", "green"]', '["a", "b", "b"]', '["a", "b", "c d"]', "4"])
def test_wrong_channels_are_refused(tmp_path: Path, channels: str) -> None:
    write_bands(tmp_path)
    write_card(tmp_path, f"channels = {channels}\n", SLUG)
    with pytest.raises(PodiumError, match="channels"):
        load(SLUG, tmp_path)


def test_adjacent_images_of_many_channels_are_refused(tmp_path: Path) -> None:
    write_bands(tmp_path)
    competition = load(SLUG, tmp_path)
    with pytest.raises(PodiumError, match="--adjacent"):
        as_run_sees(open_store(competition, 36), competition, {"adjacent": 3})
