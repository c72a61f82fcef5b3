"""The doctor: what it finds is so, and what is bad ends with status 1."""

import importlib.metadata
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from stand_ins.kaggle_service import TOKEN, Service, kaggle, no_account
from tiny import Podium, write_competition

__all__ = ["no_account"]


@pytest.fixture(autouse=True)
def weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no hub here; test_models.py has one."""
    monkeypatch.setattr("podium.cli.doctor.check_weights_available", lambda name, weights: None)


def of(out: str, what: str) -> str:
    (line,) = [line for line in out.splitlines() if line.split()[1:2] == [what]]
    return line


def test_a_machine_that_is_ready_is_told_so(tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAGGLE_API_TOKEN", TOKEN)
    write_competition(tmp_path)
    assert podium("folds", "-c", "tiny", "--k", "2")[0] == 0
    service = Service()
    with kaggle(service, monkeypatch):
        status, out, err = podium("doctor", "-c", "tiny", "--device", "cpu")
    assert (status, err.splitlines()[-1]) == (0, "podium: nothing stands in the way"), out
    assert of(out, "packages").startswith("ok")
    assert f"torch {importlib.metadata.version('torch')}" in of(out, "packages")
    assert "you have entered tiny: Categorization Accuracy, 5 submissions a day, until 2030-01-31" in of(out, "kaggle")
    assert "25 training and 7 test images, 4 classes; the rows are those of sample_submission.csv" in of(out, "data")
    assert of(out, "folds").startswith("ok")
    assert of(out, "vit_small_patch32_224").endswith("licence apache-2.0")
    assert not service.submissions
    assert TOKEN not in out + err


def test_what_stands_in_the_way_is_found(tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAGGLE_API_TOKEN", TOKEN)
    free = namedtuple("free", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free(10**12, 10**12, 10**9))
    service = Service()
    service.page["userHasEntered"] = False
    with kaggle(service, monkeypatch):
        status, out, err = podium("doctor", "-c", "tiny", "--model", "convnext_smal", "convnextv2_tiny")
    assert (status, err) == (1, "podium: error: 3 things to mend first, marked BAD\n")
    assert of(out, "disk").startswith("BAD")
    assert "rules of tiny are not accepted yet" in of(out, "kaggle")
    assert "did you mean convnext_small" in of(out, "convnext_smal")
    assert of(out, "convnextv2_tiny").startswith("note")
    assert "cc-by-nc-4.0: check that the competition allows it" in of(out, "convnextv2_tiny")
    assert "not here yet" in of(out, "data")


def test_without_an_account_only_uploading_is_lost_once_the_data_is_here(tmp_path: Path, podium: Podium) -> None:
    _, out, _ = podium("doctor", "-c", "tiny")
    assert of(out, "kaggle").startswith("BAD")
    assert "https://www.kaggle.com/settings" in of(out, "kaggle")
    write_competition(tmp_path)
    status, out, _ = podium("doctor", "-c", "tiny")
    assert status == 0
    assert "only --upload and kaggle-train need it" in of(out, "kaggle")


def test_a_gpu_that_is_there_and_computes_nothing_is_found(podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_kernel(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device")

    monkeypatch.setattr(torch.nn, "Conv2d", no_kernel)
    status, out, _ = podium("doctor", "-c", "sample", "--device", "cpu")
    assert status == 1
    assert "computes nothing (CUDA error: no kernel image is available" in of(out, "device")
    assert of(out, "kaggle") == "ok    kaggle                 not needed for this competition"


def test_packages_of_other_versions_are_found(podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["timm<1", "tqdm", "no-such-package>=2"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: asked)
    _, out, _ = podium("doctor", "-c", "sample")
    assert of(out, "packages").startswith("BAD")
    assert "not <1, no-such-package is missing; run: make setup" in of(out, "packages")
