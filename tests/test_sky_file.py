"""podium train --on sky: a file for SkyPilot. Nothing is started."""

import shutil
from pathlib import Path

import pytest

from described import write_model
from pictures import write_card
from podium import __version__
from podium_annex import sky_file
from tiny import FAST, Podium, done, one_line


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
    assert 'pip install "$HOME/podium"' in text


def test_a_machine_that_saved_and_stopped_is_replaced(text: str) -> None:
    assert "recover_on_exit_codes: [75]" in text


def test_the_file_is_yaml_with_one_bucket_and_folders_for_the_images_and_runs(text: str) -> None:
    yaml = pytest.importorskip("yaml")
    content = yaml.safe_load(text)
    assert content["file_mounts"].pop("/bucket")["mode"] == "MOUNT_CACHED"
    assert all(Path(here).exists() for here in content["file_mounts"].values())
    assert {"~/project/data/prepared/tiny/folds.csv", "~/podium/src", "~/podium/pyproject.toml"} <= {
        *content["file_mounts"]
    }
    assert content["resources"]["job_recovery"] == {"recover_on_exit_codes": [75]}
    assert "ln -sfn /bucket/runs ~/project/runs" in content["run"]
    assert "ln -sfn /bucket/data/raw/tiny ~/project/data/raw/tiny" in content["run"]


def test_what_decides_the_training_is_uploaded(tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    yaml = pytest.importorskip("yaml")
    monkeypatch.chdir(tiny)
    write_card(tiny, '[recipe]\nlr = 0.01\n\n[[extra]]\nfolder = "elsewhere/my art"\n')
    (tiny / "elsewhere/my art/red").mkdir(parents=True)
    shutil.copy(next((tiny / "data/raw/tiny").rglob("*003*")), tiny / "elsewhere/my art/red")
    (tiny / "train").write_text("a file that is called like a word of the command")
    corrections = tiny / "data" / "competitions" / "tiny.corrections.csv"
    corrections.write_text("id,label,why\n003,drop,blurred\n")
    own = tiny / "my: corrections #1.csv"
    shutil.copy(corrections, own)
    words = ("train", *FAST, "--model", "test_vit", "--corrections", own.name, "--on", "sky")
    status, _, err = podium(*words)
    assert status == 0, err
    content = yaml.safe_load((tiny / "sky.yaml").read_text())
    mounts = content["file_mounts"]
    assert mounts["~/project/data/competitions/tiny.toml"] == str(
        (tiny / "data" / "competitions" / "tiny.toml").resolve()
    )
    assert mounts["~/project/data/competitions/tiny.corrections.csv"] == str(corrections.resolve())
    (place,) = [there for there, here in mounts.items() if here == str(own.resolve())]
    assert f"--corrections '{place.removeprefix('~/project/')}'" in content["run"]
    assert "ln -sfn /bucket/'elsewhere/my art' ~/project/'elsewhere/my art'" in content["run"]
    assert "podium --root ~/project train " in content["run"]
    assert "--job is for cells" in one_line(podium(*words, "--job", "timeout_min=3"))


def test_a_folder_of_weights_is_uploaded(tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    yaml = pytest.importorskip("yaml")
    monkeypatch.chdir(tiny)
    write_model(tiny / "moss")
    done(podium("train", *FAST, "--model", "test_vit", "local-dir:moss", "--on", "sky"))
    content = yaml.safe_load((tiny / "sky.yaml").read_text())
    (place,) = [there for there, here in content["file_mounts"].items() if here == str(tiny / "moss")]
    assert f"--model test_vit local-dir:{place.removeprefix('~/project/')}" in content["run"]


def test_without_a_checkout_the_package_is_installed_by_its_version(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny)
    monkeypatch.setattr(sky_file, "_checkout", lambda: None)
    assert podium("search", *FAST, "--model", "test_vit", "--on", "sky")[0] == 0
    assert f"setup: pip install 'podium[search]=={__version__}'" in (tiny / "sky.yaml").read_text()


def test_what_a_run_would_refuse_is_refused_before_the_file_is_written(tiny: Path, podium: Podium) -> None:
    assert "no model 'test_vot'" in one_line(podium("train", *FAST, "--model", "test_vot", "--on", "sky"))
