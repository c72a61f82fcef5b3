"""Training on Kaggle's GPUs: a chain of kernels, whose run comes back."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from described import write_model
from extension_file import PARTS, write_extension
from podium.basics.disk import sha256
from podium.saved_runs.run_folder import Run
from second_round import first_of
from stand_ins.kaggle_kernels import KNOBS, STOP_AFTER_FOLD_0, TRAIN, InstantKernels, KernelMachine, parse_arguments
from stand_ins.kaggle_service import TOKEN, Service
from tiny import Podium, assert_says, done, one_line, write_file

pytestmark = pytest.mark.annex
NOTED = """
@extend.move
class Noted(extend.Move):
    notes: str = extend.knob("a file", off="", default="", why="there is none", is_file=True)
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "runs" / "tiny" / "test_vit")


class SecondIsReal:
    """Service.run_kernel that returns fold 0 of a trained run first, as Kaggle keeps it, and then runs kernels."""

    def __init__(self, trained_run: Path, machine: KernelMachine) -> None:
        self.machine = machine
        self.instant = InstantKernels(trained_run)
        self.instant.stop_after = [[0]]

    def __call__(self, kernel: dict[str, Any]) -> dict[str, bytes]:
        if self.machine.outputs:
            return self.machine(kernel)
        files = self.instant(kernel)
        self.machine.outputs[kernel["slug"]] = folder = self.machine.folder / "first"
        for name, content in files.items():
            write_file(folder / name, content)
        return files


@pytest.mark.slow
@pytest.mark.parametrize("real_kernels", first_of([1], [1, 2]))
def test_a_run_is_trained_in_two_kernels_and_comes_back(
    service: Service, packed_fast: None, run: Run, tmp_path: Path, podium: Podium, real_kernels: int
) -> None:
    """Kaggle's time is over after the first fold, so a second kernel continues what the first one left."""
    competition = tmp_path / "data" / "raw" / "tiny"
    write_extension(tmp_path, PARTS + NOTED, name="own/mine.py")
    notes = write_file(tmp_path / "notes.txt", "beside the run")
    words = ("--loss", "distance", "--augment", "dark", "--notes", str(notes))
    machine = KernelMachine(tmp_path / "kaggle", competition, service, STOP_AFTER_FOLD_0 if real_kernels == 2 else "")
    service.run_kernel = machine
    if real_kernels == 1:
        done(podium("train", "-c", "tiny", *KNOBS, *words, "--device", "cpu", "--folds", "0"))
        service.run_kernel = SecondIsReal(run.path.rename(tmp_path / "trained"), machine)
    _, err = done(podium(*TRAIN, *words))
    assert_says(err, "is queued", "is running", "Kaggle's time ran out")
    first, second = service.kernels
    assert re.fullmatch("somebody/podium-tiny-test-vit-[0-9a-f]{6}-1", first["slug"])
    assert re.fullmatch("somebody/podium-tiny-test-vit-[0-9a-f]{6}-2", second["slug"])
    assert (first["machineShape"], first["enableGpu"], first["enableInternet"]) == ("NvidiaTeslaT4", True, True)
    assert (first["isPrivate"], first["competitionDataSources"]) == (True, ["tiny"])
    assert second["kernelDataSources"] == [first["slug"]]
    assert TOKEN not in json.dumps(service.kernels)
    assert run.finished() == [0, 1]
    assert parse_arguments(second)[2]["files"] == {"notes": "files/notes.txt"}
    assert run.recipe["notes_sha256"] == sha256(notes)
    output = machine.outputs[second["slug"]]
    assert (output / "runs/tiny/test_vit/fold0/oof.npz").read_bytes() == (run.fold_folder(0) / "oof.npz").read_bytes()
    # The folds were split here, with another seed than the kernel would have taken.
    done(podium("train", "-c", "tiny", *KNOBS, *words, "--device", "cpu"))
    done(podium("submit", "-c", "tiny"))
    assert sorted(path.name for path in run.path.parent.iterdir()) == [".test_vit.kernel.lock", "test_vit"]


