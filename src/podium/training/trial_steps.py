"""Takes the first steps of a fold in a folder of its own, to measure them with real images; the run stays as it is."""

import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from podium.models.hardware_errors import explain_hardware_errors
from podium.saved_runs.run_folder import TRIAL_PREFIX, Run
from podium.training.context import Context
from podium.training.loop import make_forecast, start_or_resume, training_batches

SETTLING = 4  # first steps with torch.compile: it compiles, and a GPU records the pass that it will repeat


class Measured(NamedTuple):
    seconds_per_step: float
    start_up: float  # seconds until the first step
    settling: float  # seconds that the loader takes to start, and the first steps of a compiled model


def measure_steps(context: Context, fold: int) -> Measured:
    """Returns the times of the process that takes longest."""
    recipe, processes = context.recipe, context.processes
    started = time.monotonic()
    context.run.path.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=TRIAL_PREFIX, dir=context.run.path) as folder:
        run = Run(Path(folder))
        if processes.is_first:
            run.begin(recipe.values(), {"folds": 1, "metric": context.competition.metric})
        trial = context.with_plan(replace(context.plan, run=run))
        learner = start_or_resume(trial, fold, folds_left=1)
        forecast = make_forecast(learner)
        first_step = time.monotonic()
        settled, settling = first_step, SETTLING if context.machine.compiled else 0
        with (
            explain_hardware_errors(recipe.batch_size, learner.batch_trial),
            closing(training_batches(learner)) as batches,
        ):
            for images, labels in batches:
                step = learner.progress.step
                if step == settling:
                    settled = time.monotonic()
                if step >= settling:
                    forecast.start_step(step)
                learner.step(images, labels)
                is_measured = step >= settling and forecast.is_settled(learner.progress.step)
                if not processes.maximum(not is_measured)[0]:
                    break
            pace = forecast.seconds_per_step(learner.progress.step)
    times = pace, first_step - started, settled - first_step
    return Measured(*processes.maximum(*times))
