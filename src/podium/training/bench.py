"""How fast training is, beside the fastest that the same step can be on this machine.

    podium bench [-c SLUG] [--model NAME ...] [--image-size N] [--batch-size N] [--json FILE]

In one process and by turns: the bare step (forward, backward and update of a batch that lies on the device
already) and training as `podium train` does it, with everything around the step; then the bare forward pass
and prediction. Medians of several windows, and the lowest and highest. Writes nothing but FILE.
"""

import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from podium.competition.load import Competition
from podium.disk import write_text
from podium.images.store import open_store, stored_side
from podium.models.build import family_and_sizes
from podium.models.device import (
    autocast,
    device_name,
    explain_hardware_errors,
    pick_device,
    pick_precision,
    precision_name,
    prepare_device,
)
from podium.models.predict import predict_proba
from podium.recipe import resolve
from podium.terminal import say, show, table
from podium.training.augment import TestView
from podium.training.context import LEFT_OUT, Context
from podium.training.loader import PREFETCHED, batches_in_order, load_batches, pick_workers
from podium.training.loop import Fold
from podium.training.run_folder import Run
from podium.training.schedule import process_start

WINDOWS = 9
SECONDS = 3.0  # a window takes about this long, at least
FOLDS = 5


@dataclass(frozen=True)
class Rate:
    """Images a second."""

    median: float
    lowest: float
    highest: float

    def __str__(self) -> str:
        return f"{_short(self.median)} ({_short(self.lowest)} to {_short(self.highest)})"


@dataclass(frozen=True)
class Measured:
    model: str
    image_size: int
    batch_size: int
    precision: str
    device: str
    workers: int
    bare_step: Rate
    training: Rate
    training_share: float  # of the bare step's rate
    bare_forward: Rate
    prediction: Rate
    prediction_share: float
    first_step_seconds: float  # until it began, since the process did or, if not the first, since the model before
    peak_memory_mb: float
    gpu_memory_mb: float | None
    versions: dict[str, str]


def bench(
    competition: Competition,
    root: Path,
    models: Sequence[str],
    given: dict[str, Any],
    device: str = "auto",
    workers: int | None = None,
    file: Path | None = None,
) -> list[Measured]:
    on, found, began = pick_device(device), [], process_start()
    prepare_device(on, deterministic=False)
    for model in models:
        recipe = resolve({**given, "model": model}, competition.recipe, *family_and_sizes(model))
        store = open_store(competition, root, stored_side(max(recipe.image_size, recipe.test_size)))
        positions = store.positions(competition.train["image"])
        index = {label: i for i, label in enumerate(competition.classes)}
        with tempfile.TemporaryDirectory() as folder:
            setting = Context(
                run=Run(Path(folder)),
                recipe=recipe,
                competition=competition,
                store=store,
                folds=np.where(store.bad(positions), LEFT_OUT, np.arange(len(positions)) % FOLDS),
                targets=np.array([index[label] for label in competition.train["target"]]),
                device=on,
                precision=pick_precision(recipe.precision, on),
                workers=pick_workers(workers, on),
            )
            setting.run.begin(asdict(recipe), {"folds": FOLDS})
            with explain_hardware_errors(recipe.batch_size):
                found.append(_measure(setting, began))
        began = time.monotonic()
    show(_table(found))
    if file:
        write_text(file, json.dumps([asdict(each) for each in found], indent=2) + "\n")
        say(f"podium: wrote {file}")
    return found


