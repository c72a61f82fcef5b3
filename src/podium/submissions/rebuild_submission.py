"""Rebuilds the CSV of a submission from its lineage, byte for byte.

    podium submit --from FILE.json

Reads the JSON, the competition's files and the runs. Writes the CSV beside the JSON, or reports what changed since.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

from podium.basics.checkout import current_commit
from podium.basics.errors import PodiumError
from podium.basics.machine import Machine
from podium.basics.project_root import runs_folder
from podium.basics.terminal import first_few, say
from podium.blending.own_decision import OwnDecision
from podium.blending.own_stack import OwnStack
from podium.competition.load import Competition
from podium.options.recipe import differences
from podium.saved_runs.doubts import warn_of_edits, warn_of_versions
from podium.saved_runs.imported_runs import source_sha256
from podium.saved_runs.run_folder import READ_BY_SUBMIT, Run, package_versions
from podium.submissions.choose_steps import fit_again
from podium.submissions.lineage import Lineage
from podium.submissions.predict_test import PredictionFacts, predict_blend
from podium.submissions.record_lineage import csv_form, extension_hashes, features_as_json
from podium.submissions.write_csv import render, write_csv


def rebuild(competition: Competition, lineage: Lineage, machine: Machine | None = None) -> Path:
    """Writes the CSV that the lineage describes; returns its path."""
    _refuse_changed_data(competition, lineage)
    if isinstance(decision := lineage.blend.decision, OwnDecision):
        decision.refuse_if_changed(str(lineage.path))
    for change in _changed_extensions(lineage):
        say(f"podium: warning: {change} since {lineage.path.name} was written")
    folds = find_recorded_folds(competition.root, lineage)
    for run in folds:
        warn_of_edits(run)
        warn_of_versions(run)
    blend = lineage.blend
    if isinstance(blend.stack, OwnStack):
        blend.stack.refuse_if_changed(str(lineage.path))
        blend = replace(blend, stack=fit_again(competition, tuple(folds), blend))
    predictions = predict_blend(competition, folds, blend, machine or Machine())
    text, path = render(competition, predictions.probs), lineage.csv
    _refuse_other_text(text, predictions.facts, lineage, competition)
    refuse_other_csv(path, text, lineage)
    write_csv(competition, path, text)
    say(f"podium: {path} is the CSV that {lineage.path.name} describes, byte for byte")
    return path


def refuse_other_csv(path: Path, text: str, lineage: Lineage) -> None:
    """Refuses to replace a CSV that has another text than the rebuilt one."""
    if path.exists() and path.read_bytes() != text.encode():
        raise PodiumError(
            f"{path} is not the CSV that {lineage.path.name} describes; move it away and run the command again"
        )


def _refuse_changed_data(competition: Competition, lineage: Lineage) -> None:
    current_form, source = csv_form(competition), competition.submission_format.source
    for key, recorded in lineage.content["form"].items():
        if recorded != current_form[key]:
            change = f"the submission's {key} was {recorded!r} and would be {current_form[key]!r}"
            place = f"by {source} in {competition.folder} or {competition.card.path}"
            raise PodiumError(f"{lineage.path}: {change}, {place}; restore them")
    for role, current_hash in (("train", competition.train_hash), ("test", competition.test_hash)):
        if lineage.content[f"{role}_sha256"] != current_hash:
            raise PodiumError(f"{lineage.path}: the {role} data in {competition.folder} has changed; restore it")
    if misfit := lineage.blend.misfit(len(competition.classes)):
        raise PodiumError(
            f"{lineage.path}: its {misfit} has numbers for other than {len(competition.classes):,} classes, so it was"
            " edited; restore it"
        )
    recorded_features = lineage.content.get("features")
    if recorded_features != features_as_json(competition, lineage.blend):
        names = recorded_features["names"] if recorded_features else []
        setting = f"features = {json.dumps(names)} in {competition.card.path}"
        if recorded_features and recorded_features.get("are_beside_groups"):
            setting += ", the column of groups"
        raise PodiumError(f"{lineage.path}: the features have changed since; restore {setting}, and the tables")


def find_recorded_folds(root: Path, lineage: Lineage) -> dict[Run, list[int]]:
    """Returns the runs and folds of the lineage; raises if a recipe or weights have changed."""
    folds = {}
    for recorded in lineage.content["runs"]:
        run = Run(runs_folder(lineage.competition, root) / recorded["run"])
        if not run.path.is_dir():
            raise PodiumError(
                f"{lineage.path} needs the run {run.path}, which is missing; copy it there with its folds"
            )
        recipes = ({key: recipe.get(key) for key in READ_BY_SUBMIT} for recipe in (recorded["recipe"], run.recipe))
        changes = differences(*recipes)
        if changes:
            raise PodiumError(f"{run.path} is not the run of {lineage.path.name}: {changes[0]}; restore it")
        for fold in recorded["folds"]:
            if source_sha256(run, fold["fold"]) != fold["weights_sha256"]:
                raise PodiumError(
                    f"{run.fold_folder(fold['fold'])}: its weights, or imported predictions, are not those of"
                    f" {lineage.path.name}; restore the run"
                )
        folds[run] = [fold["fold"] for fold in recorded["folds"]]
    return folds


def _refuse_other_text(text: str, facts: PredictionFacts, lineage: Lineage, competition: Competition) -> None:
    """Raises unless the CSV's text is the recorded one; the message names what changed.

    Corrections of labels change it only through the class frequencies, which test images get that cannot be read.
    """
    if hashlib.sha256(text.encode()).hexdigest() == lineage.content["sha256"]:
        return
    reasons = _changed_extensions(lineage) or _changed_predictions(facts, lineage)
    recorded_table = (lineage.content.get("decision") or {}).get("table_sha256")
    if recorded_table and recorded_table != competition.shared_columns.test_sha256:
        reasons.append("the columns of the test table, which the decision may read, have changed")
    if lineage.content.get("corrections_sha256") != competition.corrections.sha256:
        reasons.append("the corrections of labels have changed")
    recorded_commit, commit = lineage.content["commit"], current_commit()
    if recorded_commit != commit:
        reasons.append(f"the code was {recorded_commit} and is {commit}")
    raise PodiumError(
        f"the same weights give another CSV than {lineage.path.name} describes"
        f" ({'; '.join(reasons) or 'nothing has changed: was that file edited?'}); restore what was changed"
    )


def _changed_extensions(lineage: Lineage) -> list[str]:
    """Describes which files of the project's own parts are other files than when the CSV was made."""
    recorded, current = lineage.content.get("extensions", {}), extension_hashes()
    names = dict.fromkeys([*recorded, *current])
    return [f"the extension {name} has changed" for name in names if recorded.get(name) != current.get(name)]


