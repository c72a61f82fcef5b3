"""The bundle for competitions without a network: what is in it, and that its notebook makes the same CSV."""

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from extension_file import write_extension
from podium_annex.kaggle_machines.offline_trial import NO_NETWORK
from podium_annex.kaggle_machines.pack_kernel import find_code_files
from stand_ins.kaggle_kernels import KNOBS
from tiny import Podium, done, one_line, write_competition


@pytest.mark.slow
def test_a_bundles_notebook_makes_the_same_csv_without_a_network(pip: None, tmp_path: Path, podium: Podium) -> None:
    write_competition(tmp_path, per_class=12)
    write_extension(tmp_path, name="own/mine.py")
    done(podium("folds", "-c", "tiny", "--k", "2"))
    for name in ("one", "two"):
        done(podium("train", "-c", "tiny", *KNOBS, "--views", "rolls", "--device", "cpu", "--name", name))
    out, err = done(podium("kaggle-bundle", "-c", "tiny", "--blend", "convex"))
    assert "without a network its notebook makes the same CSV as here" in err
    folder = Path(out.strip())
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {"inference.ipynb", "dataset-metadata.json", "requirements.txt"} <= names
    assert {"src/podium_annex/kaggle_machines/inside_kernel.py", "project/podium.toml", "project/own/mine.py"} <= names
    assert {f"runs/tiny/{run}/fold{fold}/model.safetensors" for run in ("one", "two") for fold in (0, 1)} <= names
    assert not [name for name in names if name.endswith(("test.npz", ".pyc"))]
    notebook = json.loads((folder / "inference.ipynb").read_text())
    assert "'convex'" in notebook["cells"][1]["source"]

    words = json.loads((folder / "wheels" / "words.json").read_text())
    assert words[0] == "download"
    assert words[words.index("--python-version") + 1] == "3.12"
    assert any(word.startswith("timm") for word in words)
    assert not [word for word in words if word.startswith(("torch", "kaggle"))]


def test_a_notebook_that_fails_without_a_network_is_refused(
    pip: None, split_root: Path, trained_run: Path, tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(split_root, tmp_path, dirs_exist_ok=True)
    shutil.copytree(trained_run, tmp_path / "runs" / "tiny" / "test_vit")
    monkeypatch.setattr("podium_annex.kaggle_machines.offline_trial.NO_NETWORK", "raise SystemExit('broken')")
    assert "notebook fails without a network" in one_line(podium("kaggle-bundle", "-c", "tiny"))
    monkeypatch.setenv("PIP_FAILS", "1")
    one_line(
        podium("kaggle-bundle", "-c", "tiny"), "No matching distribution found for timm", "where there is a network"
    )


@pytest.mark.parametrize(
    "call",
    [
        "urllib.request.urlopen('http://127.0.0.1:{port}', timeout=10)",
        "socket.create_connection(('127.0.0.1', {port}), 10)",
        "socket.socket().connect(('127.0.0.1', {port}))",
        "socket.getaddrinfo('localhost', {port})",
    ],
)
def test_the_trial_of_a_notebook_has_no_network(call: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        source = f"{NO_NETWORK}\nimport urllib.request\n{call.format(port=server.getsockname()[1])}"
        result = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert result.returncode == 1
    assert "the network is cut off" in result.stderr.splitlines()[-1]


def test_the_cards_of_known_competitions_travel_with_the_code() -> None:
    names = [name for _, name in find_code_files()]
    assert {"src/podium/competition/known_competitions.toml", "src/podium/models/operators/kernels.c"} <= set(names)
