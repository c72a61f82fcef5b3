"""Trains a model on every fold but one, and predicts the images of that one; fold after fold.

    podium train --model convnext_small [-c SLUG] [--folds 0,1] [--name RUN] [one flag per knob of the recipe]

Reads the competition's files and data/prepared/<slug>/folds.csv. Writes runs/<slug>/<run>/, see runs.py.
The same command goes on where it was stopped: a finished fold is kept, an unfinished one resumes from its
last checkpoint, and what it then computes is what it would have computed undisturbed.
"""

import json
import math
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3
from torch import Tensor, nn

from podium import PodiumError
from podium.augment import MIX, STEP, TestView, TrainView, View, generator, mix
from podium.checkpoint import KEPT, State, checkpoints
from podium.competition import Competition
from podium.console import bar, command, counted, duration, say, show
from podium.device import at_once, autocast, hints, pick_device, pick_precision
from podium.disk import sha256, write_text
from podium.folds import path_of, read_folds, warn_unless_certified
from podium.loader import Images, Steps, batches, every_image, pick_workers
from podium.metrics import evaluate
from podium.models import Normaliser, build, check_name, check_sizes, check_weights, family_and_size, save_model
from podium.predict import predict_proba
from podium.recipe import Recipe, check, expand, resolve, size_at
from podium.runs import Predictions, Run, folder_of
from podium.store import Store, open_store, side_for

SAVE_EVERY = 300.0  # seconds of work that a power cut may cost
DECAYED_LAYERS = 12
LEFT_OUT = -2  # the fold of an image that cannot be read
CHECK_EVERY = 50  # steps between looks at the loss: each look makes a GPU wait
BAD_STEPS = 10  # in a row: a step whose gradients are not numbers changes nothing; so many are no accident


@dataclass(frozen=True)
class Setting:
    """What all folds of a run share."""

    run: Run
    recipe: Recipe
    competition: Competition
    store: Store
    folds: NDArray[np.int64]
    targets: NDArray[np.int64]
    device: torch.device
    precision: torch.dtype
    workers: int

    def images(self, rows: NDArray[np.int64], view: View) -> Images:
        positions = self.store.positions(self.competition.train["image"].iloc[rows])
        return Images(self.store.reader(positions), self.targets[rows], view, rows)


def train(
    competition: Competition,
    root: Path,
    given: dict[str, Any],
    chosen: Sequence[int] | None = None,
    name: str | None = None,
    device: str = "auto",
    workers: int | None = None,
    keep: bool = True,
) -> Run:
    """Trains the chosen folds (default: all) of a run; `given` are the knobs of the recipe that are not defaults;
    without `keep` the decoded pixels are not kept on disk."""
    on = pick_device(device)
    given = expand(given, on.type)
    check(given)
    check_name(given.get("model"))
    check_weights(given["model"], {**competition.recipe, **given}.get("weights", "pretrained"))
    folds = read_folds(competition, root)
    count = int(folds.max()) + 1
    wrong = [fold for fold in chosen or () if not 0 <= fold < count]
    if wrong:
        raise PodiumError(f"there is no fold {wrong[0]}; the folds of {competition.slug} are 0 to {count - 1}")
    chosen = sorted(set(chosen)) if chosen else list(range(count))

    recipe = resolve(given, competition.recipe, *family_and_size(given["model"]))
    precision = pick_precision(recipe.precision, on)
    run = Run(folder_of(competition.slug, root) / (name or recipe.model))
    index = {label: i for i, label in enumerate(competition.classes)}
    targets = np.array([index[label] for label in competition.train["target"]])
    with run.lock():
        store = open_store(competition, root, side_for(recipe.image_size), keep)
        positions = store.positions(competition.train["image"])
        folds = _without_bad(competition, store, positions, folds, recipe.skip_bad)
        setting = Setting(run, recipe, competition, store, folds, targets, on, precision, pick_workers(workers, on))
        run.begin(
            {
                **asdict(recipe),
                "competition": competition.slug,
                "folds_sha256": sha256(path_of(competition.slug, root)),
                "data_sha256": f"{competition.train_hash[:32]}{store.digest(positions)[:32]}",
            },
            {
                "folds": count,
                "metric": competition.metric,
                "device": device_name(on),
                "computed_in": str(precision)[6:],
            },
        )
        left = [fold for fold in chosen if fold not in run.finished()]
        if left:
            warn_unless_certified(competition, root)
            say(f"podium: {recipe.model} at {recipe.image_size} px, {str(precision)[6:]}, on {device_name(on)}")
        for fold in chosen:
            if fold in left:
                Fold(setting, fold, folds_left=len(left) - left.index(fold)).train()
            else:
                run.check_weights(fold)
                say(f"podium: fold {fold} is trained already")
    show(run.results(count, competition.metric))
    say(f"podium: wrote {run.path}")
    rest = [str(fold) for fold in range(count) if fold not in run.finished()]
    more = f"the same command for the folds {','.join(rest)}, or " if rest else ""
    say(f"next: {more}{command('submit', competition.slug)}")
    return run


