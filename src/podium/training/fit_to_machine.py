"""Fits a run to the machine before its first step: `--accumulate auto` and `--compile auto`.

Both are found out by trial steps. recipe.json keeps the answers: the same command resumes with them, wherever it runs.
"""

from bisect import bisect_left
from dataclasses import replace

from podium.errors import PodiumError
from podium.models.device import forget_peak, free_cached_memory, is_cpu
from podium.models.hardware_errors import SMALLER, CompilerFails, free_frames, is_out_of_memory
from podium.recipe import AUTO
from podium.terminal import duration, say
from podium.training.context import Context
from podium.training.learner import Learner
from podium.training.loop import work_of_fold
from podium.training.processes import Processes
from podium.training.trial_steps import measure_steps

SPARE = 1.05  # times the images of a batch must fit: a later step may need a little more memory
# On an H200, a compiled step of a small ViT took 0.43 of the time, and compiling took 23 s (docs/benchmarks.md).
LARGEST_GAIN = 0.6  # of a step's time
SHORTEST_COMPILATION = 20.0


def fit_to_machine(context: Context) -> Context:
    """Returns the context with a number of parts, and with or without torch.compile."""
    recipe, recorded = context.recipe, context.run.recipe if context.run.has_begun() else None
    if recipe.accumulate == AUTO:
        parts = _fewest_parts(context) if recorded is None else recorded.get("accumulate", 1)
        context = context.with_recipe(replace(recipe, accumulate=parts))
    if context.machine.compile == AUTO:
        pays = _compiling_pays(context) if recorded is None else recorded.get("compiled", False)
        context = _compiling(context, pays)
    return context


def _compiling(context: Context, is_on: bool) -> Context:
    request = context.plan.request
    request = replace(request, machine=replace(request.machine, compile="on" if is_on else "off"))
    return replace(context, plan=replace(context.plan, request=request))


# --- parts of a batch --------------------------------------------------------------------------------


def _fewest_parts(context: Context) -> int:
    """Returns into how few parts a batch must be split so that memory holds each. A CPU's micro-batches are small."""
    recipe, processes = context.recipe, context.processes
    if is_cpu(context.device) or recipe.linear:
        return 1
    share = processes.share_of_batch(recipe.batch_size)
    (parts,) = processes.maximum(_fewest_parts_here(context, share.stop - share.start))
    if parts > 1:
        size = replace(recipe, accumulate=int(parts)).part_size
        say(f"podium: memory holds a batch of {recipe.batch_size} in {int(parts)} parts of at most {size} images")
    return int(parts)


def _fewest_parts_here(context: Context, images: int) -> int:
    """Returns the parts that this process needs. It takes the trial steps alone: others may need fewer of them."""
    alone, most = replace(context, processes=Processes()), max(1, context.recipe.batch_size // 2)

    def fits(parts: int) -> bool:
        learner = Learner(alone, context.plan.folds_to_train[0])
        part_size = replace(learner.recipe, accumulate=parts).part_size
        learner.recipe = replace(learner.recipe, batch_size=int(part_size * SPARE) * parts, accumulate=parts)
        try:
            learner.try_batch(int(images * SPARE))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            free_frames(error)
            return False
        return True

    parts = 1
    while not fits(parts):
        if parts == most:
            raise PodiumError(f"the GPU's memory does not hold a batch of two images; {SMALLER}")
        parts = min(2 * parts, most)
    fewer = range(parts // 2 + 1, parts)  # half as many were too few
    parts = (fewer.start + bisect_left(fewer, True, key=fits)) if parts > 1 else 1
    free_cached_memory()
    forget_peak(context.device)
    return parts


# --- torch.compile -----------------------------------------------------------------------------------


def _compiling_pays(context: Context) -> bool:
    """Returns whether compiled steps save more of a fold's time than compiling takes; says why."""
    if context.recipe.linear:
        return False
    fold = context.plan.folds_to_train[0]
    steps = work_of_fold(context, fold, context.recipe).total
    plain = measure_steps(context, fold)
    seconds = plain.seconds_per_step * steps
    what = f"a fold takes about {duration(seconds)}"
    if seconds * LARGEST_GAIN < SHORTEST_COMPILATION:
        say(f"podium: --compile auto: off, because {what}, and compiling would take longer than it saves")
        return False
    try:
        compiled = measure_steps(_compiling(context, True), fold)
    except CompilerFails as problem:
        say(f"podium: --compile auto: off, because {str(problem).partition('; leave out')[0]}")
        return False
    saved, taken = (plain.seconds_per_step - compiled.seconds_per_step) * steps, compiled.settling
    pays = saved > taken
    times = f"a step takes {1e3 * plain.seconds_per_step:,.1f} ms, compiled {1e3 * compiled.seconds_per_step:,.1f} ms"
    effect = f"saves {duration(saved)}" if saved > 0 else "saves nothing"
    say(
        f"podium: --compile auto: {'on' if pays else 'off'}, because {times}: in a fold, which takes about"
        f" {duration(seconds)}, that {effect}, and compiling takes {duration(taken)}"
    )
    forget_peak(context.device)
    return pays
