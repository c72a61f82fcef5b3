"""Asks Kaggle repeatedly until it has finished a kernel, a score or a data set."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TypeVar

from podium.basics.errors import PodiumError
from podium.basics.terminal import progress_bar
from podium.kaggle.client import explain_error, http_status

Result = TypeVar("Result")
PROGRESS = "{desc}: {elapsed} {postfix}"  # no percentage: Kaggle does not say how far it is


@dataclass(frozen=True)
class Poll:
    """How often and how long to ask Kaggle."""

    slug: str
    pauses: tuple[float, ...]  # seconds between two requests; the last one repeats
    patience: float  # seconds
    out_of_patience: str  # the error's text when patience ends
    fatal: tuple[int, ...] = ()  # HTTP statuses that end the poll at once
    since_last_answer: bool = False  # patience counts from Kaggle's last answer, not from the first request

    def until(self, look: Callable[[], Result | None], description: str) -> Result:
        """Returns the first result of `look` that is not None.

        Continues after Kaggle's other errors: after a lost connection or a 429 the next request may succeed.
        """
        start, pauses = time.monotonic(), chain(self.pauses, repeat(self.pauses[-1]))
        with progress_bar(in_log=False, desc=description, bar_format=PROGRESS) as progress:
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
