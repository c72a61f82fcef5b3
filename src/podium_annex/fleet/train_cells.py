"""Trains what one command asks for as cells, each a fold of a run, where `--on` says.

    podium train --model A B --seeds 0-4 --on ray | slurm:gpu
    podium compete --on ray                                    this process decides; the machines train

All requests are checked before the first cell begins. Audit, folds and pixels are made once, by this command.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from podium.basics.errors import PodiumError
from podium.basics.project_root import runs_folder
from podium.basics.terminal import plural, say
from podium.basics.torchrun import started_by_torchrun
from podium.cli.sweep import list_requests, show_comparison, train_request
from podium.competition.card import read_card
from podium.competition.load import load_and_report
from podium.folds.folds_csv import folds_path, read_folds, write_folds
from podium.folds.strategies import Split
from podium.options.option_kinds import AUTO
from podium.saved_runs.fold_names import holds_nothing_out
from podium.saved_runs.run_folder import Run
from podium.training.request import Request, check_before_plan, check_request, check_weights, name_of_run
from podium_annex.fleet.cells import SKY, chosen, name_of, refuse_failed, run_cells, work_alone

if TYPE_CHECKING:
    from podium.training.plan import Plan


def train_cells(args: argparse.Namespace, request: Request) -> None:
    """Trains each fold of each run of the command that is not finished, and compares the runs."""
    requests = check_requests(args, request)
    prepare(args.competition, args.root, list(requests.values()))
    cells = _cells(args, requests)
    failed = _train(args, args.words, cells)
    if trained := dict.fromkeys(str(one.name) for cell, one in cells.items() if cell not in failed):
        show_comparison(args, list(trained))
    refuse_failed(failed, len(cells))


def train_cell(args: argparse.Namespace, request: Request) -> None:
    """Trains one cell: a task or a job does."""
    single = chosen(args.cell, _cells(args, check_requests(args, request)))
    work_alone(lambda: train_request(args, single))


def train_member(args: argparse.Namespace, plan: "Plan") -> None:
    """Trains a member as cells, but for frozen heads, which take seconds, and models of all images."""
    from podium.competing.show_next_steps import words_of
    from podium.training.train import train_folds

    if not plan.recipe.takes_steps or any(map(holds_nothing_out, plan.folds_to_train)):
        train_folds(plan)
        return
    name, folds = plan.run.name, plan.folds_to_train
    request = replace(plan.request, name=name, budget=None)  # a cell knows nothing of the others' time
    given = {"--device": args.device, "--workers": args.workers, "--threads": args.threads, "--store": args.store}
    machine = [str(word) for pair in given.items() if pair[1] is not None for word in pair]
    words = ["train", *words_of(name, request.options), *machine, "--folds", ",".join(map(str, folds))]
    prepare(args.competition, args.root, [request])
    cells = {name_of(name, fold): replace(request, folds=(fold,)) for fold in folds}
    for cell, problem in _train(args, words, cells).items():
        raise PodiumError(f"{cell}: {problem}")


def _train(args: argparse.Namespace, words: Sequence[str], cells: Mapping[str, Request]) -> dict[str, str]:
    """Trains the cells that are not finished; returns what went wrong with those that failed."""
    folder = runs_folder(args.competition, args.root)
    left = [cell for cell, one in cells.items() if one.folds[0] not in Run(folder / str(one.name)).models()]
    if len(left) < len(cells):
        say(f"podium: trained already: {len(cells) - len(left)} of {plural(len(cells), 'cell')}")
    return run_cells(args, words, left) if left else {}


def _cells(args: argparse.Namespace, requests: Mapping[str, Request]) -> dict[str, Request]:
    """Returns the request of each cell: of all folds, if none is named."""
    first = next(iter(requests.values()))
    folds = sorted(set(first.folds)) or range(
        read_folds(load_and_report(args.competition, args.root, first.corrections)).count
    )
    return {name_of(name, fold): replace(one, folds=(fold,)) for name, one in requests.items() for fold in folds}


def prepare(slug: str, root: Path, requests: Sequence[Request]) -> None:
    """Makes what is missing of audit, folds and pixels. Runs of one model and size read the same pixels."""
    from podium.training.open_regions import open_regions
    from podium.training.plan import make_plan

    if not folds_path(slug, root).exists():
        write_folds(load_and_report(slug, root, requests[0].corrections), Split())
    for request in {(one.options.get("model"), one.options.get("image_size")): one for one in requests}.values():
        open_regions(make_plan(check_before_plan(slug, root, request)), request.machine.keep_pixels)


def check_requests(args: argparse.Namespace, request: Request) -> dict[str, Request]:
    """Returns the requests by the names of their runs; refuses what is no cell, and what a run would refuse."""
    for flag, (is_given, remedy) in {
        "--processes": (args.processes is not None or started_by_torchrun(), "each cell gets a GPU instead"),
        "--budget": (request.budget, "it divides the time of one process; give --epochs"),
        "--rounds": (args.rounds > 1, "a round needs the end of the one before; train them one after the other"),
        "--linear": (request.options.get("linear"), "it takes seconds; leave out --on"),
        "--model auto": ("auto" in (args.model or ()), "each machine would look for itself; name a model"),
        "--folds all": (any(map(holds_nothing_out, request.folds)), "train it after the folds, without --on"),
    }.items():
        if is_given:
            raise PodiumError(f"{flag} does not go with --on {args.on}: {remedy}")
    refuse_choices_of_one_machine(args, request)
    requests = {}
    for single in list_requests(args, request):
        options = check_request(args.competition, args.root, single)
        check_weights(args.competition, args.root, options, args.on == SKY)
        name = name_of_run(single, options)
        requests[name] = replace(single, name=name)
    return requests


def refuse_choices_of_one_machine(args: argparse.Namespace, request: Request) -> None:
    """Refuses what trial steps would decide: each cell might decide it differently."""
    chosen_here = {
        **read_card(args.competition, args.root).get("recipe", {}),
        **vars(request.machine),
        **request.options,
    }
    for name in ("accumulate", "store", "compile"):
        if chosen_here.get(name) == AUTO:
            raise PodiumError(f"--{name} auto does not go with --on {args.on}: machines may decide differently; choose")
