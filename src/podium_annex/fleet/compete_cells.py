"""Competes with several machines: the folds of fine-tuned members, and of those from scratch, are cells of `train`.

    podium compete --on here          this process decides and trains; the same command on other machines helps it
    podium compete --on slurm:gpu     this process decides; arrays of Slurm train

A member is trained as by `podium train --name MEMBER --folds ... --on WHERE`. Frozen heads, which take seconds, and
models of all images, which no cell trains, are left to this process.
"""

import argparse
import time
from dataclasses import replace
from functools import partial

from podium.basics.errors import InUse, PodiumError
from podium.basics.machine import Machine
from podium.basics.project_root import runs_folder
from podium.basics.terminal import say
from podium.competing.choices import CompeteRequest
from podium.competing.compete import compete
from podium.competing.ending import Outcome
from podium.competing.next_moves import words_of
from podium.competing.portfolio import HEAD
from podium.competing.workshop import options_of_run
from podium.competition.load import Competition
from podium.saved_runs.fold_names import holds_nothing_out
from podium.saved_runs.ledger import STARTED, Ledger
from podium.saved_runs.run_folder import Run
from podium.training.plan import Plan
from podium.training.request import Request
from podium.training.train import train_folds
from podium_annex.fleet.cell_board import FAILED
from podium_annex.fleet.cells import machine_words
from podium_annex.fleet.slurm_jobs import check_queue
from podium_annex.fleet.train_cells import refuse_choices_of_one_machine, sweep_of, train_here, train_runs
from podium_annex.fleet.where import HERE, SKY, check_flags

LOOK = 5.0  # seconds between two looks of a helper at what the first process has begun


def check_place(args: argparse.Namespace) -> None:
    """Refuses what would fail with every member."""
    check_flags(args)
    if args.on.kind == SKY:
        raise PodiumError(
            "--on sky does not go with compete, which decides after each member; start podium compete itself on a"
            " machine of the cloud, or train on Kaggle's with podium kaggle-train"
        )
    refuse_choices_of_one_machine(args, Request({}))
    if args.on.kind != HERE:
        check_queue(args.on, args.root)


def compete_on_machines(args: argparse.Namespace, competition: Competition, request: CompeteRequest) -> Outcome | None:
    """Competes; or helps the `podium compete` that works there already, and returns None."""
    try:
        shared = replace(request, train=partial(_train_member, args), on=str(args.on))
        return compete(competition, shared)
    except InUse:
        if args.on.kind != HERE or not Ledger(args.competition, args.root).is_in_use():
            raise
    _help(args, request.machine)
    return None


def _train_member(args: argparse.Namespace, plan: Plan) -> None:
    if not plan.recipe.takes_steps or any(map(holds_nothing_out, plan.folds_to_train)):
        train_folds(plan)
        return
    request = replace(plan.request, name=plan.run.name, budget=None)  # a cell knows nothing of the others' time
    _, last = train_runs(_as_train(args, request), {plan.run.name: request})
    for cell, step in last.items():
        if step.state == FAILED:
            raise PodiumError(f"{cell}: {step.why}")


def _as_train(args: argparse.Namespace, request: Request) -> argparse.Namespace:
    """Returns the arguments of the `podium train` that trains the member: jobs run its words."""
    words = ["train", *words_of(str(request.name), request.options), *machine_words(args)]
    words += ["--folds", ",".join(map(str, request.folds))]
    return argparse.Namespace(**{**vars(args), "words": words, "folds": request.folds, "dry_run": False})


def _help(args: argparse.Namespace, machine: Machine) -> None:
    """Trains free cells of the member that the first process has begun, until that one has ended."""
    folder = runs_folder(args.competition, args.root)
    say(f"podium: another podium compete works on {folder}; this one trains folds for it, until that one ends")
    ledger = Ledger(args.competition, args.root)
    while ledger.is_in_use():
        time.sleep(LOOK)
        ledger = Ledger(args.competition, args.root)
        started, begun = ledger.of(STARTED), ledger.unfinished()
        if started and not started[-1].get("on"):
            raise InUse(f"the podium compete that works on {folder} has no --on; stop it, and start it with --on here")
        if begun is None or begun["kind"] == HEAD or any(map(holds_nothing_out, begun["folds"])):
            continue
        name, options = begun["member"], options_of_run(Run(folder / begun["member"]), begun["options"])
        request = Request(options, begun["folds"], name, machine)
        as_train = _as_train(args, request)
        sweep = sweep_of(as_train, [name])
        if sweep.cells:  # the first process has opened them
            train_here(as_train, sweep, sweep.cells, {name: request})
    say("podium: the podium compete that this one has helped has ended")
