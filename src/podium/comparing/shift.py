"""Says whether the test images look like the training images, and which of them do not.

    podium audit --shift [--model MODEL]

A logistic regression learns to tell test images from training images by their features under a frozen model. It is
judged on images that it has not seen, with duplicates and groups whole, and its L2 is chosen on others again. A ROC AUC
of 0.5 says that it only guesses, 1 that it is always right. Writes data/prepared/<slug>/shift.csv: how much each image
looks like a test image.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.disk import write_text
from podium.basics.errors import PodiumError
from podium.basics.terminal import busy_with, command_for, first_few, plural, say, show
from podium.blending.expected_score import Interval, MembersOfGroups, percentile_interval
from podium.competition.find.csv_files import csv_text
from podium.competition.load import Competition
from podium.folds.split import assign_folds
from podium.images.audit import audit_path, load_audit
from podium.images.duplicates import merge_groupings
from podium.options.recipe_defaults import AUTO_PRETRAINED
from podium.tasks.metric_functions import share_in_order
from podium.training.image_features import features_of_images

Numbers = NDArray[np.float64]
Ints = NDArray[np.int64]

FOLDS = 5
FEWEST = 20  # images of each table: fewer show nothing
MOST = 5_000  # images of each table; more would only take longer
DIRECTIONS = 128  # principal ones of the features
STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # of the inverse L2
RESAMPLES = 1_000
PLAINLY, EASILY = 0.6, 0.9  # of the AUC
SHOWN = 8  # images
LEAST_FACT = 0.05  # difference of shares, below which a fact of the files is not told
SURE = 3.3  # standard errors of such a difference: one of a thousand facts by chance


@dataclass(frozen=True, eq=False)
class Shift:
    rows: pd.DataFrame  # role, id, image and test_like: the probability of a test image, where both are as frequent
    auc: float
    interval: Interval  # 95 %, from resampled groups

    @property
    def is_clear(self) -> bool:
        return self.interval[0] > 0.5


def tell_shift(competition: Competition, model: str | None = None) -> Shift:
    """Measures the shift, prints it, and writes shift.csv."""
    check_can_be_told(competition)
    audited = load_audit(competition)
    features = features_of_images(competition, model or AUTO_PRETRAINED)
    shift = measure_shift(competition, audited, np.concatenate([features.train, features.test]))
    show(describe_shift(competition, audited, shift, features.model))
    path = audit_path(competition.slug, competition.root).with_name("shift.csv")
    write_shift(path, shift)
    say(f"podium: wrote {path}")
    return shift


def check_can_be_told(competition: Competition) -> None:
    """Refuses a competition with too few images of one kind, before features are computed."""
    for role, rows in (("training", competition.train), ("test", competition.test)):
        if len(rows) < FEWEST:
            raise PodiumError(
                f"--shift: {competition.folder} has {plural(len(rows), f'{role} image')}, too few to say how they"
                f" differ; at least {FEWEST} are needed"
            )


@busy_with("comparing training and test images")
def measure_shift(competition: Competition, audited: pd.DataFrame, features: NDArray[np.float32]) -> Shift:
    """Returns how well test images are told from training images; the features are those of the audit's rows."""
    is_good = np.isfinite(features).all(1)
    is_test = (audited["role"] == "test").to_numpy()
    group = merge_groupings([audited["group"], _groups_of(competition)])
    rng, chosen = np.random.default_rng(0), []
    for role in (False, True):
        own = np.flatnonzero(is_good & (is_test == role))
        if len(own) < FEWEST:
            raise PodiumError(f"--shift: fewer than {FEWEST} {'test' if role else 'training'} images can be read")
        chosen.append(np.sort(rng.choice(own, MOST, replace=False)) if len(own) > MOST else own)
    rows = np.concatenate(chosen)
    logits = held_out_logits(features[rows], is_test[rows], group[rows])
    is_judged = np.isfinite(logits)
    rows, logits = rows[is_judged], logits[is_judged]
    told = audited.iloc[rows][["role", "id", "image"]].reset_index(drop=True)
    return Shift(
        told.assign(test_like=1 / (1 + np.exp(-logits))),
        share_in_order(is_test[rows], logits),
        _interval(logits, is_test[rows], group[rows]),
    )


