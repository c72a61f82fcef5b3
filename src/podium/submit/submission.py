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
from typing import NamedTuple

import numpy as np

from podium import PodiumError
from podium.competition.load import Competition
from podium.disk import atomic, write_json
from podium.folds.folds_csv import read_groups
from podium.images.store import open_store, stored_side
from podium.submit.blend import Blend, Probs, held_out
from podium.submit.check import check_class_shares, check_csv, render
from podium.submit.choose_blend import FEW, Verdict, choose_blend
from podium.submit.lineage import Lineage, Made, lineage_of
from podium.submit.test_predictions import predict_test, warn_of_unreadable
from podium.terminal import plural, podium_command, say, uses_make
from podium.training.run_folder import Run, find_runs

HISTORY = "history.csv"  # beside the submissions: Kaggle's verdicts


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
    check_class_shares(competition, blended.probs, anyway)
    text = render(competition, blended.probs)
    path = _free_name(root / "submissions" / competition.slug, name, text)
    _write(competition, path, text)
    write_json(path.with_suffix(".json"), lineage_of(competition, path, blended.made, blend, verdict))
    say(f"podium: wrote {path} and {path.with_suffix('.json').name}")
    return path


def what_next(competition: Competition, csv: Path) -> str:
    solution = competition.folder / "solution.csv"
    if solution.exists():
        return f"{podium_command()} score {quote(str(csv))} --solution {quote(str(solution))}"
    again = "UPLOAD=1" if uses_make() else "--upload"
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
    models = plural(sum(map(len, folds.values())), "fold model")
    say(f"podium: {len(competition.test):,} test images, {models} of {', '.join(run.name for run in folds)}")
    for run, finished in folds.items():
        missing = sorted(set(range(run.recipe["folds"])) - set(finished))
        if missing:
            say(f"podium: warning: {run.name} goes without its folds {', '.join(map(str, missing))}, not trained yet")
    if len({run.recipe.get("folds_sha256") for run in folds}) > 1:
        say("podium: warning: these runs have different folds; what the blend is expected to score may be too good")


def _blend(competition: Competition, root: Path, runs: Sequence[Run], way: str | None) -> tuple[Blend, Verdict | None]:
    """How the runs are blended, and what speaks for it."""
    metric, seen = competition.metric, held_out(runs, competition.classes, read_groups(competition, root))
    for run in runs if len(runs) > 1 else ():
        mean = np.mean([run.score(fold, metric) for fold in run.finished()])
        say(f"  {run.name}: {metric} {mean:.5f} out of fold")
    if not len(seen):
        if way not in (None, "equal"):
            raise PodiumError(f"--blend {way}: no image was held out by all of these runs; use equal")
        say("podium: warning: no image was held out by all of these runs, so they weigh the same")
        count = len(runs)
        return Blend("equal", (1 / count,) * count, (1.0,) * count), None
    verdict = choose_blend(seen, metric, len(competition.test), way)
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
    sides = {run: stored_side(max(run.recipe["image_size"], run.recipe["test_size"])) for run in folds}
    stores = {side: open_store(competition, root, side, keep) for side in sorted(set(sides.values()))}
    warn_of_unreadable(competition, next(iter(stores.values())))
    few = np.random.default_rng(0).permutation(len(competition.test))[:FEW]
    means: list[Probs] = []
    alone: list[list[Probs]] = []
    made: Made = {}
    for number, (run, finished) in enumerate(folds.items()):
        total: Probs = np.zeros((len(competition.test), len(competition.classes)))
        alone.append([])
        made[run] = {}
        for fold in finished:
            said = predict_test(competition, stores[sides[run]], run, fold, device, workers)
            probs = said.probs.astype(np.float64)
            total += blend.of_run(number, probs)
            alone[-1].append(probs[few])
            made[run][fold] = said.facts()
        means.append(total / len(finished))
    return Blended(blend.of_runs(means), alone, made)


def _write(competition: Competition, path: Path, text: str) -> None:
    with atomic(path) as temporary:
        temporary.write_bytes(text.encode())
        check_csv(competition, temporary)


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
