"""Finds training labels that are probably wrong, and leaves out their images or softens them (--clean drop|soften).

Logistic heads on the frozen features judge the labels: each part of a fold's training images by a head that was fitted
to the other parts. None of them has seen the images that the fold holds out, so the fold's score stays honest. (The
out-of-fold predictions of a whole run would not do: those for this fold's training images come from models that have
learned its held-out labels.)

How strongly to clean is chosen on one of these parts, to which no head of that choice was fitted: the strength under
which a head is right most often, if that is more than chance against no cleaning. Writes fold<k>/labels.csv.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.basics.disk import atomic, write_text
from podium.basics.terminal import plural, say
from podium.competition.find.csv_files import csv_text
from podium.models.build import ModelSpec
from podium.options.knob import ALWAYS_RECORDED
from podium.options.moves.cleaning import Cleaning
from podium.options.recipe import NEUTRAL
from podium.saved_runs.fold_names import fold_name
from podium.tasks.task import are_right
from podium.training.context import Context
from podium.training.frozen_features import Features, compute_features
from podium.training.linear_probe import build_frozen, fit_head, linear_layers, predict_head
from podium.training.soft_targets import Cleaned
from podium.training.training_images import TrainingImages

Ints = NDArray[np.int64]
Probs = NDArray[np.float32]

PARTS = 5  # where the folds make no parts of their own
# Shares: of the images that are left out, or of the heads' answer in a softened target.
STRENGTHS = {"drop": (0.02, 0.05, 0.1, 0.15, 0.2, 0.3), "soften": (0.2, 0.4, 0.6, 0.8)}
SURE = 1.0  # standard errors of the difference that a gain must exceed
FILE, KEPT = "labels.csv", "cleaned.npz"  # for people, and for resuming


class Judged(NamedTuple):
    """Training images, and what heads say of them that were not fitted to them."""

    rows: Ints  # of the training table
    probs: Probs


class Judge:
    """The frozen features of one fold, and heads on parts of its training images."""

    def __init__(self, context: Context, fold: int, features: Features, spec: ModelSpec) -> None:
        self.context, self.fold, self.features, self.spec = context, fold, features, spec
        self.rows = features.known_among(context.images.training_rows(fold))
        self.parts = _parts_of(context.images, self.rows)
        self.strengths: Sequence[float] = ()  # of L2: that of the first head serves for all

    def answers(self, learned: Ints, judged: Ints, cleaned: Cleaned | None = None) -> Probs:
        """Returns what a head that is fitted to some rows says of others."""
        folds = self.context.images.folds.inside(self.fold, learned, judged)
        context = self.context.with_images(folds=folds, cleaned=cleaned)
        head, l2, _ = fit_head(context, self.fold, self.features, self.spec, self.strengths)
        self.strengths = (l2,)
        return predict_head(context, head, self.features, judged, self.spec)

    def judge(self, is_judged: NDArray[np.bool_]) -> Judged:
        """Returns what heads say of these rows: of each part, one that was fitted to their other parts."""
        rows, parts = self.rows[is_judged], self.parts[is_judged]
        probs = np.zeros((len(rows), len(self.spec.classes)), np.float32)
        for part in np.unique(parts):
            probs[parts == part] = self.answers(rows[parts != part], rows[parts == part])
        self._believe_unseen(rows, parts, probs)
        return Judged(rows, probs)

    def _believe_unseen(self, rows: Ints, parts: Ints, probs: Probs) -> None:
        """Lets heads agree with the labels of a class whose images are all in one part: its head has never seen it."""
        labels = self.context.images.targets.values[rows]
        pairs = np.unique(np.stack([labels, parts]), axis=1)
        is_unseen = np.bincount(pairs[0], minlength=probs.shape[1])[labels] == 1
        probs[is_unseen] = 0
        probs[is_unseen, labels[is_unseen]] = 1

    def are_right(self, rows: Ints, probs: Probs) -> NDArray[np.bool_]:
        return are_right(self.context.images.targets[rows], probs)

    def choose_strength(self, how: str) -> tuple[float, float]:
        """Returns the strength, 0 where no cleaning gains more than chance, and its gain on the part that chose it."""
        judging = self.parts == np.unique(self.parts)[0]
        seen, judges = self.judge(~judging), self.rows[judging]
        before = self.are_right(judges, self.answers(seen.rows, judges))
        best, most = 0.0, 0.0
        for strength in STRENGTHS[how]:
            cleaned = self.clean(seen, how, strength)
            gains = self.are_right(judges, self.answers(seen.rows, judges, cleaned)).astype(float) - before
            error = gains.std() / np.sqrt(len(gains))
            if gains.mean() > max(most, SURE * error):
                best, most = strength, float(gains.mean())
        return best, most

    def clean(self, judged: Judged, how: str, strength: float) -> Cleaned:
        """Returns which of these rows, whose label heads contradict, are left out, or what they teach instead."""
        nothing, rows = np.zeros(0, np.int64), judged.rows
        labels = self.context.images.targets[rows].are_true(len(self.spec.classes))
        targets = ((1 - strength) * labels + strength * judged.probs).astype(np.float32)
        if how == "soften" and strength:
            return Cleaned(nothing, rows, targets)
        doubts = self.doubts(judged)
        doubtful = np.argsort(-doubts, kind="stable")[: round(strength * len(rows))]
        return Cleaned(np.sort(rows[doubtful[doubts[doubtful] > 0]]), nothing, targets[:0])

    def doubts(self, judged: Judged) -> NDArray[np.float64]:
        """Returns how much more probable the best other class is than the label, as the logarithm of the odds."""
        labels = self.context.images.targets[judged.rows].values
        logs = np.log(judged.probs.astype(np.float64).clip(1e-12))
        place = np.arange(len(labels)), labels
        own = logs[place]
        logs[place] = -np.inf
        doubts: NDArray[np.float64] = logs.max(1) - own
        return doubts


def clean_labels_of_fold(context: Context, fold: int) -> Context:
    """Returns the context in which this fold learns from clean labels only; a fold that has begun keeps its own."""
    if not Cleaning.of(context.recipe).is_on:
        return context
    cleaned = None
    if context.processes.is_first:
        path, keys = context.run.fold_folder(fold) / KEPT, _keys(context, fold)
        key, cleaned = keys[0], _read(path, keys)
        if cleaned is None:
            cleaned = _clean(context, fold)
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic(path) as temporary, temporary.open("wb") as file:
                np.savez(file, left_out=cleaned.left_out, rows=cleaned.rows, targets=cleaned.targets, key=np.array(key))
    return context.with_images(cleaned=context.processes.broadcast(cleaned))


def _clean(context: Context, fold: int) -> Cleaned:
    cleaning = Cleaning.of(context.recipe)
    how, judge = cleaning.clean, _open_judge(context, fold)
    strength, gain = judge.choose_strength(how)
    judged = judge.judge(np.ones(len(judge.rows), bool))
    cleaned = judge.clean(judged, how, strength)
    _write(context, fold, judge, judged, cleaned)
    what = "leaves out" if how == "drop" else "softens"
    if strength:
        images = plural(len(cleaned.left_out if how == "drop" else cleaned.rows), "training image")
        share = f"{strength:.0%}" if how == "drop" else f"{strength:.0%} of each answer is what heads say"
        say(f"podium: {fold_name(fold)} {what} {images} ({share}): heads gain {100 * gain:.1f} points by it")
    else:
        say(f"podium: {fold_name(fold)} {what} nothing, because heads gain no more than chance by any --clean {how}")
    return cleaned


def _keys(context: Context, fold: int) -> list[str]:
    """Hashes what is cleaned, and how; then as earlier versions did, in the order of their recipe.json."""
    rows = context.images.training_rows(fold)
    train = context.competition.train.iloc[rows]
    values = context.recipe.values()
    used = {name: value for name, value in sorted(values.items()) if NEUTRAL.get(name, ALWAYS_RECORDED) != value}
    before = {name: values[name] for name in context.run.recipe if name in values} if context.run.has_begun() else {}
    contents = [[recipe, train["id"].tolist(), train["target"].tolist()] for recipe in (used, before)]
    return [hashlib.sha256(json.dumps(content).encode()).hexdigest() for content in contents]


def _read(path: Path, keys: Sequence[str]) -> Cleaned | None:
    """Returns what the fold has learned from so far; None if it has not begun."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            if str(file["key"]) in keys:
                return Cleaned(file["left_out"], file["rows"], file["targets"])
    except FileNotFoundError:
        pass
    except Exception as error:  # a damaged archive makes numpy and zipfile raise nearly anything
        say(f"podium: warning: {path}: cannot be read ({error}); its labels are judged again")
    return None


