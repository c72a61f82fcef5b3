"""A bundle at Kaggle: a private data set, and a notebook that makes its CSV there."""

import json
import re
import shutil
from pathlib import Path

import pytest

from second_round import first_of
from stand_ins.kaggle_kernels import KernelMachine
from stand_ins.kaggle_service import TOKEN, Service
from tiny import Podium, done, one_line

pytestmark = pytest.mark.annex

UPLOAD = ("kaggle-bundle", "-c", "tiny", "--upload")


@pytest.fixture(params=first_of(["instant"], ["instant", "real"]))
def service(
    request: pytest.FixtureRequest,
    service: Service,
    pip: None,
    trained_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Service:
    """A Kaggle that runs notebooks, or has what they make at once; the user has a trained run."""
    monkeypatch.setattr("podium_annex.kaggle_machines.publish_bundle.PAUSE", 0.0)
    # The notebook is tried in test_bundle.py; here the stand-in of Kaggle's machines runs it.
    monkeypatch.setattr("podium_annex.kaggle_machines.bundle.try_offline", lambda *_: "nothing")
    csv = tmp_path / "submissions" / "tiny" / "test_vit.csv"
    service.run_kernel = lambda kernel: {"submission.csv": csv.read_bytes()}
    if request.param == "real":
        service.run_kernel = KernelMachine(tmp_path / "kaggle", tmp_path / "data" / "raw" / "tiny", service)
    shutil.copytree(trained_run, tmp_path / "runs" / "tiny" / "test_vit")
    return service


@pytest.mark.slow
def test_a_bundle_is_uploaded_and_its_notebook_makes_the_csv_at_kaggle(
    service: Service, tmp_path: Path, podium: Podium
) -> None:
    service.lost_files = {"runs.zip"}
    one_line(podium(*UPLOAD), "does not have the bundle", "runs.zip")
    assert not service.datasets
    service.lost_files = set()
    service.dataset_statuses = ["FAILED"] * 4
    assert "could not unpack somebody/podium-tiny-bundle-" in one_line(podium(*UPLOAD))
    (name,) = service.datasets
    assert re.fullmatch("podium-tiny-bundle-[0-9a-f]{6}", name)
    service.next_statuses["CreateDatasetVersion"] = [401]
    assert "refused your token" in one_line(podium(*UPLOAD))
    assert not service.kernels
    service.dataset_statuses = ["READY", "BLOBS_RECEIVED"]  # of the version before, then of the new one
    service.next_statuses["GetDatasetStatus"] = [0, 429]
    service.interrupts["GetKernelSessionStatus"] = "before"
    assert podium(*UPLOAD)[0] == 75
    _, err = done(podium(*UPLOAD))
    first, last = service.datasets[name]  # the last command uploaded nothing again
    assert (first["isPrivate"], first["licenseName"]) == (True, "other")
    assert {"runs.zip", "src.zip", "wheels.zip", "requirements.txt", "inference.ipynb"} <= set(last["files"])
    (kernel,) = service.kernels  # and started no second notebook
    assert re.fullmatch("somebody/podium-tiny-notebook-[0-9a-f]{6}", kernel["slug"])
    assert (kernel["isPrivate"], kernel["enableInternet"], kernel["kernelType"]) == (True, False, "notebook")
    assert (kernel["datasetDataSources"], kernel["competitionDataSources"]) == ([f"somebody/{name}"], ["tiny"])
    csv = service.kernel_outputs[kernel["slug"].rpartition("/")[2]]["submission.csv"]
    assert csv == (tmp_path / "submissions" / "tiny" / "test_vit.csv").read_bytes()
    assert f"https://www.kaggle.com/code/{kernel['slug']}" in err
    assert TOKEN not in json.dumps(service.kernels)
