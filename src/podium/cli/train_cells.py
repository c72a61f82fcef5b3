"""Trains what one command asks for as cells, each a fold of a run, where `--on` says.

    podium train --model A B --seeds 0-4 --on here         this process takes free cells of the shared folder
    podium train --model A B --seeds 0-4 --on slurm:gpu    an array of Slurm
    podium train --model A B --seeds 0-4 --on sky          a file for SkyPilot

All requests are checked before the first cell begins.
"""

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from podium.cli.sweep import list_requests, show_comparison, train_request
from podium.competition.card import read_card
from podium.errors import PodiumError
from podium.fleet.cell_board import FAILED, Board, Step, reopen
from podium.fleet.cell_sweep import Cell, Sweep, open_sweep
from podium.fleet.slurm_jobs import check_queue, follow, open_queue
from podium.fleet.where import HERE, SKY
from podium.fleet.work import work
from podium.option_kinds import AUTO
from podium.saved_runs.fold_names import holds_nothing_out
from podium.terminal import first_few, podium_command, say
from podium.torchrun import started_by_torchrun
from podium.training.request import Request, check_request, check_weights, name_of_run


def train_cells(args: argparse.Namespace, request: Request) -> None:
    """Trains each fold of each run of the command, on all machines that take part."""
    _refuse_what_is_no_cell(args, request)
    if args.on.kind not in (HERE, SKY):
        check_queue(args.on, args.root)
    requests = {}
    for single in list_requests(args, request):
        options = check_request(args.competition, args.root, single)
        _refuse_choices_of_one_machine(args, single)
        check_weights(args.competition, args.root, options, args.on.kind == SKY)
        name = name_of_run(single, options)
        requests[name] = replace(single, name=name)
    if args.on.kind == SKY:
        _write_sky(args)
        return
    sweep = _prepared(args, requests)
    chosen = [cell for cell in sweep.cells if args.cell in (None, cell.name)]
    if not chosen:
        raise PodiumError(f"--cell {args.cell}: no such cell; {podium_command()} jobs lists them")
    sweep.reopen(chosen)
    _report(args, sweep, (_train_here if args.on.kind == HERE else _train_in_queue)(args, sweep, chosen, requests))


def _prepared(args: argparse.Namespace, requests: Mapping[str, Request]) -> Sweep:
    """Returns the sweep, once audit, folds and pixels are there: one worker makes them, the others wait."""
    from podium.fleet.prepare import folds_of, prepare

    sweep = open_sweep(args.competition, args.root, list(requests), args.folds or ())
    board, name = Board(sweep.folder), sweep.preparation
    if board.last_steps().get(name, Step()).state == FAILED:
        reopen(board, [name])
    runs = list(requests.values())
    last = work(board, [name], lambda _: prepare(args.competition, args.root, runs), sweep.rhythm)
    if last[name].state == FAILED:
        raise PodiumError(last[name].why)
    return sweep.with_folds(folds_of(args.competition, args.root, runs[0]))


def _train_here(
    args: argparse.Namespace, sweep: Sweep, cells: Sequence[Cell], requests: Mapping[str, Request]
) -> dict[str, Step]:
    by_name = {cell.name: cell for cell in cells}

    def train(name: str) -> None:
        cell = by_name[name]
        say(f"podium: cell {name}")
        train_request(args, replace(requests[cell.run], folds=(cell.fold,)))

    return work(Board(sweep.folder), list(by_name), train, sweep.rhythm)


def _train_in_queue(
    args: argparse.Namespace, sweep: Sweep, cells: Sequence[Cell], requests: Mapping[str, Request]
) -> dict[str, Step]:
    words = [*args.words, "--root", str(args.root.resolve()), "-c", args.competition, "--on", HERE]
    options = dict(word.partition("=")[::2] for word in args.job or ())
    return follow(open_queue(sweep, args.on, words, args.at_once, options), cells, args.at_once)


def _report(args: argparse.Namespace, sweep: Sweep, last: Mapping[str, Step]) -> None:
    """Compares the runs once all cells of the sweep have ended; names those that have failed."""
    failed = [cell for cell, step in last.items() if step.state == FAILED]
    trained = [run for run in sweep.runs if any(cell.run == run and cell.name not in failed for cell in sweep.cells)]
    if trained and args.cell is None:
        show_comparison(args, trained)
    if failed:
        raise PodiumError(
            f"{len(failed)} of {len(last)} cells failed: {first_few(failed)}; {podium_command()} jobs says why, and the"
            " same command tries them again"
        )


def _write_sky(args: argparse.Namespace) -> None:
    from podium.fleet.sky_file import write_sky

    words = _without(args.words, {"--root": 1, "--on": 1, "--at-once": 1})
    if not {"-c", "--competition"} & {word.partition("=")[0] for word in words}:
        words += ["-c", args.competition]
    path = write_sky(args.competition, words)
    say(f"podium: wrote {path}; name your bucket in it")
    say(f"next: sky jobs launch {path}")


def _without(words: Sequence[str], flags: Mapping[str, int]) -> list[str]:
    """Returns the words without these flags and their values."""
    kept, skip = [], 0
    for word in words:
        flag, has_value, _ = word.partition("=")
        if skip:
            skip -= 1
        elif flag in flags:
            skip = 0 if has_value else flags[flag]
        else:
            kept.append(word)
    return kept


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
    if args.job and args.on.kind == HERE and args.cell is None:
        raise PodiumError("--job is for jobs that a queue starts; leave it out, or use --on slurm")
    if wrong := [word for word in args.job or () if not re.fullmatch(r"\w+=\S+", word)]:
        raise PodiumError(f"--job {wrong[0]}: write NAME=VALUE, such as timeout_min=480")


def _refuse_choices_of_one_machine(args: argparse.Namespace, request: Request) -> None:
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
