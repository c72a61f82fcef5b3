"""The library: what `import podium` offers. docs/api.md has an example of every name, which test_docs.py runs."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import PIL.Image
import pytest
import torch

import podium
from tiny import FAST, podium_at, write_competition

OPTIONS: dict[str, Any] = {"weights": "none", "image_size": 32, "batch_size": 8, "epochs": 1}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a run of one of two folds."""
    root = tmp_path_factory.mktemp("library")
    write_competition(root)
    podium_at(root, "folds", "-c", "tiny", "--k", "2")
    podium_at(root, "train", *FAST, "--model", "test_vit", "--epochs", "1", "--folds", "0")
    return root


def test_importing_podium_imports_nothing_heavy() -> None:
    code = "import sys, podium; dir(podium); print([m for m in ('numpy', 'pandas', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_every_name_is_there_and_others_are_refused() -> None:
    assert set(podium.__all__) <= set(dir(podium))
    for name in podium.__all__:
        assert getattr(podium, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'learner'"):
        podium.learner  # noqa: B018


def test_a_room_of_another_name_never_hides_a_function(root: Path) -> None:
    import podium.submissions.submission

    assert callable(podium.submit)
    assert callable(podium.train)


def test_a_competition_shows_itself_in_a_line_and_takes_text_as_root(root: Path) -> None:
    competition = podium.load("tiny", str(root))
    assert repr(competition) == "<podium.Competition tiny: 25 training images, 7 test images, 4 classes, accuracy>"
    assert competition != podium.load("tiny", root)
    assert competition.folder.is_absolute()  # a notebook may change the current folder


def test_folds_are_read_and_made(tmp_path: Path) -> None:
    write_competition(tmp_path)
    competition = podium.load("tiny", tmp_path)
    assert competition.folds()["fold"].nunique() == 6  # five, and -1 for the class of one image
    folds = competition.folds(k=2)
    assert list(folds.columns) == ["id", "target", "fold", "group"]
    pd.testing.assert_frame_equal(folds, competition.folds())
    assert list(folds["id"]) == list(competition.train["id"])


def test_folds_that_a_run_was_trained_on_are_protected(root: Path) -> None:
    with pytest.raises(podium.PodiumError, match="test_vit"):
        podium.load("tiny", root).folds(k=3)


def test_a_run_is_trained_and_read(root: Path) -> None:
    competition = podium.load("tiny", root)
    run = podium.train(competition, "test_vit", name="mine", machine=podium.Machine(workers=0), **OPTIONS)
    assert repr(run).startswith("<podium.Run mine: 2 of 2 folds, accuracy ")
    held_out = run.held_out()
    assert list(held_out.columns) == ["id", "target", "fold", *competition.classes]
    truth = competition.train.set_index("id")["target"]
    assert (held_out.set_index("id")["target"] == truth[held_out["id"]]).all()
    assert held_out["fold"].nunique() == 2
    np.testing.assert_allclose(held_out[list(competition.classes)].sum(axis=1), 1, rtol=1e-5)
    assert {"mine", "test_vit"} <= {other.name for other in podium.runs(competition)}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: podium.load("../x", c.root), "the name of a competition"),
        (
            lambda c: podium.load(3, c.root),  # type: ignore[arg-type]
            "the name of a competition",
        ),
        (
            lambda c: podium.train(7, "test_vit"),  # type: ignore[arg-type]
            "the first argument is a competition or its name",
        ),
        (lambda c: podium.train(c, "test_vit", name="../x", **OPTIONS), "the name of a run cannot be '../x'"),
        (
            lambda c: podium.train(c, "test_vit", folds="0", **OPTIONS),  # type: ignore[arg-type]
            "folds must be numbers",
        ),
        (lambda c: podium.train(c, "test_vit", folds=7, **OPTIONS), "no fold 7"),
        (lambda c: podium.train(c, "test_vit", budget="soon", **OPTIONS), "budget must be a time such as '8h'"),
        (lambda c: podium.train(c, "test_vit", learning_rate=1e-3), "no option 'learning_rate'; it is lr here"),
        (lambda c: podium.train(c, "test_vit", bs=8), "no option 'bs'; it is batch_size here"),
        (lambda c: podium.train(c, "test_vit", device="cpu"), "it is an argument of podium.Machine"),
        (lambda c: podium.train(c, "test_vit", machine="gpu", **OPTIONS), "choose auto, cpu, cuda"),
        (lambda c: podium.Machine(workers=-1), "workers must be a number of processes"),
        (lambda c: podium.Machine(parallel="x"), "parallel must be auto, data or folds"),
        (lambda c: podium.submit(c, blend="average"), "no blending strategy 'average'"),
        (lambda c: podium.submit(c, name="a/b"), "the name of a submission cannot be 'a/b'"),
        (lambda c: podium.submit(c, []), "no runs were given"),
        (lambda c: podium.runs(c, "test_vot"), "no run 'test_vot'"),
        (lambda c: podium.runs(c, "test_vit")[0].model(7), "fold 7 of .* is not trained; its finished folds are 0"),
        (lambda c: podium.runs(c, "test_vit")[0].score(0, "f1"), "no metric 'f1'"),
        (lambda c: podium.runs(c, "test_vit")[0].predict(None), "images must be files, folders or arrays"),
        (lambda c: podium.Run(Path("runs/nothing")).held_out(), "a fold of runs/nothing is not trained"),
        (lambda c: c.folds(seed="a"), "seed must be a whole number"),
    ],
)
def test_a_wrong_call_is_answered_in_a_sentence(root: Path, call: Callable[[Any], object], message: str) -> None:
    with pytest.raises(podium.PodiumError, match=message):
        call(podium.load("tiny", root))


