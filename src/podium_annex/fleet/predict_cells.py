"""Predicts the test images for a submission as cells, one for each fold model whose fold<k>/test.npz is missing."""

import argparse
import math

from podium.basics.disk import locked
from podium.basics.machine import Machine
from podium.competition.load import Competition
from podium.saved_runs.run_folder import find_runs
from podium.submissions.submission import Models
from podium.training.test_predictions import keep_predictions, kept_predictions, open_stores
from podium_annex.fleet.cells import chosen, name_of, refuse_failed, run_cells


def predict_missing(args: argparse.Namespace, machine: Machine, competition: Competition, models: Models) -> None:
    """Predicts with the models whose predictions are missing."""
    models = {run: folds for run, folds in models.items() if not run.imported}
    stores = open_stores(competition, models, machine)
    missing = [
        f"{name_of(run.name, fold)}@test"
        for run, folds in models.items()
        for fold in folds
        if not kept_predictions(competition, stores[run].of_fold(fold), run, fold)
    ]
    if missing:
        refuse_failed(run_cells(args, args.words, missing), len(missing))


def predict_cell(args: argparse.Namespace, competition: Competition, machine: Machine) -> None:
    """Predicts one cell: a task or a job does."""
    runs = [run for run in find_runs(competition.slug, args.root) if not run.imported]
    cells = {f"{name_of(run.name, fold)}@test": (run, fold) for run in runs for fold in run.models()}
    run, fold = chosen(args.cell, cells)
    store = open_stores(competition, [run], machine)[run].of_fold(fold)
    with locked(run.path / f".{args.cell.partition('@')[2]}.lock", patience=math.inf):  # it may run elsewhere, too
        keep_predictions(competition, store, run, fold, machine)
