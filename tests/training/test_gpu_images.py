"""Images that a GPU changes are those of the loader, up to rounding; here a CPU computes what the GPU would."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from podium.training import fit_to_machine
from podium.training.augment import TrainView
from podium.training.drawn_changes import ChangesView
from podium.training.gpu_images import PART, GpuImages, pixel_weights
from podium.training.loader import ImageDataset
from podium.training.timing.forecast import Forecast
from podium.training.trial_steps import Measured
from tiny import FAST, Podium, assert_same_fold, done, one_line, run_of, stop_in_step, weights_hash
from training.test_augment import SPEC, recipe

# Larger and smaller than the final 48 x 48, near and far from it, and so oblong that one side grows and one shrinks.
SHAPES = [(60, 80), (100, 70), (48, 48), (200, 150), (30, 40), (49, 47), (300, 40), (40, 300), (96, 96), (47, 97)]
PHOTOS = 8 * len(SHAPES)
TRAIN = (
    *("train", *FAST, "--device", "cpu", "--model", "test_vit", "--folds", "0", "--batch-size", "4", "--epochs", "3"),
    *("--colour", "0.3", "--erase", "0.5"),
)
ON_GPU = (*TRAIN, "--store", "gpu", "--name", "on-gpu")


def photographs() -> list[NDArray[np.uint8]]:
    """Returns images with smooth areas, edges and noise."""
    rng, images = np.random.default_rng(1), []
    for height, width in SHAPES * (PHOTOS // len(SHAPES)):
        few = rng.integers(0, 256, (max(2, height // 8), max(2, width // 8), 3), dtype=np.uint8)
        smooth = cv2.resize(few, (width, height), interpolation=cv2.INTER_CUBIC)
        images.append(np.clip(smooth.astype(int) + rng.integers(-12, 13, smooth.shape), 0, 255).astype(np.uint8))
    return images


def differences(spec: Any, epoch: int, **options: Any) -> NDArray[np.int64]:
    """Returns by how many levels the pixels differ, an image per row."""
    images, rows = photographs(), np.arange(PHOTOS) + 5
    own = recipe(**options)
    loaded, drawn = TrainView(own, spec), ChangesView(own, spec)
    data = ImageDataset(lambda index: images[index], np.zeros(PHOTOS, np.int64), drawn, rows)
    changes, _ = data.load([(epoch, index) for index in range(PHOTOS)])  # type: ignore[misc]
    made = GpuImages(data, spec, torch.device("cpu")).changed(changes.numpy().view(np.float64))
    expected = np.stack([loaded(image, epoch, int(row)) for image, row in zip(images, rows, strict=True)])
    assert made.dtype == torch.uint8
    assert made.shape == expected.shape
    return np.abs(made.numpy().astype(int) - expected).reshape(PHOTOS, -1)


@pytest.mark.parametrize(
    ("fit", "interpolation"),
    [
        ("crop", "bicubic"),
        pytest.param("crop", "bilinear", marks=pytest.mark.all),
        pytest.param("crop", "nearest", marks=pytest.mark.all),
        pytest.param("squash", "bicubic", marks=pytest.mark.all),
        pytest.param("squash", "bilinear", marks=pytest.mark.all),
        ("squash", "nearest"),
        pytest.param("pad", "bicubic", marks=pytest.mark.all),
        ("pad", "bilinear"),
        pytest.param("pad", "nearest", marks=pytest.mark.all),
    ],
)
def test_crops_mirrored_and_resized_are_those_of_the_loader(fit: str, interpolation: str) -> None:
    assert PHOTOS > PART
    spec = replace(SPEC, fit=fit, interpolation=interpolation)
    found = differences(spec, 0, colour=0.0, erase=0.0, crop=0.3)
    assert found.max() <= 1
    assert found.mean() < 0.2


@pytest.mark.parametrize(
    ("options", "epoch"),
    [
        ({}, 0),
        pytest.param({}, 3, marks=pytest.mark.all),
        pytest.param({"grow": 0.5, "epochs": 4}, 0, marks=pytest.mark.all),
        ({"grow": 0.5, "epochs": 4}, 3),
        ({"image_size": "80x48"}, 0),
        pytest.param({"image_size": "80x48"}, 3, marks=pytest.mark.all),
    ],
    ids=str,
)
def test_colours_and_erased_rectangles_are_those_of_the_loader(options: dict[str, Any], epoch: int) -> None:
    """A level that is rounded the other way is multiplied by the factors of the colours after it."""
    found = differences(SPEC, epoch, colour=0.3, erase=0.5, **options)
    assert found.max() <= 5
    assert (found > 1).mean() < 0.02
    assert found.mean() < 0.2


def test_the_shares_of_pixels_add_up_to_one() -> None:
    sides = torch.arange(5.0, 120.0, dtype=torch.float64)
    for kind in ("bilinear", "bicubic", "nearest", "area", "area, enlarged"):
        longest = sides[sides >= 48] if kind == "area" else sides
        weights = pixel_weights(longest, 120, 48, kind)
        assert torch.allclose(weights.sum(-1), torch.ones(()), atol=1e-5), kind
        assert not weights[0, :, int(longest[0]) :].any()  # beyond the image


# --- whole runs --------------------------------------------------------------------------------------


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The CPU counts as a GPU that has so many bytes free."""
    memory = {"free": 10**9}
    monkeypatch.setattr(fit_to_machine, "is_gpu", lambda device: True)
    monkeypatch.setattr(fit_to_machine, "free_gpu_memory", lambda device: memory["free"])
    return memory


