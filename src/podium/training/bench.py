"""Measures Podium compared with a plain training loop around timm's own model.

    podium bench [-c SLUG] [--model NAME ...] [--image-size N] [--batch-size N] [--json FILE]

In one process and in turn: the plain step (forward, backward and update of a batch that is on the device already, with
the model as timm builds it) and the step of `podium train` with its loader; then the plain forward pass and prediction.
At last, the step without each kind of exchanged operators. Reports medians, and the lowest and highest. Writes nothing
but FILE.
"""

import copy
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from podium.competition.load import Competition
from podium.disk import write_text
from podium.errors import PodiumError
from podium.folds.folds import Folds
from podium.image_size import ImageSize, sides_of
from podium.machine import Machine, peak_memory_mb
from podium.models.build import build_model, resolve_recipe
from podium.models.device import autocast, device_name, gpu_peak_mb, micro_batch_limit, precision_name
from podium.models.hardware_errors import explain_hardware_errors
from podium.models.place import place_model
from podium.models.predict import predict_proba
from podium.operators import kernels
from podium.operators.exchange import exchange_operators
from podium.operators.memory import freed_memory_returned
from podium.recipe import Options
from podium.saved_runs.run_folder import Run
from podium.terminal import plural, say, show, table
from podium.training.augment import TestView
from podium.training.budget import process_start
from podium.training.context import Context, open_context
from podium.training.learner import Learner
from podium.training.loader import PREFETCHED, Batch, batches_in_order, load_batches
from podium.training.loop import training_batches
from podium.training.optimizer import create_optimizer
from podium.training.plan import Plan, Request, check_request, data_of

WINDOWS = 9
SECONDS = 3.0  # minimum length of a window
FOLDS = 5


@dataclass(frozen=True)
class Rate:
    """Images per second over several windows."""

    median: float
    lowest: float
    highest: float

    def __str__(self) -> str:
        return f"{_short(self.median)} ({_short(self.lowest)} to {_short(self.highest)})"


@dataclass(frozen=True)
class Measurement:
    model: str
    image_size: ImageSize
    batch_size: int
    precision: str
    device: str
    workers: int
    bare_step: Rate  # of timm's own model
    training: Rate
    training_share: float  # of the bare step's rate
    bare_forward: Rate
    prediction: Rate
    prediction_share: float
    operators: dict[str, int]  # how many parts of the model were exchanged, by kind
    operator_gains: dict[str, float]  # how many times as fast forward and backward are with them
    no_kernels: str  # why the kernels could not be compiled; empty if they were
    # From the start of the process (for a later model: from the end of the one before) to the first step.
    first_step_seconds: float
    peak_memory_mb: float
    gpu_memory_mb: float | None  # the most that was held, with the plain loop's model and optimiser
    versions: dict[str, str]


def bench(
    competition: Competition,
    root: Path,
    models: Sequence[str],
    options: Options,
    machine: Machine | None = None,
    file: Path | None = None,
) -> list[Measurement]:
    """Measures each model from random weights."""
    measurements, started = [], process_start()
    fixed = {"weights": "none", "skip_bad": True}
    requests = [Request({**options, **fixed, "model": model}, machine=machine or Machine()) for model in models]
    checked = [check_request(competition.slug, root, request) for request in requests]  # all, before it takes time
    for request, request_options in zip(requests, checked, strict=True):
        folds = Folds.of(np.arange(len(competition.train)) % FOLDS)
        data = data_of(competition, folds)
        recipe = resolve_recipe(request_options, competition.recipe, data)
        with tempfile.TemporaryDirectory() as folder:
            run = Run(Path(folder))
            plan = Plan(competition, root, request, run, recipe, folds, (0,), data)
            with open_context(plan) as context, explain_hardware_errors(recipe.batch_size):
                run.begin(asdict(recipe), {"folds": FOLDS, "metric": competition.metric})
                measurements.append(_measure(context, started))
        started = time.monotonic()
    show(_table(measurements))
    if file:
        write_text(file, json.dumps([asdict(measurement) for measurement in measurements], indent=2) + "\n")
        say(f"podium: wrote {file}")
    return measurements


# --- measuring ---------------------------------------------------------------------------------------


def _measure(context: Context, started: float) -> Measurement:
    recipe, device = context.recipe, context.device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
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
    if recipe.operators == "fast" and not context.machine.compiled:
        exchanged = exchange_operators(copy.deepcopy(plain.model), device, context.precision)
    return Measurement(
        model=recipe.model,
        image_size=recipe.image_size,
        batch_size=recipe.batch_size,
        precision=precision_name(context.precision),
        device=device_name(device),
        workers=context.workers,
        bare_step=_rate(bare_rates),
        training=_rate(training_rates),
        training_share=round(statistics.median(training_rates) / statistics.median(bare_rates), 3),
        bare_forward=_rate(forward_rates),
        prediction=_rate(prediction_rates),
        prediction_share=round(statistics.median(prediction_rates) / statistics.median(forward_rates), 3),
        operators=exchanged,
        operator_gains=_operator_gains(context, plain, exchanged),
        no_kernels=kernels.problem() if device.type == "cpu" else "",
        first_step_seconds=round(first_step_seconds, 2),
        peak_memory_mb=peak_memory_mb(),
        gpu_memory_mb=gpu_peak_mb(device),
        versions={"torch": torch.__version__, "python": sys.version.split()[0]},
    )


