"""Predicts the test images with every fold model of the chosen runs and writes what Kaggle expects.

    podium submit [-c SLUG] [--runs A B]          podium submit --from FILE.json

Reads the competition's files and runs/<slug>/*/fold*/. Writes submissions/<slug>/<name>.csv, checked
against the sample submission row for row, and <name>.json, which says where every number came from.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium import PodiumError
from podium.competition.csv_files import read_table, table_text
from podium.competition.load import Competition
from podium.disk import atomic, write_json
from podium.folds.folds_csv import groups_of
from podium.images.store import open_store, side_for
from podium.submit.blend import Blend, Probs, held_out
from podium.submit.choose_blend import FEW, Verdict, judge
from podium.submit.lineage import Lineage, Made, facts
from podium.submit.test_predictions import answers, prior, warn_of_bad
from podium.terminal import counted, podium, say, types_make
from podium.training.run_folder import Run, find_runs

HISTORY = "history.csv"  # beside the submissions: Kaggle's verdicts
RARE = 1e-6  # the chance of an accident that is taken for a mistake
ASTRAY = 0.1  # of the answers, in other classes than training lets expect, beyond what chance does


class Blended(NamedTuple):
    probs: Probs  # of the test images
    alone: list[list[Probs]]  # what each model of each run says of a few of them
    made: Made


def submit(
    competition: Competition,
    root: Path,
    names: list[str] | None = None,
    name: str | None = None,
    device: str = "auto",
    workers: int | None = None,
    keep: bool = True,
    way: str | None = None,
    anyway: bool = False,
) -> Path:
    """The blend of the runs, each the mean of its finished folds, as a CSV that matches the sample; its path."""
    runs = find_runs(competition.slug, root, names)
    name = name or _joined(runs)
    if f"{name}.csv" == HISTORY:
        raise PodiumError(f"{HISTORY} is where Kaggle's verdicts stand; take another --name")
    folds = {run: run.finished() for run in runs}
    _announce(competition, folds)
    blend, verdict = _blend(competition, root, runs, way)
    blended = _blended(competition, root, folds, blend, device, workers, keep)
    if verdict:
        verdict = verdict.of_folds(competition.metric, blended.alone)
        _expect(competition, verdict)
    _check_mix(competition, blended.probs, anyway)
    text = render(competition, blended.probs)
    path = _free_name(root / "submissions" / competition.slug, name, text)
    _write(competition, path, text)
    write_json(path.with_suffix(".json"), facts(competition, path, blended.made, blend, verdict))
    say(f"podium: wrote {path} and {path.with_suffix('.json').name}")
    return path


def what_next(competition: Competition, csv: Path) -> str:
    solution = competition.folder / "solution.csv"
    if solution.exists():
        return f"{podium()} score {quote(str(csv))} --solution {quote(str(solution))}"
    again = "UPLOAD=1" if types_make() else "--upload"
    page = f"https://www.kaggle.com/competitions/{competition.slug}/submit"
    return f"the same command with {again}, or upload it at {page}"


def rebuild(
    competition: Competition,
    root: Path,
    lineage: Lineage,
    device: str = "auto",
    workers: int | None = None,
    keep: bool = True,
) -> Path:
    """The CSV that a lineage tells of, byte for byte, beside it; its path."""
    folds = lineage.find(competition, root)
    blended = _blended(competition, root, folds, lineage.blend, device, workers, keep)
    text, path = render(competition, blended.probs), lineage.csv
    lineage.check_same(text, blended.made)
    if path.exists() and path.read_bytes() != text.encode():
        raise PodiumError(f"{path} is not what {lineage.path.name} tells of; move it away and run the command again")
    _write(competition, path, text)
    say(f"podium: {path} is what {lineage.path.name} tells of, byte for byte")
    return path


def _announce(competition: Competition, folds: dict[Run, list[int]]) -> None:
    for run, finished in folds.items():
        for fold in finished:
            classes = run.out_of_fold(fold).classes
            if set(classes) != set(competition.classes):
                what = f"{len(classes)} classes that are not the {len(competition.classes)} of {competition.folder}"
                raise PodiumError(f"{run.path} was trained on {what}; train it again or leave it out: --runs")
            run.weights(fold)
    models = counted(sum(map(len, folds.values())), "fold model")
    say(f"podium: {len(competition.test):,} test images, {models} of {', '.join(run.name for run in folds)}")
    for run, finished in folds.items():
        missing = sorted(set(range(run.recipe["folds"])) - set(finished))
        if missing:
            say(f"podium: warning: {run.name} goes without its folds {', '.join(map(str, missing))}, not trained yet")
    if len({run.recipe.get("folds_sha256") for run in folds}) > 1:
        say("podium: warning: these runs have different folds; what the blend is expected to score may be too good")


def _blend(competition: Competition, root: Path, runs: Sequence[Run], way: str | None) -> tuple[Blend, Verdict | None]:
    """How the runs are blended, and what speaks for it."""
    metric, seen = competition.metric, held_out(runs, competition.classes, groups_of(competition, root))
    for run in runs if len(runs) > 1 else ():
        mean = np.mean([run.score(fold, metric) for fold in run.finished()])
        say(f"  {run.name}: {metric} {mean:.5f} out of fold")
    if not len(seen):
        if way not in (None, "equal"):
            raise PodiumError(f"--blend {way}: no image was held out by all of these runs; use equal")
        say("podium: warning: no image was held out by all of these runs, so they weigh the same")
        count = len(runs)
        return Blend("equal", (1 / count,) * count, (1.0,) * count), None
    verdict = judge(seen, metric, len(competition.test), way)
    blend = verdict.blend
    if len(verdict.judged) > 1:
        say(f"podium: ways to blend, each fitted on all folds but the one it is scored on ({len(seen):,} images)")
        say("  " + verdict.table(metric).replace("\n", "\n  "))
        weights = ", ".join(f"{run.name} {weight:.3f}" for run, weight in zip(runs, blend.weights, strict=True))
        reason = "as asked" if way else "the simplest that is not worse than the best by more than chance"
        say(f"podium: {blend.way}, {reason}: {weights}")
    return blend, verdict


def _expect(competition: Competition, verdict: Verdict) -> None:
    low, high = verdict.between
    where = f"expect between {low:.4f} and {high:.4f}"
    if np.isnan(low):
        where = "of one group, which does not tell what to expect"
    added = f", to which the mean over folds should add {verdict.folds_add:+.4f}" if verdict.folds_add else ""
    say(
        f"podium: {competition.metric} {verdict.score:.5f} on {verdict.images:,} images that its models have not seen"
        f"{added}; {where} on {len(competition.test):,} test images of the same kind"
    )


def _blended(
    competition: Competition,
    root: Path,
    folds: dict[Run, list[int]],
    blend: Blend,
    device: str,
    workers: int | None,
    keep: bool,
) -> Blended:
    """A run says of a test image what its fold models say on average."""
    sides = {run: side_for(max(run.recipe["image_size"], run.recipe["test_size"])) for run in folds}
    stores = {side: open_store(competition, root, side, keep) for side in sorted(set(sides.values()))}
    warn_of_bad(competition, next(iter(stores.values())))
    few = np.random.default_rng(0).permutation(len(competition.test))[:FEW]
    means: list[Probs] = []
    alone: list[list[Probs]] = []
    made: Made = {}
    for number, (run, finished) in enumerate(folds.items()):
        total: Probs = np.zeros((len(competition.test), len(competition.classes)))
        alone.append([])
        made[run] = {}
        for fold in finished:
            said = answers(competition, stores[sides[run]], run, fold, device, workers)
            probs = said.probs.astype(np.float64)
            total += blend.of_run(number, probs)
            alone[-1].append(probs[few])
            made[run][fold] = said.facts()
        means.append(total / len(finished))
    return Blended(blend.of_runs(means), alone, made)


# --- the file --------------------------------------------------------------------------------------------


def render(competition: Competition, probs: NDArray[np.floating[Any]]) -> str:
    """The submission's text: the sample's columns, rows and line ends, the labels as train.csv writes them."""
    shape = competition.shape
    if probs.shape != (len(competition.test), len(competition.classes)):
        raise PodiumError(f"predictions of shape {probs.shape} for {len(competition.test)} images")
    if not np.isfinite(probs).all():
        row = int(np.flatnonzero(~np.isfinite(probs).all(axis=1))[0])
        raise PodiumError(f"the prediction for id '{competition.test['id'].iloc[row]}' is not a number")
    if shape.wants == "labels":
        answers = [[competition.classes[best]] for best in probs.argmax(axis=1)]
    else:
        wanted = probs[:, 1:] if len(shape.answers) == 1 else probs  # of two classes in one column: the second
        answers = [[f"{value:.9g}" for value in row] for row in wanted]
    at = shape.place
    rows = ([*each[:at], name, *each[at:]] for name, each in zip(competition.test["id"], answers, strict=True))
    form = shape.written
    return f"{form.header}{form.newline}{table_text(rows, form.newline, form.delimiter)}"


def check(competition: Competition, path: Path) -> None:
    """Reads a submission back, and refuses it unless Kaggle would take it."""
    shape, written = competition.shape, read_table(path)
    if list(written.columns) != list(shape.columns) or not path.read_text("utf-8").startswith(shape.written.header):
        raise PodiumError(f"{path}: the columns are {list(written.columns)}, not {list(shape.columns)}")
    ids, wanted = list(written.iloc[:, shape.place]), list(competition.test["id"])
    if ids != wanted:
        at = next((i for i, (a, b) in enumerate(zip(ids, wanted, strict=False)) if a != b), min(len(ids), len(wanted)))
        raise PodiumError(f"{path}: {len(ids)} ids that differ from the {len(wanted)} expected, at row {at + 1} first")
    for column in shape.answers:
        cells = written[column]
        if shape.wants == "labels":
            wrong = cells[~cells.isin(competition.classes)]
        else:
            values = pd.to_numeric(cells, errors="coerce")
            wrong = cells[~((values >= 0) & (values <= 1))]
        if len(wrong):
            raise PodiumError(f"{path}, line {wrong.index[0]}: '{wrong.iloc[0]}' is no prediction")
    if len(shape.answers) > 1:
        sums = written[list(shape.answers)].astype(float).sum(axis=1)
        wrong = sums[(sums - 1).abs() > 1e-5]
        if len(wrong):
            raise PodiumError(f"{path}, line {wrong.index[0]}: the probabilities sum to {wrong.iloc[0]:.6g}")


def _write(competition: Competition, path: Path, text: str) -> None:
    with atomic(path) as temporary:
        temporary.write_bytes(text.encode())
        check(competition, temporary)


def _check_mix(competition: Competition, probs: Probs, anyway: bool) -> None:
    """Are the answers such as training lets expect?"""
    expected, count = prior(competition, competition.classes).astype(np.float64), len(probs)
    labels = competition.shape.wants == "labels"
    found = np.bincount(probs.argmax(1), minlength=probs.shape[1]) / count if labels else probs.mean(0)
    most = int(found.argmax())
    if found[most] * count > count - 0.5 and expected[most] ** count < RARE and not anyway:
        raise PodiumError(
            f"all {count:,} test images would be answered '{competition.classes[most]}', which is {expected[most]:.1%}"
            " of training; train longer, or look at the models with --runs (--anyway writes it all the same)"
        )
    chance = np.sqrt(2 / np.pi * expected * (1 - expected) / count)  # how far a share is off on average
    if np.abs(found - expected).sum() / 2 > ASTRAY + chance.sum():
        away = np.argsort(-np.abs(found - expected))[:3]
        numbers = ", ".join(f"'{competition.classes[k]}' {found[k]:.1%} instead of {expected[k]:.1%}" for k in away)
        say(f"podium: warning: the answers are not mixed as the training images are: {numbers}")


def _joined(runs: Sequence[Run]) -> str:
    name = "+".join(run.name for run in runs)
    return name if len(name) <= 100 else f"{len(runs)}-runs"


def _free_name(folder: Path, name: str, text: str) -> Path:
    """The name, or the next that is free: another submission is never written over."""
    path, number = folder / f"{name}.csv", 1
    while (path.exists() and path.read_bytes() != text.encode()) or _of_another(path.with_suffix(".json"), text):
        number += 1
        path = folder / f"{name}-{number}.csv"
    return path


def _of_another(lineage: Path, text: str) -> bool:
    """Whether a lineage without its CSV could still rebuild another one."""
    try:
        return bool(
            json.loads(lineage.read_text(encoding="utf-8"))["sha256"] != hashlib.sha256(text.encode()).hexdigest()
        )
    except (OSError, ValueError, LookupError, TypeError):
        return False
