"""Trains a run: for every fold, a model on all other images, which then predicts the images of the fold.

    podium train --model convnext_small [-c SLUG] [--folds 0,1] [--name RUN] [one flag per option of the recipe]

Reads the competition's files and data/prepared/<slug>/folds.csv. Writes runs/<slug>/<run>/, see run_folder.py.
The same command resumes: a finished fold is kept, an unfinished one continues from its last checkpoint. On a CPU, or
with --deterministic, the result is the same to the bit as without the interruption.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from podium.basics.disk import write_bytes
from podium.basics.image_size import sides_of
from podium.basics.terminal import command_for, first_few, plural, say, show, uses_make
from podium.competition.load import Competition
from podium.folds.folds_csv import warn_unless_certified
from podium.models.build import warn_of_licence
from podium.models.catalogue import licence_of
from podium.models.costs import multiply_adds_at
from podium.models.device import CPU, device_name, is_cpu, precision_name
from podium.models.hardware_errors import explain_hardware_errors
from podium.models.predict import views_of
from podium.options.extensions.own_parts import own_parts, parts_of_notebooks
from podium.options.recipe import Recipe, describe, learns_from
from podium.saved_runs.doubts import warn_of_edits
from podium.saved_runs.earlier_runs import check_same_data, hash_weights
from podium.saved_runs.fold_names import fold_name, holds_nothing_out
from podium.saved_runs.foreign_weights import find_copies_in_weights
from podium.saved_runs.made_from import KEY as MADE_FROM
from podium.saved_runs.made_from import LICENCE, describe_images
from podium.saved_runs.run_folder import CORRECTIONS, Run, keep_cost, keep_earlier, results_table
from podium.saved_runs.trained_with import keep_versions
from podium.tasks.chance import is_better_than_chance
from podium.training.context import Context, open_context
from podium.training.crowded import Crowded, begin_again, settle_threads
from podium.training.find_boxes import find_boxes
from podium.training.fit_to_budget import fit_to_budget
from podium.training.fit_to_machine import fit_to_machine
from podium.training.plan import Plan
from podium.training.processes import Processes
from podium.training.timing.budget import Budget
from podium.training.trainers import trainer_of


def train(plan: Plan, beside: Callable[[Run], str] | None = None) -> Run:
    """Trains the chosen folds; with a budget, as many epochs and folds as fit into it.

    `beside` says how the run does beside another one.
    """
    run, competition = plan.run, plan.competition
    is_new, whole = bool(plan.unfinished_folds()), [fold for fold in plan.folds_to_train if holds_nothing_out(fold)]
    train_folds(plan)
    show(results_table(run, plan.folds.count, competition.metric, competition.classes))
    if is_new and beside is not None and (said := beside(run)):
        say(f"podium: {said}")
    say(f"podium: wrote {run.path}" if is_new else f"podium: {run.path} was trained already; nothing has changed")
    if whole and is_new:
        models = plural(len(whole), "model")
        say(f"podium: {models} of all images; no image can score them: expect a little more than of the folds above")
    if not any(_has_learned(run, fold, competition) for fold in run.finished()):
        say("next: other options under another --name; submissions leave this run out: it is not better than chance")
        return run
    unfinished = ",".join(str(fold) for fold in range(plan.folds.count) if fold not in run.finished())
    first = f"the same command with {'FOLDS=' if uses_make() else '--folds '}{unfinished}, or " if unfinished else ""
    then = "compete" if not plan.recipe.takes_steps else competition.answered_by or "compare"
    say(f"next: {first}{command_for(then, competition.slug)}")
    return run


def train_folds(plan: Plan) -> None:
    """Trains the chosen folds, and says nothing of their results."""
    find_boxes(plan)
    with open_context(plan) as context:
        _train_folds(context)
        if context.processes.is_first:
            _record_cost(plan.run, context.recipe, len(plan.competition.classes))
        context.processes.wait()


def _record_cost(run: Run, recipe: Recipe, classes: int) -> None:
    """Counts while torch is there what comparing shows of the model; a model of the project may not be countable."""
    if "multiply_adds" not in run.recipe:
        with suppress(Exception):
            keep_cost(run, multiply_adds_at(recipe.model, recipe.image_size, classes))


def _has_learned(run: Run, fold: int, competition: Competition) -> bool:
    held_out = run.out_of_fold(fold, competition.classes)
    return is_better_than_chance(held_out.target, held_out.probs, competition.metric)


def _train_folds(context: Context) -> None:
    """Trains the unfinished folds, each with all processes, or each process with folds of its own."""
    processes, request = context.processes, context.plan.request
    trainer = trainer_of(context.recipe)
    seconds = request.budget if trainer.takes_budget else None
    budget = None if seconds is None else Budget(seconds, request.started)
    facts: dict[str, Any] = {}  # for recipe.json
    with explain_hardware_errors(context.recipe.batch_size):
        context = fit_to_machine(context, _each_process_has_folds(context, len(context.plan.unfinished_folds())))
    if budget:
        context, facts = fit_to_budget(context, budget)
    unfinished = context.plan.unfinished_folds()
    if processes.is_first:
        _begin(context, unfinished, facts)
    processes.wait()
    _announce(context, unfinished)
    if _each_process_has_folds(context, len(unfinished)):
        unfinished = unfinished[processes.rank :: processes.size]
        context = replace(context, processes=Processes())
    for number, fold in enumerate(unfinished):
        later_folds = unfinished[number + 1 :]
        sizes = context.images.folds.sizes([fold, *later_folds], fold)
        deadline = budget.start_fold(sum(sizes)) if budget else math.inf
        with explain_hardware_errors(context.recipe.batch_size):
            settle_threads(context, fold)
            try:
                trainer.train(context, fold, later_folds, deadline)
            except Crowded:
                begin_again(context, fold)
                trainer.train(context, fold, later_folds, deadline)


def _each_process_has_folds(context: Context, fold_count: int) -> bool:
    parallel = context.machine.parallel
    return parallel == "folds" or (parallel == "auto" and fold_count % context.processes.size == 0)


def _begin(context: Context, unfinished: Sequence[int], facts: dict[str, Any]) -> None:
    """Writes recipe.json, or refuses to resume a run that was started with other options, folds or data."""
    plan, competition, run = context.plan, context.competition, context.run
    identity = context.identity
    for option, runs in plan.earlier_runs.items():
        check_same_data(option, runs, identity["data_sha256"])
    earlier_hashes = {option: hash_weights(runs, unfinished) for option, runs in plan.earlier_runs.items()}
    cells = parts_of_notebooks(plan.recipe.values())
    machine_facts = {
        "folds": plan.folds.count,
        "metric": competition.metric,
        "device": device_name(context.device),
        "computed_in": precision_name(context.precision),
        "compiled": context.machine.compiled,
        **({"threads": torch.get_num_threads()} if is_cpu(context.device) else {}),
        "changed_on_gpu": context.machine.store == "gpu",
        **_sources(context),
        **({"own_parts": parts} if (parts := own_parts(plan.recipe.values())) else {}),
        **({"of_notebook": [cell.name for cell in cells]} if cells else {}),
    }
    is_resumed = run.has_begun()
    if not (run.path / "recipe.json").exists():
        weights = plan.backbone or Path(plan.recipe.weights)
        machine_facts |= find_copies_in_weights(weights, competition)
    # The plan has compared the recipe and the folds already, but without the lock of the run.
    run.begin(identity, {**machine_facts, **plan.facts, **facts})
    keep_versions(run, unfinished, is_resumed)
    for cell in cells:
        write_bytes(run.path / cell.name, cell.source)
    context.images.store.regions.write(run.path)
    if not unfinished:
        competition.corrections.save()
    if competition.corrections.sha256:
        competition.corrections.write(run.path / CORRECTIONS)
    _warn_of_earlier_sources(plan)
    for option, hashes in earlier_hashes.items():
        keep_earlier(run, option, hashes)
        for earlier in plan.earlier_runs[option]:
            warn_of_edits(earlier)
        names = " and ".join(earlier.name for earlier in plan.earlier_runs[option])
        say(f"podium: {learns_from()[option]} {names}")


def _sources(context: Context) -> dict[str, Any]:
    """Returns what recipe.json records of the licence of the weights, and of images from elsewhere."""
    recipe, extra = context.recipe, context.competition.extra
    licence = licence_of(recipe.model) if recipe.weights == "pretrained" else None
    unlabelled, images = context.competition.unlabelled, list[dict[str, Any]]()
    for named, used in ((extra, context.images.extra), (unlabelled, context.images.unlabelled)):
        images += named.as_json(used) if named and len(used) else []
    return {**({LICENCE: licence} if licence else {}), **({"extra": images} if images else {})}


def _warn_of_earlier_sources(plan: Plan) -> None:
    """Says which licences and images come with the runs that this one learns from."""
    for entry in plan.facts.get(MADE_FROM, ()):
        if LICENCE in entry:
            warn_of_licence(f"{entry.get('weights_source')} of {entry['run']}", entry[LICENCE])
        if images := describe_images([entry]):
            say(f"podium: {entry['run']} has learned from {first_few(images)}")


def _announce(context: Context, unfinished: Sequence[int]) -> None:
    recipe, processes = context.recipe, context.processes
    if unfinished:
        # A wrong view of the project would fail after training.
        views_of(torch.zeros(1, 3, *sides_of(recipe.test_size), device=CPU), recipe.views)
        warn_unless_certified(context.competition)
        several = f", {processes.size} processes" if processes.size > 1 else ""
        where = f"{precision_name(context.precision)}, on {device_name(context.device)}{several}"
        say(f"podium: {recipe.model} at {recipe.image_size} px, {where}")
        for line in describe(recipe):
            say(f"  {line}")
        if context.images.channels:
            say(f"  the first layer gets {len(context.images.channels)} channels")
        if len(context.images.extra):
            say(f"  with {plural(len(context.images.extra), 'image')} from elsewhere")
        if context.further:
            say(f"  also learns {context.further.describe()}")
    for fold in sorted(set(context.plan.folds_to_train) - set(unfinished)):
        if processes.is_first:
            context.run.check_weights(fold)
        say(f"podium: {fold_name(fold)} is trained already")
