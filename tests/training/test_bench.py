"""`podium bench`: the figures are there, and they are of what training does."""

import json
from pathlib import Path

import pytest

from podium.training import bench
from tiny import Podium, write_competition


@pytest.mark.parametrize("workers", ["0", "1"])
def test_it_measures_every_model_and_leaves_nothing_but_its_figures(
    tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    folder = write_competition(tmp_path)
    (folder / "train_image" / "003.jpg").write_bytes(b"")  # what training refuses is left out
    monkeypatch.setattr(bench, "WINDOWS", 2)
    monkeypatch.setattr(bench, "SECONDS", 0.01)
    file = tmp_path / "figures.json"
    models = ["test_vit", "test_convnext"]
    words = ("--image-size", "32", "--batch-size", "4", "--json", file, "--workers", workers)
    status, out, err = podium("bench", "-c", "tiny", "--model", *models, *words)
    assert status == 0, err
    found = json.loads(file.read_text())
    assert [each["model"] for each in found] == models
    for each in found:
        assert (each["image_size"], each["batch_size"], each["workers"]) == (32, 4, int(workers))
        for bare, whole, share in (
            ("bare_step", "training", "training_share"),
            ("bare_forward", "prediction", "prediction_share"),
        ):
            assert 0 < each[bare]["lowest"] <= each[bare]["median"] <= each[bare]["highest"]
            assert each[share] == pytest.approx(each[whole]["median"] / each[bare]["median"], rel=0.02)
        assert each["model"] in out
        assert 0 <= each["first_step_seconds"] < 1000
        assert each["peak_memory_mb"] > 50
    assert not (tmp_path / "runs").exists()


def test_a_misspelt_model_is_named_before_anything_is_measured(tmp_path: Path, podium: Podium) -> None:
    write_competition(tmp_path)
    status, _, err = podium("bench", "-c", "tiny", "--model", "test_vit", "test_vti")
    assert status == 1
    assert "no model 'test_vti' among timm's" in err
