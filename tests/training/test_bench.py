"""`podium bench`: its figures are there, and they are of what training does."""

import json
from collections.abc import Generator
from itertools import islice
from pathlib import Path

import pytest
from torch import nn

from podium.models.device import Batch
from podium.models.operators import layers
from podium.training.learner import Learner
from podium.training.loop import training_batches
from podium_annex.measuring import bench
from second_round import first_of
from tiny import Podium, done, one_line
from training.learners import context_of


@pytest.mark.slow
@pytest.mark.parametrize("workers", first_of(["1"], ["0", "1"]))
def test_it_measures_every_model_and_leaves_only_its_figures(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    (tiny / "data" / "raw" / "tiny" / "train_image" / "003.jpg").write_bytes(b"")  # training would refuse it
    monkeypatch.setattr(bench, "WINDOWS", (2, 2))
    monkeypatch.setattr(bench, "SECONDS", 0.01)
    file, models = tiny / "figures.json", ["test_convnext", "test_resnet"]
    words = ("--image-size", "32", "--batch-size", "4", "--json", file, "--workers", workers)
    out, _ = done(podium("bench", "-c", "tiny", "--model", *models, *words))
    measurements = json.loads(file.read_text())
    assert [measured["model"] for measured in measurements] == models
    for measured in measurements:
        assert (measured["image_size"], measured["batch_size"], measured["workers"]) == (32, 4, int(workers))
        for bare, whole, share in (
            ("bare_step", "training", "training_share"),
            ("bare_forward", "prediction", "prediction_share"),
        ):
            assert 0 < measured[bare]["lowest"] <= measured[bare]["median"] <= measured[bare]["highest"]
            ratio = measured[whole]["median"] / measured[bare]["median"]
            assert measured[share] == pytest.approx(ratio, rel=0.02, abs=0.001)  # the share has three places
        assert measured["model"] in out
        assert set(measured["operator_gains"]) == set(measured["operators"])
        for kind, count in measured["operators"].items():
            assert f"{kind} in {count} ({measured['operator_gains'][kind]:.2f}x)" in out
        assert measured["first_step_seconds"] >= 0
        assert measured["peak_memory_mb"] > 50
    assert measurements[0]["operators"]  # in float32, on older CPUs, the other model has none
    assert not (tiny / "runs").exists()


def faster_layers(model: nn.Module) -> int:
    return sum(type(layer).__module__ == layers.__name__ for layer in model.modules())


def test_too_few_images_are_refused(tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    def two_batches(learner: Learner) -> Generator[Batch]:
        yield from islice(training_batches(learner), 2)

    monkeypatch.setattr(bench, "SECONDS", 0.01)
    monkeypatch.setattr(bench, "training_batches", two_batches)
    words = ("--model", "test_vit", "--image-size", "48x32", "--batch-size", "4", "--workers", "0")
    one_line(podium("bench", "-c", "tiny", *words), "25 training images are too few to measure with; use -c sample")


def test_the_plain_loop_has_timms_own_model_and_training_the_faster_one(tiny: Path) -> None:
    with context_of(tiny, model="test_resnet", precision="bfloat16") as context:
        learner = Learner(context, fold=0)
        assert faster_layers(learner.model)
        assert faster_layers(learner.trained_model)
        assert not faster_layers(bench.PlainLoop(context).model)


def test_operators_can_be_those_of_timm(tiny: Path) -> None:
    with context_of(tiny, model="test_resnet", precision="bfloat16", operators="timm") as context:
        assert not faster_layers(Learner(context, fold=0).model)


def test_a_misspelt_model_is_refused_before_anything_is_measured(tiny: Path, podium: Podium) -> None:
    one_line(
        podium("bench", "-c", "tiny", "--model", "test_vit", "test_vti"),
        "no model 'test_vti' among the",
        "did you mean test_vit",
    )
