"""podium train --on ray: cells on the nodes of a cluster, which may be lost; what is refused before one begins."""

import argparse
import importlib.util
import json
import os
import random
import shutil
import signal
import socket
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace

import pytest

from forked_podium import start_podium
from podium.basics.errors import STOPPED
from podium.saved_runs.run_folder import Run
from podium_annex.fleet import ray_tasks
from ray_cluster import RayCluster
from second_round import first_of
from templates import template
from tiny import FAST, Podium, assert_same_fold, one_line, podium_at, tiny_with_folds

TRAIN = ("train", *FAST, "--device", "cpu", "--model", "test_vit", "--save-every", "1s")
LONG = (*TRAIN, "--epochs", "60", "--seeds", "0-1")
CELLS = [(f"test_vit-seed{seed}", fold) for seed in (0, 1) for fold in (0, 1)]


def trained_plainly(root: Path) -> None:
    """Makes a project whose runs the plain command has trained."""
    shutil.copytree(template(tiny_with_folds), root, dirs_exist_ok=True)
    podium_at(root, *LONG)


def start(root: Path, words: Sequence[object], *more: object) -> BaseProcess:
    return start_podium(("--root", root, *words, *more), root / "driver.log")


def end_of(process: BaseProcess) -> int | None:
    process.join()
    return process.exitcode


def wait_for(process: BaseProcess, holds: Callable[[], bool]) -> None:
    while not holds():
        assert process.is_alive()
        time.sleep(0.02)


def epochs_of(root: Path) -> dict[tuple[str, int], list[int]]:
    """Returns the epochs that metrics.jsonl of each cell has."""
    paths = {cell: Run(root / "runs/tiny" / cell[0]).fold_folder(cell[1]) / "metrics.jsonl" for cell in CELLS}
    return {
        cell: [json.loads(line)["epoch"] for line in path.read_text().splitlines()]
        for cell, path in paths.items()
        if path.exists()
    }


def log_of(root: Path, run: str, fold: int) -> str:
    path = root / f"runs/tiny/.logs/{run}@fold{fold}.log"
    return path.read_text() if path.exists() else ""


def assert_as_by_the_plain_command(root: Path) -> None:
    plain = template(trained_plainly)
    for run, fold in CELLS:
        assert_same_fold(Run(root / "runs/tiny" / run), Run(plain / "runs/tiny" / run), fold)
        assert epochs_of(root)[run, fold] == epochs_of(plain)[run, fold]  # each once
        trained = [text for text in log_of(root, run, fold).splitlines() if text.startswith("podium: wrote ")]
        assert len(trained) == 1  # one process has finished it, and no other has trained it again


@pytest.mark.alone  # Ray gives a node of its own 30 s to start
@pytest.mark.timeout(900)
@pytest.mark.slow
@pytest.mark.parametrize("number", first_of(range(2), range(20)))
def test_nothing_is_lost_or_done_twice_when_a_node_is_lost(tiny: Path, ray_cluster: RayCluster, number: int) -> None:
    """Even rounds lose a machine; in odd ones only Ray there is gone, and a cell that lives may meet its successor."""
    draws = random.Random(number)
    driver = start(tiny, LONG, "--on", ray_cluster.place)
    wait_for(driver, lambda: len(epochs_of(tiny)) > 0)
    time.sleep(draws.uniform(0, 3))
    ray_cluster.lose(draws.choice(ray_cluster.nodes), whole=number % 2 == 0)
    ray_cluster.nodes.append(ray_cluster.add_node())
    said = tiny / "driver.log"
    assert end_of(driver) == 0, said.read_text()
    assert_as_by_the_plain_command(tiny)
    starts = said.read_text().count("podium: cell ") - len(CELLS)  # without the lines of their ends
    assert starts == len(CELLS) + 1
    assert sum(log_of(tiny, *cell).count("podium: cell ") for cell in CELLS) == starts


