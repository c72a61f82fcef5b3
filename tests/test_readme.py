"""Every command of the README runs, as it is written."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tiny import write_competition

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]
# What takes the place of hours and of a network: small images, one epoch, weights from scratch.
QUICK = "--weights none --image-size 32 --epochs 1 --batch-size 8"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a newcomer has after cloning and downloading, with this environment in the place of .venv."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("Makefile", "requirements.txt"):
        shutil.copy2(ROOT / name, folder / name)
    shutil.copytree(ROOT / "data" / "competitions", folder / "data" / "competitions")
    for name in ("src", "tests"):
        (folder / name).mkdir()
    bin_folder = folder / ".venv" / "bin"
    bin_folder.parent.mkdir()
    bin_folder.symlink_to(Path(sys.executable).parent)
    (folder / ".venv" / ".ready").touch()
    for slug in ("boolart-image-classification", "paddy-disease-classification"):
        unpacked = write_competition(folder / "elsewhere", slug, each=6, test=3)
        archive = folder / "data" / "raw" / f"{slug}.zip"
        archive.parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(archive, "w") as file:
            for path in sorted(unpacked.rglob("*")):
                file.write(path, path.relative_to(unpacked))
    return folder


def make(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        ["make", *words], cwd=folder, env={**clean, **environment}, capture_output=True, text=True, timeout=250
    )


@pytest.mark.timeout(900)
def test_the_two_commands_go_from_an_archive_to_a_submission(clone: Path) -> None:
    first, second = COMMANDS[:2]
    done = make(clone, *first.split()[1:], f"ARGS={QUICK}")
    assert done.returncode == 0, done.stderr
    assert "over 5 of 5 folds" in done.stdout
    assert "next: make submit" in done.stderr
    done = make(clone, *second.split()[1:])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "submissions/boolart-image-classification/convnext_small.csv"
    assert (clone / done.stdout.splitlines()[-1]).exists()


@pytest.mark.timeout(1200)
def test_every_other_command_runs_too(clone: Path) -> None:
    tried = []
    for line in dict.fromkeys(COMMANDS[2:]):
        if line in ("make demo", COMMANDS[0]):  # the demo is run where it belongs, whole, after the tests
            continue
        if line.startswith("podium "):
            done = subprocess.run([sys.executable, "-m", *line.split()], cwd=clone, capture_output=True, text=True)
            assert done.returncode == 0, f"{line}\n{done.stderr}"
            continue
        line = line.partition(" UPLOAD=1")[0]  # there is no Kaggle here
        words = re.sub(r'"', "", line).split(" ARGS=")[0].replace("GPUS=4", "GPUS=2").split()[1:]
        given = re.findall(r'ARGS="(.*)"', line)
        target = words[0]
        if target == "train":
            # A last flag wins: what the README gives is parsed, and what is quick is run.
            words = [word for word in words if not word.startswith("EPOCHS")]
            fold = [] if any(word.startswith("FOLDS") for word in words) else ["FOLDS=0"]
            words += [*fold, f"ARGS={' '.join(given)} {QUICK}"]
        done = make(clone, *words)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        tried.append(target)
    assert {"data", "folds", "train", "submit"} <= set(tried)
    assert make(clone, "clean").returncode == 0
    assert (clone / "data" / "prepared" / "boolart-image-classification" / "folds.csv").exists()


def test_help_lists_every_target_and_the_readme_has_them_all(clone: Path) -> None:
    done = make(clone)
    assert done.returncode == 0
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(targets) > 10
    for target in targets:
        assert re.search(rf"^  {target} +\S", done.stdout, re.MULTILINE), target
        if target != "help":
            assert f"make {target}" in README
    assert set(re.findall(r"`make ([a-z-]+)", README)) <= set(targets)


def test_every_podium_command_of_the_table_is_one_and_every_flag_too() -> None:
    from podium.cli.commands import COMMANDS as known

    rows = re.findall(r"`podium ([a-z-]+)([^`]*)`", README)
    assert {name for name, _ in rows} == set(known)
    for name, rest in rows:
        done = subprocess.run([sys.executable, "-m", "podium", name, "--help"], capture_output=True, text=True)
        assert all(flag in done.stdout for flag in re.findall(r"--?[a-z][a-z-]*", rest)), name


def test_make_without_a_model_says_what_is_missing(clone: Path) -> None:
    done = make(clone, "train")
    assert done.returncode != 0
    assert "podium: error: which model?" in done.stderr


def test_the_python_of_the_readme_runs(clone: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    sample = subprocess.run([sys.executable, "-m", "podium", "sample"], cwd=clone, capture_output=True, text=True)
    assert sample.returncode == 0
    folds = subprocess.run(
        [sys.executable, "-m", "podium", "folds", "-c", "sample"], cwd=clone, capture_output=True, text=True
    )
    assert folds.returncode == 0
    done = subprocess.run([sys.executable, "-c", code], cwd=clone, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert "(287, 10)" in done.stdout


def test_the_card_of_the_readme_is_read(clone: Path) -> None:
    from podium.competition.card import read_card

    (card,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    path = clone / "cards" / "data" / "competitions" / "it.toml"
    path.parent.mkdir(parents=True)
    path.write_text(card)
    assert read_card("it", clone / "cards")["recipe"] == {"mirror": 0.0, "fit": "squash"}
