"""The zoo's models train as timm's do: resumed to the same bits, and in several processes."""

import signal
from pathlib import Path

import pytest

from forked_podium import run_group
from second_round import first_of
from tiny import FAST, Podium, run_of, stop_in_step
from training.resuming import assert_resumes_to_the_same_bits

TRAIN = ("train", *FAST, "--device", "cpu", "--folds", "0", "--batch-size", "4", "--epochs", "3")
MODELS = {  # with dropout and a buffer, with batch norm, with windows, with a class token in the last stage
    "t2t_vit_nano": 64,
    "deepvit_nano": 32,
    "cswin_nano": 32,
    "pvt_nano": 64,
    "cpvt_nano": 32,
    "road_00_resnet50_nano": 32,
}


@pytest.mark.parametrize("name", first_of(["cswin_nano"], MODELS))
def test_it_resumes_to_the_same_bits(name: str, tiny: Path, podium: Podium) -> None:
    command = (*TRAIN, "--model", name, "--image-size", MODELS[name])
    stop_in_step(podium, 5, *command, "--name", name, number=signal.SIGINT)
    assert_resumes_to_the_same_bits(tiny, podium, command, name)


@pytest.mark.slow
@pytest.mark.all
@pytest.mark.parametrize("name", ["t2t_vit_nano", "deepvit_nano", "cswin_nano"])
def test_it_trains_in_two_processes(name: str, tiny: Path) -> None:
    log = tiny / "group.log"
    words = (*TRAIN, "--model", name, "--image-size", MODELS[name], "--parallel", "data")
    assert run_group(2, ("--root", tiny, *words), log) == [0, 0], log.read_text()
    assert run_of(tiny, name).finished() == [0]
