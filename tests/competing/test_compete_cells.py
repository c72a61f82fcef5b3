"""podium compete --on: a member's folds are cells, which this process, its helpers or jobs train to the same bits."""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from competing.journeys import bits_of, run
from forked_podium import exit_status, start_podium
from podium.basics.errors import PodiumError
from podium.cli.parser import Command
from podium.cli.parser import parser as parser_of
from podium.cli.sweep import train_request
from podium.competing.choices import CompeteRequest
from podium.competing.ending import Outcome
from podium.competing.next_moves import words_of
from podium.competing.portfolio import BACKBONES, BackboneRow, candidates_of
from podium.competition.load import load
from podium.options.recipe_defaults import AUTO_MANY_IMAGES, Data
from podium.saved_runs.fold_names import WHOLE
from podium.saved_runs.ledger import BEGUN, STARTED, Ledger
from podium.training.request import Request
from podium_annex import flags
from podium_annex.fleet import compete_cells, train_cells
from podium_annex.fleet.cell_board import ENDED, FAILED, Board, Step
from podium_annex.fleet.where import parse_where
from tiny import Podium, one_line

pytestmark = pytest.mark.slow
MEMBER = "test_resnet-scratch-32"
CELLS = {f"{MEMBER}@fold0", f"{MEMBER}@fold1"}


@pytest.fixture(autouse=True)
def _fast_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_BEAT", "0.2s")


@pytest.fixture(autouse=True)
def _no_heads(monkeypatch: pytest.MonkeyPatch, small_portfolio: None) -> None:
    """Without weights, the first member is a model from scratch, on both folds."""
    monkeypatch.setattr("podium.competing.understand.BACKBONES", ())


@pytest.fixture
def undisturbed(mixed: Path) -> dict[str, str]:
    """The bits of the journey in one process."""
    folder = mixed / "undisturbed"
    shutil.copytree(mixed, folder, ignore=shutil.ignore_patterns("undisturbed"))
    run(folder, 1)
    return bits_of(folder)


def run_on(root: Path, where: str, **flags_given: Any) -> Outcome | None:
    given: dict[str, Any] = {"at_once": None, "job": None, "cell": None, "workers": None, "threads": None}
    args = argparse.Namespace(competition="tiny", root=root, on=parse_where(where), device="cpu", store="on", **given)
    vars(args).update(flags_given)
    return compete_cells.compete_on_machines(args, load("tiny", root), CompeteRequest(600.0, most_members=1))


def cells_of(root: Path) -> dict[str, Step]:
    return {name: step for name, step in Board(root / "runs/tiny/.cells").last_steps().items() if "@" in name}


