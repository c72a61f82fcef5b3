"""How many threads compute on a CPU: as many as cores are free, and the same for all of a run."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from podium.basics import machine, terminal
from podium.basics.light_torch import import_timm
from podium.basics.machine import CpuSeconds, Load, usable_cores
from podium.models import cpu_threads
from podium.models.cpu_threads import Threads
from tiny import FAST, Podium, done, run_of


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(machine, "_own_cores", lambda: {0, 1, 2, 3})
    monkeypatch.setattr(machine, "_quota", lambda: float("inf"))
    monkeypatch.setattr("torch.get_num_threads", lambda: 4)
    number = torch.get_num_threads()
    yield
    torch.set_num_threads(number)


class Others:
    """Other programs that keep some cores busy."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.busy = 0.0
        monkeypatch.setattr(cpu_threads, "load_of_others", self)
        monkeypatch.setattr(terminal, "said_once", set())

    def look(self) -> float:
        return self.busy


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch, four_cores: None) -> Others:
    return Others(monkeypatch)


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    numbers: list[int] = []
    monkeypatch.setattr("torch.set_num_threads", numbers.append)
    return numbers


def test_the_free_cores_compute_and_the_user_is_told(
    others: Others, chosen: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    threads = Threads()
    for busy, number in ((0.0, 4), (0.3, 4), (1.0, 3), (2.2, 2), (3.9, 1), (9.0, 1)):
        others.busy = busy
        threads.settle()
        assert chosen[-1] == number, busy
    said = capsys.readouterr().err.splitlines()
    assert "podium: on 3 of 4 CPU cores: other programs keep 1.0 busy; --threads 4 takes all" in said


def test_a_run_keeps_its_number_whatever_the_load(
    others: Others, chosen: list[int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, others.busy = Threads(), 3.0
    threads.settle(recorded=4)
    assert chosen == [4]
    threads.settle(recorded=0)  # of an older run, which took what torch takes
    assert chosen == [4, 4]
    threads.take_for_batch(64)
    assert chosen == [4, 4]
    threads.next_look = 0.0
    threads.watch()
    assert "other programs keep 3.0 of 4 CPU cores busy; this fold keeps its 4 threads" in capsys.readouterr().err
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    threads.settle(recorded=4)
    assert chosen[-1] == 1
    assert "has begun with 4 threads; 1 compute other last bits" in capsys.readouterr().err


def test_large_batches_of_a_prediction_follow_the_load(others: Others, chosen: list[int]) -> None:
    threads = Threads()
    threads.settle(recorded=4, follows=True)
    others.busy = 2.0
    threads.take_for_batch(64)
    assert chosen == [4]  # it has just looked
    threads.next_look = 0.0
    threads.take_for_batch(64)
    assert chosen == [4, 2]
    threads.take_for_batch(3)
    assert chosen == [4, 2, 4]  # its last bits depend on the number


@pytest.mark.parametrize("files", [{"cpu.max": "150000 100000"}, {"cpu.max": "max 100000"}, {}])
def test_a_container_has_the_cores_of_its_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str]
) -> None:
    monkeypatch.setattr(machine, "CGROUPS", tmp_path)
    monkeypatch.setattr(machine, "_own_cores", lambda: set(range(8)))
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert usable_cores() == (2 if "15" in "".join(files.values()) else 8)
    (tmp_path / "cpu.max").unlink(missing_ok=True)
    (tmp_path / "cpu").mkdir()
    for name, number in (("quota", "50000"), ("period", "100000")):
        (tmp_path / "cpu" / f"cpu.cfs_{name}_us").write_text(number)
    assert usable_cores() == 1


def test_the_load_of_others_is_without_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([CpuSeconds(100.0, 50.0, 7.0), CpuSeconds(102.0, 53.5, 8.5)])
    monkeypatch.setattr(machine, "_cpu_seconds", lambda: next(seen))
    monkeypatch.setattr("podium.basics.machine.time.monotonic", lambda: 102.0)
    assert Load().look() == 1.0


def test_the_recipe_records_the_number_and_a_flag_fixes_it(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # put back after the test
    words = ("train", *FAST, "--model", "test_resnet", "--epochs", "1", "--folds", "0")
    number = torch.get_num_threads()
    try:
        done(podium(*words, "--threads", "2"))
        assert run_of(tiny, "test_resnet").recipe["threads"] == 2
    finally:
        torch.set_num_threads(number)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["test_efficientnet", "test_resnet", "test_vit", "test_convnext"])
def test_the_last_bits_of_large_batches_do_not_depend_on_the_number(name: str) -> None:
    import_timm()
    import timm

    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=10).eval()
    images = torch.randn(cpu_threads.LARGE, 3, 96, 96)
    images = images if name != "test_vit" else torch.randn(cpu_threads.LARGE, 3, 160, 160)
    before, answers = torch.get_num_threads(), []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            with torch.inference_mode():
                answers.append(model(images))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(answer, answers[0]) for answer in answers)