def _groups_of(competition: Competition) -> "pd.Series[str]":
    """Returns the card's group of each training and test image; "" for none."""
    train, test = competition.groups, competition.test_groups
    none = [""] * len(competition.train), [""] * len(competition.test)
    return pd.Series([*(none[0] if train is None else train), *(none[1] if test is None else test)], dtype=object)


def held_out_logits(features: NDArray[np.float32], is_test: NDArray[np.bool_], group: Ints) -> Numbers:
    """Returns the log odds of a test image, for each by a model of other folds; not a number where none judges."""
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression

    points = features - features.mean(0, dtype=np.float64)
    deviations = points.std(0)
    points /= np.where(deviations > 0, deviations, 1.0)
    points = PCA(min(DIRECTIONS, *points.shape), whiten=True, svd_solver="full").fit_transform(points)
    fold = assign_folds(["test" if test else "train" for test in is_test], FOLDS, 0, group)

    def fit(is_learned: NDArray[np.bool_], strength: float) -> LogisticRegression:
        model = LogisticRegression(C=strength, class_weight="balanced", max_iter=1_000)
        return model.fit(points[is_learned], is_test[is_learned])

    logits = np.full(len(points), np.nan)
    for number in range(FOLDS):
        is_scored, is_inner = fold == number, fold == (number + 1) % FOLDS
        is_learned = ~is_scored & ~is_inner
        losses = [_loss(fit(is_learned, c).decision_function(points[is_inner]), is_test[is_inner]) for c in STRENGTHS]
        strength = STRENGTHS[int(np.argmin(losses))]
        logits[is_scored] = fit(~is_scored, strength).decision_function(points[is_scored])
    return logits


def _loss(logits: Numbers, is_test: NDArray[np.bool_]) -> float:
    """Returns the log loss, where test and training images count the same."""
    losses = np.logaddexp(0, np.where(is_test, -logits, logits))
    return float(losses[is_test].mean() + losses[~is_test].mean())


def _interval(logits: Numbers, is_test: NDArray[np.bool_], group: Ints) -> Interval:
    members, rng, scores = MembersOfGroups(np.unique(group, return_inverse=True)[1]), np.random.default_rng(1), []
    count = len(members.sizes)
    for _ in range(RESAMPLES):
        sample = members.of(rng.integers(count, size=count))
        if 0 < is_test[sample].sum() < len(sample):
            scores.append(share_in_order(is_test[sample], logits[sample]))
    return percentile_interval(np.array(scores))


def write_shift(path: Path, shift: Shift) -> None:
    cells = zip(*(shift.rows[name] for name in ("role", "id", "image")), shift.rows["test_like"].round(4), strict=True)
    write_text(path, csv_text([("role", "id", "image", "test_like"), *cells]))


# --- in words ----------------------------------------------------------------------------------------


def describe_shift(competition: Competition, audited: pd.DataFrame, shift: Shift, model: str) -> str:
    """Returns the AUC, what it means, the most foreign images, and which facts of files and tables differ."""
    low, high = shift.interval
    lines = [
        f"{competition.title}: test images told from training images by the features of {model}: ROC AUC"
        f" {shift.auc:z.3f}, 95 % interval {low:z.3f} to {high:z.3f} (0.5: they look the same; 1: it is always right)",
        _meaning(competition, shift),
    ]
    if shift.is_clear:
        for role, other, is_high in (("train", "test", False), ("test", "train", True)):
            names = {"train": "training", "test": "test"}
            own = shift.rows[shift.rows["role"] == role].sort_values("test_like", ascending=not is_high, kind="stable")
            texts = own["image"] + " (" + own["test_like"].map("{:.2f}".format) + ")"
            lines.append(f"{names[role]} images that look least like {names[other]} images: {first_few(texts, SHOWN)}")
    facts = differing_facts(competition, audited)
    return "\n".join(
        [*lines, *([f"what differs: {facts[0]}", *facts[1:]] if facts else ["no fact of the files differs"])]
    )


