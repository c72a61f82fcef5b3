"""Grades submissions as competitions do, with code of its own: rows, columns and cells must be right, then a score.

Scores are higher where they are better: errors are negative.
"""

import csv
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics

Row = list[str]  # the answers in a row of a submission


@dataclass(frozen=True)
class Grading:
    truth: dict[str, Any]  # by id: a label, a set of labels, or a number for each column
    form: Callable[[Row, set[str]], bool]  # whether these may be the answers of a row, where these words are known
    score: Callable[[list[Any], list[Row], list[str]], float]  # from the truth, the answers and their columns
    metric: str  # as Podium calls it
    words: set[str] = field(default_factory=set)  # that may be answers
    ids: str = ""  # the column of the ids, if it is not the first
    groups: dict[str, str] = field(default_factory=dict)  # of training images, by id: no fold may cut one

    def grade(self, submission: Path, sample: Path) -> float:
        """Returns the score; fails where the competition would refuse the file."""
        header, ids, answers = self.read(submission)
        expected, sample_ids, _ = self.read(sample)
        assert header == expected
        assert ids == sample_ids
        assert sorted(row[-1] for row in ids) == sorted(self.truth)
        assert all(len(own) + len(row) == len(header) for own, row in zip(ids, answers, strict=True))
        wrong = [row for row in answers if not self.form(row, self.words)]
        assert not wrong, wrong[:3]
        return self.score_of(submission)

    def score_of(self, path: Path) -> float:
        header, ids, answers = self.read(path)
        return self.score([self.truth[row[-1]] for row in ids], answers, header[len(ids[0]) :])

    def read(self, path: Path) -> tuple[Row, list[Row], list[Row]]:
        """Returns the header, the cells up to the id, and the answers after it."""
        with path.open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        first = header.index(self.ids) + 1 if self.ids else 1
        return header, [row[:first] for row in rows], [row[first:] for row in rows]


# --- what a row may hold -----------------------------------------------------------------------------


def label(row: Row, words: set[str]) -> bool:
    return len(row) == 1 and row[0] in words


def tags(row: Row, words: set[str]) -> bool:
    own = row[0].split()
    return len(row) == 1 and len(set(own)) == len(own) and set(own) <= words


def ranking(row: Row, words: set[str]) -> bool:
    return tags(row, words) and 1 <= len(row[0].split()) <= 5


def label_and_share(row: Row, words: set[str]) -> bool:
    name, share = row[0].split()
    return len(row) == 1 and name in words and 0 <= float(share) <= 1


def numbers(row: Row, _: set[str]) -> bool:
    return bool(np.isfinite([float(cell) for cell in row]).all())


def shares(row: Row, words: set[str]) -> bool:
    """Probabilities that need not sum to 1."""
    return numbers(row, words) and all(0 <= float(cell) <= 1 for cell in row)


def distribution(row: Row, words: set[str]) -> bool:
    return shares(row, words) and abs(sum(map(float, row)) - 1) < 1e-3


# --- scores ------------------------------------------------------------------------------------------


def values(rows: list[Row]) -> NDArray[np.float64]:
    return np.array(rows, np.float64)


def marks(truth: list[Any], columns: list[str]) -> NDArray[np.float64]:
    """Returns a 1 for each column that is true of a row; a label is true alone."""
    return np.array(
        [[name in row if isinstance(row, set) else name == row for name in columns] for row in truth], float
    )


def accuracy(truth: list[str], rows: list[Row], _: list[str]) -> float:
    return float(np.mean([own == row[0] for own, row in zip(truth, rows, strict=True)]))


def macro_f1(truth: list[str], rows: list[Row], _: list[str]) -> float:
    return float(metrics.f1_score(truth, [row[0] for row in rows], average="macro", zero_division=0))


def quadratic_kappa(truth: list[str], rows: list[Row], _: list[str]) -> float:
    given = [int(row[0]) for row in rows]
    return float(metrics.cohen_kappa_score([int(own) for own in truth], given, weights="quadratic"))


