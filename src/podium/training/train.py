"""Trains a model on every fold but one, and predicts the images of that one; fold after fold.

    podium train --model convnext_small [-c SLUG] [--folds 0,1] [--name RUN] [one flag per knob of the recipe]

Reads the competition's files and data/prepared/<slug>/folds.csv. Writes runs/<slug>/<run>/, see runs.py.
The same command goes on where it was stopped: a finished fold is kept, an unfinished one resumes from its
last checkpoint, and what it then computes is what it would have computed undisturbed.
"""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from podium import PodiumError
from podium.competition.load import Competition
from podium.disk import sha256
from podium.folds.folds_csv import folds_path, read_folds, warn_unless_certified
from podium.images.store import Store, open_store, stored_side
from podium.machine import Machine
from podium.models.build import classes_of_weights, family_and_sizes
from podium.models.device import (
    device_kind,
    device_name,
    explain_hardware_errors,
    pick_device,
    pick_precision,
    precision_name,
    prepare_device,
)
from podium.models.hub import check_model_name, check_weights_available
from podium.recipe import Recipe, check_knobs, expand_auto, resolve
from podium.terminal import command_for, plural, say, show
from podium.training.budget import Budget, fit_to_budget
from podium.training.context import LEFT_OUT, Context
from podium.training.distill import check_teachers, find_teachers
from podium.training.linear import train_head
from podium.training.loader import pick_workers
from podium.training.loop import Fold
from podium.training.processes import Processes, join_processes, world_size
from podium.training.run_folder import Run, runs_folder


def train(
    competition: Competition,
    root: Path,
    given: dict[str, Any],
    chosen: Sequence[int] | None = None,
    name: str | None = None,
    machine: Machine | None = None,
    budget: Budget | None = None,
) -> Run:
    """Trains the chosen folds (default: all) of a run; `given` are the knobs of the recipe that are not defaults;
    within the budget, a submission included."""
    machine = machine or Machine()
    on = pick_device(machine.device)
    prepare_device(on, machine.deterministic)
    given = expand_auto(given, device_kind(on))
    check_knobs(given)
    check_model_name(given.get("model"))
    check_weights_available(given["model"], {**competition.recipe, **given}.get("weights", "pretrained"))
    folds = read_folds(competition, root)
    count = int(folds.max()) + 1
    wrong = [fold for fold in chosen or () if not 0 <= fold < count]
    if wrong:
        raise PodiumError(f"there is no fold {wrong[0]}; the folds of {competition.slug} are 0 to {count - 1}")
    chosen = sorted(set(chosen)) if chosen else list(range(count))
    recipe = resolve(given, competition.recipe, *family_and_sizes(given["model"]))
    run = Run(runs_folder(competition.slug, root) / (name or recipe.model))
    left = [fold for fold in chosen if fold not in run.finished()]
    teachers = find_teachers(recipe.teacher, run, competition.slug, root, left) if recipe.teacher and left else []
    useless = {"--processes": world_size() > 1, "--budget": budget, "--teacher": recipe.teacher}
    for flag, given_too in useless.items() if recipe.linear else ():
        if given_too:
            raise PodiumError(f"--linear fits a head in minutes, which {flag} does not go with; leave it out")
    if "distil" in given and not recipe.teacher:
        raise PodiumError("--distil says how much a teacher counts; name it with --teacher, or leave --distil out")
    if classes_of_weights(recipe.weights) == competition.classes:
        say(
            f"podium: warning: {recipe.weights} was trained by Podium on these classes; where that was on images that a"
            " fold holds out, the fold's score will be too good (a model of the same fold has not seen them)"
        )
    if 1 < world_size() > min(recipe.batch_size, int((folds != 0).sum())) // 2:
        raise PodiumError(f"a batch of {recipe.batch_size} images is too small for {world_size()} processes")
    with join_processes(on) as group, run.lock() if group.first else nullcontext():
        with group.in_turn():  # the first makes the store, the others find it
            setting = _setting(competition, root, recipe, run, folds, on, machine, group, teachers)
        _train(setting, root, chosen, machine, budget)
        group.wait()
        show(run.results(count, competition.metric))
    say(f"podium: wrote {run.path}")
    rest = [str(fold) for fold in range(count) if fold not in run.finished()]
    more = f"the same command for the folds {','.join(rest)}, or " if rest else ""
    say(f"next: {more}{command_for('submit', competition.slug)}")
    return run


