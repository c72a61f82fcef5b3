"""Selects the runs of a submission, and says which runs a plain `podium submit` leaves out, and why.

A run is left out if it has other classes than the others, if it is not clearly better than chance, if its weights had
seen held-out images (saved_runs/known_images.py), if it was imported and nobody knows its folds
(saved_runs/imported_runs.py), if its own model or view was edited since its training, if it was trained on other folds,
or if it lacks folds that another run has. With --runs, the user selects; --except leaves out other runs. After `podium
compete`, runs need the folds on which its members are compared.
"""

from collections.abc import Sequence

import numpy as np

from podium.basics.disk import sha256
from podium.basics.terminal import first_few, say
from podium.competition.load import Competition
from podium.folds.folds_csv import folds_path
from podium.options.extensions.own_parts import edited_parts
from podium.saved_runs.imported_runs import why_untrusted
from podium.saved_runs.known_images import folds_seen_before
from podium.saved_runs.ledger import judging_folds
from podium.saved_runs.run_folder import Run, find_runs
from podium.saved_runs.trained_with import edited_options
from podium.tasks.chance import is_better_than_chance
from podium.tasks.metrics import METRICS
from podium.tasks.task import joined

Reasons = dict[Run, str]  # why runs are left out
OTHER_CLASSES = "other classes"


def select_runs(competition: Competition, names: list[str] | None, except_names: list[str] | None = None) -> list[Run]:
    """Returns the runs of these names, or all others that a blend gains from; at least one."""
    runs = find_runs(competition.slug, competition.root, names, except_names)
    if names:
        return runs
    reasons = find_reasons(runs, competition)
    if reasons:
        texts = [f"{run.name} ({reason})" for run, reason in reasons.items()]
        say(f"podium: left out: {', '.join(texts)}; --runs takes them anyway")
    return [run for run in runs if run not in reasons]


def find_reasons(runs: Sequence[Run], competition: Competition, of_all_folds: bool = True) -> Reasons:
    """Returns the runs that a blend does not gain from, and why; at least one run is not among them.

    Runs of some folds are among them, unless not `of_all_folds`.
    """
    reasons: Reasons = {}
    checks = (_of_other_classes, _of_untrusted_folds, _no_better_than_chance, _knowing, _edited, _on_other_folds)
    for find in (*checks, *((_partial,) if of_all_folds else ())):
        left_out = find([run for run in runs if run not in reasons], competition)
        if len(reasons) + len(left_out) < len(runs):
            reasons |= left_out
    return reasons


def warn_of_changed_data(competition: Competition, runs: Sequence[Run]) -> None:
    """Warns of runs that learned from other ids, labels or images than those of today."""
    current = competition.train_hash[:32]
    changed = [run.name for run in runs if run.recipe.get("data_sha256", current)[:32] != current]
    if changed:
        say(
            f"podium: warning: the training data in {competition.folder} (ids, labels or images) have changed since"
            f" {first_few(changed)} learned from them; train again under another --name, or restore them"
        )


def _of_other_classes(runs: Sequence[Run], competition: Competition) -> Reasons:
    """Compares with the competition's classes if a run was trained on them, else with the classes of the most runs."""
    classes = {run: frozenset(run.out_of_fold(run.finished()[0]).classes) for run in runs}
    by_run, current = list(classes.values()), frozenset(competition.classes)
    usual = current if current in by_run else max(by_run, key=by_run.count)
    return {run: OTHER_CLASSES for run in runs if classes[run] != usual}


def _no_better_than_chance(runs: Sequence[Run], competition: Competition) -> Reasons:
    reasons = {}
    for run in runs:
        held_out = [run.out_of_fold(fold, competition.classes) for fold in run.finished()]
        targets = joined([predictions.target for predictions in held_out])
        probs = np.concatenate([predictions.probs for predictions in held_out])
        if not is_better_than_chance(targets, probs, competition.metric):
            reasons[run] = "score may be chance"
    return reasons


def _knowing(runs: Sequence[Run], competition: Competition) -> Reasons:
    return {run: "knew held-out images" for run in runs if folds_seen_before(run)}


def _of_untrusted_folds(runs: Sequence[Run], competition: Competition) -> Reasons:
    return {run: reason for run in runs if (reason := why_untrusted(run))}


def _edited(runs: Sequence[Run], competition: Competition) -> Reasons:
    reasons = {run: "its recipe.json was edited" for run in runs if edited_options(run)}
    return reasons | {run: "its code was edited" for run in runs if edited_parts(run.recipe)}


def _on_other_folds(runs: Sequence[Run], competition: Competition) -> Reasons:
    """Compares with the folds file of today if a run was trained on it, else with the folds of the most runs."""
    hashes = [str(run.recipe.get("folds_sha256")) for run in runs]
    path = folds_path(competition.slug, competition.root)
    current = sha256(path) if path.exists() else ""
    usual = current if current in hashes else max(hashes, key=hashes.count)
    return {run: "other folds" for run, digest in zip(runs, hashes, strict=True) if digest != usual}


def _partial(runs: Sequence[Run], competition: Competition) -> Reasons:
    """Compares with the folds of `compete`, or with the run that has the most; of several, with the best one."""
    better = METRICS[competition.metric]().better

    def completeness(run: Run) -> tuple[int, float]:
        scores = [run.score(fold, competition.metric, classes=competition.classes) for fold in run.finished()]
        return len(scores), better * float(np.mean(scores))

    judging = set(judging_folds(competition.slug, competition.root))
    if not judging or not any(judging <= set(run.finished()) for run in runs):
        judging = set(max(runs, key=completeness).finished())
    return {
        run: f"{len(run.finished())} of {run.recipe['folds']} folds" for run in runs if judging - set(run.finished())
    }
