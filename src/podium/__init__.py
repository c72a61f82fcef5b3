"""Podium takes a Kaggle image-classification competition from its files to a submission you can trust.

The rooms, in the order of the flow: competition, images, folds, models, training, submit, kaggle, cli. Each imports
only from those before it; docs/architecture.md shows the way through them.
"""

__version__ = "0.1.0"
DEFAULT_COMPETITION = "boolart-image-classification"
STOPPED = 75  # exit status: a signal stopped the command, and the same command resumes


class PodiumError(Exception):
    """A mistake that the user can correct: one sentence with what happened, where, and what to do."""

    in_all_processes = False  # true: every process of a group raises it, and the first one reports it
