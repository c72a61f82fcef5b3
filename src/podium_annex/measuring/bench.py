"""Measures Podium compared with a plain training loop around timm's own model.

    podium bench [-c SLUG] [--model NAME ...] [--image-size N] [--batch-size N] [--json FILE]

In one process and in turn: the plain step (forward, backward and update of a batch that is on the device already, with
the model as timm builds it) and the step of `podium train` with its loader; then the plain forward pass and prediction.
At last, the step without each kind of exchanged operators. Reports medians, and the lowest and highest. A model takes
at most two minutes: on a slow processor there are fewer images in a step, and fewer windows. Writes nothing but FILE.
"""

import copy
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from podium.basics.disk import write_text
from podium.basics.errors import PodiumError
from podium.basics.image_size import sides_of
from podium.basics.machine import Machine, peak_memory_mb
from podium.basics.terminal import plural, say, show
from podium.competition.load import Competition
from podium.folds.folds import Folds
from podium.models.build import build_model, resolve_recipe
from podium.models.device import (
    CPU,
    Batch,
    autocast,
    copied_ahead,
    device_name,
    forget_peak,
    gpu_peak_mb,
    is_cpu,
    micro_batch_limit,
    pick_device,
    precision_name,
)
from podium.models.hardware_errors import explain_hardware_errors
from podium.models.operators import kernels
from podium.models.operators.exchange import exchange_operators
from podium.models.operators.memory import freed_memory_returned
from podium.models.place import are_exchanged, place_model
from podium.models.predict import predict_proba
from podium.options.recipe import Options, Recipe
from podium.saved_runs.run_folder import Run
from podium.training.augment import TestView
from podium.training.context import Context, open_context
from podium.training.learner import Learner
from podium.training.loader import PREFETCHED, batches_in_order, load_batches
from podium.training.loop import training_batches
from podium.training.optimizer import create_optimizer
from podium.training.plan import Plan, data_of
from podium.training.request import Request, check_request
from podium.training.timing.budget import process_start
from podium.training.timing.measure_step import PlainStep, measure_training, seconds_of
from podium_annex.measuring.bench_figures import Measurement, Rate, bench_table

WINDOWS = (3, 9)  # at least and at most, as the time allows
SECONDS = 3.0  # minimum length of a window
LONGEST_STEP = 3.0  # seconds, on a CPU; smaller batches take less time, and an image as long
MOST_SECONDS = 110.0  # for a model
SHARES = {"training": 0.5, "prediction": 0.3, "operators": 0.2}  # of these
FOLDS = 5


def bench(
    competition: Competition,
    models: Sequence[str],
    options: Options,
    machine: Machine | None = None,
    file: Path | None = None,
) -> list[Measurement]:
    """Measures each model from random weights."""
    measurements, started = [], process_start()
    fixed = {"weights": "none"}
    requests = [Request({**options, **fixed, "model": model}, machine=machine or Machine()) for model in models]
    checked = [
        check_request(competition.slug, competition.root, request) for request in requests
    ]  # all, before it takes time
    for request, request_options in zip(requests, checked, strict=True):
        folds = Folds.of(np.arange(len(competition.train)) % FOLDS)
        data = data_of(competition, folds)
        recipe = _in_time(resolve_recipe(request_options, competition.recipe, data), competition, request)
        with tempfile.TemporaryDirectory() as folder:
            run = Run(Path(folder))
            plan = Plan(competition, request, run, recipe, folds, (0,), data)
            with open_context(plan, leaves_out_unreadable=True) as context, explain_hardware_errors(recipe.batch_size):
                run.begin(recipe.values(), {"folds": FOLDS, "metric": competition.metric})
                measurements.append(_measure(context, started))
        started = time.monotonic()
    show(bench_table(measurements))
    if file:
        write_text(file, json.dumps([asdict(measurement) for measurement in measurements], indent=2) + "\n")
        say(f"podium: wrote {file}")
    return measurements


def _in_time(recipe: Recipe, competition: Competition, request: Request) -> Recipe:
    """Returns the recipe with as many images in a step as a slow processor computes in time; a given number stays."""
    if "batch_size" in request.options or not is_cpu(pick_device(request.machine.device)):
        return recipe
    rate = measure_training(recipe, competition.classes, request.machine.device)
    most = 2 ** max(1, int(math.log2(max(2.0, LONGEST_STEP * rate))))
    return recipe.but(batch_size=min(recipe.batch_size, most))


class Windows:
    """Counts the measurements of one kind: as many as fit into its share of the time."""

    def __init__(self, kind: str) -> None:
        self.started, self.seconds = time.monotonic(), SHARES[kind] * MOST_SECONDS

    def __iter__(self) -> Iterator[int]:
        least, most = WINDOWS
        for number in range(most):
            taken = time.monotonic() - self.started
            if number >= least and taken * (number + 1) / number > self.seconds:
                return
            yield number


