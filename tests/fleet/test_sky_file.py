"""podium train --on sky: a file for SkyPilot. Nothing is started."""

from pathlib import Path

import pytest

from podium import __version__
from tiny import FAST, Podium, one_line


@pytest.fixture
def text(tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tiny)
    words = (
        "train",
        *FAST,
        "--model",
        "test_vit",
        "--name",
        "a b".replace(" ", "-"),
        "--seeds",
        "0",
        "1",
        "--on",
        "sky",
    )
    status, _, err = podium(*words)
    assert status == 0, err
    assert "next: sky jobs launch sky.yaml" in err
    assert not (tiny / "runs").exists()
    return (tiny / "sky.yaml").read_text()


def test_the_file_runs_the_same_command_on_a_spot_machine(text: str) -> None:
    (line,) = [line.strip() for line in text.splitlines() if line.strip().startswith("podium --root")]
    assert line.startswith("podium --root ~/project train -c tiny --weights none")
    assert line.endswith("--model test_vit --name a-b --seeds 0 1")
    assert "use_spot: true" in text
    assert f"podium=={__version__}" in text


def test_a_machine_that_saved_and_stopped_is_replaced(text: str) -> None:
    assert "recover_on_exit_codes: [75]" in text


def test_the_file_is_yaml_with_one_bucket_and_folders_for_the_images_and_runs(text: str) -> None:
    yaml = pytest.importorskip("yaml")
    content = yaml.safe_load(text)
    assert list(content["file_mounts"]) == ["/bucket"]
    assert content["resources"]["job_recovery"] == {"recover_on_exit_codes": [75]}
    assert "ln -sfn /bucket/runs ~/project/runs" in content["run"]
    assert "data/prepared/tiny/folds.*" in content["run"]


def test_what_a_run_would_refuse_is_refused_before_the_file_is_written(tiny: Path, podium: Podium) -> None:
    assert "no model 'test_vot'" in one_line(podium("train", *FAST, "--model", "test_vot", "--on", "sky"))
