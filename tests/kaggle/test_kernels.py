"""Training on Kaggle's GPUs and inference without a network: the kernels really run, in a copy of Kaggle's folders."""

import ast
import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podium.training.run_folder import Run
from stand_ins.kaggle_service import TOKEN, Service, kaggle, nobody
from tiny import Podium, one_line, podium_at, write_competition

__all__ = ["nobody"]

KNOBS = ("--model", "test_vit", "--weights", "none", "--image-size", "32", "--batch-size", "8", "--epochs", "2")
TRAIN = ("kaggle-train", "-c", "tiny", *KNOBS)

# A kernel that trains one fold, and then says that it was stopped.
FIRST_FOLD_ONLY = (
    "podium.kaggle.inside_kernel._within = lambda command, seconds, within=podium.kaggle.inside_kernel._within:"
    " within([*command, '--folds', '0'], seconds) or 75"
)


class Machine:
    """Runs a pushed kernel where Kaggle's folders lie elsewhere; what it leaves in working/ is its output."""

    def __init__(self, folder: Path, data: Path, limits: list[str], service: Service | None = None) -> None:
        self.folder, self.data, self.limits, self.service = folder, data, limits, service
        self.outputs: dict[str, Path] = {}

    def __call__(self, kernel: dict[str, Any]) -> dict[str, bytes]:
        name = kernel["slug"].rpartition("/")[2]
        base = self.folder / name
        (base / "working").mkdir(parents=True)
        (base / "input").mkdir()
        (base / "input" / "tiny").symlink_to(self.data)
        for source in kernel.get("kernelDataSources", []):
            shutil.copytree(self.outputs[source], base / "input" / source.rpartition("/")[2])
        for source in kernel.get("datasetDataSources", []):
            self.mount(source.rpartition("/")[2], base / "input")
        there = f"podium.kaggle.inside_kernel.KAGGLE = type(podium.kaggle.inside_kernel.KAGGLE)({str(base)!r})"
        limit = self.limits.pop(0) if self.limits else ""
        text = kernel["text"]
        if kernel["kernelType"] == "notebook":
            text = "\n".join(cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")
        text = text.replace("/tmp/podium", str(base / "code")).replace("/kaggle/", f"{base}/")
        text = text.replace(
            "import podium.kaggle.inside_kernel\n", f"import podium.kaggle.inside_kernel\n{there}\n{limit}\n"
        )
        script = base / "kernel.py"
        script.write_text(text)
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=self.environment())
        assert done.returncode == 0, done.stderr
        self.outputs[kernel["slug"]] = base / "working"
        files = [path for path in (base / "working").rglob("*") if path.is_file()]
        return {str(path.relative_to(base / "working")): path.read_bytes() for path in files}

    def mount(self, dataset: str, folder: Path) -> None:
        """The newest version, its archives unpacked into folders of their names."""
        assert self.service is not None
        for name, content in self.service.datasets[dataset][-1]["files"].items():
            path = folder / dataset / name
            if path.suffix == ".zip":
                zipfile.ZipFile(io.BytesIO(content)).extractall(path.with_suffix(""))
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)

    def environment(self) -> dict[str, str]:
        """Without this checkout: the kernel brings the code along."""
        return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