@pytest.mark.slow
def test_cells_train_what_one_command_trains_to_the_bit(tiny: Path, ray_cluster: RayCluster) -> None:
    driver = start(tiny, LONG, "--on", ray_cluster.place)
    said = tiny / "driver.log"
    assert end_of(driver) == 0, said.read_text()
    assert_as_by_the_plain_command(tiny)
    for run, _ in CELLS:
        assert Run(tiny / "runs/tiny" / run).recipe == Run(template(trained_plainly) / "runs/tiny" / run).recipe
    assert "worse than best" in said.read_text()
    assert end_of(start(tiny, LONG, "--on", ray_cluster.place)) == 0
    assert "trained already: 4 of 4 cells" in said.read_text()
    assert_as_by_the_plain_command(tiny)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_command_that_was_killed_or_stopped_goes_on(tiny: Path, ray_cluster: RayCluster, number: int) -> None:
    driver = start(tiny, LONG, "--on", ray_cluster.place)
    wait_for(driver, lambda: any(len(epochs) > 5 for epochs in epochs_of(tiny).values()))  # there are checkpoints
    assert driver.pid
    os.kill(driver.pid, number)
    assert end_of(driver) == (-number if number == signal.SIGKILL else STOPPED)
    begun = [cell for cell in epochs_of(tiny) if "fold  validated" not in log_of(tiny, *cell)]
    if number == signal.SIGTERM:  # the cells have saved before the command ended
        assert all("run the same command again to resume" in log_of(tiny, *cell) for cell in begun)
    assert begun
    assert end_of(start(tiny, LONG, "--on", ray_cluster.place)) == 0
    assert_as_by_the_plain_command(tiny)
    assert any("resumes from step" in log_of(tiny, *cell) for cell in begun)


@pytest.mark.slow
def test_cells_that_fail_are_named_and_tried_again_by_the_next_command(tiny: Path, ray_cluster: RayCluster) -> None:
    words = (*TRAIN[:-2], "test_resnet", "--epochs", "1", "--folds", "0", "--on", ray_cluster.place)
    in_the_way = tiny / "runs/tiny/test_resnet/fold0/metrics.jsonl"
    in_the_way.mkdir(parents=True)
    assert end_of(start(tiny, words)) == 1
    said = (tiny / "driver.log").read_text()
    assert "1 of 2 cells failed: test_resnet@fold0" in said.splitlines()[-1]
    assert f"{in_the_way} cannot be written" in said
    in_the_way.rmdir()
    assert end_of(start(tiny, words)) == 0
    said = (tiny / "driver.log").read_text()
    assert "trained already: 1 of 2 cells" in said
    assert "cell test_resnet@fold0 is done, 1 of 1" in said


# --- what a cell gets --------------------------------------------------------------------------------


def of_machines(monkeypatch: pytest.MonkeyPatch, *machines: dict[str, float]) -> None:
    """Lets a cluster have these machines, and a head that runs nothing."""
    nodes = [{"Alive": True, "Resources": one} for one in ({"memory": 9.0}, *machines)]
    nodes.append({"Alive": False, "Resources": {"CPU": 99.0}})
    monkeypatch.setattr(ray_tasks, "connect", lambda args: SimpleNamespace(nodes=lambda: nodes))


def flags(**given: object) -> argparse.Namespace:
    return argparse.Namespace(**{"at_once": None, "threads": None, "device": "auto", "job": None, **given})


@pytest.mark.parametrize(
    ("machines", "given", "expected"),
    [
        ([{"CPU": 8.0}], {}, {"num_cpus": 8}),
        ([{"CPU": 8.0}, {"CPU": 4.0}], {}, {"num_cpus": 6}),
        ([{"CPU": 8.0}], {"at_once": 3}, {"num_cpus": 2}),
        ([{"CPU": 2.0}], {"at_once": 9}, {"num_cpus": 1}),
        ([{"CPU": 8.0}], {"threads": 3}, {"num_cpus": 3}),
        ([{"CPU": 32.0, "GPU": 4.0}], {}, {"num_cpus": 8, "num_gpus": 1}),
        ([{"CPU": 32.0, "GPU": 4.0}], {"at_once": 8}, {"num_cpus": 4, "num_gpus": 0.5}),
        ([{"CPU": 32.0, "GPU": 4.0}], {"at_once": 2}, {"num_cpus": 16, "num_gpus": 1}),
        ([{"CPU": 32.0, "GPU": 4.0}], {"device": "cpu"}, {"num_cpus": 32}),
        ([], {}, {"num_cpus": 1}),
        ([{"CPU": 8.0}], {"job": ["num_cpus=4", "num_gpus=0.25"]}, {"num_cpus": 4, "num_gpus": 0.25}),
    ],
)
def test_a_cell_gets_a_gpu_and_its_share_of_the_cores(
    monkeypatch: pytest.MonkeyPatch,
    machines: list[dict[str, float]],
    given: dict[str, object],
    expected: dict[str, float],
) -> None:
    of_machines(monkeypatch, *machines)
    assert ray_tasks.resources(flags(**given)) == expected


