"""The doctor: it reports what is ready and what is not, and ends with status 1 if something must be fixed first."""

import importlib.metadata
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
import timm  # noqa: F401  # before a test changes torch.compile, which timm uses when it is imported
import torch

from stand_ins.kaggle_service import TOKEN, Service, kaggle, no_account
from tiny import Podium, assert_says, done, write_competition

pytestmark = pytest.mark.annex

__all__ = ["no_account"]


@pytest.fixture(autouse=True)
def weights_are_available(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no hub here; tests/models/test_hub.py has one."""
    monkeypatch.setattr("podium_annex.doctor.check_weights_available", lambda name, weights: None)


def line_about(subject: str, out: str) -> str:
    (line,) = [line for line in out.splitlines() if line.split()[1:2] == [subject]]
    return line


def test_a_machine_that_is_ready(tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAGGLE_API_TOKEN", TOKEN)
    service = Service()
    with kaggle(service, monkeypatch):
        status, out, err = podium("doctor", "-c", "tiny", "--device", "cpu")
    assert (status, err.splitlines()[-2]) == (0, "podium: all is ready"), out
    assert line_about("packages", out).startswith("ok")
    assert f"torch {importlib.metadata.version('torch')}" in line_about("packages", out)
    line = line_about("kaggle", out)
    assert "you have entered tiny: Categorization Accuracy, 5 submissions a day, until 2030-01-31" in line
    line = line_about("data", out)
    assert "25 training and 7 test images, 4 classes; the rows of the submission: sample_submission.csv" in line
    assert line_about("folds", out).startswith("ok")
    assert line_about("vit_small_patch32_224", out).endswith("licence apache-2.0")
    assert not service.submissions
    assert TOKEN not in out + err


def test_a_machine_that_is_not_ready(tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAGGLE_API_TOKEN", TOKEN)
    disk_usage = namedtuple("disk_usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: disk_usage(10**12, 10**12, 10**9))
    service = Service()
    service.page["userHasEntered"] = False
    with kaggle(service, monkeypatch):
        status, out, err = podium("doctor", "-c", "tiny", "--model", "convnext_smal", "convnextv2_tiny")
    assert (status, err) == (1, "podium: error: 3 things to fix first, marked BAD\n")
    assert line_about("disk", out).startswith("BAD")
    line = line_about("kaggle", out)
    assert_says(line, "you have not accepted the rules of tiny yet", "https://www.kaggle.com/competitions/tiny/rules")
    assert "did you mean convnext_small" in line_about("convnext_smal", out)
    line = line_about("convnextv2_tiny", out)
    assert line.startswith("note")
    assert "cc-by-nc-4.0: check that the competition allows it" in line
    assert "not downloaded yet; get it with: " in line_about("data", out)


def test_once_the_data_is_here_only_uploads_need_an_account(tmp_path: Path, podium: Podium) -> None:
    _, out, _ = podium("doctor", "-c", "tiny")
    assert line_about("kaggle", out).startswith("BAD")
    assert "https://www.kaggle.com/settings" in line_about("kaggle", out)
    write_competition(tmp_path)
    out, _ = done(podium("doctor", "-c", "tiny"))
    assert "only --upload and kaggle-train need Kaggle" in line_about("kaggle", out)


def test_auto_is_the_model_for_this_machine(tiny: Path, podium: Podium) -> None:
    _, out, _ = podium("doctor", "-c", "tiny", "--model", "auto", "--device", "cpu")
    (line,) = [line for line in out.splitlines() if " auto " in line]
    assert line.startswith("ok")
    assert "tries heads, tf_efficientnet_lite0 fine-tuned and resnet10t from scratch" in line


def test_a_gpu_that_computes_nothing_is_found(podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device")

    monkeypatch.setattr(torch.nn, "Conv2d", fail)
    status, out, _ = podium("doctor", "-c", "sample", "--device", "cpu")
    assert status == 1
    line = line_about("device", out)
    assert_says(line, "cannot run a training step (CUDA error: no kernel image is available", "use --device cpu")
    assert line_about("kaggle", out) == "ok    kaggle                 not needed for this competition"


def test_a_missing_compiler_is_noted(podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    from podium.models.operators import kernels

    monkeypatch.setattr(kernels, "_library", lambda: (None, "there is no C compiler (cc)"))
    _, out, _ = podium("doctor", "--device", "cpu")
    assert "there is no C compiler (cc); some layers are slower" in out


def test_packages_of_wrong_versions_are_found(podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: ["timm<1", "tqdm", "no-such-package>=2"])
    _, out, _ = podium("doctor", "-c", "sample")
    line = line_about("packages", out)
    assert line.startswith("BAD")
    assert "not <1, no-such-package is missing; run: make setup" in line