def _open_judge(context: Context, fold: int) -> Judge:
    context = context.with_images(extra=context.images.extra[:0])
    model, spec, normalise = build_frozen(context, fold)
    linear_layers(model, spec, normalise)  # refuses models whose answers are no head on features
    spec = replace(spec, unknown="", unknown_share=0.0)  # no label is the class that no training image has
    return Judge(context, fold, compute_features(context, model, spec, normalise), spec)


def _parts_of(images: TrainingImages, rows: Ints) -> Ints:
    """Returns the part of each row: its fold, which keeps groups whole, or one of five where there are too few."""
    parts = images.folds.of_image[rows]
    if len(np.unique(parts[parts >= 0])) < 3:
        return rows % PARTS
    return np.where(parts < 0, np.unique(parts[parts >= 0])[rows % len(np.unique(parts[parts >= 0]))], parts)


def _write(context: Context, fold: int, judge: Judge, judged: Judged, cleaned: Cleaned) -> None:
    """Lists the images whose label is doubted, the most doubtful first."""
    ids, classes = context.competition.train["id"].to_numpy(), context.competition.classes
    labels = context.images.targets[judged.rows].values
    doubts = judge.doubts(judged)
    is_left_out = np.isin(judged.rows, cleaned.left_out)
    lines: list[Sequence[object]] = [("id", "label", "suggested", "probability", "learned")]
    for number in np.argsort(-doubts, kind="stable"):
        if doubts[number] <= 0:
            break
        best = int(judged.probs[number].argmax())
        learned = "no" if is_left_out[number] else "yes"
        share = f"{judged.probs[number, best]:z.3f}"
        lines.append((ids[judged.rows[number]], classes[labels[number]], classes[best], share, learned))
    write_text(context.run.fold_folder(fold) / FILE, csv_text(lines))
