"""Shows that a fold of a run comes out the same, to the bit, when it is trained again.

    podium verify RUN [--fold K]

A finished fold is trained again from its first step. Of an unfinished one, the steps between its two kept checkpoints
are repeated. It happens in a folder of its own below the run's, which is deleted; the run stays as it is.
"""

import shutil
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from podium.basics.errors import PodiumError
from podium.basics.machine import Machine
from podium.basics.project_root import runs_folder
from podium.basics.terminal import did_you_mean, plural, say, show
from podium.competition.card import read_card
from podium.models.device import device_name, precision_name
from podium.models.tensors import load_tensors
from podium.options.recipe import KNOBS, recorded_values
from podium.saved_runs.checkpoint import checkpoints
from podium.saved_runs.doubts import warn_of_versions
from podium.saved_runs.earlier_runs import hash_weights
from podium.saved_runs.imported_runs import refuse_imported
from podium.saved_runs.run_folder import TRIAL_PREFIX, Run, package_versions, recorded_threads
from podium.training.context import Context, open_context
from podium.training.crowded import Crowded
from podium.training.learner_state import COUNTERS, learner_state
from podium.training.loop import close_epoch, decide, start_or_resume, training_batches, validate
from podium.training.plan import Plan, make_plan, with_run
from podium.training.request import CheckedRequest, Request, check_weights
from podium.training.trainers import trainer_of


def verify_fold(slug: str, root: Path, name: str, fold: int | None = None, machine: Machine | None = None) -> None:
    """Prints that the fold is the same; raises if it is not, or if it cannot be trained again as it was."""
    run = Run(runs_folder(slug, root) / name)
    if not run.has_begun():
        begun = [path.parent.name for path in run.path.parent.glob("*/recipe.json")]
        hint = did_you_mean(name, begun, otherwise=f"there are {', '.join(sorted(begun)) or 'none yet'}")
        raise PodiumError(f"{run.path}: nothing is trained there; {hint}")
    refuse_imported([run], "podium verify")
    if run.ingredients:
        raise PodiumError(f"{run.path} is a soup of other runs; verify these: {', '.join(run.ingredients)}")
    fold = _choose_fold(run, fold)
    warn_of_versions(run)
    compile, store = "on" if run.recipe.get("compiled") else "off", "gpu" if run.recipe.get("changed_on_gpu") else "on"
    machine = replace(machine or Machine(), compile=compile, store=store)
    plan = _plan_of(slug, root, run, fold, machine)
    with run.lock(), tempfile.TemporaryDirectory(prefix=TRIAL_PREFIX, dir=run.path) as folder:
        trial = Run(Path(folder))
        plan = replace(plan, facts={**plan.facts, "threads": recorded_threads(run, fold)})
        with open_context(with_run(plan, trial)) as context:
            shutil.copy(run.path / "recipe.json", trial.path)
            _refuse_other_beginning(context, run, fold)
            is_finished = fold in run.finished()
            how = "trained again" if is_finished else "repeated between its checkpoints"
            repeated = f"fold {fold} of {run.name}, {how},"
            try:
                difference = (_train_again if is_finished else _repeat_steps)(context, run, fold)
            except KeyboardInterrupt:
                raise KeyboardInterrupt("stopped while verifying; the run is as it was") from None
            if difference:
                raise PodiumError(f"{repeated} is another one: {difference}; {_now(context)}")
    show(f"{repeated} is the same to the bit")


def _choose_fold(run: Run, fold: int | None) -> int:
    """Returns the user's fold, else the first finished one, else the first with two checkpoints."""
    unfinished = [number for number in range(run.recipe["folds"]) if number not in run.finished()]
    possible = [*run.finished(), *(number for number in unfinished if len(checkpoints(run.fold_folder(number))) > 1)]
    if fold is None and possible:
        return possible[0]
    if fold is None or fold not in possible:
        which = "no fold" if fold is None else f"fold {fold}"
        raise PodiumError(
            f"{run.path}: {which} is finished or has two checkpoints to compare; train on, or name another fold"
        )
    return fold


def _plan_of(slug: str, root: Path, run: Run, fold: int, machine: Machine) -> Plan:
    """Returns the plan of the recorded recipe; refuses other folds, data or corrections than the run was trained on."""
    read_card(slug, root)  # it loads the project's own parts, whose options the run may have
    recorded = recorded_values(run.recipe, KNOBS)
    options = {name: value for name, value in recorded.items() if value is not None}
    check_weights(slug, root, options, only_shown=False)
    request = Request({}, (fold,), run.name, machine)
    return make_plan(CheckedRequest(slug, root, request, options, only_shown=False))


