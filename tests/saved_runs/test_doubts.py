"""A run whose own model or view was edited after its training: said wherever it is used, and left out of blends."""

import json
from pathlib import Path

import pytest

from extension_file import write_extension
from podium.saved_runs.doubts import doubt_about
from tiny import FAST, Podium, done, run_of

pytestmark = pytest.mark.usefixtures("timm_registry")

MODEL = """
from podium import extend
from timm.models import register_model
from torch import nn

@register_model
def edited_net(pretrained=False, num_classes=1000, **options):
    layers = nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(32, num_classes))

@extend.view
def shifted(images):
    return [images.roll(2, -1)]

@extend.loss
def distance(logits, targets):
    return (logits.softmax(1) - targets).abs().sum(1)
"""
OWN = ("--model", "edited_net", "--views", "mirror+shifted", "--loss", "distance", "--name", "own", "--lr", "1e-2")
EDITED = "edited_net (mine.py) was edited after own was trained"


@pytest.fixture
def own(tiny: Path, podium: Podium) -> Path:
    """Returns the file of the parts that a run was trained with."""
    path = write_extension(tiny, MODEL)
    done(podium("train", *FAST, *OWN, "--epochs", "8"))
    return path


@pytest.mark.annex
def test_a_run_whose_model_was_edited_is_doubted_everywhere(own: Path, tiny: Path, podium: Podium) -> None:
    done(podium("train", *FAST, "--model", "test_vit", "--epochs", "3", "--lr", "3e-3"))
    assert "edited" not in podium("submit", "-c", "tiny", "--anyway", "--runs", "own")[2]
    own.write_text(MODEL.replace("nn.ReLU()", "nn.Tanh()"))
    for _ in range(2):  # the second time, the predictions are there already
        out, err = done(podium("submit", "-c", "tiny", "--anyway", "--runs", "own", "--name", "doubted"))
        assert err.count(EDITED) == 1
    assert "restore that file, or train" in err
    lineage = Path(out.strip()).with_suffix(".json")
    assert EDITED in json.loads(lineage.read_text())["runs"][0]["doubt"]
    assert EDITED in podium("lineage", lineage)[1]
    assert "own (its code was edited)" in podium("submit", "-c", "tiny", "--anyway")[2]
    out, err = done(podium("compare", "-c", "tiny"))
    assert EDITED in err
    assert "its code was edited" in out
    image = tiny / "data" / "raw" / "tiny" / "test_image" / "000.jpg"
    assert podium("explain", "-c", "tiny", "own")[2].count(EDITED) == 1  # it draws nothing of a plain module
    uses: list[tuple[object, ...]] = [
        ("predict", "-c", "tiny", "own", image),
        ("train", *FAST, "--model", "test_vit", "--name", "taught", "--teacher", "own", "--epochs", "1"),
    ]
    for words in uses:
        _, err = done(podium(*words))
        assert err.count(EDITED) == 1, words
    _, err = done(podium("report", "-c", "tiny", "--runs", "own"))
    assert err.count(EDITED) == 1
    assert EDITED in (run_of(tiny, "own").path / "report.html").read_text()


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("roll(2", "roll(3", "views shifted (mine.py)"),
        (".abs()", ".square()", ""),  # an edited loss changes no prediction
    ],
)
def test_only_the_parts_that_predict_count(
    own: Path, tiny: Path, podium: Podium, old: str, new: str, named: str
) -> None:
    own.write_text(MODEL.replace(old, new))
    image = tiny / "data" / "raw" / "tiny" / "test_image" / "000.jpg"
    _, err = done(podium("predict", "-c", "tiny", "own", image))
    assert (named in err) if named else ("edited" not in err)


def test_an_older_recipe_has_one_hash_of_all_parts(own: Path, tiny: Path) -> None:
    from podium.options.extensions.extension_files import load_extensions

    path = run_of(tiny, "own").path / "recipe.json"
    recipe = json.loads(path.read_text())
    del recipe["own_parts"]
    path.write_text(json.dumps(recipe))
    assert doubt_about(run_of(tiny, "own")) == ""
    own.write_text(MODEL.replace("nn.ReLU()", "nn.Tanh()"))
    load_extensions(tiny)
    assert EDITED in doubt_about(run_of(tiny, "own"))