@pytest.mark.parametrize(
    ("machines", "count"),
    [([{"CPU": 8.0}], 1), ([{"CPU": 8.0}] * 3, 3), ([{"CPU": 9.0, "GPU": 2.0}] * 2, 4), ([], 1)],
)
def test_a_search_has_a_worker_for_each_gpu_or_machine(
    monkeypatch: pytest.MonkeyPatch, machines: list[dict[str, float]], count: int
) -> None:
    of_machines(monkeypatch, *machines)
    assert ray_tasks.at_once(flags()) == count


# --- refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--budget", "1h"), "--budget"),
        (("--processes", "2"), "--processes"),
        (("--linear",), "--linear"),
        (("--pseudo", "first", "--rounds", "2"), "--rounds"),
        (("--folds", "0", "all"), "--folds all"),
        (("--accumulate", "auto"), "--accumulate auto"),
        (("--store", "auto"), "--store auto"),
        (("--compile", "auto"), "--compile auto"),
        (("--device", "cuda:1"), "--device cuda:1"),
        (("--job", "num_cpus"), "--job num_cpus"),
    ],
)
def test_what_is_no_cell_is_refused_before_one_starts(
    tiny: Path, podium: Podium, words: tuple[str, ...], named: str
) -> None:
    assert named in one_line(podium(*TRAIN, "--on", "ray", *words))
    assert not list(tiny.glob("runs/tiny/*/recipe.json"))


@pytest.mark.slow
def test_what_a_run_would_do_is_shown_without_ray(tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_tasks, "connect", None)
    status, out, err = podium(*TRAIN, "--epochs", "1", "--on", "ray", "--dry-run")
    assert status == 0, err
    assert "fold" in out
    assert not list(tiny.glob("runs/tiny/*/fold*"))


def test_auto_is_refused_since_each_machine_would_look_for_itself(tiny: Path, podium: Podium) -> None:
    assert "name a model" in one_line(podium("train", "-c", "tiny", "--model", "auto", "--on", "ray"))


@pytest.mark.parametrize("place", ["there", "slurm:", "ray:", "sky:x", "slurm:a b", "ray:ray://a:1"])
def test_an_unknown_place_is_refused_with_the_known_ones(tiny: Path, podium: Podium, place: str) -> None:
    assert "is not ray, ray:ADDRESS, slurm, slurm:PARTITION or sky" in one_line(podium(*TRAIN, "--on", place))


@pytest.mark.parametrize("place", ["here", "gpus", "local"])
def test_a_place_of_earlier_versions_is_answered_with_that_of_today(tiny: Path, podium: Podium, place: str) -> None:
    assert f"--on {place} is gone: use --on ray" in one_line(podium(*TRAIN, "--on", place))


def test_a_command_of_earlier_versions_is_answered_with_what_took_its_place(podium: Podium) -> None:
    assert "no command jobs any more; the command with --on says" in one_line(podium("jobs", "-c", "tiny"))


def test_without_ray_the_extra_that_brings_it_is_named(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(ray_tasks, "find_spec", lambda name, *rest: None if name == "ray" else find(name, *rest))
    assert "pip install 'podium[ray]'" in one_line(podium(*TRAIN, "--on", "ray"))
    assert not (tiny / "runs").exists()


@pytest.mark.slow
def test_an_address_where_no_ray_is_is_refused(tiny: Path, podium: Podium) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        place = f"ray:127.0.0.1:{closed.getsockname()[1]}"
    message = one_line(podium(*TRAIN, "--epochs", "1", "--on", place))
    assert f"--on {place}: Ray does not answer" in message
    assert "ray start --head" in message