def _changed_predictions(facts: PredictionFacts, lineage: Lineage) -> list[str]:
    """Describes what changed in the predictions of the test images, and what may have caused it."""
    triples = [
        (run.fold_folder(fold["fold"]) / "test.npz", fold, facts[run][fold["fold"]])
        for run, recorded_run in zip(facts, lineage.content["runs"], strict=True)
        for fold in recorded_run["folds"]
    ]
    if any(recorded["predicted_from"] != current["predicted_from"] for _, recorded, current in triples):
        return ["the pixels of the test images have changed"]
    paths = [
        path for path, recorded, current in triples if recorded["predictions_sha256"] != current["predictions_sha256"]
    ]
    if not paths:
        return []
    reasons = [f"{first_few(paths, 2)} holds other predictions, delete it to predict again"]
    versions = package_versions()
    changed = [
        f"{name} was {version} and is {versions.get(name)}"
        for name, version in lineage.content["versions"].items()
        if version != versions.get(name)
    ]
    if changed:
        reasons.append(f"versions: {', '.join(changed)}")
    recorded_devices = {recorded["predicted_on"] for _, recorded, _ in triples}
    devices = {current["predicted_on"] for _, _, current in triples}
    if recorded_devices != devices:
        reasons.append(f"predicted on {' and '.join(sorted(recorded_devices))}, now on {' and '.join(sorted(devices))}")
    return reasons
