"""Predicts the test images with every fold model of the chosen runs and writes what Kaggle expects.

    podium submit [-c SLUG] [--runs A B]          podium score FILE.csv --solution FILE.csv

Reads the competition's files and runs/<slug>/*/fold*/. Writes submissions/<slug>/<name>.csv, checked
against the sample submission row for row, and <name>.json, which says where every number came from.
"""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium import PodiumError
from podium.competition import Competition, classes_of_columns, in_order
from podium.console import bar, counted, podium, say
from podium.disk import atomic, sha256, write_json
from podium.metrics import METRICS, evaluate
from podium.runs import Predictions, Run, find_runs
from podium.store import Store, open_store, side_for
from podium.tables import read_table, table_text


def submit(
    competition: Competition,
    root: Path,
    names: list[str] | None = None,
    name: str | None = None,
    device: str = "auto",
    workers: int | None = None,
    keep: bool = True,
) -> Path:
    """The mean of each run's finished folds, and of the runs, as a CSV that matches the sample; its path."""
    runs, metric = find_runs(competition.slug, root, names), competition.metric
    # (run, fold): its share of the mean
    members = {(run, fold): 1 / len(runs) / len(run.finished()) for run in runs for fold in run.finished()}
    for run, fold in members:
        _check_fits(competition, run, fold)
    models = counted(len(members), "fold model")
    say(f"podium: {len(competition.test):,} test images, {models} of {', '.join(run.name for run in runs)}")
    for run in runs:
        missing = sorted(set(range(run.recipe["folds"])) - set(run.finished()))
        if missing:
            say(f"podium: warning: {run.name} goes without its folds {', '.join(map(str, missing))}, not trained yet")

    sizes = {run: run.recipe["image_size"] for run in runs}
    stores = {size: open_store(competition, root, side_for(size), keep) for size in sorted(set(sizes.values()))}
    _warn_of_bad(competition, next(iter(stores.values())))
    probs = np.zeros((len(competition.test), len(competition.classes)))
    for (run, fold), share in members.items():
        probs += share * _predictions(competition, stores[sizes[run]], run, fold, device, workers).probs

    text = render(competition, probs)
    path = _free_name(root / "submissions" / competition.slug, name or _joined(runs), text)
    with atomic(path) as temporary:
        temporary.write_bytes(text.encode())
        check(competition, temporary)
    estimate, images = out_of_fold_score(competition, runs)
    write_json(path.with_suffix(".json"), _lineage(competition, path, members, estimate, images))
    for run in runs:
        mean = np.mean([run.score(fold, metric) for fold in run.finished()])
        say(f"  {run.name}: {metric} {mean:.5f} out of fold")
    if images and len(runs) > 1:
        say(f"  their mean: {metric} {estimate:.5f} out of fold, on the {images:,} images all of them held out")
    say(f"podium: wrote {path} and {path.with_suffix('.json').name}")
    solution = competition.folder / "solution.csv"
    if solution.exists():
        say(f"next: {podium()} score {quote(str(path))} --solution {quote(str(solution))}")
    else:
        say(f"next: upload it at https://www.kaggle.com/competitions/{competition.slug}/submit")
    return path


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
        wanted = probs[:, 1:] if len(shape.columns) == 2 else probs  # of two classes in one column: the second
        answers = [[f"{value:.9g}" for value in row] for row in wanted]
    rows = ([name, *answer] for name, answer in zip(competition.test["id"], answers, strict=True))
    return table_text([shape.columns, *rows], shape.newline)


def check(competition: Competition, path: Path) -> None:
    """Reads a submission back, and refuses it unless Kaggle would take it."""
    shape, written = competition.shape, read_table(path)
    if list(written.columns) != list(shape.columns):
        raise PodiumError(f"{path}: the columns are {list(written.columns)}, not {list(shape.columns)}")
    ids, wanted = list(written.iloc[:, 0]), list(competition.test["id"])
    if ids != wanted:
        at = next((i for i, (a, b) in enumerate(zip(ids, wanted, strict=False)) if a != b), min(len(ids), len(wanted)))
        raise PodiumError(f"{path}: {len(ids)} ids that differ from the {len(wanted)} expected, at row {at + 1} first")
    for column in shape.columns[1:]:
        cells = written[column]
        if shape.wants == "labels":
            wrong = cells[~cells.isin(competition.classes)]
        else:
            values = pd.to_numeric(cells, errors="coerce")
            wrong = cells[~((values >= 0) & (values <= 1))]
        if len(wrong):
            raise PodiumError(f"{path}, line {wrong.index[0]}: '{wrong.iloc[0]}' is no prediction")


