"""The memory that a training step needs, by tensors without contents: as with contents, and less where it is saved."""

import re

import pytest
import torch
import torch.nn.functional as F

from podium.models.build import build_model
from podium.models.device import CPU, autocast
from podium.training.memory_forecast import LiveBytes, forecast_memory, live_bytes_of_step
from second_round import first_of
from tiny import FAST, Podium, done, recipe_of

MODELS = ["test_vit", "test_convnext", "test_resnet", "test_efficientnet"]
CLASSES = ("a", "b", "c")


@pytest.mark.parametrize("name", first_of(["test_vit", "test_efficientnet"], MODELS))
def test_a_step_with_contents_needs_as_much(name: str) -> None:
    recipe = recipe_of(name, image_size=64, batch_size=8, precision="float32")
    model, _ = build_model(recipe, CLASSES)
    model.train()
    real = LiveBytes()
    with real:
        outputs = model(torch.empty(8, 3, 64, 64, device=CPU).fill_(0.5))
        F.cross_entropy(outputs.float(), torch.zeros(8, dtype=torch.int64, device=CPU)).backward()
    assert live_bytes_of_step(build_model(recipe, CLASSES)[0].train(), recipe) == pytest.approx(real.peak, rel=0.1)
    assert real.peak > sum(parameter.nbytes for parameter in model.parameters())  # the gradients alone


def test_what_is_freed_counts_no_more() -> None:
    with LiveBytes() as live, autocast(CPU, torch.float32):
        for _ in range(5):
            torch.zeros(1_000, dtype=torch.uint8, device=CPU)
    assert (live.now, live.peak) == (0, 1_000)


def test_less_memory_where_it_is_saved() -> None:
    def needed(checkpointing: bool = False, **options: object) -> int:
        given: dict[str, object] = {"batch_size": 16, **options}
        recipe = recipe_of("test_vit2", "none", 160, **given)
        memory = forecast_memory(recipe, CLASSES, checkpointing)
        return memory.held + memory.step

    usual = needed()
    assert needed(checkpointing=True) < usual / 2
    assert needed(accumulate=4) < usual / 2
    assert needed(freeze=0.8) < usual
    assert needed(lora=8) < usual
    assert needed(precision="float32") > usual
    assert needed(sam=0.05) > usual


@pytest.mark.parametrize(
    ("model", "size", "images"),
    [
        ("convnext_pico", "1024", 16),
        pytest.param("convnext_small", "1024", 16, marks=pytest.mark.all),
        pytest.param("convnext_small", "2048x1024", 8, marks=pytest.mark.all),
    ],
)
def test_large_images_train_on_16_gb(model: str, size: str, images: int) -> None:
    recipe = recipe_of(model, image_size=size, batch_size=images)
    memory = forecast_memory(recipe, CLASSES, checkpointing=True)
    assert 2e9 < memory.held + memory.step < 16e9


def test_a_dry_run_shows_it(tiny: object, podium: Podium) -> None:
    out, _ = done(podium("train", *FAST, "--model", "test_vit", "--dry-run"))
    assert re.search(r"a GPU needs about 0\.\d+ GB: 0\.\d+ GB for weights and optimizer, 0\.\d+ GB for", out)
    assert "a GPU needs" not in podium("train", *FAST, "--model", "test_vit", "--linear", "--dry-run")[1]