class PlainLoop:
    """What everyone writes with timm and torch: the model as timm builds it, no loader, no averaging, no clipping."""

    def __init__(self, context: Context) -> None:
        recipe = replace(context.recipe, operators="timm")
        self.context = context
        self.model, spec = build_model(recipe, context.competition.classes)
        normalise = place_model(self.model, spec, context.device, context.precision)
        self.optimizer = create_optimizer(self.model, recipe)
        self.scaler = torch.amp.GradScaler(context.device.type, enabled=context.precision == torch.float16)
        self.images, self.test_images = (
            normalise(torch.randint(256, (recipe.batch_size, *sides_of(size), 3), dtype=torch.uint8))
            for size in (recipe.image_size, recipe.test_size)
        )
        self.labels = torch.arange(recipe.batch_size, device=context.device) % len(spec.classes)
        self.network = torch.compile(self.model) if context.machine.compiled else self.model

    def step(self) -> None:
        self.model.train()
        self.optimizer.zero_grad()
        with autocast(self.context.device, self.context.precision):
            logits = self.network(self.images)
        self.scaler.scale(F.cross_entropy(logits.float(), self.labels)).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

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

    _seconds(context.device, plain.step)
    steps = max(1, round(SECONDS / _seconds(context.device, plain.step)))
    images = steps * context.recipe.batch_size
    plain_rates, whole_rates = [], []
    for _ in range(WINDOWS):
        with freed_memory_returned():
            plain.step()
            plain_rates.append(images / _seconds(context.device, plain.step, steps))
        for _ in range(1 + context.workers * PREFETCHED):  # and the batches that were loaded during the plain steps
            whole_step()
        whole_rates.append(images / _seconds(context.device, whole_step, steps))
    return plain_rates, whole_rates


def _prediction_rates(
    context: Context, plain: PlainLoop, learner: Learner, training_rate: float
) -> tuple[list[float], list[float]]:
    """Measures the plain forward pass and prediction in turn; the first window is a warm-up."""
    recipe, rows = context.recipe, context.held_out_rows(learner.fold)
    count = min(len(rows), max(2 * recipe.batch_size, round(training_rate * 3 * SECONDS)))
    images = context.images(rows[:count], TestView(learner.spec))
    passes = -(-count // recipe.batch_size)

    def predict() -> None:
        batches = load_batches(images, batches_in_order(count, recipe.batch_size), context.workers)
        predict_proba(learner.trained_model, batches, learner.normalise, context.precision, "none")

    forward_rates, prediction_rates = [], []
    for window in range(WINDOWS + 1):
        with freed_memory_returned():
            plain.forward()
            forward_seconds = _seconds(context.device, plain.forward, passes)
        prediction_seconds = _seconds(context.device, predict)
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
    for window in range(WINDOWS + 1):
        for kind, forward_backward in passes.items():
            taken = _seconds(context.device, forward_backward)
            if window:  # the first is a warm-up
                seconds[kind].append(taken)
    return {kind: round(statistics.median(seconds[kind]) / statistics.median(seconds[""]), 3) for kind in exchanged}


def _seconds(device: torch.device, work: Callable[[], object], times: int = 1) -> float:
    _synchronise(device)
    started = time.monotonic()
    for _ in range(times):
        work()
    _synchronise(device)
    return time.monotonic() - started


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# --- reporting ---------------------------------------------------------------------------------------


def _rate(rates: list[float]) -> Rate:
    return Rate(*(round(rate, 2) for rate in (statistics.median(rates), min(rates), max(rates))))


def _short(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _table(measurements: list[Measurement]) -> str:
    rows, notes = [], []
    for measured in measurements:
        name = f"{measured.model} {measured.image_size} px x {measured.batch_size}"
        memory = f"{measured.gpu_memory_mb or measured.peak_memory_mb:,.0f} MB"
        share, first_step = f"{measured.training_share:.3f}", f"{measured.first_step_seconds:.1f} s"
        rows.append([name, "training step", measured.bare_step, measured.training, share, first_step, memory])
        share = f"{measured.prediction_share:.3f}"
        rows.append(["", "forward pass", measured.bare_forward, measured.prediction, share, "", ""])
        notes.append(f"{measured.model}: {_describe_operators(measured)}")
    first = measurements[0]
    title = f"images/s on {first.device}, {first.precision}, {first.workers} workers"
    text = table([title, "", "timm, plain loop", "podium", "share", "first step", "peak memory"], rows)
    return "\n".join([text, *notes])


def _describe_operators(measured: Measurement) -> str:
    """Returns which parts were exchanged, and how many times as fast forward and backward are with them."""
    gains = measured.operator_gains
    exchanged = ", ".join(f"{kind} in {count} ({gains[kind]:.2f}x)" for kind, count in measured.operators.items())
    missing = f"; no kernels: {measured.no_kernels}" if measured.no_kernels else ""
    return (f"faster operators: {exchanged}" if exchanged else "all operators as timm builds them") + missing
