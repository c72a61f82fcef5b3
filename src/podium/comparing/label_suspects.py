"""Finds images whose label is probably wrong, by confident learning on held-out predictions.

First a temperature makes the probabilities as sure as they are right on the given labels: models may be too sure, or
too cautious after label smoothing. A class has a threshold: the mean probability that the models give it on the images
with its label (Northcutt et al., 2021, arXiv 1911.00068). So a class that the models know badly needs less to be
believed. A label is suspected if another class nearly reaches its threshold, and is much more likely than the label.
`find_suspects` works on arrays; suspect_list.py reads the runs.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.blending.blend import Probs
from podium.tasks.temperature import MIN_PROB, apply_temperature, fit_temperature, random_part

Ints = NDArray[np.int64]

# Chosen on simulated noise, with 10 to 25 classes of which the rarest had 1 to 8 images. For models with an accuracy of
# 0.9, 75 to 98 % of the suspects were wrong if labels were exchanged at random, and they were 69 to 94 % of the wrong
# ones. If labels were exchanged between the classes that are confused most, it was 71 to 94 %, and 48 to 83 %.
MIN_ODDS = 5.0  # of the suggested class against the given one
NEARLY = 0.8  # of a class's threshold
# A class of few images has its threshold, and its share of the labels, mostly from these images of all classes.
PSEUDO_IMAGES = 20
# Rare classes are predicted too seldom. The whole share of a class would blame all frequent ones; its root is between.
SHARE_POWER = 0.5
MOST_FITTED = 50_000_000  # probabilities that the temperature is fitted to


class Suspects(NamedTuple):
    """All images, the most suspicious label first."""

    order: NDArray[np.int64]  # positions in the input
    suggested: NDArray[np.int64]  # in that order: the most likely class except the given one
    odds: NDArray[np.float64]  # in that order: how many times as likely it is as the given one
    is_suspect: NDArray[np.bool_]  # in that order: the label is probably wrong


def find_suspects(targets: Ints, probs: Probs) -> Suspects:
    """Ranks images by how probably their label is wrong.

    `targets` are the given labels, `probs` [images, classes] the predictions of models that have not seen the image.
    A class without a label is never suggested.
    """
    probs = apply_temperature(probs, _temperature(probs, targets))
    rows, class_count = np.arange(len(targets)), probs.shape[1]
    counts = np.bincount(targets, minlength=class_count)
    shares = (counts + PSEUDO_IMAGES / class_count) / (len(targets) + PSEUDO_IMAGES)
    evidence = probs.clip(MIN_PROB)  # the only table beside that of the probabilities
    np.log(evidence, out=evidence)
    evidence -= SHARE_POWER * np.log(shares)
    given = evidence[rows, targets]
    evidence[:, counts == 0] = -np.inf
    evidence[rows, targets] = -np.inf
    suggested = evidence.argmax(1)
    with np.errstate(over="ignore"):
        odds = np.exp(evidence[rows, suggested] - given)
    is_suspect = (odds >= MIN_ODDS) & (probs[rows, suggested] >= NEARLY * _thresholds(targets, probs)[suggested])
    order = np.argsort(-odds, kind="stable")
    return Suspects(order, suggested[order], odds[order], is_suspect[order])


def _temperature(probs: Probs, targets: Ints) -> float:
    """Returns the temperature that fits all images; a random part of a very large table is enough."""
    fitted = random_part(np.arange(len(probs)), MOST_FITTED // probs.shape[1])
    if len(fitted) == len(probs):
        return fit_temperature(probs, targets)  # without a copy
    return fit_temperature(probs[fitted], targets[fitted])


def _thresholds(targets: Ints, probs: Probs) -> Probs:
    """Returns, for each class, the mean probability of the class on the images with its label."""
    given = probs[np.arange(len(targets)), targets]
    sums = np.bincount(targets, given, minlength=probs.shape[1]) + PSEUDO_IMAGES * given.mean()
    thresholds: Probs = sums / (np.bincount(targets, minlength=probs.shape[1]) + PSEUDO_IMAGES)
    return thresholds