def _measure(context: Context, started: float) -> Measurement:
    recipe, device = context.recipe, context.device
    forget_peak(device)
    learner = Learner(context, fold=0)
    with closing(training_batches(learner)) as batches:
        first_batch = next(batches)
        first_step_seconds = time.monotonic() - started
        learner.step(*first_batch)
        size = f"{recipe.image_size} px, batches of {recipe.batch_size}"
        say(f"podium: {recipe.model} at {size}; the first step started after {first_step_seconds:.1f} s")
        plain = PlainLoop(context)
        bare_rates, training_rates = _training_rates(context, plain, learner, batches)
    forward_rates, prediction_rates = _prediction_rates(context, plain, learner, statistics.median(training_rates))
    exchanged = {}
    if are_exchanged(learner.spec.operators, device, context.machine.compiled):
        exchanged = exchange_operators(copy.deepcopy(plain.model), device, context.precision)
    return Measurement(
        model=recipe.model,
        image_size=recipe.image_size,
        batch_size=recipe.batch_size,
        precision=precision_name(context.precision),
        device=device_name(device),
        workers=context.workers,
        bare_step=Rate.of(bare_rates),
        training=Rate.of(training_rates),
        training_share=round(statistics.median(training_rates) / statistics.median(bare_rates), 3),
        share_by_window=Rate.of([whole / bare for whole, bare in zip(training_rates, bare_rates, strict=True)]),
        windows=len(bare_rates),
        bare_forward=Rate.of(forward_rates),
        prediction=Rate.of(prediction_rates),
        prediction_share=round(statistics.median(prediction_rates) / statistics.median(forward_rates), 3),
        operators=exchanged,
        operator_gains=_operator_gains(context, plain, exchanged),
        no_kernels=kernels.problem() if is_cpu(device) else "",
        first_step_seconds=round(first_step_seconds, 2),
        peak_memory_mb=peak_memory_mb(),
        gpu_memory_mb=gpu_peak_mb(device),
        versions={"torch": torch.__version__, "python": sys.version.split()[0]},
    )


class PlainLoop:
    """What everyone writes with timm and torch: the model as timm builds it, no loader, no averaging, no clipping."""

    def __init__(self, context: Context) -> None:
        recipe = context.recipe.but(operators="timm")
        self.context = context
        self.model, spec = build_model(recipe, context.competition.classes)
        normalise = place_model(self.model, spec, context.device, context.precision)
        self.images, self.test_images = (
            normalise(torch.randint(256, (recipe.batch_size, *sides_of(size), 3), dtype=torch.uint8, device=CPU))
            for size in (recipe.image_size, recipe.test_size)
        )
        self.labels = torch.arange(recipe.batch_size, device=context.device) % len(spec.classes)
        network = torch.compile(self.model) if context.machine.compiled else self.model
        optimizer = create_optimizer(self.model, recipe)
        self.plain_step = PlainStep(network, optimizer, self.images, self.labels, context.precision)

    def step(self) -> None:
        self.model.train()
        self.plain_step()

    @torch.inference_mode()
    def forward(self) -> None:
        self.model.eval()
        with autocast(self.context.device, self.context.precision):
            self.model(self.test_images)


def _training_rates(
    context: Context, plain: PlainLoop, learner: Learner, batches: Iterator[Batch]
) -> tuple[list[float], list[float]]:
    """Measures the plain step and the step of `podium train` in turn, window by window."""

    def whole_step() -> None:
        batch = next(batches, None)
        if batch is None:
            count = len(context.competition.train)
            raise PodiumError(f"{plural(count, 'training image')} are too few to measure with; use -c sample")
        learner.step(*batch)

    seconds_of(context.device, plain.step)
    steps = max(1, round(SECONDS / seconds_of(context.device, plain.step)))
    images = steps * context.recipe.batch_size
    plain_rates, whole_rates = [], []
    for _ in Windows("training"):
        with freed_memory_returned():
            plain.step()
            plain_rates.append(images / seconds_of(context.device, plain.step, steps))
        for _ in range(1 + context.workers * PREFETCHED):  # and the batches that were loaded during the plain steps
            whole_step()
        whole_rates.append(images / seconds_of(context.device, whole_step, steps))
    return plain_rates, whole_rates


def _prediction_rates(
    context: Context, plain: PlainLoop, learner: Learner, training_rate: float
) -> tuple[list[float], list[float]]:
    """Measures the plain forward pass and prediction in turn; the first window is a warm-up."""
    recipe, rows = context.recipe, context.images.held_out_rows(learner.fold)
    count = min(len(rows), max(2 * recipe.batch_size, round(training_rate * 3 * SECONDS)))
    images = context.images.of_rows(rows[:count], TestView(learner.spec))
    passes = -(-count // recipe.batch_size)

    def predict() -> None:
        batches = load_batches(images, batches_in_order(count, recipe.batch_size), context.workers)
        batches = copied_ahead(batches, context.device)
        predict_proba(learner.trained_model, batches, learner.normalise, context.precision, "none")

    forward_rates, prediction_rates = [], []
    for window in Windows("prediction"):
        with freed_memory_returned():
            plain.forward()
            forward_seconds = seconds_of(context.device, plain.forward, passes)
        prediction_seconds = seconds_of(context.device, predict)
        if window:
            forward_rates.append(passes * recipe.batch_size / forward_seconds)
            prediction_rates.append(count / prediction_seconds)
    return forward_rates, prediction_rates


def _operator_gains(context: Context, plain: PlainLoop, exchanged: Mapping[str, int]) -> dict[str, float]:
    """Measures forward and backward with all exchanged operators and without each kind, in turn."""
    images = plain.images[: micro_batch_limit(context.device, context.recipe.image_size)]

    def make_pass(kinds: frozenset[str]) -> Callable[[], None]:
        model = copy.deepcopy(plain.model).train()
        exchange_operators(model, context.device, context.precision, kinds)

        def forward_backward() -> None:
            model.zero_grad()
            with autocast(context.device, context.precision):
                logits = model(images)
            F.cross_entropy(logits.float(), plain.labels[: len(images)]).backward()

        return forward_backward

    every = frozenset(exchanged)
    passes = {"": make_pass(every), **{kind: make_pass(every - {kind}) for kind in every}} if every else {}
    seconds: dict[str, list[float]] = {kind: [] for kind in passes}
    for window in Windows("operators"):
        for kind, forward_backward in passes.items():
            taken = seconds_of(context.device, forward_backward)
            if window:  # the first is a warm-up
                seconds[kind].append(taken)
    return {kind: round(statistics.median(seconds[kind]) / statistics.median(seconds[""]), 3) for kind in exchanged}
