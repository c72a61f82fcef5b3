"""Fits a run to the machine before its first step: `--accumulate auto`, `--store auto` and `--compile auto`.

They are found out by trial steps. recipe.json keeps the answers: the same command resumes with them, wherever it runs.
"""

import math
from bisect import bisect_left
from dataclasses import replace

import torch

from podium.basics.errors import PodiumError
from podium.basics.terminal import duration, say
from podium.models.device import forget_peak, free_cached_memory, free_gpu_memory, is_cpu, is_gpu
from podium.models.hardware_errors import SMALLER, CompilerFails, OutOfMemory, free_frames, is_out_of_memory
from podium.options.option_kinds import AUTO
from podium.options.recipe import parts_of_batch
from podium.training.context import Context
from podium.training.drawn_changes import can_be_drawn
from podium.training.learner import Learner
from podium.training.loop import work_of_fold
from podium.training.processes import Processes
from podium.training.training_images import TrainingImages
from podium.training.trial_steps import Measured, measure_steps

SPARE = 1.05  # times the images of a part must fit: a later step may need a little more memory
LARGEST_SHARE = 0.5  # of the free memory, for pixels
# On an H200, a compiled step of a small ViT took 0.43 of the time, and compiling took 23 s (docs/benchmarks.md).
LARGEST_GAIN = 0.6  # of a step's time
SHORTEST_COMPILATION = 20.0


def fit_to_machine(context: Context, each_has_folds: bool = False) -> Context:
    """Returns the context with a number of parts, a place for the pixels, and with or without torch.compile.

    Trial steps are taken as training will take them: by all processes together, or by each for itself. They agree.
    """
    recorded = context.run.recipe if context.run.has_begun() else None
    machine, alone = context.machine, replace(context, processes=Processes())
    alone = alone.with_recipe(alone.recipe.but(pseudo=""))  # a trial step needs no labels, only images
    if machine.store == "gpu" and (problem := _why_not_on_gpu(context)):
        raise PodiumError(f"--store gpu: {problem}; use --store on")
    if context.recipe.parts_are_open:
        batch = context.recipe.batch_size
        share = context.processes.share_of_batch(batch) if not each_has_folds else slice(0, batch)
        parts = (
            _fewest_parts(context, alone, share.stop - share.start) if recorded is None else parts_of_batch(recorded)
        )
        context = context.with_recipe(context.recipe.but(accumulate=parts))
    trial = replace(context, processes=Processes()) if each_has_folds else context
    if machine.store == AUTO:
        pays = _gpu_pays(context, trial) if recorded is None else recorded.get("changed_on_gpu", False)
        context, trial = (_with(one, store="gpu" if pays else "on") for one in (context, trial))
    if machine.compile == AUTO:
        pays = _compiling_pays(context, trial) if recorded is None else recorded.get("compiled", False)
        context = _with(context, compile="on" if pays else "off")
    return context


def _with(context: Context, **changes: str) -> Context:
    """Returns the context with some other settings of the machine."""
    request = context.plan.request
    request = replace(request, machine=replace(request.machine, **changes))  # type: ignore[arg-type]
    return context.with_plan(replace(context.plan, request=request))


def _measure(context: Context, trial: Context) -> Measured | str:
    """Returns the times of the slowest process; or why the trial fails, if no other process waits for this one."""
    try:
        measured = measure_steps(trial, context.plan.folds_to_train[0])
    except (CompilerFails, OutOfMemory) as problem:
        if context.processes.size > 1:
            raise
        return str(problem).partition("; ")[0]
    finally:
        forget_peak(context.device)
    return Measured(*context.processes.maximum(*measured))


# --- parts of a batch --------------------------------------------------------------------------------


def _fewest_parts(context: Context, alone: Context, images: int) -> int:
    """Returns into how few parts a batch must be split so that memory holds each. A CPU's micro-batches are small."""
    recipe = context.recipe
    if is_cpu(context.device) or not recipe.takes_steps:
        return 1
    parts = int(context.processes.maximum(_fewest_parts_here(_with(alone, compile="off"), images))[0])
    if parts > 1:
        size = recipe.but(accumulate=parts).part_size
        say(f"podium: memory holds a batch of {recipe.batch_size} in {parts} parts of at most {size} images")
    return parts


