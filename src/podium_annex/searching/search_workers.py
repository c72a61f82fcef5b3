"""Searches with several workers, where `--on` says: each is the plain command on the shared folder.

    podium search --model A B --on ray --at-once 2          tasks of Ray
    podium search --model A B --on slurm:gpu --at-once 8    an array of Slurm

The study of the search divides the trials among the workers (searching/study.py).
"""

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few, say
from podium.tasks.metrics import METRICS
from podium.training.request import Request
from podium_annex.fleet.cell_command import SPENT
from podium_annex.fleet.cells import RAY, run_cells, work_alone
from podium_annex.searching.search_request import SearchRequest

if TYPE_CHECKING:
    from podium_annex.searching.search_plan import SearchPlan
    from podium_annex.searching.study import SearchStudy


def search_on_machines(args: argparse.Namespace, request: SearchRequest, models: tuple[str, ...]) -> bool:
    """Searches until the trials or the time are over; returns whether this command shows the report."""
    plan = _prepare(args, request, models)
    workers = [f"{request.name}@worker-{number}" for number in range(1, _count_workers(args) + 1)]
    failed = run_cells(args, args.words, workers, lambda: _is_over(plan, args.trials))
    if len(failed) == len(workers):
        raise PodiumError(f"all workers failed: {first_few(failed)}; the reasons are above")
    if failed:
        say(f"podium: warning: {len(failed)} of {len(workers)} workers failed: {first_few(failed)}")
    return _has_ended(plan)


def search_as_worker(args: argparse.Namespace, request: SearchRequest, models: Sequence[str]) -> bool:
    """Searches in the process of a cell; the command that has started it shows the report."""
    from podium_annex.searching.search import search
    from podium_annex.searching.search_plan import plan_search

    request = replace(request, spent=float(os.environ.get(SPENT, "0")))
    work_alone(lambda: search(plan_search(args.competition, args.root, request, tuple(models))))
    return False


def _count_workers(args: argparse.Namespace) -> int:
    from podium_annex.fleet.ray_tasks import at_once
    from podium_annex.fleet.slurm_jobs import AT_ONCE

    return at_once(args) if args.on.startswith(RAY) else args.at_once or AT_ONCE


def _has_ended(plan: "SearchPlan") -> bool:
    """Returns whether no other process goes on searching: the last one shows the report."""
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


def _prepare(args: argparse.Namespace, request: SearchRequest, models: tuple[str, ...]) -> "SearchPlan":
    """Makes what all workers read, and refuses what each of them would refuse."""
    from podium_annex.fleet.train_cells import prepare
    from podium_annex.searching.search_plan import plan_search
    from podium_annex.searching.study import keep_settings

    sizes = [{"image_size": size} for size in request.sizes] or [{}]
    runs = [
        Request({**request.options, "model": model, **size}, name=f"{request.name}-defaults", machine=request.machine)
        for model in models
        for size in sizes
    ]
    prepare(args.competition, args.root, runs)
    plan = plan_search(args.competition, args.root, request, models)
    keep_settings(plan.folder, plan.settings())
    return plan
