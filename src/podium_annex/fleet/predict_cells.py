"""Predicts the test images for a submission where `--on` says: a cell for each fold model that has not predicted yet.

    podium submit --runs A B --on here          this process takes free cells of the shared folder
    podium submit --runs A B --on slurm:gpu     an array of Slurm

A cell writes fold<k>/test.npz, where the plain command looks for it and would write it.
"""

import argparse
from collections.abc import Sequence

from podium.basics.errors import PodiumError
from podium.basics.machine import Machine
from podium.basics.terminal import plural, podium_command, say
from podium.competition.load import Competition
from podium.saved_runs.run_folder import Run
from podium.submissions.submission import Models
from podium.training.test_predictions import keep_predictions, kept_predictions, open_stores
from podium_annex.fleet.cell_board import FAILED, Board, Step
from podium_annex.fleet.cell_sweep import PREDICT, Cell, Sweep, open_sweep, read_sweeps
from podium_annex.fleet.cells import machine_words, refuse_failed, run_in_queue
from podium_annex.fleet.slurm_jobs import check_queue
from podium_annex.fleet.where import HERE, SKY
from podium_annex.fleet.work import work


def check_place(args: argparse.Namespace) -> None:
    """Refuses places where no cell can be predicted."""
    if args.on.kind == SKY:
        raise PodiumError("--on sky does not go with submit: predictions take minutes; use --on here or --on slurm")
    if args.on.kind != HERE:
        check_queue(args.on, args.root)


def predict_missing(args: argparse.Namespace, machine: Machine, competition: Competition, models: Models) -> None:
    """Predicts with the models whose predictions are missing, on all machines that take part."""
    models = {run: folds for run, folds in models.items() if not run.imported}
    if not models:
        return
    stores = open_stores(competition, models, machine)
    runs = {run.name: run for run in models}
    folds = {run.name: list(folds) for run, folds in models.items()}
    sweep = open_sweep(competition.slug, args.root, PREDICT, folds, {}).with_runs(folds)
    missing = [
        cell
        for cell in sweep.cells
        if not kept_predictions(competition, stores[runs[cell.run]].of_fold(cell.fold), runs[cell.run], cell.fold)
    ]
    sweep.reopen(sweep.cells, lambda cell: cell not in missing)
    if not missing:
        return
    say(f"podium: {plural(len(missing), 'cell')} of {len(sweep.cells)}: a fold model that predicts the test images")
    if args.on.kind == HERE:
        last = _predict_here(competition, args, sweep, missing, machine)
    else:
        last = run_in_queue(args, sweep, missing, ["submit", *machine_words(args)])
    refuse_failed(last)


def predict_cell(args: argparse.Namespace, competition: Competition, machine: Machine) -> None:
    """Predicts one cell: a job of a queue does."""
    for sweep in reversed(read_sweeps(competition.slug, args.root)):
        cells = [cell for cell in sweep.cells if cell.kind == PREDICT and cell.name == args.cell]
        if cells:
            break
    else:
        raise PodiumError(f"--cell {args.cell}: no such cell; {podium_command()} jobs lists them")
    last = _predict_here(competition, args, sweep, cells, machine)
    if last[args.cell].state == FAILED:
        raise PodiumError(last[args.cell].why)


def _predict_here(
    competition: Competition, args: argparse.Namespace, sweep: Sweep, cells: Sequence[Cell], machine: Machine
) -> dict[str, Step]:
    by_name = {cell.name: cell for cell in cells}

    def predict(name: str) -> None:
        cell = by_name[name]
        say(f"podium: cell {name}")
        run = Run(sweep.folder.parent / cell.run)
        store = open_stores(competition, [run], machine)[run].of_fold(cell.fold)
        keep_predictions(competition, store, run, cell.fold, machine)

    return work(Board(sweep.folder), list(by_name), predict, sweep.rhythm)
