"""The line that shows how the training of a fold goes: time left, loss, the last scores and the rate.

It stands below what is printed, in a terminal only. A pipe or a log gets the lines of the epochs. In a narrow terminal
the last of these are left out.
"""

import math
import time
from types import TracebackType
from typing import Self

from torch import Tensor

from podium.basics.terminal import duration, progress_bar
from podium.models.cpu_threads import threads
from podium.saved_runs.fold_names import fold_name
from podium.training.learner import Learner
from podium.training.timing.forecast import Forecast

FORMAT = "{desc} {percentage:3.0f} % |{bar}| {n_fmt}/{total_fmt} steps{postfix}"
WIDE = 120  # columns of a terminal that does not tell
BAR = 50  # letters of a line before the postfix: the bar and the numbers around it
SECONDS = 0.5  # between two values of the loss: to read it, the GPU has to finish
SMOOTHING = 0.7  # weight of the loss shown before


class LiveLine:
    def __init__(self, learner: Learner, forecast: Forecast) -> None:
        self.learner, self.forecast, progress = learner, forecast, learner.progress
        self.bar = progress_bar(
            in_log=False,  # which gets a line for each epoch
            total=progress.total_steps,
            initial=progress.step,
            desc=f"{fold_name(learner.fold)}",
            bar_format=FORMAT,
            postfix="",
        )
        self.loss: float | None = None
        self.next_reading = 0.0  # time

    def update(self, loss: Tensor) -> None:
        """Counts a step."""
        threads.watch()
        self.bar.total = self.learner.progress.total_steps
        if not self.bar.disable and time.monotonic() >= self.next_reading:
            self.next_reading = time.monotonic() + SECONDS
            value = loss.item()
            self.loss = value if self.loss is None else SMOOTHING * self.loss + (1 - SMOOTHING) * value
            self.bar.set_postfix_str(self.text(), refresh=False)
        self.bar.update()

    def text(self) -> str:
        """Returns as many as fit of: the time left, the loss, the scores after the last epoch, the rate."""
        progress, parts = self.learner.progress, []
        if self.forecast.is_settled(progress.step):
            of_all, folds = self.forecast.seconds_left_of_all(progress.step), 1 + len(self.forecast.later)
            all_folds = "" if math.isnan(of_all) else f" ({duration(of_all)} of {folds} folds)"
            parts.append(f"{duration(self.forecast.seconds_left(progress.step))} left{all_folds}")
        if self.loss is not None:
            parts.append(f"loss {self.loss:z.4f}")
        if progress.history:
            parts.append(progress.history[-1].scores_text())
        rate = self.bar.format_dict["rate"]
        if rate:
            parts.append(f"{rate * self.learner.sampler.batch_size:,.0f} images/s")
        columns = self.bar.format_dict["ncols"] or WIDE
        while len(parts) > 1 and len(", ".join(parts)) > columns - BAR:
            parts.pop()
        return ", ".join(parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.close()
