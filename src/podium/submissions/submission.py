"""Predicts the test images with every fold model of the chosen runs and writes what Kaggle expects.

    podium submit [-c SLUG] [--runs A B | --except A B]

Reads the competition's files and runs/<slug>/*/fold*/. Writes submissions/<slug>/<name>.csv, checked against the sample
submission row by row, and <name>.json, its lineage.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from podium.basics.disk import check_name, write_json
from podium.basics.errors import PodiumError
from podium.basics.machine import Machine
from podium.basics.terminal import command_for, plural, podium_command, say, uses_make
from podium.blending.blend import Blend
from podium.blending.expected_score import Estimate, add_fold_gain, best_score, clip_to_reachable
from podium.blending.own_stack import refuse_unknown_strategy
from podium.blending.pool_images import rows_of
from podium.blending.select_runs import select_runs, warn_of_changed_data
from podium.blending.strategy_names import RANK
from podium.competition.load import Competition
from podium.saved_runs.doubts import warn_of_edits, warn_of_folds, warn_of_versions
from podium.saved_runs.known_images import doubt_about_score
from podium.saved_runs.run_folder import Run
from podium.submissions.check import advice_on_same_answer, check_class_shares
from podium.submissions.choose_steps import ChosenSteps, choose_steps, wishes_of
from podium.submissions.kaggle_scores import HISTORY
from podium.submissions.predict_test import BlendedPredictions, predict_blend
from podium.submissions.record_lineage import record_lineage
from podium.submissions.write_csv import render, write_csv
from podium.tasks.task import ONE_LABEL

LONGEST_NAME = 100  # letters


Models = Mapping[Run, Sequence[int]]  # the fold models of runs


def submit(
    competition: Competition,
    names: list[str] | None = None,
    *,
    except_names: list[str] | None = None,
    name: str | None = None,
    blend: str | None = None,
    decision: str | None = None,
    anyway: bool = False,
    cost: Path | None = None,
    machine: Machine | None = None,
    predict_first: Callable[[Models], None] | None = None,
) -> Path:
    """Writes the blend of the runs and its lineage; returns the path of the CSV.

    Without `names` it takes all runs that a blend gains from (select_runs.py), but those in `except_names`. `name` is
    that of the CSV; by default, the names of the runs. `blend` is a name of strategy_names.py; without it,
    choose_blend.py chooses. `decision` is such a name, too, or that of one of the project's own; `cost` is a file of
    the cost of each mistake (cost.py); without them, the card's count. `anyway` writes it even if all images get the
    same class. `predict_first` gets the models that the submission needs; what it predicts is not predicted here.
    """
    _refuse_other_rows(competition)
    runs = select_runs(competition, names, except_names)
    name = read_name(name)
    refuse_unknown_strategy(blend)
    wishes = wishes_of(competition, blend, decision, cost)
    _refuse_unusable_runs(competition, {run: run.models() for run in runs})
    _announce(competition, {run: run.models() for run in runs})
    warn_of_changed_data(competition, runs)
    chosen = choose_steps(competition, runs, wishes)
    name = name or join_names([runs[number] for number in chosen.blend.without_unused()[1]])
    target = Target(name, anyway=anyway, predict_first=predict_first)
    return write_blend(competition, runs, chosen, target, machine or Machine()).path


def read_name(name: str | None) -> str:
    """Returns the name that the user gives a submission, without .csv; "" for none. Refuses one that is no name."""
    name = (name or "").removesuffix(".csv")
    if name:
        check_name(name, "the name of a submission")
    if f"{name}.csv" == HISTORY:
        raise PodiumError(f"{HISTORY} is reserved for Kaggle's scores; choose another --name")
    return name


@dataclass(frozen=True)
class Target:
    """Where a submission is written."""

    name: str  # of the CSV, without ".csv"
    replaces: bool = False  # an earlier submission of this name; else the next free name is taken
    anyway: bool = False  # also if all images get the same class
    decisions: Sequence[Mapping[str, Any]] = ()  # that led to it, for its lineage: member, why, seconds, gain
    predict_first: Callable[[Models], None] | None = None  # of submit()


@dataclass(frozen=True)
class Written:
    path: Path
    estimate: Estimate | None
    sha256: str
    models: Models


def write_blend(
    competition: Competition,
    runs: Sequence[Run],
    chosen: ChosenSteps,
    target: Target,
    machine: Machine,
) -> Written:
    """Predicts with the runs that the blend gives a weight; writes the CSV and its lineage."""
    blend, used = chosen.blend.without_unused()  # the others need not predict, and are no part of the submission
    models = {runs[number]: runs[number].models() for number in used}
    if target.predict_first:
        target.predict_first(models)
    predictions = predict_blend(competition, models, blend, machine)
    estimate = chosen.estimate and _estimate_of_test(competition, chosen.estimate, blend, predictions)
    advice = advice_on_same_answer(predictions.other_images)
    check_class_shares(competition, predictions.probs, target.anyway, blend.strategy == RANK, advice)
    text, folder = render(competition, predictions.probs), competition.root / "submissions" / competition.slug
    path = folder / f"{target.name}.csv" if target.replaces else free_path(folder, target.name, text)
    lineage = record_lineage(
        competition, path, text, predictions.facts, replace(chosen, blend=blend, estimate=estimate)
    )
    if predictions.test_shares:
        shares = predictions.test_shares()
        say(f"podium: {shares.describe()}")
        lineage["test_shares"] = shares.as_json()
    if target.decisions:
        lineage["decisions"] = list(target.decisions)
    write_csv(competition, path, text)
    write_json(path.with_suffix(".json"), lineage)
    say(f"podium: wrote {path} and {path.with_suffix('.json').name}")
    return Written(path, estimate, lineage["sha256"], models)


def suggest_next_step(competition: Competition, csv: Path, upload: str = "") -> str:
    """Returns the command that scores the submission, or how to upload it where there is no solution.

    `upload` is the command that uploads it, if the one that has made it cannot.
    """
    solution = competition.folder / "solution.csv"
    if solution.exists() and competition.task is ONE_LABEL:
        return f"{podium_command()} score {quote(str(csv))} --solution {quote(str(solution))}"
    upload = upload or f"the same command with {'UPLOAD=1' if uses_make() else '--upload'}"
    return f"{upload}, or upload it at https://www.kaggle.com/competitions/{competition.slug}/submit"


def _estimate_of_test(
    competition: Competition, estimate: Estimate, blend: Blend, predictions: BlendedPredictions
) -> Estimate:
    """Returns what to expect on the test images, now that they are predicted, and prints it."""
    metric, probs = competition.metric, predictions.probs
    if competition.task.sums_to_one:  # elsewhere, the probabilities do not say enough to draw answers
        undecided = predictions.fold_undecided
        estimate = add_fold_gain(estimate, blend, metric, predictions.fold_probs, predictions.fold_features, undecided)
    estimate = clip_to_reachable(estimate, metric, best_score(metric, probs, competition.answers_of(probs)))
    _say_estimate(competition, estimate)
    return estimate


def _refuse_other_rows(competition: Competition) -> None:
    """Raises if there are no test images, or if the answers are for pairs of them."""
    if competition.pairs and len(competition.test):
        columns = " and ".join(competition.pairs.columns)
        raise PodiumError(
            f"{competition.folder}: each row of the submission is a pair of images, {columns}, whose similarity is the"
            f" answer; write it with: {command_for('match', competition.slug)}"
        )
    if not len(competition.test):
        compare = command_for("compare", competition.slug)
        raise PodiumError(
            f"{competition.folder}: no test images, so there is nothing to submit; add a folder test/ with images, or"
            f" compare the runs with: {compare}"
        )


def _refuse_unusable_runs(competition: Competition, folds: Models) -> None:
    """Raises if a run has other classes or another range than the competition, or if a fold's weights are missing."""
    for run, run_folds in folds.items():
        trained_in, current = (values.get("range") or "none" for values in (run.recipe, competition.card))
        if trained_in != current and not run.imported:
            raise PodiumError(
                f"{run.path} was trained on values in the range {trained_in}, but {competition.card.path} now says"
                f" {current}; restore the range there, train the run again, or leave it out with --except"
            )
        for fold in run_folds:
            classes = run.out_of_fold(fold).classes
            if set(classes) != set(competition.classes):
                raise PodiumError(
                    f"{run.path} was trained on {len(classes)} classes that are not the {len(competition.classes)} of"
                    f" {competition.folder}; train it again, or leave it out with --except"
                )
            if not run.imported:
                run.weights_path(fold)


