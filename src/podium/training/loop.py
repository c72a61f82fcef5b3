"""One fold's training: the loop, what it saves, and what it says.

Reads the store; writes runs/<slug>/<run>/fold<k>/, see runs.py. A random draw is a function of the step, so a fold
that goes on from a checkpoint computes what it would have computed undisturbed.
"""

import json
import math
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from podium import PodiumError, terminal
from podium.disk import write_text
from podium.metrics import evaluate
from podium.models.build import Normaliser, build_model, check_sizes, save_model
from podium.models.device import autocast, explain_hardware_errors, memory_mb, micro_batch_limit
from podium.models.predict import predict_proba
from podium.recipe import Recipe, image_size_at
from podium.terminal import plural, progress_bar, say
from podium.training.augment import MIX, TestView, TrainView, generator, mix
from podium.training.checkpoint import KEPT, State, checkpoints
from podium.training.context import Context, seed_torch
from podium.training.distill import Teacher, separate_heads
from podium.training.linear import all_features, classifier_of, fit_head
from podium.training.loader import BatchSampler, batches_in_order, load_batches
from podium.training.processes import started_by_torchrun
from podium.training.schedule import Forecast, learning_rate

DECAYED_LAYERS = 12
CHECK_EVERY = 50  # steps between looks at the loss: each look makes a GPU wait
BAD_STEPS = 10  # in a row: a step whose gradients are not numbers changes nothing; so many are no accident