def _setting(
    competition: Competition,
    root: Path,
    recipe: Recipe,
    run: Run,
    folds: NDArray[np.int64],
    device: torch.device,
    machine: Machine,
    group: Processes,
    teachers: Sequence[Run],
) -> Context:
    store = open_store(competition, root, stored_side(max(recipe.image_size, recipe.test_size)), machine.keep_pixels)
    index = {label: i for i, label in enumerate(competition.classes)}
    return Context(
        run=run,
        recipe=recipe,
        competition=competition,
        store=store,
        folds=_without_bad(competition, store, store.positions(competition.train["image"]), folds, recipe.skip_bad),
        targets=np.array([index[label] for label in competition.train["target"]]),
        device=device,
        precision=pick_precision(recipe.precision, device),
        workers=pick_workers(machine.workers, device),
        save_every=machine.save_every,
        compiled=machine.compiled,
        group=group,
        teachers=teachers,
    )


def _train(setting: Context, root: Path, chosen: list[int], machine: Machine, budget: Budget | None) -> None:
    """The folds that are not finished yet, each by all processes, or each process its own."""
    run, competition, group = setting.run, setting.competition, setting.group
    facts: dict[str, Any] = {}
    if budget:
        setting, chosen, facts = fit_to_budget(setting, chosen, budget)
    recipe, precision = setting.recipe, precision_name(setting.precision)
    left = [fold for fold in chosen if fold not in run.finished()]
    if group.first:
        positions = setting.store.positions(competition.train["image"])
        identity = {
            **asdict(recipe),
            "competition": competition.slug,
            "folds_sha256": sha256(folds_path(competition.slug, root)),
            "data_sha256": f"{competition.train_hash[:32]}{setting.store.digest(positions)[:32]}",
        }
        teaching = check_teachers(setting.teachers, left, competition.classes, identity)
        begun = {
            "folds": int(setting.folds.max()) + 1,
            "metric": competition.metric,
            "device": device_name(setting.device),
            "computed_in": precision,
        }
        run.begin(identity, {**begun, **facts})
        if setting.teachers:
            run.keep_teachers(teaching)
            say(f"podium: taught by {' and '.join(teacher.name for teacher in setting.teachers)}")
    group.wait()
    if left:
        warn_unless_certified(competition, root)
        many = f", {group.size} processes" if group.size > 1 else ""
        where = f"{precision}, on {device_name(setting.device)}{many}"
        say(f"podium: {recipe.model} at {recipe.image_size} px, {where}")
    for fold in sorted(set(chosen) - set(left)):
        if group.first:
            run.check_weights(fold)
        say(f"podium: fold {fold} is trained already")
    if machine.parallel == "folds" or (machine.parallel == "auto" and len(left) % group.size == 0):
        left = left[group.rank :: group.size]
        setting = replace(setting, group=Processes())  # the others no longer matter
    for nth, fold in enumerate(left):
        until = budget.until(len(left) - nth) if budget else math.inf
        with explain_hardware_errors(recipe.batch_size):
            if recipe.linear:
                train_head(setting, fold)
            else:
                Fold(setting, fold, len(left) - nth, until).train()


def _without_bad(
    competition: Competition, store: Store, positions: NDArray[np.int64], folds: NDArray[np.int64], skip: bool
) -> NDArray[np.int64]:
    """The folds, with images that cannot be read left out of all, if that is wanted."""
    bad = store.bad(positions)
    if not bad.any():
        return folds
    first = store.files[positions[bad][0]]
    unread = f"{plural(int(bad.sum()), 'training image')} cannot be read"
    what = f"{unread}, {competition.folder / first.image} first ({first.reason})"
    if not skip:
        remedy = f"{command_for('audit', competition.slug)} lists them: replace them, or leave them out with --skip-bad"
        raise PodiumError(f"{what}; {remedy}")
    say(f"podium: warning: {what}; they are left out")
    left = np.where(bad, LEFT_OUT, folds)
    for fold in range(folds.max() + 1):
        if not (left == fold).any():
            raise PodiumError(f"without them no image is left in fold {fold}; {command_for('folds', competition.slug)}")
    return left
