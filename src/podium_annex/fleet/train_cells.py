"""Trains what one command asks for as cells, each a fold of a run, where `--on` says.

    podium train --model A B --seeds 0-4 --on here         this process takes free cells of the shared folder
    podium train --model A B --seeds 0-4 --on slurm:gpu    an array of Slurm
    podium train --model A B --seeds 0-4 --on sky          a file for SkyPilot

All requests are checked before the first cell begins.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace

from podium.basics.errors import PodiumError
from podium.basics.terminal import podium_command, say
from podium.basics.torchrun import started_by_torchrun
from podium.cli.sweep import list_requests, show_comparison, train_request
from podium.competition.card import read_card
from podium.options.option_kinds import AUTO
from podium.saved_runs.fold_names import holds_nothing_out
from podium.training.request import Request, check_request, check_weights, name_of_run
from podium_annex.fleet.cell_board import FAILED, Board, Step
from podium_annex.fleet.cell_sweep import TRAIN, Cell, Sweep, open_sweep
from podium_annex.fleet.cells import prepare_once, refuse_failed, run_in_queue, write_sky_file
from podium_annex.fleet.slurm_jobs import check_queue
from podium_annex.fleet.where import HERE, SKY
from podium_annex.fleet.work import work


def train_cells(args: argparse.Namespace, request: Request) -> None:
    """Trains each fold of each run of the command, on all machines that take part."""
    _refuse_what_is_no_cell(args, request)
    if args.on.kind not in (HERE, SKY):
        check_queue(args.on, args.root)
    requests = {}
    for single in list_requests(args, request):
        options = check_request(args.competition, args.root, single)
        refuse_choices_of_one_machine(args, single)
        check_weights(args.competition, args.root, options, args.on.kind == SKY)
        name = name_of_run(single, options)
        requests[name] = replace(single, name=name)
    if args.on.kind == SKY:
        write_sky_file(args)
        return
    _report(args, *train_runs(args, requests))


def train_runs(args: argparse.Namespace, requests: Mapping[str, Request]) -> tuple[Sweep, dict[str, Step]]:
    """Trains the cells of these runs, without a comparison; returns what became of each."""
    sweep = _prepared(args, requests)
    chosen = [cell for cell in sweep.cells if args.cell in (None, cell.name)]
    if not chosen:
        raise PodiumError(f"--cell {args.cell}: no such cell; {podium_command()} jobs lists them")
    _reopen(sweep, chosen)
    train = train_here if args.on.kind == HERE else _train_in_queue
    return sweep, train(args, sweep, chosen, requests)


def sweep_of(args: argparse.Namespace, runs: Sequence[str]) -> Sweep:
    return open_sweep(args.competition, args.root, TRAIN, [list(runs), list(args.folds or ())], {})


def _prepared(args: argparse.Namespace, requests: Mapping[str, Request]) -> Sweep:
    """Returns the sweep, once audit, folds and pixels are there."""
    from podium_annex.fleet.prepare import folds_of

    sweep = sweep_of(args, list(requests))
    prepare_once(args, sweep, list(requests.values()))
    folds = folds_of(args.competition, args.root, next(iter(requests.values())))
    return sweep.with_runs(dict.fromkeys(requests, folds))


def _reopen(sweep: Sweep, cells: Sequence[Cell]) -> None:
    """Frees cells that failed or whose files are gone; those that were trained without a worker are done."""
    from podium.saved_runs.run_folder import Run  # it imports numpy

    finished = {run: Run(sweep.folder.parent / run).models() for run in sweep.runs}
    sweep.reopen(cells, lambda cell: cell.fold in finished[cell.run])


def train_here(
    args: argparse.Namespace, sweep: Sweep, cells: Sequence[Cell], requests: Mapping[str, Request]
) -> dict[str, Step]:
    """Trains the cells that no other worker trains; returns the last steps of all, once all have ended."""
    by_name = {cell.name: cell for cell in cells}

    def train(name: str) -> None:
        cell = by_name[name]
        say(f"podium: cell {name}")
        train_request(args, replace(requests[cell.run], folds=(cell.fold,)))

    return work(Board(sweep.folder), list(by_name), train, sweep.rhythm)


def _train_in_queue(
    args: argparse.Namespace, sweep: Sweep, cells: Sequence[Cell], requests: Mapping[str, Request]
) -> dict[str, Step]:
    return run_in_queue(args, sweep, cells, args.words)


def _report(args: argparse.Namespace, sweep: Sweep, last: Mapping[str, Step]) -> None:
    """Compares the runs once all cells of the sweep have ended; names those that have failed."""
    failed = [cell for cell, step in last.items() if step.state == FAILED]
    trained = [run for run in sweep.runs if any(cell.run == run and cell.name not in failed for cell in sweep.cells)]
    if trained and args.cell is None:
        show_comparison(args, trained)
    refuse_failed(last)


# --- refusals ----------------------------------------------------------------------------------------


def _refuse_what_is_no_cell(args: argparse.Namespace, request: Request) -> None:
    where = f"--on {args.on}"
    for flag, (is_given, remedy) in {
        "--processes": (args.processes is not None or started_by_torchrun(), "start a worker for each GPU instead"),
        "--budget": (request.budget, "it divides the time of one process; give --epochs"),
        "--rounds": (args.rounds > 1, "a round needs the end of the one before; train them one after the other"),
        "--dry-run": (args.dry_run, f"leave out {where} to see what a run would do"),
        "--linear": (request.options.get("linear"), f"it takes seconds; leave out {where}"),
        "--model auto": ("auto" in (args.model or ()), "each machine would look for itself; name a model"),
        "--folds all": (any(map(holds_nothing_out, request.folds)), "train it after the folds, without --on"),
    }.items():
        if is_given:
            raise PodiumError(f"{flag} does not go with {where}: {remedy}")


def refuse_choices_of_one_machine(args: argparse.Namespace, request: Request) -> None:
    """Refuses what trial steps would decide: each cell might decide it differently."""
    card = read_card(args.competition, args.root).get("recipe", {})
    accumulate = {**card, **request.options}.get("accumulate")
    for flag, value in {
        "--accumulate": accumulate,
        "--store": request.machine.store,
        "--compile": request.machine.compile,
    }.items():
        if value == AUTO:
            raise PodiumError(f"{flag} auto does not go with --on {args.on}: machines may decide differently; choose")