def test_a_kernel_that_fails_in_the_middle_loses_only_its_own_work(
    instant_service: Service, trained_run: Path, run: Run, podium: Podium
) -> None:
    instant_service.run_kernel = kernels = InstantKernels(trained_run)
    kernels.stop_after = [[0]]
    instant_service.kernel_statuses = ["COMPLETE", "ERROR"]
    assert "-2 ended with error" in one_line(podium(*TRAIN))
    assert run.finished() == [0]
    done(podium(*TRAIN))
    first, second, third = instant_service.kernels
    assert second["kernelDataSources"] == third["kernelDataSources"] == [first["slug"]]
    assert parse_arguments(third)[3] == first["slug"]
    assert run.finished() == [0, 1]


def test_folds_that_are_finished_here_are_not_trained_on_kaggle(
    instant_service: Service, trained_run: Path, run: Run, podium: Podium
) -> None:
    shutil.copytree(trained_run, run.path)
    shutil.rmtree(run.fold_folder(0))
    (run.fold_folder(1) / "mine.txt").write_text("mine")
    done(podium(*TRAIN))
    shutil.rmtree(run.fold_folder(0))
    done(podium(*TRAIN, "--folds", "0,1"))
    assert [parse_arguments(kernel)[2]["folds"] for kernel in instant_service.kernels] == [[0], [0]]
    assert run.finished() == [0, 1]
    assert (run.fold_folder(1) / "mine.txt").read_text() == "mine"


def test_the_same_command_follows_again_after_an_interruption(
    instant_service: Service, run: Run, podium: Podium
) -> None:
    instant_service.interrupts["GetKernelSessionStatus"] = "before"
    assert podium(*TRAIN)[0] == 75
    instant_service.next_statuses["GetKernelSessionStatus"] = [0, 500]
    _, err = done(podium(*TRAIN))
    assert "is already at Kaggle" in err
    assert len(instant_service.kernels) == 1
    assert run.finished() == [0, 1]


def test_a_kernel_has_a_name_that_no_earlier_kernel_had(instant_service: Service, run: Run, podium: Podium) -> None:
    done(podium(*TRAIN))
    assert "is trained already" in one_line(podium(*TRAIN))
    shutil.rmtree(run.path)
    done(podium(*TRAIN))
    assert len({kernel["slug"] for kernel in instant_service.kernels}) == 2


@pytest.mark.annex
def test_what_would_fail_on_kaggle_is_refused_here(instant_service: Service, run: Run, podium: Podium) -> None:
    one_line(podium(*TRAIN, "--folds", "0,7"), "there is no fold 7 in", "--folds")
    done(podium(*TRAIN))
    assert "is trained already" in one_line(podium(*TRAIN, "--folds", "0"))
    assert "was started with other options: lr was" in one_line(podium(*TRAIN, "--lr", "0.5"))
    with run.lock():
        assert "is being trained by another process" in one_line(podium(*TRAIN))
    folder = ("--model", f"local-dir:{write_model(run.path.parents[2] / 'moss')}", "--name", "moss")
    for words in (("--weights", "/some/file.pt"), ("--teacher", "another"), folder):
        message = one_line(podium(*TRAIN, *words))
        assert words[0] in message
        assert "not on Kaggle's machines" in message
    assert "no model" in one_line(podium("kaggle-train", "-c", "tiny", "--model", "convnext_smal"))
    assert "--linear cannot be combined with --budget" in one_line(podium(*TRAIN, "--linear", "--budget", "1h"))
    assert len(instant_service.kernels) == 1


def test_a_push_that_was_interrupted_is_not_repeated_if_kaggle_has_the_kernel(
    instant_service: Service, podium: Podium
) -> None:
    instant_service.interrupts["SaveKernel"] = "after"
    assert podium(*TRAIN)[0] == 75
    one_line(podium(*TRAIN, "--epochs", "3"), "was started with other flags", "--epochs 2")
    done(podium(*TRAIN))
    assert len(instant_service.kernels) == 1

    instant_service.interrupts["SaveKernel"] = "before"
    assert podium(*TRAIN, "--name", "never-pushed")[0] == 75
    instant_service.next_statuses["GetKernelSessionStatus"] = [404]
    done(podium(*TRAIN, "--name", "never-pushed"))
    assert len(instant_service.kernels) == 2


def test_a_damaged_file_of_kernels_names_the_remedy(instant_service: Service, run: Run, podium: Podium) -> None:
    path = run.path.parent / ".test_vit.kernel.json"
    write_file(path, '{"words": [], "kernels": [{}]}')
    one_line(podium(*TRAIN), f"{path}: cannot be read", "delete it")
    path.unlink()
    done(podium(*TRAIN))
