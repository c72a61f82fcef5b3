"""A run's own parts are known by the code that they need, and by nothing else of their file."""

from pathlib import Path

import pytest

from extension_file import write_extension
from podium.options.extensions.extension_files import load_extensions
from podium.options.extensions.own_parts import own_parts, own_parts_digest

SOURCE = """
from podium import extend
from timm.models import register_model
import torch

SCALE = 2

def helper(values):
    return deeper(values) * SCALE

def deeper(values):
    return values.abs()

class Unused:
    pass

@extend.loss
def own_loss(logits, targets):
    return helper(logits.softmax(1) - targets).sum(1)

@extend.augmentation
def own_change(image, rng):
    return image

@extend.view
def own_view(images):
    return [images]

class OwnNet(torch.nn.Module):
    pass

@register_model
def own_net_%d(pretrained=False, **options):
    return OwnNet()
"""
RECIPE = {"loss": "own_loss", "augment": "own_change", "views": "mirror+own_view", "model": "resnet18"}


def parts_with(root: Path, source: str, recipe: dict[str, str]) -> dict[str, str]:
    write_extension(root, source)
    load_extensions(root)
    return own_parts(recipe)


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("values.abs()", "values.square()", {"loss own_loss"}),  # what a part needs is a part of it
        ("return image\n", "return image + 1\n", {"augment own_change"}),
        ("@extend.view\n", "@extend.view(further=1)\n", {"views own_view"}),
        ("class Unused:\n    pass", "class Unused:\n    x = 1", set()),
        ("Module):\n    pass", "Module):\n    x = 1", {"model own_net_0"}),
        ("SCALE = 2", "SCALE = 3", {"loss own_loss", "augment own_change", "views own_view", "model own_net_0"}),
    ],
)
def test_a_part_changes_with_the_code_that_it_needs(tmp_path: Path, old: str, new: str, changed: set[str]) -> None:
    recipe = {**RECIPE, "model": "own_net_0"}
    before = parts_with(tmp_path, SOURCE % 0, recipe)
    assert set(before) == {"loss own_loss", "augment own_change", "views own_view", "model own_net_0"}
    after = parts_with(tmp_path, (SOURCE % 0).replace(old, new), recipe)
    assert {name for name, digest in after.items() if digest != before[name]} == changed


def test_a_run_without_own_parts_has_no_hash(tmp_path: Path) -> None:
    write_extension(tmp_path, SOURCE % 1)
    load_extensions(tmp_path)
    plain = {"loss": "cross_entropy", "augment": "none", "views": "mirror", "model": "resnet18"}
    assert own_parts_digest(plain) is None
    assert own_parts_digest(RECIPE) == own_parts_digest({**RECIPE, "model": "resnet18.a1_in1k"})