def _refuse_other_beginning(context: Context, run: Run, fold: int) -> None:
    """Refuses other images, and other weights of the runs that the fold has learned from."""
    run.check_same(context.identity)
    for option, runs in context.plan.earlier_runs.items():
        recorded, now = run.recipe.get(f"{option}_sha256", {}), hash_weights(runs, [fold])
        if any(recorded.get(key, digest) != digest for key, digest in now.items()):
            raise PodiumError(f"{run.path}: its {option} {run.recipe[option]} has other weights now; restore those")


def _train_again(context: Context, run: Run, fold: int) -> str:
    """Returns how the finished fold differs from one that is trained now; "" if it does not."""
    run.check_weights(fold)
    trainer = trainer_of(context.recipe)
    trainer.refuse_to_repeat(context, run, fold)
    try:
        trainer.train(context, fold)
    except Crowded:
        raise PodiumError(
            f"other programs are in the way of the threads that fold {fold} of {run.name} has been trained with; try"
            " again when the machine is idle"
        ) from None
    before, now = (one.weights_path(fold) for one in (run, context.run))
    if difference := _difference(load_tensors(before)[0], load_tensors(now)[0]):
        return difference
    probs, probs_now = (one.out_of_fold(fold).probs for one in (run, context.run))
    return "" if (probs == probs_now).all() else "its weights are the same, but its predictions are not"


def _repeat_steps(context: Context, run: Run, fold: int) -> str:
    """Returns how the newest checkpoint differs from what the steps since the one before it lead to now."""
    newest, older, *_ = checkpoints(run.fold_folder(fold))
    context.run.fold_folder(fold).mkdir()
    shutil.copy(older, context.run.fold_folder(fold))
    expected, last_step = load_tensors(newest)[0], int(newest.stem.removeprefix("checkpoint-"))
    learner = start_or_resume(context, fold, 1)
    first_step, total_steps = learner.progress.step, learner.progress.total_steps
    with closing(training_batches(learner)) as batches:
        for images, labels in batches:
            learner.step(images, labels)
            if learner.progress.step == last_step:
                break
            if decide(learner, stop=False, save=False, last_step=total_steps).validate:
                close_epoch(learner, validate(learner, views="none"))
    say(f"podium: repeated {plural(last_step - first_step, 'step')} after step {first_step:,}")
    counters = {*COUNTERS, "loss"}  # they begin anew with an epoch, before or after a checkpoint
    states = expected, learner_state(learner)[0]
    kept, now = ({name: state[name] for name in state.keys() - counters} for state in states)
    return _difference(kept, now)


def _difference(before: Mapping[str, Tensor], now: Mapping[str, Tensor]) -> str:
    """Says which tensors differ, and by how much; "" if none does."""
    if before.keys() != now.keys():
        return f"it has other tensors, such as {min(before.keys() ^ now.keys())}"
    pairs = {name: (before[name].to("cpu"), now[name].detach().to("cpu")) for name in sorted(before)}
    differing = [name for name, (one, other) in pairs.items() if not torch.equal(one, other)]
    if not differing:
        return ""
    one, other = (tensor.double() for tensor in pairs[differing[0]])
    most = f" by up to {(one - other).abs().max().item():.2g}" if one.shape == other.shape else ""
    return f"{len(differing):,} of {plural(len(pairs), 'tensor')} differ, {differing[0]}{most}"


def _now(context: Context) -> str:
    """Says on what the run was trained and on what it is now, for an error."""
    recipe, versions = context.run.recipe, (context.run.recipe.get("versions", {}), package_versions())
    torches = (version.get("torch", "of an unknown version") for version in versions)
    others = [name for name in versions[1] if name != "torch" and versions[0].get(name, "") != versions[1][name]]
    before, now = (
        " ".join([f"with torch {torch}", *(f"{name} {version.get(name)}" for name in others)])
        for torch, version in zip(torches, versions, strict=True)
    )
    before = f"{recipe.get('computed_in')} on {recipe.get('device')} {before}"
    now = f"{precision_name(context.precision)} on {device_name(context.device)} {now}"
    return f"it was trained in {before}, now in {now}; on a GPU, both need --deterministic"
