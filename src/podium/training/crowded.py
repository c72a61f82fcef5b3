"""How many threads train a fold on a CPU: as many as are free when it begins, and one if others are in their way later.

Threads that wait for each other on cores that other programs use may train ten times slower than one does. The last
bits depend on the number, so recipe.json keeps it for each fold (`threads`, and `threads_of` where a fold has another
one), a resumed fold goes on with it, and to take another number means to begin the fold again.
"""

import shutil

from podium.basics.terminal import say
from podium.models.cpu_threads import threads
from podium.models.device import is_cpu
from podium.saved_runs.checkpoint import checkpoints
from podium.saved_runs.fold_names import fold_name
from podium.saved_runs.run_folder import keep_of_fold, recorded_threads
from podium.training.context import Context
from podium.training.timing.forecast import Forecast

THREADS_OF = "threads_of"  # in recipe.json: by fold
EARLY = 0.1  # of a fold: so much of it may be done twice


class Crowded(Exception):
    """Other programs are in the way of this fold's threads; it would be finished sooner by one, from the beginning."""


def settle_threads(context: Context, fold: int) -> None:
    """Takes the threads that the fold has begun with, or as many as are free for one that begins."""
    if not _may_choose(context):
        return
    number, begun = recorded_threads(context.run, fold), checkpoints(context.run.fold_folder(fold))
    if not begun and not threads.is_fixed and 1 < (number or threads.most) > (free := threads.free()):
        keep_of_fold(context.run, THREADS_OF, fold, number := free)
    threads.settle(number)


def refuse_crowd(context: Context, forecast: Forecast, step: int) -> None:
    """Raises if one thread would finish the fold sooner than these, although it has to begin again."""
    if not threads.are_crowded or not _may_choose(context) or not forecast.is_settled(step):
        return
    left = forecast.work_left(step)
    by_one = threads.own * forecast.best_pace * forecast.work.total
    if left > (1 - EARLY) * forecast.work.total or forecast.recent_pace(step) * left > by_one:
        raise Crowded


def begin_again(context: Context, fold: int) -> None:
    """Deletes what the fold has, which is not finished, and takes one thread for it."""
    say(f"podium: other programs are in the way of {threads.own} threads: {fold_name(fold)} begins again, with one")
    shutil.rmtree(context.run.fold_folder(fold), ignore_errors=True)  # it may not be there yet
    keep_of_fold(context.run, THREADS_OF, fold, 1)
    threads.settle(1)


def _may_choose(context: Context) -> bool:
    return is_cpu(context.device) and context.processes.size == 1