def _announce(competition: Competition, folds: Models) -> None:
    models = plural(sum(map(len, folds.values())), "model")
    say(f"podium: {len(competition.test):,} test images, {models} of {', '.join(run.name for run in folds)}")
    for run, run_folds in folds.items():
        missing = sorted(set(range(run.recipe["folds"])) - set(run_folds))
        if missing:
            numbers = ", ".join(map(str, missing))
            lacking = f"fold {numbers}, which is" if len(missing) == 1 else f"folds {numbers}, which are"
            say(f"podium: warning: {run.name} lacks its {lacking} not trained yet")
        if doubt := doubt_about_score(run):
            say(f"podium: warning: {doubt}, and so is the expected one")
        warn_of_folds(run)
        warn_of_edits(run)
        warn_of_versions(run)
    if len({run.recipe.get("folds_sha256") for run in folds}) > 1:
        say("podium: warning: these runs have different folds; the expected score of their blend may be too good")


def _say_estimate(competition: Competition, estimate: Estimate) -> None:
    low, high = estimate.interval
    rows = rows_of(competition)
    score = f"{competition.metric} {estimate.score:z.5f} on {estimate.image_count:,} held-out {rows}"
    if estimate.fold_gain:
        score += f", to which the mean over folds should add {estimate.fold_gain:+z.4f}"
    tests = f"{len(competition.answer_ids):,} test {rows} of the same kind"
    if not np.isfinite(estimate.score):
        say(f"podium: warning: {competition.metric} of the held-out images is {estimate.score}, which says nothing")
    elif np.isnan(low):
        say(f"podium: {score}; these are all of one group, so the score on {tests} cannot be estimated")
    else:
        say(f"podium: {score}; expect between {low:z.4f} and {high:z.4f} on {tests}")


def join_names(runs: Sequence[Run]) -> str:
    name = "+".join(run.name for run in runs)
    return name if len(name) <= LONGEST_NAME else f"{len(runs)}-runs"


def free_path(folder: Path, name: str, text: str) -> Path:
    """Returns the path of this name, or the next free one: another submission is never overwritten."""
    path, number = folder / f"{name}.csv", 1
    while _is_taken(path, text):
        number += 1
        path = folder / f"{name}-{number}.csv"
    return path


def _is_taken(path: Path, text: str) -> bool:
    """Returns whether another submission has this name: its CSV, or the lineage that could rebuild it."""
    content = text.encode()
    if path.exists() and path.read_bytes() != content:
        return True
    try:
        recorded = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["sha256"]
    except (OSError, ValueError, LookupError, TypeError):
        return False
    return bool(recorded != hashlib.sha256(content).hexdigest())
