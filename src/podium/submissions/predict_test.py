"""Predicts the test images with the fold models of the runs, and blends the predictions.

Reads the pixel store and runs/<slug>/<run>/fold<k>/; training/test_predictions.py predicts with one fold's model.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.basics.machine import Machine
from podium.basics.terminal import plural, say
from podium.blending.blend import Blend, Probs
from podium.blending.decision import Decision
from podium.blending.expected_score import GAIN_SAMPLE
from podium.blending.own_decision import Undecided, undecided_answers
from podium.blending.pool_images import pool_test
from podium.blending.shares_of_test import SHARES_KIND, TestShares, shares_with_interval
from podium.blending.stack_inputs import TableRows
from podium.blending.table_rows import rows_of_tables
from podium.competition.load import Competition
from podium.images.other_images import describe_other_images
from podium.images.store import Store
from podium.models.model_file import read_spec
from podium.saved_runs.run_folder import Run
from podium.training.test_predictions import open_stores, predict_test

PredictionFacts = dict[Run, dict[int, dict[str, str]]]  # by run and fold: hashes of input and output, and the device


class BlendedPredictions(NamedTuple):
    probs: Probs  # of the submission's rows, decided
    fold_probs: list[list[NDArray[np.floating[Any]]]]  # [run][fold model]: of a sample of these rows, not calibrated
    facts: PredictionFacts
    fold_features: TableRows | None  # of the sample of rows
    fold_undecided: Undecided | None  # the same
    other_images: list[str]  # which test images are unlike those of training, in words
    test_shares: Callable[[], TestShares] | None = None  # estimates them; None: the decision does not


def predict_blend(
    competition: Competition, folds: Mapping[Run, Sequence[int]], blend: Blend, machine: Machine
) -> BlendedPredictions:
    """Predicts with the given folds of each run. A run's prediction is the mean of its fold models."""
    stores = open_stores(competition, folds, machine)
    other_images: list[str] = []
    if store := next(iter(stores.values()), None):  # else all runs were imported
        _warn_of_unreadable_images(competition, store)
        other_images = describe_other_images(competition, store)
    for problem in other_images:
        say(f"podium: warning: {problem}")
    count, features = len(competition.answer_ids), rows_of_tables(competition) if blend.stack else None
    order = np.random.default_rng(0).permutation(count)
    sample = order[:GAIN_SAMPLE] if features is None else features.whole_groups(order, GAIN_SAMPLE)
    means: list[Probs] = []
    fold_probs: list[list[NDArray[np.floating[Any]]]] = []
    facts: PredictionFacts = {}
    for number, (run, run_folds) in enumerate(folds.items()):
        total: Probs = np.zeros((count, len(competition.classes)))
        counts = models_that_count(competition, run, run_folds)
        fold_probs.append([])
        facts[run] = {}
        for fold, does_count in zip(run_folds, counts, strict=True):
            store = stores[run].of_fold(fold) if run in stores else None
            predictions = predict_test(competition, store, run, fold, machine)
            probs = pool_test(competition, predictions.probs.astype(np.float64), blend.pool)
            is_pooled = competition.answers is not None  # then float32, as it was predicted, would not be exact
            fold_probs[-1].append((probs if is_pooled else predictions.probs)[sample])
            total += blend.calibrate(number, probs) * does_count
            facts[run][fold] = predictions.facts()
        means.append(total / counts.sum(0))
    fold_features = None if features is None else features[sample]
    undecided = undecided_answers(competition, blend.decision)
    averaged = blend.average(means, features)
    test_shares = None
    if isinstance(blend.decision, Decision) and blend.decision.kind == SHARES_KIND:
        test_shares = partial(shares_with_interval, averaged, np.array(blend.decision.numbers), competition.classes)
    return BlendedPredictions(
        blend.decide(averaged, undecided),
        fold_probs,
        facts,
        fold_features,
        undecided and undecided.of(sample),
        other_images,
        test_shares,
    )


def models_that_count(competition: Competition, run: Run, folds: Sequence[int]) -> NDArray[np.bool_]:
    """Marks which models count in the mean of a class; of most competitions, all do."""
    if competition.unknown is None or run.imported:
        return np.ones((len(folds), len(competition.classes)), dtype=bool)
    from podium.models.predict import models_by_class  # it imports torch

    return models_by_class([read_spec(run.weights_path(fold)) for fold in folds], competition.classes)


def _warn_of_unreadable_images(competition: Competition, store: Store) -> None:
    positions = store.examples(competition.test).first
    bad = positions[store.bad(positions)]
    if len(bad):
        first = store.files[bad[0]]
        say(
            f"podium: warning: {plural(len(bad), 'test image')} CANNOT BE READ, {first.image} first ({first.reason});"
            " their rows get the class frequencies of the training images"
        )
