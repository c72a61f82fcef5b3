"""Fits a run to the machine before its first step: `--accumulate auto`, `--store auto` and `--compile auto`.

They are found out by trial steps. recipe.json keeps the answers: the same command resumes with them, wherever it runs.
"""

from bisect import bisect_left
from dataclasses import replace

from podium.errors import PodiumError
from podium.models.device import forget_peak, free_cached_memory, free_gpu_memory, is_cpu, is_gpu
from podium.models.hardware_errors import SMALLER, CompilerFails, free_frames, is_out_of_memory
from podium.recipe import AUTO
from podium.terminal import duration, say
from podium.training.context import Context
from podium.training.drawn_changes import can_be_drawn
from podium.training.learner import Learner
from podium.training.loop import work_of_fold
from podium.training.processes import Processes
from podium.training.trial_steps import measure_steps

SPARE = 1.05  # times the images of a batch must fit: a later step may need a little more memory
# On an H200, a compiled step of a small ViT took 0.43 of the time, and compiling took 23 s (docs/benchmarks.md).
LARGEST_SHARE = 0.5  # of the free memory, for pixels
LARGEST_GAIN = 0.6  # of a step's time
SHORTEST_COMPILATION = 20.0


def fit_to_machine(context: Context) -> Context:
    """Returns the context with a number of parts, a place for the pixels, and with or without torch.compile."""
    recipe, recorded = context.recipe, context.run.recipe if context.run.has_begun() else None
    if context.machine.store == "gpu" and (problem := _why_not_on_gpu(context)):
        raise PodiumError(f"--store gpu: {problem}; use --store on")
    if recipe.accumulate == AUTO:
        parts = _fewest_parts(context) if recorded is None else recorded.get("accumulate", 1)
        context = context.with_recipe(replace(recipe, accumulate=parts))
    if context.machine.store == AUTO:
        pays = _gpu_pays(context) if recorded is None else recorded.get("changed_on_gpu", False)
        context = _with(context, store="gpu" if pays else "on")
    if context.machine.compile == AUTO:
        pays = _compiling_pays(context) if recorded is None else recorded.get("compiled", False)
        context = _with(context, compile="on" if pays else "off")
    return context


def _with(context: Context, **changes: str) -> Context:
    """Returns the context with some other settings of the machine."""
    request = context.plan.request
    request = replace(request, machine=replace(request.machine, **changes))  # type: ignore[arg-type]
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


# --- pixels on the GPU -------------------------------------------------------------------------------


def _why_not_on_gpu(context: Context) -> str:
    """Returns why training cannot hold its pixels in the GPU's memory and change them there; nothing if it can."""
    if not is_gpu(context.device):
        return "there is no GPU"
    if context.recipe.linear or not can_be_drawn(context.recipe):
        return "a GPU crops, mirrors, colours and erases only; --linear, --ops and --augment need loaded images"
    largest = max(context.pixel_bytes(context.training_rows(fold)) for fold in context.plan.folds_to_train)
    free = free_gpu_memory(context.device)
    if largest > LARGEST_SHARE * free:
        return f"a fold's pixels need {largest / 1e9:,.1f} GB, more than half of what is free ({free / 1e9:,.1f} GB)"
    return ""


def _gpu_pays(context: Context) -> bool:
    """Returns whether steps are faster with the pixels on the GPU than with loaded images; says why."""
    if problem := _why_not_on_gpu(context):
        say(f"podium: --store auto: on, because {problem}")
        return False
    fold = context.plan.folds_to_train[0]
    loaded, held = (measure_steps(_with(context, store=store, compile="off"), fold) for store in ("on", "gpu"))
    pays = held.seconds_per_step < loaded.seconds_per_step
    times = f"{1e3 * loaded.seconds_per_step:,.1f} ms with loaded images and {1e3 * held.seconds_per_step:,.1f} ms with"
    say(f"podium: --store auto: {'gpu' if pays else 'on'}, because a step takes {times} the pixels on the GPU")
    forget_peak(context.device)
    return pays


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
        compiled = measure_steps(_with(context, compile="on"), fold)
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