@pytest.fixture
def service(tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> Service:
    monkeypatch.setenv("KAGGLE_API_TOKEN", TOKEN)
    monkeypatch.setattr("podium.kaggle.kernels.PAUSE", 0.0)
    data = write_competition(tmp_path)
    assert podium("folds", "-c", "tiny", "--k", "2", "--seed", "5")[0] == 0
    service = Service()
    service.kernel_statuses = ["QUEUED", "RUNNING"]
    service.run_kernel = Machine(tmp_path / "kaggle", data, [])
    return service


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What training leaves, for tests that are not about how it does."""
    root = tmp_path_factory.mktemp("there")
    write_competition(root)
    podium_at(root, "folds", "-c", "tiny", "--k", "2", "--seed", "5")
    podium_at(root, "train", "-c", "tiny", *KNOBS, "--device", "cpu")
    return {str(path.relative_to(root)): path.read_bytes() for path in (root / "runs").rglob("*") if path.is_file()}


@pytest.fixture
def quick(service: Service, trained: dict[str, bytes]) -> Service:
    """A Kaggle whose kernels have trained before they are asked to."""

    def run(kernel: dict[str, Any]) -> dict[str, bytes]:
        (call,) = re.findall(r"podium\.kaggle\.inside_kernel\.(train\(.*\))\)", kernel["text"])
        _, name, _, _, token = ast.literal_eval(call.removeprefix("train"))
        report = json.dumps({"exit": 0, "token": token, "folds": [0, 1]})
        files = {path.replace("/test_vit/", f"/{name}/"): content for path, content in trained.items()}
        return {**files, "podium.json": report.encode()}

    service.run_kernel = run
    return service


def test_a_run_is_trained_there_and_brought_back(
    service: Service, tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kaggle(service, monkeypatch):
        status, _, err = podium(*TRAIN)
    assert status == 0, err
    assert "is queued" in err
    assert "is running" in err
    (kernel,) = service.kernels
    assert re.fullmatch("somebody/podium-tiny-test-vit-[0-9a-f]{6}-1", kernel["slug"])
    assert (kernel["machineShape"], kernel["enableGpu"], kernel["enableInternet"]) == ("NvidiaTeslaT4", True, True)
    assert (kernel["isPrivate"], kernel["competitionDataSources"]) == (True, ["tiny"])
    assert TOKEN not in json.dumps(service.kernels)
    run = Run(tmp_path / "runs" / "tiny" / "test_vit")
    assert run.finished() == [0, 1]
    # These folds were made here, with another seed than the kernel would have taken.
    assert podium("train", "-c", "tiny", *KNOBS, "--device", "cpu")[0] == 0
    assert podium("submit", "-c", "tiny")[0] == 0
    assert sorted(path.name for path in (tmp_path / "runs" / "tiny").iterdir()) == [".test_vit.kernel.lock", "test_vit"]


def test_when_kaggles_time_runs_out_a_next_kernel_goes_on(
    service: Service, tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.run_kernel = Machine(tmp_path / "kaggle", tmp_path / "data" / "raw" / "tiny", [FIRST_FOLD_ONLY])
    with kaggle(service, monkeypatch):
        status, _, err = podium(*TRAIN)
    assert status == 0, err
    assert "Kaggle's time ran out first" in err
    first, second = (kernel["slug"] for kernel in service.kernels)
    assert (first[-2:], second[-2:]) == ("-1", "-2")
    assert service.kernels[1]["kernelDataSources"] == [first]
    assert Run(tmp_path / "runs" / "tiny" / "test_vit").finished() == [0, 1]


def test_a_kernel_that_fails_in_the_middle_loses_only_itself(
    service: Service, tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data" / "raw" / "tiny"
    service.run_kernel = machine = Machine(tmp_path / "kaggle", data, [FIRST_FOLD_ONLY])
    service.kernel_statuses = ["COMPLETE", "ERROR"]
    with kaggle(service, monkeypatch):
        assert "-2 ended with error" in one_line(podium(*TRAIN))
        assert Run(tmp_path / "runs" / "tiny" / "test_vit").finished() == [0]
        assert podium(*TRAIN)[0] == 0
    assert len(machine.outputs) == 3
    assert service.kernels[2]["kernelDataSources"] == [service.kernels[0]["slug"]]
    assert Run(tmp_path / "runs" / "tiny" / "test_vit").finished() == [0, 1]


def test_folds_that_are_finished_here_are_not_trained_there(
    service: Service, tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert podium("train", "-c", "tiny", *KNOBS, "--device", "cpu", "--folds", "1")[0] == 0
    run = Run(tmp_path / "runs" / "tiny" / "test_vit")
    here = run.check_weights(1)
    with kaggle(service, monkeypatch):
        status, _, err = podium(*TRAIN)
        assert status == 0, err
        shutil.rmtree(run.fold(0))
        assert podium(*TRAIN, "--folds", "0,1")[0] == 0
    assert all("'--folds', '0']" in kernel["text"] for kernel in service.kernels)
    assert run.finished() == [0, 1]
    assert run.check_weights(1) == here


def test_following_goes_on_after_an_interruption(
    quick: Service, tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    with kaggle(quick, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr("podium.kaggle.kernels.time.sleep", interrupted)
            assert podium(*TRAIN)[0] == 75
        quick.failing["GetKernelSessionStatus"] = [0, 500]
        status, _, err = podium(*TRAIN)
    assert status == 0, err
    assert "is at work already" in err
    assert len(quick.kernels) == 1
    assert Run(tmp_path / "runs" / "tiny" / "test_vit").finished() == [0, 1]


def test_a_kernel_that_fails_shows_its_log_and_may_follow_again(
    quick: Service, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick.kernel_end = "ERROR"
    quick.kernel_log = [{"stream_name": "stderr", "data": "podium: error: something over there\n"}]
    with kaggle(quick, monkeypatch):
        status, _, err = podium(*TRAIN)
        assert status == 1
        assert "podium: error: something over there" in err
        assert "ended with error" in err.splitlines()[-1]
        quick.kernel_end = "COMPLETE"
        assert podium(*TRAIN, "--name", "again")[0] == 0


def test_each_kernel_has_a_name_that_none_had_before(
    quick: Service, tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kaggle(quick, monkeypatch):
        assert podium(*TRAIN)[0] == 0
        assert "is trained already" in one_line(podium(*TRAIN))
        shutil.rmtree(tmp_path / "runs" / "tiny" / "test_vit")
        assert podium(*TRAIN)[0] == 0
    assert len({kernel["slug"] for kernel in quick.kernels}) == 2


@pytest.mark.parametrize(
    ("change", "said", "again"),
    [
        (lambda files: {}, "left no podium.json", 2),
        (lambda files: {**files, "podium.json": b"{}"}, "left no podium.json", 2),
        (lambda files: {**files, "podium.json": b'{"exit": 0, "token": "x", "folds": []}'}, "trained nothing", 2),
        (lambda files: {"podium.json": files["podium.json"]}, "trained nothing", 2),
        (lambda files: {**files, "runs/tiny/test_vit/recipe.json": b"<html>"}, "did not come as it was made", 1),
        (lambda files: {**files, "runs/tiny/test_vit/fold1/oof.npz": b""}, "did not come as it was made", 1),
        (lambda files: {n: c for n, c in files.items() if "fold1/oof" not in n}, "did not come as it was made", 1),
        (lambda files: {n: c for n, c in files.items() if "recipe" not in n}, "did not come as it was made", 1),
    ],
)
def test_output_that_is_not_whole_is_not_taken_and_the_same_command_goes_on(
    quick: Service,
    tmp_path: Path,
    podium: Podium,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[dict[str, bytes]], dict[str, bytes]],
    said: str,
    again: int,
) -> None:
    """What Kaggle still has is brought again; where it has nothing, another kernel begins."""
    machine, made = quick.run_kernel, {}

    def changed(kernel: dict[str, Any]) -> dict[str, bytes]:
        made[kernel["slug"].rpartition("/")[2]] = files = machine(kernel)
        return change(files) if len(made) == 1 else files

    quick.run_kernel = changed
    with kaggle(quick, monkeypatch):
        assert said in one_line(podium(*TRAIN))
        assert [path for path in (tmp_path / "runs" / "tiny").iterdir() if path.name[0] != "."] == []
        quick.kernel_output |= made
        assert podium(*TRAIN)[0] == 0
    assert len(quick.kernels) == again
    assert Run(tmp_path / "runs" / "tiny" / "test_vit").finished() == [0, 1]


def test_what_would_fail_over_there_is_refused_here(
    service: Service, tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kaggle(service, monkeypatch):
        assert "there is no fold 7 in" in one_line(podium(*TRAIN, "--folds", "0,7"))
        assert podium(*TRAIN, "--folds", "0")[0] == 0
        assert "is trained already" in one_line(podium(*TRAIN, "--folds", "0"))
        assert "was begun otherwise: lr was" in one_line(podium(*TRAIN, "--lr", "0.5"))
        with Run(tmp_path / "runs" / "tiny" / "test_vit").lock():
            assert "is being trained by another process" in one_line(podium(*TRAIN))
    assert len(service.kernels) == 1


def test_a_push_that_was_interrupted_is_not_made_twice(
    quick: Service, tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    from podium.kaggle import kernels

    push = kernels.push_kernel

    def interrupted(*given: Any, **more: Any) -> str:
        push(*given, **more)
        raise KeyboardInterrupt

    with kaggle(quick, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr("podium.kaggle.remote_train.push_kernel", interrupted)
            assert podium(*TRAIN)[0] == 75
        assert "was begun with other flags" in one_line(podium(*TRAIN, "--epochs", "3"))
        assert podium(*TRAIN)[0] == 0
        assert len(quick.kernels) == 1
        with monkeypatch.context() as patch:
            patch.setattr(
                "podium.kaggle.remote_train.push_kernel", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)
            )
            assert podium(*TRAIN, "--name", "never")[0] == 75
        quick.failing["GetKernelSessionStatus"] = [404]
        assert podium(*TRAIN, "--name", "never")[0] == 0
    assert len(quick.kernels) == 2


def test_a_run_of_another_recipe_is_laid_aside(
    quick: Service, tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, runs = quick.run_kernel, tmp_path / "runs" / "tiny"
    other = ("--device", "cpu", "--lr", "0.01", "--folds", "0", "--name", "other")
    assert podium("train", "-c", "tiny", *KNOBS, *other)[0] == 0

    def begun_meanwhile(kernel: dict[str, Any]) -> dict[str, bytes]:
        (runs / "other").rename(runs / "test_vit")
        return machine(kernel)

    quick.run_kernel = begun_meanwhile
    with kaggle(quick, monkeypatch):
        refused = one_line(podium(*TRAIN))
        assert "is another run than the kernel's: lr was 0.01" in refused
        assert "was begun otherwise: lr was 0.01" in one_line(podium(*TRAIN, "--name", "test_vit"))
        assert len(quick.kernels) == 1
    assert Run(runs / "test_vit").finished() == [0]
    assert Run(runs / "test_vit-kaggle").finished() == [0, 1]


def test_a_kernel_that_nobody_may_see_any_more_is_not_waited_for(
    quick: Service, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick.failing["GetKernelSessionStatus"] = [403] * 9
    with kaggle(quick, monkeypatch):
        assert "is your token still good?" in one_line(podium(*TRAIN))


def test_what_kaggle_does_not_take_is_told(service: Service, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    service.kernel_error = "Maximum weekly GPU quota of 30.00 hours reached"
    with kaggle(service, monkeypatch):
        assert "Maximum weekly GPU quota" in one_line(podium(*TRAIN))
        for words in (("--weights", "/some/file.pt"), ("--teacher", "another")):
            assert "is not on Kaggle's machines" in one_line(podium(*TRAIN, *words))
        assert "no model" in one_line(podium("kaggle-train", "-c", "tiny", "--model", "convnext_smal"))


@pytest.fixture
def no_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip needs a network."""

    def fetched(folder: Path) -> None:
        folder.mkdir()

    monkeypatch.setattr("podium.kaggle.bundle._wheels", fetched)


def test_a_bundle_makes_the_same_csv_without_a_network(
    no_wheels: None, tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_competition(tmp_path, each=12)
    assert podium("folds", "-c", "tiny", "--k", "2")[0] == 0
    for name in ("one", "two"):
        assert podium("train", "-c", "tiny", *KNOBS, "--device", "cpu", "--name", name)[0] == 0
    status, out, err = podium("kaggle-bundle", "-c", "tiny", "--blend", "convex")
    assert status == 0, err
    assert "without a network its notebook makes the same CSV as here" in err
    folder = Path(out.strip())
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {
        "inference.ipynb",
        "dataset-metadata.json",
        "requirements.txt",
        "src/podium/kaggle/inside_kernel.py",
    } <= names
    assert {f"runs/tiny/{run}/fold{fold}/model.safetensors" for run in ("one", "two") for fold in (0, 1)} <= names
    assert not [name for name in names if name.endswith(("test.npz", ".pyc"))]
    notebook = json.loads((folder / "inference.ipynb").read_text())
    assert "'convex'" in notebook["cells"][1]["source"]

    source = "import socket; from podium.models.hub import _hub_answers; print(_hub_answers())"
    from podium.kaggle.bundle import NO_NETWORK

    done = subprocess.run([sys.executable, "-c", NO_NETWORK + source], capture_output=True, text=True)
    assert done.stdout == "False\n"

    monkeypatch.setattr("podium.kaggle.bundle.NO_NETWORK", "raise SystemExit('broken')")
    assert "notebook fails without a network" in one_line(podium("kaggle-bundle", "-c", "tiny"))


def test_a_bundle_is_brought_to_kaggle_and_makes_its_csv_there(
    no_wheels: None, service: Service, tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.kaggle.publish.PAUSE", 0.0)
    monkeypatch.setattr("podium.kaggle.bundle._prove", lambda *_: "nothing")  # here the stand-in's machine runs it
    service.run_kernel = Machine(tmp_path / "kaggle", tmp_path / "data" / "raw" / "tiny", [], service)
    assert podium("train", "-c", "tiny", *KNOBS, "--device", "cpu")[0] == 0
    bundle = ("kaggle-bundle", "-c", "tiny", "--upload")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with kaggle(service, monkeypatch):
        service.loses_files = {"runs.zip"}
        assert "1 of 5 parts were not uploaded" in one_line(podium(*bundle))
        service.loses_files = set()
        (name,) = service.datasets
        assert re.fullmatch("podium-tiny-bundle-[0-9a-f]{6}", name)
        service.failing["CreateDatasetVersion"] = [401]
        assert "refused your token" in one_line(podium(*bundle))
        service.dataset_statuses = ["FAILED"] * 4
        assert f"could not unpack somebody/{name}" in one_line(podium(*bundle))
        assert not service.kernels
        service.dataset_statuses = ["READY", "BLOBS_RECEIVED"]  # of the version before, and then of this one
        service.failing["GetDatasetStatus"] = [0, 429]
        with monkeypatch.context() as patch:
            patch.setattr("podium.kaggle.publish.follow_kernel", interrupted)
            assert podium(*bundle)[0] == 75
        status, _, err = podium(*bundle)  # which neither uploads nor pushes again
    assert status == 0, err
    first, *_, last = service.datasets[name]
    assert len(service.datasets[name]) == 3
    assert (first["isPrivate"], first["licenseName"]) == (True, "other")
    assert "runs.zip" not in first["files"]
    assert {"runs.zip", "src.zip", "wheels.zip", "requirements.txt", "inference.ipynb"} <= set(last["files"])
    (kernel,) = service.kernels
    assert re.fullmatch("somebody/podium-tiny-notebook-[0-9a-f]{6}", kernel["slug"])
    assert (kernel["isPrivate"], kernel["enableInternet"], kernel["kernelType"]) == (True, False, "notebook")
    assert (kernel["datasetDataSources"], kernel["competitionDataSources"]) == ([f"somebody/{name}"], ["tiny"])
    made = service.kernel_output[kernel["slug"].rpartition("/")[2]]["submission.csv"]
    assert made == (tmp_path / "submissions" / "tiny" / "test_vit.csv").read_bytes()
    assert f"https://www.kaggle.com/code/{kernel['slug']}" in err
    assert TOKEN not in json.dumps(service.kernels)


def test_training_that_kaggles_time_runs_out_on_is_asked_to_stop() -> None:
    from podium.kaggle.inside_kernel import _within

    stops = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(75)); signal.pause()"
    assert _within([sys.executable, "-c", stops], 2.0) == 75
    assert _within([sys.executable, "-c", "raise SystemExit(3)"], 60.0) == 3
