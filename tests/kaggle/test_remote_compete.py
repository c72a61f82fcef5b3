"""Competing on Kaggle's GPUs: the members, the ledger and the CSV come back, and work goes on from them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from podium.competing.choices import CompeteRequest
from podium.competing.compete import compete
from podium.competition.load import load
from podium.saved_runs.ledger import BEGUN, ENDED, STARTED, Ledger
from podium.saved_runs.run_folder import Run
from stand_ins.kaggle_kernels import InstantCompete, KernelMachine, parse_call
from stand_ins.kaggle_service import Service
from tiny import Podium, assert_says, done, one_line, write_card, write_file

pytestmark = pytest.mark.annex

COMPETE = ("kaggle-train", "-c", "tiny", "--budget", "8h")
SMALL = '[recipe]\nweights = "none"\nimage_size = 32\nbatch_size = 8\nepochs = 1\n'


@pytest.fixture
def kernels(service: Service, trained_run: Path, packed_fast: None) -> InstantCompete:
    service.run_kernel = instant = InstantCompete(trained_run)
    return instant


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "tiny"


def test_what_two_kernels_make_comes_back_and_more_time_goes_on_there(
    service: Service, kernels: InstantCompete, tmp_path: Path, here: Path, podium: Podium
) -> None:
    kernels.exits = [75, 0]
    csv = tmp_path / "submissions" / "tiny" / "compete.csv"
    out, err = done(podium(*COMPETE))
    assert "Kaggle's time ran out" in err
    assert out == f"{csv}\n"
    assert f"submit --from {csv.with_suffix('.json')} --upload" in err.splitlines()[-1]
    first, second = service.kernels
    assert parse_call(first)[:3] == ("tiny", 8 * 3600.0, None)
    assert parse_call(second)[2] == first["slug"]
    assert second["kernelDataSources"] == [first["slug"]]
    assert Run(here / "test_vit").finished() == [0, 1]
    assert Ledger("tiny", tmp_path).lines == kernels.lines
    assert csv.read_bytes() == kernels.csv
    assert (here / ".compete" / "worked.json").exists()
    one_line(podium(*COMPETE), "has worked for 8 h", "more --budget")
    done(podium(*COMPETE[:-1], "9h"))
    assert parse_call(service.kernels[2])[1:3] == (9 * 3600.0, second["slug"])
    assert csv.read_bytes() == kernels.csv


def test_without_the_competitions_files_the_csv_still_comes(
    service: Service, kernels: InstantCompete, tmp_path: Path, podium: Podium
) -> None:
    shutil.rmtree(tmp_path / "data" / "raw")
    out, err = done(podium(*COMPETE))
    assert Path(out.strip()).read_bytes() == kernels.csv
    assert " data -c tiny" in err.splitlines()[-1]


def test_another_ledger_that_is_here_stays_with_its_csv(
    service: Service, kernels: InstantCompete, tmp_path: Path, here: Path, podium: Podium
) -> None:
    Ledger("tiny", tmp_path).add(STARTED, budget=60.0)
    csv = tmp_path / "submissions" / "tiny" / "compete.csv"
    write_file(csv, "mine")
    status, out, err = podium(*COMPETE)
    assert (status, out) == (0, "")
    assert_says(err, "the kernel begins without what is in", f"{csv} do not know them, and stay")
    assert err.splitlines()[-1].endswith(" compete -c tiny")
    assert csv.read_text() == "mine"
    assert [line["budget"] for line in Ledger("tiny", tmp_path).lines] == [60.0]
    assert Run(here / "test_vit").finished() == [0, 1]


def test_a_member_of_another_recipe_gets_one_name_of_its_own(
    service: Service, kernels: InstantCompete, trained_run: Path, here: Path, podium: Podium
) -> None:
    kernels.exits = [75, 0]
    shutil.copytree(trained_run, here / "test_vit")
    recipe = json.loads((trained_run / "recipe.json").read_text())
    (here / "test_vit" / "recipe.json").write_text(json.dumps({**recipe, "lr": 0.01}))
    _, err = done(podium(*COMPETE))
    assert "is another run than the kernel's: lr was 0.01" in err
    assert str(here / "test_vit-kaggle") in err
    assert sorted(path.name for path in here.iterdir() if path.name[0] != ".") == ["test_vit", "test_vit-kaggle"]


def test_the_same_command_follows_again_after_an_interruption(
    service: Service, kernels: InstantCompete, here: Path, podium: Podium
) -> None:
    service.interrupts["GetKernelSessionStatus"] = "before"
    assert podium(*COMPETE)[0] == 75
    assert (here / ".compete.kernel.json").exists()
    one_line(podium(*COMPETE[:-1], "9h"), "was started with other flags (--budget 28800.0s)", "repeat these flags")
    _, err = done(podium(*COMPETE))
    assert "is already at Kaggle" in err
    assert len(service.kernels) == 1


def test_a_damaged_ledger_is_not_taken_and_downloaded_again(
    service: Service, kernels: InstantCompete, tmp_path: Path, podium: Podium
) -> None:
    sound: dict[str, bytes] = {}

    def damage(kernel: dict[str, Any]) -> dict[str, bytes]:
        sound.update(kernels(kernel))
        return {**sound, "compete/compete.jsonl": b"<html>\n"}

    service.run_kernel = damage
    one_line(podium(*COMPETE), "is incomplete or damaged", "compete.jsonl, line 1", "run the same command again")
    assert not Ledger("tiny", tmp_path).lines
    service.kernel_outputs[service.kernels[0]["slug"].rpartition("/")[2]] = sound
    done(podium(*COMPETE))
    assert Ledger("tiny", tmp_path).lines == kernels.lines
    assert len(service.kernels) == 1


def test_what_compete_cannot_take_is_refused(
    service: Service, kernels: InstantCompete, tmp_path: Path, podium: Podium
) -> None:
    one_line(podium(*COMPETE[:3]), "--model NAME", "--budget 8h")
    for words in (("--lr", "0.5"), ("--no-head-first",), ("--name", "mine"), ("--folds", "0")):
        message = one_line(podium(*COMPETE, *words))
        assert words[0].replace("--no-", "--") in message
        assert_says(message, "chooses by itself", "--model NAME")
    folds = tmp_path / "data" / "prepared" / "tiny" / "folds.csv"
    folds.rename(folds.with_suffix(".away"))
    assert "run first: " in one_line(podium(*COMPETE))
    assert service.kernels == []


@pytest.mark.slow
def test_competing_goes_on_in_a_kernel_and_then_here(
    service: Service, packed_fast: None, tmp_path: Path, here: Path, podium: Podium
) -> None:
    """Kaggle's time is over after the first member, so a second kernel continues; this one really runs."""
    write_card(tmp_path, SMALL)
    compete(load("tiny", tmp_path), CompeteRequest(600.0, most_members=1))
    machine = KernelMachine(tmp_path / "kaggle", tmp_path / "data" / "raw" / "tiny", service)

    def run_kernel(kernel: dict[str, Any]) -> dict[str, bytes]:
        if machine.outputs:
            return machine(kernel)
        machine.outputs[kernel["slug"]] = output = machine.folder / "first"
        output.mkdir(parents=True)
        (tmp_path / "runs").rename(output / "runs")
        (tmp_path / "submissions").rename(output / "submissions")
        (output / "runs" / "tiny" / ".compete").rename(output / "compete")
        here.mkdir(parents=True)
        folds = {path.parent.name: [0, 1] for path in output.glob("runs/tiny/*/recipe.json")}
        report = {"exit": 75, "token": parse_call(kernel)[3], "folds": folds}
        (output / "podium.json").write_text(json.dumps(report))
        return {str(path.relative_to(output)): path.read_bytes() for path in output.rglob("*") if path.is_file()}

    service.run_kernel = run_kernel
    out, err = done(podium(*COMPETE))
    members = [line["member"] for line in Ledger("tiny", tmp_path).of(ENDED)]
    assert len(members) > 1
    assert all(Run(here / member).finished() for member in members)
    assert [line["budget"] for line in Ledger("tiny", tmp_path).of(STARTED)] == [600.0, 8 * 3600.0]
    submission = Path(out.strip()).read_bytes()
    out, err = done(podium("compete", "-c", "tiny", "--device", "cpu"))
    assert Path(out.strip()).read_bytes() == submission
    assert [line["member"] for line in Ledger("tiny", tmp_path).of(BEGUN)] == members
    assert "8 h" in err
    done(podium("submit", "--from", Path(out.strip()).with_suffix(".json")))  # as `next:` says
    assert Path(out.strip()).read_bytes() == submission
