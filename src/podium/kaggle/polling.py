"""Asks Kaggle again and again until it has finished something: a kernel, a verdict, a data set."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TypeVar

from podium import PodiumError
from podium.kaggle.client import explain_error, http_status
from podium.terminal import progress_bar

Result = TypeVar("Result")
PROGRESS = "{desc}: {elapsed} {postfix}"  # no percentage: Kaggle does not say how far it is


@dataclass
class Poll:
    """How often and how long to ask Kaggle. A `look` may change these while the poll runs."""

    slug: str
    pauses: tuple[float, ...]  # seconds between looks; the last one repeats
    patience: float  # seconds
    out_of_patience: str  # the error's text when patience ends
    fatal: tuple[int, ...] = ()  # HTTP statuses that end the poll at once
    since_last_answer: bool = False  # patience counts from Kaggle's last answer instead of the first look

    def until(self, look: Callable[[], Result | None], description: str) -> Result:
        """Returns the first result of `look` that is not None.

        Tolerates Kaggle's other errors: the next look may succeed after a cut connection or a 429.
        """
        start, pauses = time.monotonic(), chain(self.pauses, repeat(self.pauses[-1]))
        with progress_bar(desc=description, bar_format=PROGRESS) as progress:
            while True:
                problem = ""
                try:
                    result = look()
                    if result is not None:
                        return result
                    if self.since_last_answer:
                        start = time.monotonic()
                except (OSError, ValueError) as error:
                    if http_status(error) in self.fatal:
                        raise
                    problem = explain_error(error, self.slug)
                    progress.set_postfix_str(problem)
                if time.monotonic() - start > self.patience:
                    raise PodiumError(f"{problem}; {self.out_of_patience}" if problem else self.out_of_patience)
                time.sleep(next(pauses))
                progress.update()