def test_a_notebook_shows_the_sentence_of_a_mistake_alone() -> None:
    assert podium.PodiumError("no run 'x'")._render_traceback_() == ["PodiumError: no run 'x'"]


def test_timm_gives_the_transform_that_the_model_expects(root: Path) -> None:
    from timm.data import create_transform, resolve_model_data_config

    (run,) = podium.runs(podium.load("tiny", root), "test_vit")
    model = run.model()
    transform = create_transform(**resolve_model_data_config(model), is_training=False)
    files = sorted((root / "data/raw/tiny/test_image").iterdir())
    with torch.inference_mode():
        logits = model(torch.stack([transform(PIL.Image.open(file)) for file in files]))
    theirs = [run.classes[number] for number in logits.argmax(1)]
    assert np.mean(np.array(theirs) == run.predict(files)["prediction"]) > 0.8


def test_folds_to_train_are_numbers(root: Path) -> None:
    competition = podium.load("tiny", root)
    run = podium.train(competition, "test_vit", folds=1, name="second", **OPTIONS)
    assert run.finished() == [1]


def test_a_run_gives_its_model_its_features_and_predictions(root: Path) -> None:
    (run,) = podium.runs(podium.load("tiny", root), ["test_vit"])
    assert not run.model().training
    files = sorted((root / "data/raw/tiny/test_image").iterdir())
    features = run.features([*files, root / "solution.csv"])
    assert features.shape == (8, run.model().num_features)
    assert np.isfinite(features[:7]).all()
    assert np.isnan(features[7]).all()  # it is no image
    frame = run.predict(files)
    assert list(frame.columns) == ["image", "prediction", "blue", "green", "lonely", "red"]
    assert frame["prediction"].isin(["blue", "green", "lonely", "red"]).all()


def test_what_is_compared_and_submitted_may_be_runs_or_names(root: Path) -> None:
    competition = podium.load("tiny", root)
    (run,) = podium.runs(competition, ["test_vit"])
    assert list(podium.compare(competition, [run])["run"]) == ["test_vit"]
    csv = podium.submit(competition, ["test_vit"], name="by-name", anyway=True)
    again = podium.submit(competition, [run], name="by-run", anyway=True)
    assert csv.read_bytes() == again.read_bytes()
