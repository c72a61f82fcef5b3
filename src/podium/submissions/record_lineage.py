"""Collects the lineage of a submission: how its CSV was made.

These are the hashes of the CSV, the data, the corrections, the folds and the weights, the recipes, the versions of the
packages, the commit, how the runs were blended, and the score to expect. submission.py writes them beside the CSV;
lineage.py reads them.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from podium.basics.checkout import current_commit
from podium.basics.terminal import first_few
from podium.blending.blend import Blend
from podium.blending.nested import Judged
from podium.blending.own_decision import OwnDecision
from podium.blending.table_rows import rows_of_tables
from podium.competition.load import Competition
from podium.options.extensions.extension_files import loaded_extensions
from podium.saved_runs.doubts import doubt_about
from podium.saved_runs.fold_names import holds_nothing_out
from podium.saved_runs.imported_runs import source_sha256
from podium.saved_runs.made_from import images_from_elsewhere
from podium.saved_runs.run_folder import Run, package_versions
from podium.submissions.choose_steps import ChosenSteps
from podium.submissions.predict_test import PredictionFacts


def record_lineage(
    competition: Competition, csv: Path, text: str, facts: PredictionFacts, chosen: ChosenSteps
) -> dict[str, Any]:
    """Returns the content of the JSON beside the CSV, which will hold this text."""
    extensions, labels = extension_hashes(), competition.label_of
    return {
        "csv": csv.name,
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "competition": competition.slug,
        "metric": competition.metric,
        "commit": current_commit(),
        "versions": package_versions(),
        **({"extensions": extensions} if extensions else {}),
        "train_sha256": competition.train_hash,
        "test_sha256": competition.test_hash,
        **(_corrections_as_json(competition) if competition.corrections.sha256 else {}),
        **({"features": known} if (known := features_as_json(competition, chosen.blend)) else {}),
        **({"extra": extra} if (extra := images_from_elsewhere(run.recipe for run in facts)) else {}),
        "form": csv_form(competition),
        "blend": chosen.blend.as_json(),
        **({"pooling": chosen.pooling.as_json()} if chosen.pooling else {}),
        **({"decision": _decision_as_json(competition, chosen.decision)} if chosen.decision else {}),
        "estimate": _estimate_as_json(chosen, competition.task.loss),
        "runs": [
            {
                "run": run.name,
                "weight": weight,
                "folds": [_fold_as_json(run, fold, competition, labels) | facts[run][fold] for fold in facts[run]],
                **({"doubt": doubt_about(run)} if doubt_about(run) else {}),
                "recipe": run.recipe,
            }
            for run, weight in zip(facts, chosen.blend.weights, strict=True)
        ],
    }


def _corrections_as_json(competition: Competition) -> dict[str, Any]:
    corrections = competition.corrections
    return {"corrections_sha256": corrections.sha256, "corrections": corrections.describe()}


def _decision_as_json(competition: Competition, decision: Judged[Any]) -> dict[str, Any]:
    """Returns the decision; one of the project's own also with the hash of what it may read of the test table."""
    recorded = decision.as_json()
    if isinstance(decision.step, OwnDecision):
        recorded["table_sha256"] = competition.shared_columns.test_sha256
    return recorded


def extension_hashes() -> dict[str, str]:
    return {extension.name: extension.sha256 for extension in loaded_extensions()}


def features_as_json(competition: Competition, blend: Blend) -> dict[str, Any] | None:
    """Returns the names and the hash of what a stack learns from in the tables; None if they say nothing."""
    features = competition.features
    if blend.stack is None or not blend.stack.has_rows:
        return None
    if not blend.stack.has_further:
        return {"names": list(features.names), "sha256": features.sha256} if features else None
    tables = [rows_of_tables(competition, competition.train["id"].tolist()), rows_of_tables(competition)]
    digest = hashlib.sha256("\0".join(features.names if features else ()).encode())
    for rows in filter(None, tables):
        for numbers in (rows.plain, rows.further, rows.groups):
            digest.update(b"" if numbers is None else np.ascontiguousarray(numbers).tobytes())
    names = list(features.names) if features else []
    has_groups = competition.groups is not None and competition.test_groups is not None
    return {"names": names, "are_beside_groups": has_groups, "sha256": digest.hexdigest()}


def csv_form(competition: Competition) -> dict[str, str]:
    """Returns how the CSV is written; the sample submission decides it."""
    expected = competition.submission_format
    return {
        "header": expected.line_style.header,
        "newline": expected.line_style.newline,
        "delimiter": expected.line_style.delimiter,
        "answers": expected.wants,
        "classes": first_few(competition.classes, 99),
    }


def _estimate_as_json(chosen: ChosenSteps, loss_name: str) -> dict[str, Any] | None:
    estimate = chosen.estimate
    if estimate is None:
        return None
    return {
        "blend": chosen.blend.strategy,
        "candidates": [candidate.as_json() for candidate in chosen.candidates],
        "between": estimate.interval,
        "images": estimate.image_count,
        loss_name: estimate.loss,
        "fold_gain": estimate.fold_gain,
        "score": estimate.score,
    }


def _fold_as_json(run: Run, fold: int, competition: Competition, labels: Mapping[str, str]) -> dict[str, Any]:
    score = None  # of a model of all images
    if not holds_nothing_out(fold):
        score = run.score(fold, competition.metric, labels, competition.classes)
    return {"fold": fold, "score": score, "weights_sha256": source_sha256(run, fold)}
