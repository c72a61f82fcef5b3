"""podium submit --from: the CSV comes back byte for byte, or the message names what has changed."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from podium.saved_runs.prediction_files import Predictions
from tiny import Podium, assert_says, done, one_line


@pytest.fixture
def refusal(csv: Path, podium: Podium) -> Callable[[], str]:
    """Rebuilds that submission and returns the message that refuses it; asserts that no CSV is written."""

    def rebuild() -> str:
        existed = csv.exists()
        message = one_line(podium("submit", "--from", csv.with_suffix(".json")))
        assert csv.exists() == existed
        return message

    return rebuild


def test_a_blend_is_rebuilt_byte_for_byte(two_runs: Path, podium: Podium) -> None:
    _, out, _ = podium("submit", "-c", "tiny", "--blend", "greedy-calibrated")
    csv = Path(out.strip())
    written = csv.read_bytes()
    csv.unlink()
    for path in two_runs.glob("runs/tiny/*/fold*/test.npz"):
        path.unlink()
    out, _ = done(podium("submit", "--from", csv.with_suffix(".json")))
    assert (out.strip(), csv.read_bytes()) == (str(csv), written)
    done(podium("submit", "--from", csv.with_suffix(".json")))  # the same CSV is there already


def test_another_csv_is_not_overwritten(csv: Path, refusal: Callable[[], str]) -> None:
    edited = csv.read_text().replace("red", "blue")
    csv.write_text(edited)
    assert_says(refusal(), f"{csv} is not the CSV that good.json describes", "move it away")
    assert csv.read_text() == edited


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda content: content.update(sha256="0" * 64), "give another CSV than good.json describes"),
        (lambda content: content.update(test_sha256="0" * 64), "the test data in"),
        (lambda content: content["runs"][0]["recipe"].update(views="none"), "views was none and is mirror"),
    ],
)
def test_an_edited_lineage_gives_no_csv(
    csv: Path, refusal: Callable[[], str], change: Callable[[dict[str, Any]], None], problem: str
) -> None:
    path = csv.with_suffix(".json")
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    csv.unlink()
    message = refusal()
    assert problem in message
    assert "restore" in message


def test_a_lineage_already_names_the_runs(csv: Path, podium: Podium) -> None:
    for flag in ("--runs", "--except"):
        one_line(podium("submit", "--from", csv.with_suffix(".json"), flag, "good"), f"leave out {flag}")


def test_changed_weights_or_a_missing_run_are_named(two_runs: Path, refusal: Callable[[], str]) -> None:
    run = two_runs / "runs" / "tiny" / "good"
    weights = run / "fold1" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    message = refusal()
    assert str(weights) in message
    assert "restore it" in message
    run.rename(two_runs / "good")
    assert_says(refusal(), f"needs the run {run}", "copy it there")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("id,predict", "id,answer", "header was 'id,predict' and would be 'id,answer'"),
        ("\n", "\r\n", "newline was '\\n' and would be '\\r\\n'"),
    ],
)
def test_a_changed_sample_is_named(
    two_runs: Path, refusal: Callable[[], str], old: str, new: str, problem: str
) -> None:
    sample = two_runs / "data" / "raw" / "tiny" / "sample_submission.csv"
    sample.write_bytes(sample.read_text().replace(old, new).encode())
    message = refusal()
    assert problem in message
    assert "restore" in message


def test_changed_predictions_are_named_and_those_of_other_images_are_replaced(
    two_runs: Path, csv: Path, podium: Podium, refusal: Callable[[], str]
) -> None:
    csv.unlink()
    cache = two_runs / "runs" / "tiny" / "good" / "fold1" / "test.npz"
    predictions = Predictions.load(cache, "")
    replace(predictions, probs=np.eye(4, dtype=np.float32)[np.roll(predictions.probs.argmax(1), 1)]).save(cache)
    assert f"{cache} holds other predictions, delete it" in refusal()
    replace(predictions, probs=predictions.probs[:3]).save(cache)  # of fewer images
    done(podium("submit", "--from", csv.with_suffix(".json")))
    assert csv.exists()


def test_changed_pixels_of_the_test_images_are_named(two_runs: Path, csv: Path, refusal: Callable[[], str]) -> None:
    csv.unlink()
    image, donor = (two_runs / "data" / "raw" / "tiny" / "test_image" / f"{name}.jpg" for name in ("003", "004"))
    size = image.stat().st_size  # the hash of the test data covers names and sizes, not pixels
    image.write_bytes(donor.read_bytes().ljust(size, b" ")[:size])
    assert "the pixels of the test images have changed" in refusal()