def score(path: Path, solution: Path, metric: str | None = None) -> str:
    """{"metric": ..., "score": ...}: a submission against the true labels, row for row by id."""
    given, truth = (read_table(file, "check the path") for file in (path, solution))
    if truth.shape[1] < 2 or given.shape[1] < 2:
        raise PodiumError(
            f"{solution if truth.shape[1] < 2 else path}: one column only; an id and an answer are needed"
        )
    for table, file in ((given, path), (truth, solution)):
        twice = table.iloc[:, 0][table.iloc[:, 0].duplicated()]
        if len(twice):
            raise PodiumError(f"{file}, line {twice.index[0]}: id '{twice.iloc[0]}' stands there twice")
    answers = given.set_index(given.columns[0])
    missing = [name for name in truth.iloc[:, 0] if name not in answers.index]
    if missing or len(answers) != len(truth):
        what = f"'{missing[0]}' is missing first" if missing else f"{len(answers) - len(truth):,} are in no row of it"
        raise PodiumError(f"{path}: {len(answers):,} ids do not match the {len(truth):,} of {solution}: {what}")
    answers = answers.loc[list(truth.iloc[:, 0])]
    labels = truth.iloc[:, 1]
    wide = answers.shape[1] > 1
    metric = metric or ("log_loss" if wide else "accuracy")
    if wide or METRICS[metric]().wants == "probs":
        classes, probs = _read_probs(answers, labels, path)
    else:
        classes = _whole_scale(set(labels) | set(answers.iloc[:, 0]))
        index = {name: i for i, name in enumerate(classes)}
        probs = np.eye(len(classes))[[index[name] for name in answers.iloc[:, 0]]]
    index = {name: i for i, name in enumerate(classes)}
    targets = np.array([index.get(name, -1) for name in labels])
    if (targets < 0).any():
        raise PodiumError(f"{path}: no column for the class '{labels[targets < 0].iloc[0]}' of {solution}")
    found = evaluate(metric, targets, probs)
    if not np.isfinite(found):
        raise PodiumError(f"{path}: {metric} says nothing of these {len(targets):,} answers; take another --metric")
    return json.dumps({"metric": metric, "score": found})


def _read_probs(answers: pd.DataFrame, labels: pd.Series, path: Path) -> tuple[list[str], NDArray[np.float64]]:
    values = answers.apply(pd.to_numeric, errors="coerce").to_numpy(dtype=np.float64)
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])
        raise PodiumError(f"{path}: id '{answers.index[row]}' has a probability that is not a number")
    if ((values < 0) | (values > 1)).any() or (values.shape[1] > 1 and (values.sum(axis=1) == 0).any()):
        wrong = (values < 0).any(1) | (values > 1).any(1) | (values.sum(axis=1) == 0)
        raise PodiumError(f"{path}: id '{answers.index[wrong.argmax()]}' has no probabilities: {values[wrong][0]}")
    classes = in_order(set(labels))
    if answers.shape[1] > 1:
        return classes_of_columns([str(column) for column in answers.columns], classes, path), values
    if len(classes) != 2:
        raise PodiumError(f"{path}: one column of probabilities serves two classes, not {len(classes)}")
    return classes, np.hstack([1 - values, values])


def _whole_scale(labels: set[str]) -> list[str]:
    """The classes in order; of numbers all between the least and the greatest, so that distances are right."""
    classes = in_order(labels)
    if not all(name.isdecimal() and len(name) < 4 for name in classes):
        return classes
    return in_order(labels | {str(number) for number in range(int(classes[0]), int(classes[-1]))})


def out_of_fold_score(competition: Competition, runs: Sequence[Run]) -> tuple[float | None, int]:
    """What the mean of the runs scores on training images that none of the averaged models has seen; on how many."""
    total: dict[str, NDArray[np.float64]] = {}
    target: dict[str, int] = {}
    votes: dict[str, int] = {}
    for run in runs:
        for fold in run.finished():
            held_out = run.out_of_fold(fold)
            for name, probs, label in zip(held_out.id, held_out.probs, held_out.target, strict=True):
                total[name] = total.get(name, 0.0) + probs.astype(np.float64)
                votes[name], target[name] = votes.get(name, 0) + 1, int(label)
    shared = [name for name, count in votes.items() if count == len(runs)]
    if not shared:
        return None, 0
    probs = np.array([total[name] / len(runs) for name in shared])
    return evaluate(competition.metric, np.array([target[name] for name in shared]), probs), len(shared)


