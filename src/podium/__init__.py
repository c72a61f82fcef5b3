"""Podium: from a Kaggle image-classification competition's files to a submission you can trust."""

__version__ = "0.1.0"
DEFAULT_COMPETITION = "boolart-image-classification"


class PodiumError(Exception):
    """A mistake that the user can mend: one sentence that says what, where and the remedy."""

    common = False  # of several processes, all have met it: one says so


STOPPED = 75  # exit status: stopped by a signal, the same command goes on