def test_cells_train_what_one_process_trains_to_the_bit(
    mixed: Path,
    undisturbed: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[Request]()

    def train(args: argparse.Namespace, request: Request) -> str:
        asked.append(request)
        return train_request(args, request)

    monkeypatch.setattr(train_cells, "train_request", train)
    assert run_on(mixed, "here")
    assert bits_of(mixed) == undisturbed
    assert set(cells_of(mixed)) == CELLS
    assert [(one.folds, one.budget) for one in asked] == [((0,), None), ((1,), None)]
    (started,) = Ledger("tiny", mixed).of(STARTED)
    assert started["on"] == "here"


def test_the_same_command_elsewhere_trains_cells_for_the_first(
    mixed: Path,
    undisturbed: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, helpers = mixed / "helper.log", list[Any]()

    def wait_for_helper(_: object, sweep: Any, cells: Any, __: object) -> dict[str, Step]:
        words = ("--root", mixed, "compete", "-c", "tiny", "--device", "cpu", "--on", "here")
        helpers.append(start_podium(words, log, look_often))
        board, until = Board(sweep.folder), time.monotonic() + 100
        while not all(board.last_steps().get(cell.name, Step()).state in ENDED for cell in cells):
            assert time.monotonic() < until
            time.sleep(0.05)
        return {cell.name: board.last_steps()[cell.name] for cell in cells}

    monkeypatch.setattr(train_cells, "train_here", wait_for_helper)
    assert run_on(mixed, "here")
    assert exit_status(helpers[0]) == 0
    assert bits_of(mixed) == undisturbed
    assert set(cells_of(mixed)) == CELLS
    assert {step.who.rpartition(":")[2] for step in cells_of(mixed).values()} == {str(helpers[0].pid)}
    said = log.read_text()
    assert "another podium compete works on" in said
    assert f"podium: cell {MEMBER}@fold1" in said
    assert "has ended" in said.splitlines()[-1]


def look_often() -> None:
    compete_cells.LOOK = 0.1


@pytest.mark.all
def test_jobs_train_what_one_process_trains_to_the_bit(
    mixed: Path,
    undisturbed: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    assert run_on(mixed, "local", at_once=2, threads=1)
    assert bits_of(mixed) == undisturbed
    assert {step.state for step in cells_of(mixed).values()} == {"done"}
    assert len(list((mixed / "runs/tiny/.cells/jobs").glob("*_submitted.pkl"))) == 2


def test_a_member_whose_cell_fails_is_named_with_the_reason(
    mixed: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> None:
        raise PodiumError("no memory")

    monkeypatch.setattr(train_cells, "train_request", fail)
    with pytest.raises(PodiumError, match=f"{MEMBER} failed"):
        run_on(mixed, "here")
    assert f"{MEMBER} failed and is left out: {MEMBER}@fold0: no memory" in capsys.readouterr().err
    assert {step.state for step in cells_of(mixed).values()} == {FAILED}


def test_a_head_is_no_cell(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (BackboneRow("tf_efficientnet_lite0", "efficientnet_lite", 25.2, (32,)),)
    monkeypatch.setattr("podium.competing.understand.BACKBONES", rows)
    outcome = run_on(mixed, "here")
    assert outcome
    assert list(outcome.members) == ["tf_efficientnet_lite0-head-32"]
    assert not (mixed / "runs/tiny/.cells").exists()


def test_a_model_of_all_images_is_no_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = list[Any]()
    monkeypatch.setattr(compete_cells, "train_folds", trained.append)
    plan: Any = SimpleNamespace(recipe=SimpleNamespace(takes_steps=True), folds_to_train=(WHOLE,))
    compete_cells._train_member(argparse.Namespace(), plan)
    assert trained == [plan]


# --- the words of a job ------------------------------------------------------------------------------


def test_the_words_of_a_job_mean_the_options_of_the_member() -> None:
    many = Data(images=AUTO_MANY_IMAGES, shape=0.75)  # each member then has more options of its own
    members = [*candidates_of(BACKBONES, many, "cpu", {}, is_mirrored=False), *candidates_of((), Data(), "cpu", {})]
    parser = parser_of({"train": Command(lambda _: None, flags.train)}, "")
    assert len(members) > 100
    for member in members:
        args = parser.parse_args(["train", *words_of(member.name, member.options)])
        assert {name: getattr(args, name) for name in member.options} == {
            **member.options,
            "model": [member.options["model"]],
        }
        assert args.name == member.name


# --- refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--on", "sky"), "podium kaggle-train"),
        (("--on", "there"), "is not here, slurm"),
        (("--at-once", "2"), "--at-once is for several machines"),
        (("--on", "here", "--job", "timeout_min=3"), "--job"),
        (("--on", "here", "--cell", "a@fold0"), "--cell"),
    ],
)
def test_what_does_not_go_with_it_is_refused_before_an_image_is_read(
    tiny: Path, podium: Podium, words: tuple[str, ...], named: str
) -> None:
    assert named in one_line(podium("compete", "-c", "tiny", *words))
    assert not (tiny / "runs").exists()


def test_what_machines_may_decide_differently_is_refused(tiny: Path, podium: Podium) -> None:
    (tiny / "data/competitions").mkdir(exist_ok=True)
    (tiny / "data/competitions/tiny.toml").write_text('[recipe]\naccumulate = "auto"\n')
    assert "machines may decide differently" in one_line(podium("compete", "-c", "tiny", "--on", "here"))


def test_slurm_is_refused_where_there_is_none(tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "there is no sbatch on PATH" in one_line(podium("compete", "-c", "tiny", "--on", "slurm:gpu"))


def test_a_second_one_helps_only_where_folds_are_shared(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compete_cells, "LOOK", 0.01)
    ledger = Ledger("tiny", tiny)
    with ledger.open():
        assert "another podium compete works on" in one_line(podium("compete", "-c", "tiny", "--on", "local"))
        ledger.add(STARTED, budget=60.0)
        assert "start it with --on here" in one_line(podium("compete", "-c", "tiny", "--on", "here"))
        assert not ledger.of(BEGUN)
    assert not ledger.is_in_use()


def test_without_on_the_fleet_is_not_imported() -> None:
    block = "sys.modules['podium_annex.fleet.cell_board'] = None"
    code = f"import sys; {block}; import podium_annex.commands, podium.competing.compete"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
