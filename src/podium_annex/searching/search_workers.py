"""Searches with several workers, where `--on` says: each is the plain command on the shared folder.

    podium search --model A B --on here --at-once 2         processes of this machine
    podium search --model A B --on slurm:gpu --at-once 8    an array of Slurm
    podium search --model A B --on sky                      a file for SkyPilot

The journal of the search divides the trials among the workers (searching/study.py). The board shows who works, and how
much of the budget a worker has used that a queue has stopped and started again.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few, podium_command, say
from podium.tasks.metrics import METRICS
from podium.training.request import Request
from podium_annex.fleet.cell_board import DONE, FAILED, Board, Step, reopen, take
from podium_annex.fleet.cell_sweep import SEARCH, Sweep, open_sweep, prefix_of_workers
from podium_annex.fleet.cells import AT_ONCE, prepare_once, run_in_queue, words_without, write_sky_file
from podium_annex.fleet.slurm_jobs import check_queue
from podium_annex.fleet.where import HERE, SKY
from podium_annex.fleet.work import work
from podium_annex.searching.search_request import SearchRequest

if TYPE_CHECKING:
    from podium_annex.searching.search_plan import SearchPlan
    from podium_annex.searching.study import SearchStudy


def search_on_machines(args: argparse.Namespace, request: SearchRequest, models: tuple[str, ...]) -> bool:
    """Searches until the trials or the time are over; returns whether this command shows the report."""
    if args.on.kind == SKY:
        write_sky_file(args, "search")
        return False
    if args.on.kind != HERE:
        check_queue(args.on, args.root)
    sweep = open_sweep(args.competition, args.root, SEARCH, request.name, {request.name: ()})
    if args.cell:
        _work_as(args.cell, sweep, request, models, args)
        return False
    plan = _prepare(args, sweep, request, models)
    last = (
        _search_here(args, sweep)
        if args.on.kind == HERE
        else _search_in_queue(args, sweep, partial(_is_over, plan, args.trials))
    )
    failed = [cell for cell, step in last.items() if step.state == FAILED]
    if len(failed) == len(last):
        raise PodiumError(
            f"all workers failed: {first_few(failed)}; {podium_command()} jobs says why, and the same command tries"
            " again"
        )
    if failed:
        say(f"podium: warning: {len(failed)} of {len(last)} workers failed: {first_few(failed)}")
    return _has_ended(plan)


def _has_ended(plan: "SearchPlan") -> bool:
    """Returns whether no other machine goes on searching: the last one shows the report."""
    if not _study_of(plan).is_busy():
        return True
    say("podium: other workers are still training trials of this search; the last of them shows the report")
    return False


def _study_of(plan: "SearchPlan") -> "SearchStudy":
    from podium_annex.searching.study import SearchStudy

    return SearchStudy(plan.folder, METRICS[plan.base.competition.metric]().better)


def _is_over(plan: "SearchPlan", trials: int) -> bool:
    """Returns whether nothing is left to try."""
    from podium_annex.searching.study import FINISHED

    return len(_study_of(plan).trials(*FINISHED)) >= trials


def _prepare(args: argparse.Namespace, sweep: Sweep, request: SearchRequest, models: tuple[str, ...]) -> "SearchPlan":
    """Makes what all workers read, and refuses what each of them would refuse."""
    sizes = [{"image_size": size} for size in request.sizes] or [{}]
    runs = [
        Request({**request.options, "model": model, **size}, name=f"{request.name}-defaults", machine=request.machine)
        for model in models
        for size in sizes
    ]
    prepare_once(args, sweep, runs)
    from podium_annex.searching.search_plan import plan_search
    from podium_annex.searching.study import keep_settings

    plan = plan_search(args.competition, args.root, request, models)
    keep_settings(plan.folder, plan.settings())
    return plan


def _search_here(args: argparse.Namespace, sweep: Sweep) -> dict[str, Step]:
    from podium_annex.fleet.worker_processes import gpus_of_workers, run_workers

    sweep = sweep.with_runs(sweep.runs)
    words = words_without(args.words, {"--on": 1, "--at-once": 1, "--write-card": 0})
    words += ["--root", str(args.root.resolve()), "-c", args.competition]
    gpus = gpus_of_workers(args.at_once or 1, args.device)
    return run_workers(Board(sweep.folder), prefix_of_workers(args.name), sweep.rhythm, words, gpus)


def _search_in_queue(args: argparse.Namespace, sweep: Sweep, is_over: Callable[[], bool]) -> dict[str, Step]:
    """Follows the workers of the queue. After a report, the same command lets them go on, with a new budget."""
    count = args.at_once or AT_ONCE
    sweep = sweep.with_runs({args.name: range(max(count, len(sweep.cells)))})
    cells = sweep.cells[:count]
    board, reported = Board(sweep.folder), f"report-{sweep.digest}"
    steps = board.last_steps()
    ended = (DONE, FAILED) if steps.get(reported, Step()).state == DONE else (FAILED,)
    reopen(board, [name for name in (cell.name for cell in cells) if steps.get(name, Step()).state in ended])
    reopen(board, [reported])
    last = run_in_queue(args, sweep, cells, words_without(args.words, {"--write-card": 0}), is_over)
    lease = take(board, reported, board.last_steps().get(reported, Step()), sweep.rhythm)
    if lease is not None:
        lease.end(DONE)
    return last


def _work_as(
    cell: str, sweep: Sweep, request: SearchRequest, models: tuple[str, ...], args: argparse.Namespace
) -> None:
    """Searches as one worker of a queue."""
    if cell not in [known.name for known in sweep.cells]:
        raise PodiumError(f"--cell {cell}: no such cell; {podium_command()} jobs lists them")
    board = Board(sweep.folder)

    def run(name: str) -> None:
        from podium_annex.searching.search import search
        from podium_annex.searching.search_plan import plan_search

        spent = sum(board.beats_so_far(name, board.last_steps()[name])) * sweep.rhythm.beat
        search(plan_search(args.competition, args.root, replace(request, spent=spent), models))

    last = work(board, [cell], run, sweep.rhythm)
    if last[cell].state == FAILED:
        raise PodiumError(last[cell].why)