# --- the parts -------------------------------------------------------------------------------------------


def _check_fits(competition: Competition, run: Run, fold: int) -> None:
    classes = run.out_of_fold(fold).classes
    if classes != competition.classes:
        raise PodiumError(
            f"{run.path} was trained on {len(classes)} classes that are not the {len(competition.classes)} of"
            f" {competition.folder}; train it again or leave it out: --runs"
        )


def _predictions(
    competition: Competition, store: Store, run: Run, fold: int, device: str, workers: int | None
) -> Predictions:
    """The fold model's probabilities for the test images; computed once, kept beside it."""
    weights, kept = run.fold(fold) / "model.safetensors", run.fold(fold) / "test.npz"
    mirrored = run.recipe["mirror"] > 0
    positions = store.positions(competition.test["image"])
    images = f"{competition.test_hash[:32]}{store.digest(positions)[:32]}"
    key = f"weights {run.check_weights(fold)} images {images} mirrored {mirrored}"
    if kept.exists():
        try:
            found = Predictions.load(kept, "predicting again")
        except PodiumError as error:
            say(f"podium: warning: {error}")
        else:
            if found.key == key:
                say(f"  {run.name} fold {fold}: predicted already")
                return found

    from podium.augment import TestView
    from podium.device import hints, pick_device, pick_precision, prepare
    from podium.loader import Images, batches, every_image, pick_workers
    from podium.models import Normaliser, load_model
    from podium.predict import predict_proba

    on = pick_device(device)
    prepare(on, deterministic=False)
    model, spec = load_model(weights)
    good = np.flatnonzero(~store.bad(positions))
    unseen = Images(store.reader(positions[good]), np.full(len(good), -1), TestView(spec), good)
    in_turn = batches(unseen, every_image(len(good), run.recipe["batch_size"]), pick_workers(workers, on))
    precision = pick_precision(run.recipe["precision"], on)
    with hints(), bar(total=len(good), desc=f"{run.name} fold {fold}", unit="image") as progress:
        normalise = Normaliser(spec, on)
        model.to(on).to(memory_format=normalise.layout)
        seen = predict_proba(model, in_turn, normalise, precision, mirrored, progress)
    ids = competition.test["id"].to_numpy(dtype=str)
    probs = np.tile(_prior(competition), (len(ids), 1))  # all that is known of an image that cannot be read
    if len(good):
        probs[good] = seen
    found = Predictions(ids, probs, np.full(len(ids), -1), spec.classes, key)
    found.save(kept)
    return found


def _prior(competition: Competition) -> NDArray[np.float32]:
    """How frequent each class is in training."""
    counts = competition.train["target"].value_counts()
    prior: NDArray[np.float32] = (counts.reindex(competition.classes, fill_value=0) / counts.sum()).to_numpy(np.float32)
    return prior


def _warn_of_bad(competition: Competition, store: Store) -> None:
    positions = store.positions(competition.test["image"])
    bad = positions[store.bad(positions)]
    if len(bad):
        first = store.files[bad[0]]
        say(
            f"podium: warning: {counted(len(bad), 'test image')} CANNOT BE READ, {first.image} first ({first.reason});"
            " such rows answer with what is most frequent in training"
        )


def _joined(runs: Sequence[Run]) -> str:
    name = "+".join(run.name for run in runs)
    return name if len(name) <= 100 else f"{len(runs)}-runs"


def _free_name(folder: Path, name: str, text: str) -> Path:
    """The name, or the next that is free: another submission is never written over."""
    path, number = folder / f"{name}.csv", 1
    while path.exists() and path.read_bytes() != text.encode():
        number += 1
        path = folder / f"{name}-{number}.csv"
    return path


def _lineage(
    competition: Competition, path: Path, members: dict[tuple[Run, int], float], estimate: float | None, images: int
) -> dict[str, Any]:
    return {
        "csv": path.name,
        "sha256": sha256(path),
        "competition": competition.slug,
        "metric": competition.metric,
        "out_of_fold": {"score": estimate, "images": images},
        "commit": _commit(),
        "train_sha256": competition.train_hash,
        "test_sha256": competition.test_hash,
        "models": [
            {
                "run": run.name,
                "fold": fold,
                "share": share,
                "score": run.score(fold, competition.metric),
                "weights_sha256": sha256(run.fold(fold) / "model.safetensors"),
            }
            for (run, fold), share in members.items()
        ],
        "recipes": {run.name: run.recipe for run, _ in members},
    }


def _commit() -> str | None:
    """The commit of the code that runs, with a mark when it has been changed since; None outside a checkout."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip() or None