def _fewest_parts_here(alone: Context, images: int) -> int:
    """Returns the parts that this process needs for so many images of a batch."""
    recipe, fold, most = alone.recipe, alone.plan.folds_to_train[0], max(1, alone.recipe.batch_size // 2)
    pixels = pixel_bytes(alone.images, fold) if alone.machine.store == "gpu" else 0

    def fits(parts: int) -> bool:
        part_size = min(images, recipe.but(accumulate=parts).part_size)
        larger = int(part_size * SPARE)
        try:
            held = torch.empty(pixels, dtype=torch.uint8, device=alone.device)
            learner = Learner(alone, fold)
            learner.recipe = recipe.but(batch_size=larger, accumulate=1)
            learner.try_batch(larger * math.ceil(images / part_size))
            del held
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
    forget_peak(alone.device)
    return parts


# --- pixels on the GPU -------------------------------------------------------------------------------


def _why_not_on_gpu(context: Context) -> str:
    """Returns why training cannot hold its pixels in the GPU's memory and change them there; nothing if it can."""
    if not is_gpu(context.device):
        return "it needs an NVIDIA GPU"
    if context.images.channels:
        return "a GPU changes images of three channels only"
    if not context.recipe.takes_steps or not can_be_drawn(context.recipe):
        return "a GPU crops, mirrors, colours and erases only; --linear, --ops, --augment, --region need loaded images"
    largest = max(pixel_bytes(context.images, fold) for fold in context.plan.folds_to_train)
    free = -context.processes.maximum(-free_gpu_memory(context.device))[0]
    if largest > LARGEST_SHARE * free:
        return f"a fold's pixels need {largest / 1e9:,.1f} GB, more than half of what is free ({free / 1e9:,.1f} GB)"
    return ""


def _gpu_pays(context: Context, trial: Context) -> bool:
    """Returns whether steps are faster with the pixels on the GPU than with loaded images; says why."""
    if problem := _why_not_on_gpu(context):
        say(f"podium: --store auto: on, because {problem}")
        return False
    loaded, held = (_measure(context, _with(trial, store=store, compile="off")) for store in ("on", "gpu"))
    if isinstance(loaded, str) or isinstance(held, str):
        say(f"podium: --store auto: on, because {held if isinstance(held, str) else loaded}")
        return False
    pays = held.seconds_per_step < loaded.seconds_per_step
    times = f"{1e3 * loaded.seconds_per_step:,.1f} ms with loaded images and {1e3 * held.seconds_per_step:,.1f} ms with"
    say(f"podium: --store auto: {'gpu' if pays else 'on'}, because a step takes {times} the pixels on the GPU")
    return pays


# --- torch.compile -----------------------------------------------------------------------------------


def _compiling_pays(context: Context, trial: Context) -> bool:
    """Returns whether compiled steps save more of a fold's time than compiling takes; says why."""
    pays, reason = _weigh_compiling(context, trial)
    say(f"podium: --compile auto: {'on' if pays else 'off'}, because {reason}")
    if not pays:
        torch.compiler.reset()  # it holds what the trial has compiled
        free_cached_memory()
    return pays


def _weigh_compiling(context: Context, trial: Context) -> tuple[bool, str]:
    if is_cpu(context.device) or not context.recipe.takes_steps:
        return False, "a CPU gains nothing from it" if is_cpu(context.device) else "a head is not compiled"
    steps = work_of_fold(context, context.plan.folds_to_train[0], context.recipe).total
    plain = _measure(context, _with(trial, compile="off"))
    if isinstance(plain, str):
        return False, plain
    seconds = plain.seconds_per_step * steps
    if seconds * LARGEST_GAIN < SHORTEST_COMPILATION:
        return False, f"a fold takes about {duration(seconds)}, and compiling would take longer than it saves"
    compiled = _measure(context, _with(trial, compile="on"))
    if isinstance(compiled, str):
        return False, compiled
    saved = (plain.seconds_per_step - compiled.seconds_per_step) * steps
    taken = compiled.settling - plain.settling
    times = f"a step takes {1e3 * plain.seconds_per_step:,.1f} ms, compiled {1e3 * compiled.seconds_per_step:,.1f} ms"
    effect = f"saves {duration(saved)}" if saved > 0 else "saves nothing"
    whole = f"in a fold, which takes about {duration(seconds)}, that {effect}, and compiling takes {duration(taken)}"
    return saved > taken, f"{times}: {whole}"


def pixel_bytes(images: TrainingImages, fold: int) -> int:
    """Returns how much memory the stored pixels of all that a fold learns from take."""
    own = images.competition.train["image"].iloc[images.training_rows(fold)]
    positions = images.store.positions([*own, *images.pseudo["image"], *images.extra["image"]])
    return 3 * int(images.store.index[positions, 1:].prod(1).sum())