def _without_bad(
    competition: Competition, store: Store, positions: NDArray[np.int64], folds: NDArray[np.int64], skip: bool
) -> NDArray[np.int64]:
    """The folds, with images that cannot be read left out of all, if that is wanted."""
    bad = store.bad(positions)
    if not bad.any():
        return folds
    first = store.files[positions[bad][0]]
    unread = f"{counted(int(bad.sum()), 'training image')} cannot be read"
    what = f"{unread}, {competition.folder / first.image} first ({first.reason})"
    if not skip:
        remedy = f"{command('audit', competition.slug)} lists them: replace them, or leave them out with --skip-bad"
        raise PodiumError(f"{what}; {remedy}")
    say(f"podium: warning: {what}; they are left out")
    left = np.where(bad, LEFT_OUT, folds)
    for fold in range(folds.max() + 1):
        if not (left == fold).any():
            raise PodiumError(f"without them no image is left in fold {fold}; {command('folds', competition.slug)}")
    return left


class Fold:
    """One fold's training, from the first step or the last checkpoint to the model and its predictions."""

    def __init__(self, setting: Setting, fold: int, folds_left: int = 1) -> None:
        recipe, device = setting.recipe, setting.device
        self.setting, self.fold, self.recipe, self.device = setting, fold, recipe, device
        self.folder = setting.run.fold(fold)
        self.training = np.flatnonzero((setting.folds != fold) & (setting.folds != LEFT_OUT))
        self.held_out = np.flatnonzero(setting.folds == fold)
        self.steps = Steps(len(self.training), recipe.batch_size, recipe.epochs, recipe.seed, fold)
        self.total = self.steps.stop

        self._seed(0)
        classes = setting.competition.classes
        self.model, self.spec = build(
            recipe.model, recipe.weights, classes, recipe.image_size, recipe.drop_path, recipe.fit
        )
        if recipe.grow:
            check_sizes(self.model, recipe.model, {size_at(epoch, recipe) for epoch in range(recipe.epochs)})
        setting.run.keep_source(self.spec.source)
        _check_space(setting.run.path, self.model, folds_left)
        self.normalise = Normaliser(self.spec, device)
        self.model.to(device).to(memory_format=self.normalise.layout)
        self.optimizer = create_optimizer_v2(
            self.model,
            "adamw",
            lr=recipe.lr,
            weight_decay=recipe.weight_decay,
            layer_decay=recipe.layer_decay,
            fused=True,
        )
        _limit_depth(self.optimizer, recipe.layer_decay)
        self.scaler = torch.amp.GradScaler(device.type, enabled=setting.precision == torch.float16)
        decay = 1 - 1 / max(1.0, recipe.ema * self.total)
        self.average = ModelEmaV3(self.model, decay=decay, use_warmup=True) if recipe.ema else None
        self.final: nn.Module = self.average.module if self.average else self.model  # what predicts
        modules = {"model": self.model, "ema": self.final} if self.average else {"model": self.model}
        self.state = State(self.folder, modules, self.optimizer, self.scaler, self.total)
        if self.state.load():
            say(f"podium: fold {fold} goes on from step {self.state.step:,} of {self.total:,}")
        self.steps.start = self.state.step
        self.forecast = _Forecast(self.steps, len(self.held_out) / len(self.training), folds_left, recipe)

    def train(self) -> None:
        state = self.state
        saved = began = time.monotonic()
        # What goes wrong in here does not reach into the generator, so hints are given and its bar is closed here.
        with _signals() as stop, hints(self.recipe.batch_size), closing(self.each_step()) as steps:
            for _ in steps:
                now = time.monotonic()
                ended = state.step % self.steps.per_epoch == 0
                if ended or stop() or now - saved > SAVE_EVERY:
                    state.seconds += now - began
                    self._check_finite()  # what is saved can be gone on with
                    if ended and state.step < self.total:
                        self.close_epoch(self.validate(mirrored=False), mirrored=False)
                    state.save()
                    saved = began = time.monotonic()
                if stop():
                    state.wait()
                    where = f"step {state.step:,} of {self.total:,} of fold {self.fold}"
                    raise KeyboardInterrupt(f"stopped after {where}; all is saved")
        state.wait()
        with hints(self.recipe.batch_size):
            self.finish()

    def each_step(self) -> Generator[None, None, None]:
        seen = self.setting.images(self.training, TrainView(self.recipe, self.spec))
        progress = bar(total=self.total, initial=self.state.step, desc=f"fold {self.fold}", unit="step")
        with progress:
            for images, labels in batches(seen, self.steps, self.setting.workers):
                self.forecast.at(self.state.step)
                self.step(images, labels)
                progress.update()
                yield

    def step(self, images: Tensor, labels: Tensor) -> None:
        recipe, state = self.recipe, self.state
        self._seed(state.step + 1)  # dropout and drop path, too, follow from the step
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate() * group.get("lr_scale", 1.0)
        inputs = self.normalise(images)
        targets = F.one_hot(labels.to(self.device, non_blocking=True), len(self.spec.classes)).float()
        draws = generator(MIX, recipe.seed, self.fold, state.step)
        if draws.random() < recipe.mix and state.step < self.total * (1 - recipe.plain):
            inputs, targets = mix(inputs, targets, draws)

        self.model.train()
        self.optimizer.zero_grad()
        parts = math.ceil(len(inputs) / at_once(self.device, recipe.image_size))
        parts = max(1, min(parts, len(inputs) // 2))  # of one image some layers can learn nothing
        whole = torch.zeros((), device=self.device)
        for some, wanted in zip(inputs.tensor_split(parts), targets.tensor_split(parts), strict=True):
            with autocast(self.device, self.setting.precision):
                logits = self.model(some).float()
            loss = F.cross_entropy(logits, wanted, label_smoothing=recipe.smoothing) * (len(some) / len(inputs))
            self.scaler.scale(loss).backward()
            whole += loss.detach()
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), recipe.clip or math.inf)
        bad = (~(norm + whole).isfinite()).float()
        state.loss += torch.where(bad > 0, 0, whole)
        state.skipped += bad
        state.in_a_row.add_(1).mul_(bad)
        self.scaler.step(self.optimizer) if self.scaler.is_enabled() else self._step_unless(bad)
        self.scaler.update()
        if self.average:
            self.average.update(self.model, step=state.step)
        state.step += 1
        if state.step % CHECK_EVERY == 0:
            self._check_finite()

    def _step_unless(self, bad: Tensor) -> None:
        """The fused optimiser leaves everything as it is where the gradients are no numbers; nobody has to look."""
        self.optimizer.found_inf = bad  # type: ignore[attr-defined]
        self.optimizer.step()
        del self.optimizer.found_inf  # type: ignore[attr-defined]

    def learning_rate(self) -> float:
        warmup = min(self.recipe.warmup * self.steps.per_epoch, self.total / 5)
        return learning_rate(self.state.step, self.total, warmup, self.recipe.lr)

    def validate(self, mirrored: bool) -> NDArray[np.float32]:
        unseen = self.setting.images(self.held_out, TestView(self.spec))
        in_turn = batches(unseen, every_image(len(self.held_out), self.recipe.batch_size), self.setting.workers)
        probs = predict_proba(self.final, in_turn, self.normalise, self.setting.precision, mirrored)
        if not np.isfinite(probs).all():
            raise self._diverged("the model's answers are not numbers")
        return probs

    def close_epoch(self, probs: NDArray[np.float32], mirrored: bool) -> None:
        """One more line of metrics.jsonl."""
        state, metric, truth = self.state, self.setting.competition.metric, self.setting.targets[self.held_out]
        epoch, images = state.step // self.steps.per_epoch, self.steps.per_epoch * self.steps.batch_size
        loss = state.loss.item() / self.steps.per_epoch
        score = evaluate(metric, truth, probs)
        entry = {
            "epoch": epoch,
            "step": state.step,
            "lr": self.learning_rate(),
            "loss": loss,
            "log_loss": evaluate("log_loss", truth, probs),
            metric: score,
            "mirrored": mirrored,  # the last line tells of what is submitted: the mean with the mirrored view
            "images_per_s": round(images / max(state.seconds, 1e-9), 1),
            "seconds": round(state.seconds, 1),
        }
        state.history.append(entry)
        skipped = int(state.skipped.item())
        if skipped:
            what = f"the gradients of {counted(skipped, 'step')} of epoch {epoch}"
            say(f"podium: warning: fold {self.fold}: {what} were not numbers, so they changed nothing")
        state.loss.zero_()
        state.skipped.zero_()
        state.seconds = 0.0
        write_text(self.folder / "metrics.jsonl", "".join(json.dumps(each) + "\n" for each in state.history))
        say(f"  fold {self.fold}  epoch {epoch}/{self.recipe.epochs}  loss {loss:.4f}  {metric} {score:.4f}")

    def finish(self) -> None:
        """The end of a schedule that ends at zero, averaged: no epoch is picked on the fold that reports the score."""
        path, held_out = self.folder / "model.safetensors", self.held_out
        mirrored = self.recipe.mirror > 0
        probs = self.validate(mirrored)
        save_model(path, self.final, self.spec)
        if len(self.state.history) < self.recipe.epochs:
            self.close_epoch(probs, mirrored)
        ids = self.setting.competition.train["id"].to_numpy(dtype=str)[held_out]
        truth = self.setting.targets[held_out]
        Predictions(ids, probs, truth, self.spec.classes, sha256(path)).save(self.folder / "oof.npz")
        for path in checkpoints(self.folder):
            path.unlink()

    def _seed(self, step: int) -> None:
        torch.manual_seed(int(generator(STEP, self.recipe.seed, self.fold, step).integers(2**63)))

    def _check_finite(self) -> None:
        if self.state.in_a_row.item() >= BAD_STEPS:
            raise self._diverged(f"the loss or its gradients are not numbers, {BAD_STEPS} steps in a row and more,")

    def _diverged(self, what: str) -> PodiumError:
        self.state.wait()
        kept = checkpoints(self.folder)
        good = f"; {kept[0]} is from before" if kept else ""
        where = f"step {self.state.step:,} of fold {self.fold}"
        return PodiumError(f"{what} by {where}{good}; try a lower --lr or --precision float32, under another --name")