@pytest.mark.annex
def test_a_run_learns_what_it_learns_from_loaded_images(tiny: Path, podium: Podium, gpu: dict[str, int]) -> None:
    for command in (ON_GPU, (*TRAIN, "--name", "loaded")):
        done(podium(*command))
    on_gpu, loaded = run_of(tiny, "on-gpu"), run_of(tiny, "loaded")
    assert on_gpu.recipe["changed_on_gpu"]
    assert not loaded.recipe["changed_on_gpu"]
    assert weights_hash(tiny, "on-gpu") != weights_hash(tiny, "loaded")
    for one, other in zip(on_gpu.history(0), loaded.history(0), strict=True):
        assert one.loss == pytest.approx(other.loss, abs=0.02)
    done(podium("verify", "-c", "tiny", "on-gpu", "--device", "cpu"))


@pytest.mark.all
@pytest.mark.parametrize("workers", ["0", "2"])
def test_an_interrupted_run_resumes_to_the_same_bits(
    tiny: Path, podium: Podium, gpu: dict[str, int], workers: str
) -> None:
    stop_in_step(podium, 4, *ON_GPU, "--workers", workers)
    for name in ("on-gpu", "undisturbed"):
        done(podium(*ON_GPU, "--name", name))
    assert_same_fold(run_of(tiny, "on-gpu"), run_of(tiny, "undisturbed"))


@pytest.mark.parametrize(
    ("words", "free", "problem"),
    [
        (("--ops", "2"), 10**9, "--ops, --augment, --region need loaded images; use --store on"),
        (("--region", "border"), 10**9, "--ops, --augment, --region need loaded images; use --store on"),
        (("--linear",), 10**9, "--linear, --ops, --augment, --region need loaded images; use --store on"),
        ((), 10_000, "more than half of what is free (0.0 GB); use --store on"),
    ],
)
def test_what_cannot_be_done_on_a_gpu_is_refused(
    tiny: Path, podium: Podium, gpu: dict[str, int], words: tuple[str, ...], free: int, problem: str
) -> None:
    gpu["free"] = free
    command = [word for word in ON_GPU if "--linear" not in words or word not in ("--colour", "0.3", "--erase", "0.5")]
    assert problem in one_line(podium(*command, *words))
    _, err = done(podium(*command, *words, "--store", "auto", "--epochs", "1"))
    assert "--store auto: on, because" in err


def test_without_a_gpu_pixels_stay_where_they_are(tiny: Path, podium: Podium) -> None:
    assert "--store gpu: it needs an NVIDIA GPU; use --store on" in one_line(podium(*ON_GPU))
    _, err = done(podium(*TRAIN, "--store", "auto"))
    assert "--store auto: on, because it needs an NVIDIA GPU" in err


@pytest.mark.parametrize("seconds", [0.02, 0.05])
def test_the_faster_place_is_taken_and_kept(
    tiny: Path, podium: Podium, gpu: dict[str, int], monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    times = {"on": 0.03, "gpu": seconds}
    monkeypatch.setattr(
        fit_to_machine, "measure_steps", lambda context, fold: Measured(times[context.machine.store], 1.0, 0.1)
    )
    command, is_faster = (*TRAIN, "--store", "auto"), seconds < 0.03
    _, err = stop_in_step(podium, 4, *command)
    place = "gpu" if is_faster else "on"
    assert f"--store auto: {place}, because a step takes 30.0 ms with loaded images and {1e3 * seconds:.1f} ms" in err
    times.clear()
    done(podium(*command))
    recipe_json = json.loads((run_of(tiny, "test_vit").path / "recipe.json").read_text())
    assert recipe_json.get("changed_on_gpu", False) == is_faster


def test_steps_are_measured_in_both_places(
    tiny: Path, podium: Podium, gpu: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Forecast, "is_settled", lambda forecast, step: step - forecast.start >= 2)
    _, err = done(podium(*TRAIN, "--store", "auto"))
    assert " ms with loaded images and " in err