def auc(truth: list[int], rows: list[Row], _: list[str]) -> float:
    return float(metrics.roc_auc_score(truth, values(rows)[:, 0]))


def mean_auc(truth: list[Any], rows: list[Row], columns: list[str]) -> float:
    own, given = marks(truth, columns), values(rows)
    return float(np.mean([metrics.roc_auc_score(own[:, n], given[:, n]) for n in range(len(columns))]))


def weighted_auc(truth: list[int], rows: list[Row], _: list[str]) -> float:
    """ALASKA2: what lies below a share of 0.4 of the found messages counts twice."""
    false, found, _ = metrics.roc_curve(truth, values(rows)[:, 0])
    places = np.linspace(0, 1, 10_001)
    curve = np.interp(places, false, found)
    return float((2 * np.minimum(curve, 0.4) + np.maximum(curve - 0.4, 0)).mean() / (2 * 0.4 + 0.6))


def partial_auc(truth: list[int], rows: list[Row], _: list[str]) -> float:
    """ISIC 2024: the area above a share of 0.8 of the ill that are found, 0.2 at most."""
    false, found, _ = metrics.roc_curve(1 - np.array(truth), -values(rows)[:, 0])
    places = np.linspace(0, 0.2, 2001)
    return float(np.interp(places, false, found).mean() * 0.2)


def global_average_precision(truth: list[str], rows: list[Row], _: list[str]) -> float:
    pairs = [(own, *row[0].split()) for own, row in zip(truth, rows, strict=True)]
    pairs.sort(key=lambda pair: -float(pair[2]))
    right = np.array([own == name for own, name, _ in pairs])
    return float((right.cumsum() / np.arange(1, len(right) + 1) * right).sum() / len(right))


def log_loss(truth: list[int], rows: list[Row], _: list[str]) -> float:
    given, own = values(rows)[:, 0].clip(1e-15, 1 - 1e-15), np.array(truth)
    return float(np.log(np.where(own == 1, given, 1 - given)).mean())


def log_loss_of_columns(truth: list[str], rows: list[Row], columns: list[str]) -> float:
    given = values(rows).clip(1e-15, 1)
    given /= given.sum(axis=1, keepdims=True)
    return float(np.log(given[np.arange(len(truth)), [columns.index(own) for own in truth]]).mean())


def map_at_5(truth: list[str], rows: list[Row], _: list[str]) -> float:
    ranks = [[*row[0].split(), own].index(own) for own, row in zip(truth, rows, strict=True)]
    return float(np.mean([1 / (rank + 1) if rank < 5 else 0 for rank in ranks]))


def micro_f1(truth: list[set[str]], rows: list[Row], _: list[str]) -> float:
    given = [set(row[0].split()) for row in rows]
    right = sum(len(own & other) for own, other in zip(truth, given, strict=True))
    return 2 * right / sum(len(own) + len(other) for own, other in zip(truth, given, strict=True))


def macro_f1_of_tags(truth: list[set[str]], rows: list[Row], _: list[str]) -> float:
    names = sorted(set().union(*truth))
    given = [set(row[0].split()) for row in rows]
    return float(metrics.f1_score(marks(truth, names), marks(given, names), average="macro", zero_division=0))


def mean_f2(truth: list[set[str]], rows: list[Row], _: list[str]) -> float:
    pairs = [(own, set(row[0].split())) for own, row in zip(truth, rows, strict=True)]
    return float(np.mean([5 * len(own & given) / (4 * len(own) + len(given)) for own, given in pairs]))


def rmse(truth: list[list[float]], rows: list[Row], _: list[str]) -> float:
    return -float(np.sqrt(np.mean((np.array(truth) - values(rows)) ** 2)))


def probabilistic_f1(truth: list[int], rows: list[Row], _: list[str]) -> float:
    given, own = values(rows)[:, 0], np.array(truth)
    right = float((given * own).sum())
    precision, recall = right / max(float(given.sum()), 1e-15), right / own.sum()
    return float(2 * precision * recall / max(precision + recall, 1e-15))
