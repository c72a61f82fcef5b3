"""podium train --columns: a net learns from columns of the tables beside the image."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from podium.models.model_file import load_model
from podium.options.layers.column_layers import WithColumns
from podium.saved_runs.prediction_files import Predictions
from podium.training.augment import TrainView
from podium.training.learner import Learner
from templates import copied
from tiny import (
    FAST,
    Podium,
    assert_rebuilt,
    assert_same_fold,
    assert_says,
    done,
    one_line,
    podium_at,
    run_of,
    stop_in_step,
    tell_classes,
    tiny_with_folds,
    write_card,
)
from training.learners import context_of

TRAIN = ("train", *FAST, "--device", "cpu", "--folds", "0", "--epochs", "4", "--lr", "3e-3", "--model", "test_vit")
FILM = (*TRAIN, "--columns", "film", "--name", "film")


def with_cameras(root: Path) -> None:
    """Makes a project whose tables have a camera that tells the class."""
    tiny_with_folds(root)
    tell_classes(root)


cameras = copied(with_cameras)


def with_a_run(root: Path) -> None:
    with_cameras(root)
    podium_at(root, *FILM)


filmed = copied(with_a_run)


@pytest.mark.parametrize("kind", ["film", "concat"])
@pytest.mark.parametrize("model", ["test_vit", "test_convnext"])
def test_a_net_learns_what_columns_tell(cameras: Path, model: str, kind: str) -> None:
    """On images without anything to see, only the columns can tell the classes apart."""
    with context_of(cameras, "told", model=model, columns=kind, lr=3e-3, epochs=40) as context:
        learner = Learner(context, 0)
        batch = learner.lessons.images(context.images, TrainView(context.recipe, learner.spec)).load(
            [(0, index) for index in range(8)]
        )
        assert isinstance(batch, tuple)
        images, taught = batch
        assert taught.shape == (8, 4 + context.images.column_count)
        blank = torch.full_like(images, 128)
        losses = [learner.step(blank, taught).item() for _ in range(60)]
        assert losses[-1] < losses[0] / 2
        model_ = learner.model.eval()
        columns = taught[:, 4:]
        told, untold = (model_(learner.normalise(blank), *more) for more in ((columns,), ()))
        assert (told.argmax(1) == taught[:, :4].argmax(1)).all()
        unknown = model_(learner.normalise(blank), torch.full_like(columns, torch.nan))
        assert torch.equal(unknown, untold)
        assert not torch.equal(told, untold)


def test_some_images_are_learned_without_them(cameras: Path) -> None:
    with context_of(cameras, "told", model="test_vit", columns="concat") as context:
        layer = next(part for part in Learner(context, 0).model.modules() if isinstance(part, WithColumns)).train()
    torch.nn.init.ones_(layer.outer)
    features, columns = torch.randn(400, layer.layer.in_features), torch.randn(400, layer.inner.shape[1])
    plain = layer(features)
    layer.columns = columns
    is_plain = (layer(features) == plain).all(1).float().mean()
    assert 0.1 < is_plain < 0.3
    assert torch.equal(layer(features), plain)  # columns are those of one batch only


def test_a_submission_uses_those_of_the_test_images(filmed: Path, podium: Podium) -> None:
    out, _ = done(podium("submit", "-c", "tiny", "--runs", "film", "--anyway"))
    assert_rebuilt(podium, Path(out.strip()))
    kept = run_of(filmed, "film").fold_folder(0) / "test.npz"
    before = Predictions.load(kept, "")
    table = filmed / "data/raw/tiny/test.csv"
    rows = pd.read_csv(table, dtype=str)
    rows.assign(camera=rows["camera"].replace({"0": "1", "1": "0"})).to_csv(table, index=False)
    done(podium("submit", "-c", "tiny", "--runs", "film", "--anyway", "--name", "other"))
    after = Predictions.load(kept, "")
    assert before.key != after.key
    assert not np.array_equal(before.probs, after.probs)
    spec = load_model(run_of(filmed, "film").weights_path(0))[1]
    assert (spec.columns, spec.column_count) == ("film", 1)


def test_it_is_predicted_as_it_was_held_out(filmed: Path, podium: Podium) -> None:
    """With the columns of the held-out images in the test table, both predictions are the same."""
    from podium.competition.load import load
    from podium.images.decode import read_image
    from podium.training.columns import columns_of_train
    from podium.training.fold_model import FoldModel, prepare

    run, competition = run_of(filmed, "film"), load("tiny", filmed)
    held_out, model = run.out_of_fold(0), FoldModel.load(run, 0, "cpu")
    images = competition.train.set_index("id")["image"].loc[held_out.id]
    pixels = torch.from_numpy(np.stack([prepare(read_image(competition.folder / one), model.spec) for one in images]))
    columns = columns_of_train(competition, held_out.id)
    batches = [(part, part) for part in pixels.split(8)]
    assert np.allclose(model.predict(batches, None, columns), held_out.probs, atol=1e-5)
    assert not np.allclose(model.predict(batches), held_out.probs, atol=1e-3)


def test_a_stopped_run_goes_on_to_the_same_bits(filmed: Path, podium: Podium) -> None:
    whole = run_of(filmed, "film")
    stop_in_step(podium, 2, *FILM[:-1], "again")
    done(podium(*FILM[:-1], "again"))
    assert_same_fold(whole, run_of(filmed, "again"))


def test_other_columns_do_not_go_on(cameras: Path, podium: Podium) -> None:
    stop_in_step(podium, 2, *FILM)
    table = cameras / "data/raw/tiny/train.csv"
    rows = pd.read_csv(table, dtype=str)
    rows.assign(camera=rows["camera"].shift(-1).fillna("7")).to_csv(table, index=False)
    assert "the columns of the tables changed" in one_line(podium(*FILM))


def test_another_run_goes_on_from_it(filmed: Path, podium: Podium) -> None:
    done(
        podium(
            "train",
            "-c",
            "tiny",
            "--from",
            "film",
            "--name",
            "more",
            "--device",
            "cpu",
            "--epochs",
            "1",
            "--workers",
            "0",
        )
    )
    assert run_of(filmed, "more").recipe["columns"] == "film"
    done(
        podium(
            "train", "-c", "tiny", "--from", "film", "--name", "head", "--device", "cpu", "--linear", "--workers", "0"
        )
    )
    assert load_model(run_of(filmed, "head").weights_path(0))[1].columns == "none"


def test_columns_and_what_is_learned_beside_go_together(cameras: Path, podium: Podium) -> None:
    write_card(cameras, 'features = ["camera"]\nalso = ["camera"]\n')
    done(podium(*FILM[:-1], "film", "--mix", "0.2"))
    done(podium(*TRAIN, "--columns", "concat", "--name", "concat"))
    done(podium("submit", "-c", "tiny", "--runs", "film", "concat", "--anyway"))


def test_new_images_are_predicted_without_them(filmed: Path, podium: Podium) -> None:
    out, _ = done(podium("submit", "-c", "tiny", "--runs", "film", "--anyway"))
    images = filmed / "data/raw/tiny/test_image"
    _, err = done(podium("predict", "-c", "tiny", out.strip(), images))
    assert_says(err, "without the columns")


def test_runs_and_submissions_say_so(filmed: Path, podium: Podium) -> None:
    recipe = json.loads((run_of(filmed, "film").path / "recipe.json").read_text())
    assert recipe["columns"] == "film"
    assert len(recipe["columns_sha256"]) == 64
    assert "columns film" in podium("compare", "-c", "tiny")[1]


@pytest.mark.parametrize(
    ("card", "flags", "problem"),
    [
        ("", ("--columns", "film"), "the card names none; add, for example, features ="),
        ('features = ["camera"]', ("--columns", "film", "--head", "arcface"), "leave out one of them"),
        ('features = ["camera"]', ("--columns", "film", "--linear"), "--linear cannot be combined with --columns"),
        ('features = ["camera"]', ("--columns", "both"), "must be one of none, concat, film"),
    ],
)
def test_what_cannot_be_is_refused(
    cameras: Path, podium: Podium, card: str, flags: tuple[str, ...], problem: str
) -> None:
    write_card(cameras, card)
    assert problem in one_line(podium(*TRAIN, *flags))


def test_a_model_with_several_classifiers_is_refused(cameras: Path, podium: Podium) -> None:
    line = one_line(podium(*FILM[:-4], "--model", "deit_tiny_distilled_patch16_224", "--columns", "film"))
    assert "cannot use --columns: its classifier is not one linear layer; leave it out" in line


def test_without_the_card_a_submission_says_what_is_missing(filmed: Path, podium: Podium) -> None:
    write_card(filmed, "features = []")
    assert "the card names none" in one_line(podium("submit", "-c", "tiny", "--runs", "film", "--anyway"))
    shutil.rmtree(run_of(filmed, "film").path)
