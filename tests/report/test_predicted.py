"""The picture at the beginning of a report: what was predicted to be of a class, right and wrong."""

import numpy as np

from podium_annex.report.numbers import HeldOutImages
from podium_annex.report.predicted import RIGHT, WRONG, choose_images


def test_the_surest_right_images_of_a_class_come_before_the_surest_that_are_confused_with_it() -> None:
    confidence = np.array([0.6, 0.9, 0.7, 0.8, 0.95, 0.65, 0.99])
    targets = np.array([0, 0, 1, 1, 0, 0, 1])
    probs = np.stack([confidence, 1 - confidence], axis=1)
    probs[6] = probs[6, ::-1]  # predicted to be of the other class
    ids = np.array([str(number) for number in range(7)])
    chosen = choose_images(HeldOutImages(ids, np.zeros(7, np.int64), targets, probs, ("a", "b")), 0)
    assert chosen == [4, 1, 5, 3, 2]
    assert (RIGHT, WRONG) == (3, 3)