def _meaning(competition: Competition, shift: Shift) -> str:
    if not shift.is_clear:
        return "the test images look like the training images: no shift shows, so ordinary folds suit them"
    if shift.auc < PLAINLY:
        return "the test images differ a little from the training images: that hardly matters to a score"
    how = "can easily be told apart" if shift.auc >= EASILY else "can be told apart"
    advice = f"{command_for('folds', competition.slug)} --by-site"
    return (
        f"the test images {how} from the training images, so the score on them may be lower than on ordinary folds;"
        f" look at the images below, and if cameras or sites differ, split by them: {advice}"
    )


def differing_facts(competition: Competition, audited: pd.DataFrame) -> list[str]:
    """Returns what is more or less frequent among the test images: sizes, formats, values of the tables' columns."""
    good = audited[audited["reason"] == ""]
    is_test = (good["role"] == "test").to_numpy()
    size = good["width"].astype(int) * good["height"].astype(int)
    numbers = {
        "pixels": size,
        "width / height": good["width"].astype(int) / good["height"].astype(int),
        "bytes per pixel": good["bytes"].astype(int) / size,
    }
    found = [_of_numbers(name, values.to_numpy(float), is_test) for name, values in numbers.items()]
    found.append(_of_texts("format", good["format"] + " " + good["mode"], is_test))
    if competition.answers is None:
        shared = competition.shared_columns
        both = np.repeat([False, True], [len(shared.train), len(shared.test)])
        for name in shared.train.columns.intersection(shared.test.columns):
            cells = pd.concat([shared.train[name], shared.test[name]]).astype(str)
            values = pd.to_numeric(cells, errors="coerce").to_numpy(float)
            of_column = f"column {json.dumps(str(name))}"
            if np.isfinite(values).all() and len(np.unique(values)) > SHOWN:
                found.append(_of_numbers(of_column, values, both))
            elif cells.nunique() <= len(cells) / 2:
                found.append(_of_texts(of_column, cells, both))
    return [fact for fact in found if fact]


def _of_numbers(name: str, values: Numbers, is_test: NDArray[np.bool_]) -> str:
    """Returns where the shares of smaller values differ most (Kolmogorov and Smirnov); "" if that may be chance."""
    train, test = (np.sort(values[is_test == role]) for role in (False, True))
    if not len(train) or not len(test):
        return ""
    points = np.unique(values)
    shares = [np.searchsorted(own, points, side="right") / len(own) for own in (train, test)]
    place = int(np.abs(shares[0] - shares[1]).argmax())
    of_train, of_test = (float(own[place]) for own in shares)
    if abs(of_train - of_test) < max(LEAST_FACT, 2 * (1 / len(train) + 1 / len(test)) ** 0.5):
        return ""
    return (
        f"  {name} up to {points[place]:.4g}: {of_train:.0%} of the training images, {of_test:.0%} of the test images"
    )


def _of_texts(name: str, values: "pd.Series[str]", is_test: NDArray[np.bool_]) -> str:
    """Returns the value whose shares differ most; "" if that may be chance."""
    shares = pd.crosstab(values.to_numpy(), is_test).reindex(columns=[False, True], fill_value=0)
    counts = shares.sum().to_numpy(float)
    if not counts.all():
        return ""
    of_train, of_test = (shares / counts).to_numpy(float).T
    mean = shares.sum(axis=1).to_numpy(float) / counts.sum()
    errors = np.sqrt(mean * (1 - mean) * (1 / counts).sum())
    difference = np.where(np.abs(of_train - of_test) > SURE * errors, np.abs(of_train - of_test), 0.0)
    place = int(difference.argmax())
    if difference[place] < LEAST_FACT:
        return ""
    value = shares.index[place]
    return f"  {name} {value!r}: {of_train[place]:.0%} of the training images, {of_test[place]:.0%} of the test images"
