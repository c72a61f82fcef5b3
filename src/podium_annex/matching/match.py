"""Answers which images show the same individual: pairs of them by their similarity, or single ones by clusters.

    podium match [-c SLUG] [--runs A B] [--name NAME] [--clusters]
    podium match --from FILE.json

Reads the competition's files and runs/<slug>/*/fold*/. Writes submissions/<slug>/<name>.csv, checked against the sample
submission row by row, and <name>.json: the runs, their hashes, what was chosen, what to expect.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from podium.basics.checkout import current_commit
from podium.basics.disk import atomic, write_json
from podium.basics.errors import PodiumError
from podium.basics.machine import Machine
from podium.basics.terminal import first_few, plural, podium_command, say
from podium.competition.find.csv_files import read_table
from podium.competition.load import Competition
from podium.saved_runs.doubts import warn_of_edits, warn_of_folds, warn_of_versions
from podium.saved_runs.run_folder import Run, find_runs, package_versions
from podium.submissions.lineage import Lineage
from podium.submissions.rebuild_submission import find_recorded_folds, refuse_other_csv
from podium.submissions.submission import free_path, join_names, read_name
from podium.training.test_predictions import open_stores
from podium_annex.matching.choose_way import Choice, choose_way
from podium_annex.matching.compared_features import Looker, refuse_featureless
from podium_annex.matching.galleries import open_galleries
from podium_annex.matching.questions import ClusterQuestion, Models, Question, question_of

MADE_BY = "podium match"


def match(
    competition: Competition,
    names: list[str] | None = None,
    *,
    except_names: list[str] | None = None,
    name: str = "",
    clusters: bool = False,
    machine: Machine | None = None,
) -> Path:
    """Writes the answers of all runs, or of those named, and their lineage; returns the path of the CSV."""
    question = question_of(competition, clusters)
    name = read_name(name)
    runs = find_runs(competition.slug, competition.root, names, except_names)
    refuse_featureless(runs)
    for run in runs:
        warn_of_folds(run)
    looker = _look_with(competition, runs, machine)
    choice = choose_way(open_galleries(competition, runs, looker), clusters)
    models = {run: run.models() for run in runs}
    text = _answer(question, models, choice, looker)
    folder = competition.root / "submissions" / competition.slug
    path = free_path(folder, name or f"match-{join_names(runs)}", text)
    _write(question, path, text)
    write_json(path.with_suffix(".json"), _lineage(question, path, text, models, choice))
    say(f"podium: wrote {path} and {path.with_suffix('.json').name}")
    return path


def _look_with(competition: Competition, runs: Sequence[Run], machine: Machine | None) -> Looker:
    machine = machine or Machine()
    for run in runs:
        warn_of_edits(run)
        warn_of_versions(run)
    return Looker(open_stores(competition, runs, machine), machine)


def _answer(question: Question, models: Models, choice: Choice, looker: Looker) -> str:
    count, names = plural(sum(map(len, models.values())), "model"), first_few(run.name for run in models)
    say(f"podium: {question.describe()}, {count} of {names}")
    return question.render(question.answers(models, choice, looker))


def _write(question: Question, path: Path, text: str) -> None:
    """Writes the CSV and checks what was written, before the file gets its name."""
    with atomic(path) as temporary:
        temporary.write_bytes(text.encode())
        written = read_table(temporary)
        if tuple(written.columns) != question.header or list(written[question.header[0]]) != question.ids:
            raise PodiumError(f"{path}: its columns or ids are not those of the sample submission; download it again")
        cells = written[question.header[1]]
        wrong = cells[question.are_wrong(cells)]
        if len(wrong):
            raise PodiumError(f"{path}, line {wrong.index[0]}: '{wrong.iloc[0]}' is no answer; leave out a run")


# --- the lineage -------------------------------------------------------------------------------------


def _lineage(question: Question, csv: Path, text: str, models: Models, choice: Choice) -> dict[str, Any]:
    return {
        "made_by": MADE_BY,
        "csv": csv.name,
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "competition": question.competition.slug,
        "commit": current_commit(),
        "versions": package_versions(),
        "clusters": isinstance(question, ClusterQuestion),
        **_data(question),
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


def _data(question: Question) -> dict[str, str]:
    competition = question.competition
    hashes = {"train": competition.train_hash, "test": competition.test_hash, "rows": question.sha256}
    if isinstance(question, ClusterQuestion):  # known individuals give names
        hashes["corrections"] = competition.corrections.sha256 or ""
    return {f"{name}_sha256": digest for name, digest in hashes.items()}


def read_match(path: Path) -> Lineage:
    """Reads the JSON of a CSV that podium match wrote; `path` is either of them."""
    path = path.with_suffix(".json") if path.suffix == ".csv" else path
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["made_by"] != MADE_BY:
            raise ValueError("made_by")
        Choice.from_json(content)
        lineage = Lineage(path, content)
        texts = [
            lineage.competition,
            content["sha256"],
            content["rows_sha256"],
            *(own["run"] for own in content["runs"]),
        ]
        texts += [fold["weights_sha256"] for own in content["runs"] for fold in own["folds"] if int(fold["fold"]) >= 0]
        if not content["runs"] or not all(isinstance(text, str) for text in texts):
            raise ValueError("its runs")
    except OSError as error:
        raise PodiumError(f"{path}: {error.strerror}; podium match writes it beside its CSV") from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise PodiumError(
            f"{path} is not a lineage that podium match wrote ({error!r}); restore it, or rebuild what podium submit"
            f" wrote with: {podium_command()} submit --from {path}"
        ) from None
    return lineage


def rebuild_match(competition: Competition, lineage: Lineage, machine: Machine | None = None) -> Path:
    """Writes the CSV that the lineage describes, byte for byte; returns its path."""
    question, recorded = question_of(competition, bool(lineage.content.get("clusters"))), lineage.content
    for key, current in _data(question).items():
        if recorded.get(key) != current:
            what = key.removesuffix("_sha256")
            raise PodiumError(f"{lineage.path}: the {what} data in {competition.folder} have changed; restore them")
    models = find_recorded_folds(competition.root, lineage)
    looker = _look_with(competition, list(models), machine)
    text, path = _answer(question, models, Choice.from_json(recorded), looker), lineage.csv
    if hashlib.sha256(text.encode()).hexdigest() != recorded["sha256"]:
        now, before = package_versions(), recorded["versions"]
        changed = [f"{name} was {old} and is {now.get(name)}" for name, old in before.items() if now.get(name) != old]
        reason = f"the code was {recorded['commit']} and is {current_commit()}"
        raise PodiumError(
            f"the same weights give another CSV than {lineage.path.name} describes"
            f" ({first_few(changed) if changed else reason}); restore what was changed"
        )
    refuse_other_csv(path, text, lineage)
    _write(question, path, text)
    say(f"podium: {path} is the CSV that {lineage.path.name} describes, byte for byte")
    return path