class Fold:
    """One fold's training, from the first step or the last checkpoint to the model and its predictions."""

    def __init__(self, setting: Context, fold: int, folds_left: int = 1, until: float = math.inf) -> None:
        recipe, device, group = setting.recipe, setting.device, setting.group
        self.setting, self.fold, self.recipe, self.device, self.group = setting, fold, recipe, device, group
        self.folder = setting.run.fold(fold)
        self.training, self.held_out = setting.training(fold), setting.held_out(fold)
        self.steps = BatchSampler(len(self.training), recipe.batch_size, recipe.epochs, recipe.seed, fold, group)

        # Features are computed once for all folds, so what they come from begins alike in all, random or not.
        seed_torch(recipe.seed, 0 if recipe.head_first else fold, 0)
        classes = setting.competition.classes
        with group.in_turn():  # of several processes one fetches the weights
            self.model, self.spec = build_model(recipe, classes)
        if recipe.grow:
            sizes = {image_size_at(epoch, recipe) for epoch in range(recipe.epochs)}
            check_sizes(self.model, recipe.model, sizes, "--grow 0")
        if group.first:
            setting.run.keep_source(self.spec.source)
            _check_space(setting.run.path, self.model, folds_left)
        self.normalise = Normaliser(self.spec, device)
        self.model.to(device).to(memory_format=self.normalise.layout)
        self.teacher = None
        if setting.teachers and recipe.distil:
            self.teacher = Teacher(setting.teachers, fold, self.normalise, setting.precision)
            if recipe.distil < 1:  # with nothing for the labels, one of two heads would learn nothing
                separate_heads(self.model)
        self.optimizer = _optimizer(self.model, recipe)
        self.scaler = torch.amp.GradScaler(device.type, enabled=setting.precision == torch.float16)
        decay = 1 - 1 / max(1.0, recipe.ema * self.steps.stop)
        self.average = ModelEmaV3(self.model, decay=decay, use_warmup=True) if recipe.ema else None
        self.final: nn.Module = self.average.module if self.average else self.model  # what predicts
        modules = {"model": self.model, "ema": self.final} if self.average else {"model": self.model}
        self.state = State(self.folder, modules, self.optimizer, self.scaler, self.steps.stop)
        with group.in_turn():  # the first deletes what is damaged
            if self.state.load():
                say(f"podium: fold {fold} goes on from step {self.state.step:,} of {self.state.total:,}")
        if group.most(self.state.step, -self.state.step) != [self.state.step, -self.state.step]:
            raise PodiumError(
                f"{self.folder}: not all machines see the same checkpoints yet; run the same command again"
            )
        self.steps.start = self.state.step
        self.network: Any = self.model if group.size == 1 else _several(self.model, device)
        if setting.compiled:
            self.network = torch.compile(self.network)
        # What training changes without a gradient: the mean and variance that batches had.
        norms = [each for each in self.model.modules() if isinstance(each, nn.modules.batchnorm._NormBase)]
        self.statistics = [buffer for norm in norms for buffer in norm.buffers()]
        held_out = len(self.held_out) / len(self.training)
        self.forecast = Forecast(self.steps, held_out, recipe, folds_left, until)

    def train(self) -> None:
        state, group = self.state, self.group
        if self.recipe.head_first and state.step == 0:
            if group.first:
                self.fit_head()
            group.follow(self.model)  # machines that are not alike would fit other heads
            if self.average:
                self.average.set(self.model)
        longest = state.total  # a schedule that was shortened before does not grow again
        saved = began = time.monotonic()
        # What goes wrong in here does not reach into the generator, so hints are given and its bar is closed here.
        with _signals() as asked, state.all_written(), self.hints(), closing(self.each_step()) as steps:
            for _ in steps:
                now = time.monotonic()
                last = self.forecast.last_step(state.step, longest)
                # What processes decide they decide together: none may go where another does not.
                stop, due, fewest = group.most(asked(), now - saved > self.setting.save_every, -last)
                state.total = round(-fewest)
                ended = state.step % self.steps.per_epoch == 0 or state.step == state.total
                if ended or stop or due:
                    state.seconds += now - began
                    self._check_finite(weights=True)  # what is saved can be gone on with
                    if ended and state.step < state.total:
                        self.close_epoch(self.validate("none"), "none")
                    state.loss.copy_(group.mean(state.loss))
                    if group.first:
                        state.save()
                    saved = began = time.monotonic()
                if stop:
                    state.wait()
                    group.wait()
                    where = f"step {state.step:,} of {state.total:,} of fold {self.fold}"
                    raise KeyboardInterrupt(f"stopped after {where}; all is saved")
        with self.hints():
            self.finish()

    def fit_head(self) -> None:
        """The head that suits the weights as they are, so that its first gradients do not tear at them."""
        classifier = classifier_of(self.model, self.spec, self.normalise)
        features = all_features(self.setting, self.model, self.spec, self.normalise)
        head, _ = fit_head(self.setting, self.fold, features)
        classifier.load_state_dict(head._asdict())

    def each_step(self) -> Generator[None, None, None]:
        state = self.state
        if state.step >= state.total:  # it was stopped between its last step and its end
            return
        seen = self.setting.images(self.training, TrainView(self.recipe, self.spec))
        progress = progress_bar(total=state.total, initial=state.step, desc=f"fold {self.fold}", unit="step")
        with progress:
            for images, labels in load_batches(seen, self.steps, self.setting.workers):
                self.forecast.at(state.step)
                self.step(images, labels)
                progress.total = state.total
                progress.update()
                yield
                if state.step >= state.total:  # the clock has shortened it
                    return

    def step(self, images: Tensor, labels: Tensor) -> None:
        recipe, state = self.recipe, self.state
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate() * group.get("lr_scale", 1.0)
        inputs = self.normalise(images)
        targets = F.one_hot(labels.to(self.device, non_blocking=True), len(self.spec.classes)).float()
        draws = generator(MIX, recipe.seed, self.fold, state.step)
        if draws.random() < recipe.mix and state.step < state.total * (1 - recipe.plain):
            inputs, targets = mix(inputs, targets, draws)

        self.model.train()
        before = [each.clone() for each in self.statistics]
        loss = self.gradient(inputs, targets)
        if recipe.sam:
            with self._uphill(recipe.sam):
                self.gradient(inputs, targets)
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), recipe.clip or math.inf)
        bad = (~norm.isfinite()).float()
        state.loss += torch.where(loss.isfinite(), loss, 0)
        state.skipped += bad
        state.in_a_row.add_(1).mul_(bad)
        self.scaler.step(self.optimizer) if self.scaler.is_enabled() else self._step_unless(bad)
        self.scaler.update()
        for each, old in zip(self.statistics, before, strict=True):
            each.copy_(torch.where(bad > 0, old, each))
        if self.average:
            self.average.update(self.model, step=state.step)
        state.step += 1
        if state.step % CHECK_EVERY == 0:
            self._check_finite()

    def gradient(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """That of the loss over the whole batch, in as many parts as the device likes; the loss."""
        recipe, group = self.recipe, self.group
        seed_torch(recipe.seed, self.fold, self.state.step + 1, group.rank)  # of dropout and drop path, too
        self.optimizer.zero_grad()
        parts = math.ceil(len(inputs) / micro_batch_limit(self.device, recipe.image_size))
        parts = max(1, min(parts, len(inputs) // 2))  # of one image some layers can learn nothing
        share = group.size / self.steps.batch_size  # of one image; the mean of the processes is their sum, then
        whole = torch.zeros((), device=self.device)
        for nth, (some, wanted) in enumerate(
            zip(inputs.tensor_split(parts), targets.tensor_split(parts), strict=True), 1
        ):
            apart = group.size > 1 and nth < parts
            with self.network.no_sync() if apart else nullcontext():  # the processes' gradients meet once
                with autocast(self.device, self.setting.precision):
                    answer = self.network(some)
                logits, token = answer if isinstance(answer, tuple) else (answer, None)
                loss = F.cross_entropy(logits.float(), wanted, label_smoothing=recipe.smoothing)
                if self.teacher:
                    loss = loss.lerp(self.teacher.loss(some, logits, token), recipe.distil)
                loss = loss * (len(some) * share)
                self.scaler.scale(loss).backward()
            whole += loss.detach()
        return whole

    @contextmanager
    def _uphill(self, radius: float) -> Iterator[None]:
        """Weights where the loss is highest nearby, by the gradient there is: sharpness-aware minimisation takes the
        gradient there, and then the step from here."""
        slopes = {each: each.grad for each in self.model.parameters() if each.grad is not None}
        before = [(each, each.detach().clone()) for each in (*slopes, *self.statistics)]
        by = radius / (nn.utils.get_total_norm(slopes.values()) + 1e-12)
        with torch.no_grad():
            for weight, slope in slopes.items():
                weight.add_(slope * by)
        yield
        with torch.no_grad():
            for each, old in before:
                each.copy_(old)

    def _step_unless(self, bad: Tensor) -> None:
        """A fused optimiser leaves everything as it is where the gradients are no numbers; nobody has to look."""
        if not self.optimizer.defaults.get("fused"):
            if not bad.item():
                self.optimizer.step()
            return
        self.optimizer.found_inf = bad  # type: ignore[attr-defined]
        self.optimizer.step()
        del self.optimizer.found_inf  # type: ignore[attr-defined]

    def learning_rate(self) -> float:
        warmup = min(self.recipe.warmup * self.steps.per_epoch, self.state.total / 5)
        return learning_rate(self.state.step, self.state.total, warmup, self.recipe.lr)

    def hints(self) -> AbstractContextManager[None]:
        return explain_hardware_errors(self.recipe.batch_size, self.attempt if self.group.size == 1 else None)

    def attempt(self, images: int) -> None:
        """A step of so many images at their full size, for the memory it takes; nothing of it is kept."""
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.scaler.is_enabled())  # not amid a step
        size = self.recipe.image_size
        self.step(torch.zeros(images, size, size, 3, dtype=torch.uint8), torch.zeros(images, dtype=torch.int64))

    def validate(self, views: str) -> NDArray[np.float32]:
        began = time.monotonic()
        mine = self.group.share(self.held_out)
        unseen = self.setting.images(mine, TestView(self.spec))
        in_turn = load_batches(unseen, batches_in_order(len(mine), self.recipe.batch_size), self.setting.workers)
        self.group.agree(self.final)
        probs = self.group.join(predict_proba(self.final, in_turn, self.normalise, self.setting.precision, views))
        if not np.isfinite(probs).all():
            raise self._diverged("the model's answers are not numbers")
        self.looked = time.monotonic() - began
        return probs

    def close_epoch(self, probs: NDArray[np.float32], views: str) -> None:
        """One more line of metrics.jsonl."""
        state, metric, truth = self.state, self.setting.competition.metric, self.setting.targets[self.held_out]
        steps = state.step - (state.history[-1]["step"] if state.history else 0)
        epoch = math.ceil(state.step / self.steps.per_epoch)
        loss = self.group.mean(state.loss).item() / steps
        score = evaluate(metric, truth, probs)
        entry = {
            "epoch": epoch,
            "step": state.step,
            "lr": self.learning_rate(),
            "loss": loss,
            "log_loss": evaluate("log_loss", truth, probs),
            metric: score,
            "views": views,  # the last line tells of what is submitted: the mean of all views
            "images_per_s": round(steps * self.steps.batch_size / max(state.seconds, 1e-9), 1),
            "seconds": round(state.seconds, 1),
            "validation_seconds": round(self.looked, 1),
            "memory_mb": memory_mb(),
        }
        state.history.append(entry)
        skipped = int(state.skipped.item())
        if skipped:
            what = f"the gradients of {plural(skipped, 'step')} of epoch {epoch}"
            say(f"podium: warning: fold {self.fold}: {what} were not numbers, so they changed nothing")
        state.loss.zero_()
        state.skipped.zero_()
        state.seconds = 0.0
        if self.group.first:
            write_text(self.folder / "metrics.jsonl", "".join(json.dumps(each) + "\n" for each in state.history))
        say(f"  fold {self.fold}  epoch {epoch}/{self.recipe.epochs}  loss {loss:.4f}  {metric} {score:.4f}")

    def finish(self) -> None:
        """The end of a schedule that ends at zero, averaged: no epoch is picked on the fold that reports the score."""
        probs = self.validate(self.recipe.views)
        if not self.state.history or self.state.history[-1]["step"] < self.state.total:
            self.close_epoch(probs, self.recipe.views)
        if self.group.first:
            save_model(self.folder / "model.safetensors", self.final, self.spec)
            self.setting.save_predictions(self.fold, probs)
            for path in checkpoints(self.folder):
                path.unlink()
        self.group.wait()

    def _check_finite(self, weights: bool = False) -> None:
        if weights and not nn.utils.get_total_norm(self.model.parameters()).isfinite():
            raise self._diverged("the weights are not numbers")
        if self.state.in_a_row.item() >= BAD_STEPS:
            raise self._diverged(f"the loss or its gradients are not numbers, {BAD_STEPS} steps in a row and more,")

    def _diverged(self, what: str) -> PodiumError:
        self.state.wait()
        kept = checkpoints(self.folder)
        good = f"; {kept[0]} is from before" if kept else ""
        where = f"step {self.state.step:,} of fold {self.fold}"
        error = PodiumError(f"{what} by {where}{good}; try a lower --lr or --precision float32, under another --name")
        error.common = True  # all processes have the same weights
        return error


def _several(model: nn.Module, device: torch.device) -> nn.Module:
    """The model, whose gradients are the mean of all processes'."""
    devices = [device] if device.type == "cuda" else None
    network = DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True)
    network.broadcast_buffers = False  # Group.agree does it, when they are needed
    return network


def _optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    # Muon's steps are made as long as AdamW's would be, so the same rates serve.
    more: dict[str, Any] = {"fused": True} if recipe.optimizer == "adamw" else {"adjust_lr_fn": "match_rms_adamw"}
    optimizer: torch.optim.Optimizer = create_optimizer_v2(
        model,
        recipe.optimizer,
        lr=recipe.lr,
        weight_decay=recipe.weight_decay,
        layer_decay=recipe.layer_decay,
        **more,
    )
    _limit_depth(optimizer, recipe.layer_decay)
    return optimizer


def _limit_depth(optimizer: torch.optim.Optimizer, decay: float) -> None:
    """Keeps layer decay what its published values mean, however many layers timm counts: 12 from top to bottom.
    timm counts 38 in convnext_small; 0.8 to that power would freeze its stem."""
    lowest = min(group.get("lr_scale", 1.0) for group in optimizer.param_groups)
    if lowest < decay**DECAYED_LAYERS:
        depth = math.log(lowest) / math.log(decay)
        for group in optimizer.param_groups:
            group["lr_scale"] **= DECAYED_LAYERS / depth


def _check_space(folder: Path, model: nn.Module, folds_left: int) -> None:
    size = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    needed = size * ((KEPT + 1) * 4 + folds_left)  # one more is written before one goes: weights, average, two moments
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise PodiumError(f"{folder}: {needed / 1e6:,.0f} MB are needed on that disk and {free / 1e6:,.0f} MB are free")


@contextmanager
def _signals() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM ask to stop after the step; a second Ctrl-C stops at once."""
    asked: list[int] = []

    def ask(number: int, frame: object) -> None:
        if asked:
            if started_by_torchrun():  # torchrun says it to the rest when one process has gone
                return
            raise KeyboardInterrupt
        asked.append(number)
        if not terminal.quiet:
            again = b"" if started_by_torchrun() else b" (again: at once)"
            os.write(2, b"\npodium: stopping after this step" + again + b"\n")  # print is not safe in here

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # signals belong to the main thread
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