def _limit_depth(optimizer: torch.optim.Optimizer, decay: float) -> None:
    """Keeps layer decay what its published values mean, however many layers timm counts: 12 from top to bottom.
    timm counts 38 in convnext_small; 0.8 to that power would freeze its stem."""
    lowest = min(group.get("lr_scale", 1.0) for group in optimizer.param_groups)
    if lowest < decay**DECAYED_LAYERS:
        depth = math.log(lowest) / math.log(decay)
        for group in optimizer.param_groups:
            group["lr_scale"] **= DECAYED_LAYERS / depth


def learning_rate(step: int, total: int, warmup: float, peak: float) -> float:
    """Linear from nothing to the peak, then a half cosine to nothing."""
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


def _check_space(folder: Path, model: nn.Module, folds_left: int) -> None:
    size = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    needed = size * ((KEPT + 1) * 4 + folds_left)  # one more is written before one goes: weights, average, two moments
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise PodiumError(f"{folder}: {needed / 1e6:,.0f} MB are needed on that disk and {free / 1e6:,.0f} MB are free")


class _Forecast:
    """After the first steps, once: how long the run will take."""

    def __init__(self, steps: Steps, held_out: float, folds_left: int, recipe: Recipe) -> None:
        self.steps, self.folds_left, self.epochs = steps, folds_left, recipe.epochs
        # Predicting an image is a forward pass, a third of a training step; the last time with its mirrored view.
        self.overhead = 1 + held_out / 3 * (1 + (recipe.mirror > 0) / recipe.epochs)
        areas = np.array([size_at(epoch, recipe) ** 2 for epoch in range(recipe.epochs)], dtype=np.float64)
        self.work = np.append(np.cumsum((areas / areas[steps.start // steps.per_epoch % recipe.epochs])[::-1])[::-1], 0)
        self.first, self.began, self.said = 0.0, 0.0, False

    def at(self, step: int) -> None:
        """Called before each step; the very first step allocates memory and chooses kernels."""
        done = step - self.steps.start - 1
        if done < 0:
            self.first = time.monotonic()
        if done == 0:
            self.began = time.monotonic()
        seconds = time.monotonic() - self.began
        if self.said or done < 2 or (done < 20 and seconds < 5):
            return
        self.said = True
        pace = seconds / done
        epoch, nth = divmod(step, self.steps.per_epoch)
        left = self.work[epoch] - (self.work[epoch] - self.work[epoch + 1]) * nth / self.steps.per_epoch
        ahead = (left + (self.folds_left - 1) * self.work[0]) * self.steps.per_epoch * pace * self.overhead
        until = time.strftime("%a %H:%M", time.localtime(time.time() + ahead))
        folds = f"{self.folds_left} folds" if self.folds_left > 1 else "this fold"
        epochs = f"{self.epochs} epochs" if self.epochs > 1 else "1 epoch"
        speed = f"{self.steps.batch_size / pace:,.1f} images/s"
        say(f"podium: {speed}; {folds} of {epochs} will take about {duration(ahead)}, until {until}")


@contextmanager
def _signals() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM ask to stop after the step; a second Ctrl-C stops at once."""
    asked: list[int] = []

    def ask(number: int, frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        os.write(2, b"\npodium: stopping after this step (again: at once)\n")  # print is not safe in here

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # signals belong to the main thread
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{torch.get_num_threads()} CPU cores" if device.type == "cpu" else device.type
