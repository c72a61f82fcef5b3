"""For tests of kernels: a competition whose folds are split, a trained run, and a stand-in of Kaggle."""

import lzma
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from podium.basics.beside import modules_beside
from stand_ins.kaggle_kernels import KNOBS, InstantKernels
from stand_ins.kaggle_service import TOKEN, Service, kaggle, no_account
from tiny import podium_at, write_competition

__all__ = ["no_account"]

# Writes the words it was called with; fails if PIP_FAILS is set.
PIP = """
import json, os, pathlib, sys
if "PIP_FAILS" in os.environ:
    sys.exit("ERROR: No matching distribution found for timm")
folder = pathlib.Path(sys.argv[sys.argv.index("-d") + 1])
folder.mkdir(parents=True)
(folder / "words.json").write_text(json.dumps(sys.argv[1:]))
"""

PACK = "podium_annex.kaggle_machines.pack_kernel"


@pytest.fixture(scope="session")
def split_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with a competition and folds; their seed is not the default of podium."""
    root = tmp_path_factory.mktemp("split")
    write_competition(root)
    podium_at(root, "folds", "-c", "tiny", "--k", "2", "--seed", "5")
    return root


@pytest.fixture(scope="session")
def trained_run(split_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose two folds are trained on these folds, as kaggle-train with KNOBS would train it."""
    root = tmp_path_factory.mktemp("trained")
    shutil.copytree(split_root, root, dirs_exist_ok=True)
    podium_at(root, "train", "-c", "tiny", *KNOBS, "--device", "cpu")
    return root / "runs" / "tiny" / "test_vit"


@pytest.fixture
def service(split_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """The Kaggle that Podium asks; it knows the user, who has the competition and its folds."""
    shutil.copytree(split_root, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("KAGGLE_API_TOKEN", TOKEN)
    if modules_beside("commands"):  # kernels are of the annex, downloads and uploads are not
        monkeypatch.setattr("podium_annex.kaggle_machines.push_kernel.PAUSE", 0.0)
    service = Service()
    service.kernel_statuses = ["QUEUED", "RUNNING"]
    with kaggle(service, monkeypatch):
        yield service


@pytest.fixture
def packed_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the code of a kernel be packed less densely, which takes an eighth of the time."""
    compress = partial(lzma.compress, preset=1)
    monkeypatch.setattr(
        "podium_annex.kaggle_machines.pack_kernel.lzma.compress", lambda content, preset: compress(content)
    )


@pytest.fixture
def instant_service(service: Service, trained_run: Path, packed_fast: None) -> Service:
    """A Kaggle whose kernels take no time."""
    service.run_kernel = InstantKernels(trained_run)
    return service


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pip that needs no network; it leaves words.json in the folder for packages."""
    package = tmp_path / "site" / "pip"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(PIP)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