def _measure(setting: Context, began: float) -> Measured:
    recipe, device = setting.recipe, setting.device
    fold = Fold(setting, 0)
    training = fold.each_step()
    next(training)
    first = fold.forecast.first - began
    what = f"{recipe.model} at {recipe.image_size} px, batches of {recipe.batch_size}"
    say(f"podium: {what}; the first step began after {first:.1f} s")

    bare = Bare(fold)
    bare_rates, rates = _by_turns(setting, bare.step, lambda: next(training), setting.workers * PREFETCHED)

    forward_rates, predicted = [], []
    count = min(len(fold.held_out), max(2 * recipe.batch_size, round(statistics.median(rates) * 3 * SECONDS)))
    unseen = setting.images(fold.held_out[:count], TestView(fold.spec))
    passes = -(-count // recipe.batch_size)

    def predict() -> None:
        in_turn = load_batches(unseen, batches_in_order(count, recipe.batch_size), setting.workers)
        predict_proba(fold.final, in_turn, fold.normalise, setting.precision, "none")

    for window in range(WINDOWS + 1):
        seconds = _seconds(device, bare.forward, passes)
        took = _seconds(device, predict)
        if window:  # the first warms up
            forward_rates.append(passes * recipe.batch_size / seconds)
            predicted.append(count / took)
    return Measured(
        model=recipe.model,
        image_size=recipe.image_size,
        batch_size=recipe.batch_size,
        precision=precision_name(setting.precision),
        device=device_name(device),
        workers=setting.workers,
        bare_step=_rate(bare_rates),
        training=_rate(rates),
        training_share=round(statistics.median(rates) / statistics.median(bare_rates), 3),
        bare_forward=_rate(forward_rates),
        prediction=_rate(predicted),
        prediction_share=round(statistics.median(predicted) / statistics.median(forward_rates), 3),
        first_step_seconds=round(first, 2),
        peak_memory_mb=round(
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
        ),
        gpu_memory_mb=round(torch.cuda.max_memory_allocated(device) / 1e6) if device.type == "cuda" else None,
        versions={"torch": torch.__version__, "python": sys.version.split()[0]},
    )


class Bare:
    """The step with nothing around it."""

    def __init__(self, fold: Fold) -> None:
        self.fold, count = fold, fold.recipe.batch_size
        self.images, self.unseen = (
            fold.normalise(torch.randint(256, (count, size, size, 3), dtype=torch.uint8))
            for size in (fold.recipe.image_size, fold.recipe.test_size)
        )
        self.labels = torch.arange(count, device=fold.device) % len(fold.setting.competition.classes)

    def step(self) -> None:
        fold = self.fold
        fold.model.train()
        fold.optimizer.zero_grad()
        with autocast(fold.device, fold.setting.precision):
            logits = fold.model(self.images)
        fold.scaler.scale(F.cross_entropy(logits.float(), self.labels)).backward()
        fold.scaler.step(fold.optimizer)
        fold.scaler.update()

    @torch.inference_mode()
    def forward(self) -> None:
        self.fold.final.eval()
        with autocast(self.fold.device, self.fold.setting.precision):
            self.fold.final(self.unseen)


def _by_turns(
    setting: Context, bare: Callable[[], object], whole: Callable[[], object], ready: int
) -> tuple[list[float], list[float]]:
    """Rates of both, window by window; before each of the second kind, what was prepared meanwhile is used up."""
    _seconds(setting.device, bare)
    steps = max(1, round(SECONDS / _seconds(setting.device, bare)))
    rates: tuple[list[float], list[float]] = ([], [])
    for _ in range(WINDOWS):
        for kind, work in enumerate((bare, whole)):
            for _ in range(ready * kind):
                work()
            seconds = _seconds(setting.device, work, steps)
            rates[kind].append(steps * setting.recipe.batch_size / seconds)
    return rates


def _seconds(device: torch.device, work: Callable[[], object], times: int = 1) -> float:
    _wait(device)
    began = time.monotonic()
    for _ in range(times):
        work()
    _wait(device)
    return time.monotonic() - began


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _rate(rates: list[float]) -> Rate:
    return Rate(*(round(each, 2) for each in (statistics.median(rates), min(rates), max(rates))))


def _short(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _table(found: list[Measured]) -> str:
    rows = []
    for each in found:
        name = f"{each.model} {each.image_size} px x {each.batch_size}"
        memory = each.gpu_memory_mb or each.peak_memory_mb
        last = f"{each.first_step_seconds:.1f} s", f"{memory:,.0f} MB"
        rows.append([name, "training step", each.bare_step, each.training, f"{each.training_share:.3f}", *last])
        rows.append(["", "forward pass", each.bare_forward, each.prediction, f"{each.prediction_share:.3f}", "", ""])
    head = f"images/s on {found[0].device}, {found[0].precision}, {found[0].workers} workers"
    return table([head, "", "bare", "as podium does it", "share", "first step", "peak memory"], rows)
