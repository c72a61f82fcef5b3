"""podium compete --on: a member's folds are cells, which nodes of Ray or jobs train to the same bits."""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from competing.journeys import bits_of, run
from podium.basics.errors import PodiumError
from podium.cli.parser import Command
from podium.cli.parser import parser as parser_of
from podium.competing.choices import CompeteRequest
from podium.competing.compete import compete
from podium.competing.ending import Outcome
from podium.competing.portfolio import BACKBONES, QUESTIONS, BackboneRow, candidates_of
from podium.competing.show_next_steps import words_of
from podium.competition.load import load
from podium.options.recipe_defaults import AUTO_MANY_IMAGES, Data
from podium.saved_runs.fold_names import WHOLE
from podium.saved_runs.ledger import STARTED, Ledger
from podium_annex import flags
from podium_annex.fleet import slurm_jobs, train_cells
from podium_annex.fleet.cells import parse_where
from ray_cluster import RayCluster
from tiny import Podium, one_line

pytestmark = pytest.mark.slow
MEMBER = "test_resnet-scratch-32"
CELLS = {f"{MEMBER}@fold0", f"{MEMBER}@fold1"}


@pytest.fixture
def here(ray_cluster: RayCluster) -> Iterator[str]:
    """Where the cells are trained; this process is not connected afterwards."""
    yield ray_cluster.place
    import ray

    ray.shutdown()


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


def run_on(root: Path, where: str, **flags_given: Any) -> Outcome:
    given: dict[str, Any] = {"at_once": None, "job": None, "cell": None, "workers": None, "threads": None}
    args = argparse.Namespace(competition="tiny", root=root, on=parse_where(where), device="cpu", store="on", **given)
    vars(args).update(flags_given)
    request = CompeteRequest(600.0, train=partial(train_cells.train_member, args), on=where, most_members=1)
    return compete(load("tiny", root), request)


def cells_of(root: Path) -> set[str]:
    return {path.stem for path in root.glob("runs/tiny/.logs/*@*.log")}


def test_cells_train_what_one_process_trains_to_the_bit(mixed: Path, undisturbed: dict[str, str], here: str) -> None:
    assert run_on(mixed, here)
    assert bits_of(mixed) == undisturbed
    assert cells_of(mixed) == CELLS
    (started,) = Ledger("tiny", mixed).of(STARTED)
    assert started["on"] == here


@pytest.mark.all
def test_jobs_train_what_one_process_trains_to_the_bit(
    mixed: Path, undisturbed: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setattr(slurm_jobs, "CLUSTER", "local")
    assert run_on(mixed, "slurm", at_once=2, threads=1)
    assert bits_of(mixed) == undisturbed
    assert cells_of(mixed) == CELLS
    assert len(list((mixed / "runs/tiny/.logs/jobs").glob("*_submitted.pkl"))) == 2


def test_a_member_whose_cell_fails_is_named_with_the_reason(
    mixed: Path, here: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PodiumError, match=f"{MEMBER} failed"):
        run_on(mixed, here, device="mps")
    said = capsys.readouterr().err
    assert f"{MEMBER} failed and is left out: {MEMBER}@fold" in said
    assert "--device mps does not work here" in said


def test_a_head_is_no_cell(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (BackboneRow("tf_efficientnet_lite0", "efficientnet_lite", 25.2, (32,)),)
    monkeypatch.setattr("podium.competing.understand.BACKBONES", rows)
    outcome = run_on(mixed, "ray")
    assert list(outcome.members) == ["tf_efficientnet_lite0-head-32"]
    assert not (mixed / "runs/tiny/.logs").exists()


def test_a_model_of_all_images_is_no_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = list[Any]()
    monkeypatch.setattr("podium.training.train.train_folds", trained.append)
    plan: Any = SimpleNamespace(recipe=SimpleNamespace(takes_steps=True), folds_to_train=(WHOLE,))
    train_cells.train_member(argparse.Namespace(), plan)
    assert trained == [plan]


# --- the words of a job ------------------------------------------------------------------------------


def test_the_words_of_a_job_mean_the_options_of_the_member() -> None:
    many = Data(images=AUTO_MANY_IMAGES, shape=0.75, are_skewed=True)  # each member then has more options of its own
    learned = [question.options for question in QUESTIONS.values()]
    members = [one for options in learned for one in candidates_of(BACKBONES, many, "cpu", {}, options)]
    members += candidates_of((), Data(), "cpu", {})
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
        (("--on", "there"), "is not ray, ray:ADDRESS"),
        (("--at-once", "2"), "--at-once is for cells"),
        (("--on", "ray", "--job", "num_cpus"), "--job"),
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
    assert "machines may decide differently" in one_line(podium("compete", "-c", "tiny", "--on", "ray"))


def test_slurm_is_refused_where_there_is_none(tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "there is no sbatch on PATH" in one_line(podium("compete", "-c", "tiny", "--on", "slurm:gpu"))


def test_without_on_no_engine_is_imported() -> None:
    block = "sys.modules['ray'] = sys.modules['submitit'] = None"
    code = f"import sys; {block}; import podium_annex.commands, podium.competing.compete"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
