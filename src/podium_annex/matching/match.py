"""Answers how similar the pairs of images are that the test table lists.

    podium match [-c SLUG] [--runs A B] [--name NAME]
    podium match --from FILE.json

Reads the competition's files and runs/<slug>/*/fold*/. Writes submissions/<slug>/<name>.csv, checked against the sample
submission row by row, and <name>.json: the runs, their hashes, what was chosen, what to expect.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.basics.checkout import current_commit
from podium.basics.disk import atomic, check_name, write_json
from podium.basics.errors import PodiumError
from podium.basics.machine import Machine
from podium.basics.terminal import first_few, plural, podium_command, say
from podium.competition.decide.pairs import Pairs
from podium.competition.find.csv_files import csv_text, read_table
from podium.competition.load import Competition
from podium.saved_runs.doubts import warn_of_edits, warn_of_folds, warn_of_versions
from podium.saved_runs.run_folder import Run, find_runs, package_versions
from podium.submissions.kaggle_scores import HISTORY
from podium.submissions.lineage import Lineage
from podium.submissions.rebuild_submission import find_recorded_folds
from podium.submissions.submission import free_path, join_names
from podium.tasks.task import ONE_LABEL
from podium.training.test_predictions import open_stores
from podium_annex.matching.choose_way import Choice, choose_way
from podium_annex.matching.galleries import open_galleries
from podium_annex.matching.image_features import Looker, refuse_featureless
from podium_annex.matching.similarities import Array, Way, scaled

MADE_BY = "podium match"
DIGITS = 7  # of a similarity: more would differ between machines


def match(
    competition: Competition,
    names: list[str] | None = None,
    *,
    except_names: list[str] | None = None,
    name: str = "",
    machine: Machine | None = None,
) -> Path:
    """Writes the similarities of all pairs, the mean of all runs or of those named; returns the path of the CSV."""
    pairs = pairs_of(competition)
    name = name.removesuffix(".csv")
    if name:
        check_name(name, "the name of a submission")
    if f"{name}.csv" == HISTORY:
        raise PodiumError(f"{HISTORY} is reserved for Kaggle's scores; choose another --name")
    runs = find_runs(competition.slug, competition.root, names, except_names)
    refuse_featureless(runs)
    for run in runs:
        warn_of_folds(run)
        warn_of_edits(run)
        warn_of_versions(run)
    looker = Looker(open_stores(competition, runs, machine or Machine()), machine or Machine())
    choice = choose_way(open_galleries(competition, runs, looker))
    models = {run: run.models() for run in runs}
    text = _render(pairs, _answers(competition, pairs, models, choice, looker))
    path = free_path(_folder(competition), name or f"match-{join_names(runs)}", text)
    _write(pairs, path, text)
    write_json(path.with_suffix(".json"), _lineage(competition, pairs, path, text, models, choice))
    say(f"podium: wrote {path} and {path.with_suffix('.json').name}")
    return path


def pairs_of(competition: Competition) -> Pairs:
    """Returns the pairs; refuses competitions that have none, or no individuals to learn."""
    if competition.task is not ONE_LABEL:
        raise PodiumError(f"podium match compares individuals, one for each image; here are {competition.task.words}")
    if competition.pairs is None:
        raise PodiumError(
            f"{competition.folder}: no row of the test table is a pair of images; if two of its columns name them, "
            + competition.card.advise('pairs = ["QUERY", "GALLERY"]')
            + "; single images are answered by podium submit"
        )
    return competition.pairs


def _folder(competition: Competition) -> Path:
    return competition.root / "submissions" / competition.slug


def _answers(
    competition: Competition, pairs: Pairs, models: Mapping[Run, Sequence[int]], choice: Choice, looker: Looker
) -> NDArray[np.float64]:
    """Returns the similarity of each pair, from 0 to 1."""
    count = plural(sum(map(len, models.values())), "model")
    names = first_few(run.name for run in models)
    say(f"podium: {len(pairs.ids):,} pairs of {len(competition.test):,} test images, {count} of {names}")
    features = looker.features(models, competition.test)
    place = {one: number for number, one in enumerate(competition.test["id"])}
    first, second = (np.array([place[one] for one in ids], np.int64) for ids in (pairs.first, pairs.second))
    return np.round(scaled(similarities_of(features, choice.way, first, second), choice.threshold), DIGITS)


def similarities_of(features: Array, way: Way, first: NDArray[Any], second: NDArray[Any]) -> Array:
    """Returns the similarities of these pairs of rows."""
    order, found = np.argsort(first, kind="stable"), np.empty(len(first), np.float32)
    for start, rows in way.rows(features):
        begin, end = np.searchsorted(first[order], (start, start + len(rows)))
        asked = order[begin:end]
        found[asked] = rows[first[asked] - start, second[asked]]
    return found


def _render(pairs: Pairs, answers: NDArray[np.float64]) -> str:
    rows = zip(pairs.ids, (f"{value:.{DIGITS}f}" for value in answers), strict=True)
    return f"{pairs.style.header}{pairs.style.newline}{csv_text(rows, pairs.style.newline, pairs.style.delimiter)}"


def _write(pairs: Pairs, path: Path, text: str) -> None:
    """Writes the CSV and checks what was written, before the file gets its name."""
    with atomic(path) as temporary:
        temporary.write_bytes(text.encode())
        written = read_table(temporary)
        if tuple(written.columns) != pairs.header or list(written[pairs.header[0]]) != pairs.ids:
            raise PodiumError(f"{path}: its columns or ids are not those of the sample submission; report this")
        numbers = written[pairs.header[1]].astype(float)
        if not numbers.between(0, 1).all():
            raise PodiumError(f"{path}: a similarity is not between 0 and 1; train the runs again, or leave one out")


# --- the lineage -------------------------------------------------------------------------------------


def _lineage(
    competition: Competition,
    pairs: Pairs,
    csv: Path,
    text: str,
    models: Mapping[Run, Sequence[int]],
    choice: Choice,
) -> dict[str, Any]:
    return {
        "made_by": MADE_BY,
        "csv": csv.name,
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "competition": competition.slug,
        "commit": current_commit(),
        "versions": package_versions(),
        **_data(competition, pairs),
        **choice.as_json(),
        "runs": [
            {
                "run": run.name,
                "folds": [{"fold": fold, "weights_sha256": run.check_weights(fold)} for fold in folds],
                "recipe": run.recipe,
            }
            for run, folds in models.items()
        ],
    }


def _data(competition: Competition, pairs: Pairs) -> dict[str, Any]:
    listed = json.dumps([pairs.header, pairs.ids, pairs.first, pairs.second])
    return {
        "train_sha256": competition.train_hash,
        "test_sha256": competition.test_hash,
        "pairs_sha256": hashlib.sha256(listed.encode()).hexdigest(),
    }


def read_match(path: Path) -> Lineage:
    """Reads the JSON of a CSV of similarities."""
    path = path.with_suffix(".json") if path.suffix == ".csv" else path
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["made_by"] != MADE_BY:
            raise ValueError("made_by")
        Choice.from_json(content)
        lineage = Lineage(path, content)
        needed = [lineage.competition, content["sha256"], content["pairs_sha256"]]
        needed += [fold["weights_sha256"] for run in content["runs"] for fold in run["folds"] if int(fold["fold"]) >= 0]
        if not content["runs"] or not all(isinstance(text, str) for text in needed):
            raise ValueError("its hashes")
    except OSError as error:
        raise PodiumError(f"{path}: {error.strerror}; podium match writes it beside its CSV") from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        submit = f"{podium_command()} submit --from {path}"
        raise PodiumError(
            f"{path} is not a lineage that podium match wrote ({error!r}); restore it, or try {submit}"
        ) from None
    return lineage


def rebuild_match(competition: Competition, lineage: Lineage, machine: Machine | None = None) -> Path:
    """Writes the CSV that the lineage describes, byte for byte; returns its path."""
    pairs = pairs_of(competition)
    for key, current in _data(competition, pairs).items():
        if lineage.content[key] != current:
            what = key.removesuffix("_sha256")
            raise PodiumError(f"{lineage.path}: the {what} data in {competition.folder} have changed; restore them")
    models = find_recorded_folds(competition.root, lineage)
    for run in models:
        warn_of_edits(run)
        warn_of_versions(run)
    looker = Looker(open_stores(competition, list(models), machine or Machine()), machine or Machine())
    text = _render(pairs, _answers(competition, pairs, models, Choice.from_json(lineage.content), looker))
    if hashlib.sha256(text.encode()).hexdigest() != lineage.content["sha256"]:
        versions, now = lineage.content["versions"], package_versions()
        changed = [f"{name} was {old} and is {now.get(name)}" for name, old in versions.items() if now.get(name) != old]
        reason = first_few(changed) if changed else f"the code was {lineage.content['commit']}"
        raise PodiumError(
            f"the same weights give another CSV than {lineage.path.name} describes ({reason}); restore what was changed"
        )
    path = lineage.csv
    if path.exists() and path.read_bytes() != text.encode():
        raise PodiumError(
            f"{path} is not the CSV that {lineage.path.name} describes; move it away and run the command again"
        )
    _write(pairs, path, text)
    say(f"podium: {path} is the CSV that {lineage.path.name} describes, byte for byte")
    return path
