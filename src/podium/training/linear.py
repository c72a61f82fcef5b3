"""Linear evaluation: a multinomial logistic head on the features of a frozen model, one head a fold.

    podium train --model convnext_small --linear

Reads the store; writes runs/<slug>/<run>/features/<n>.npz, a block of images each and once for all folds, and the files
of a fold as training does. --head-first begins the training of everything with such a head.
"""

import hashlib
import json
import math
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from podium import PodiumError
from podium.disk import atomic, write_text
from podium.metrics import evaluate
from podium.models.build import ModelSpec, Normaliser, build_model, save_model
from podium.models.device import autocast, explain_hardware_errors, full_float32, memory_mb
from podium.models.predict import views_of
from podium.models.tensors import tensors_digest
from podium.terminal import plural, progress_bar, say
from podium.training.augment import TestView
from podium.training.context import LEFT_OUT, Context, seed_torch
from podium.training.loader import ImageDataset, Key, load_batches

BLOCK = 1024  # images in a file of features: the most that a kill costs
STRENGTHS = tuple(10 ** (-n / 2) for n in range(2, 11))  # of L2, added to the mean log loss: 0.1 to 0.00001
ENOUGH = (
    1e-4  # the gradient, or the change of the loss, that ends a fit: a tenth of it takes twice as long for no score
)


class Head(NamedTuple):
    weight: Tensor  # [classes, numbers of an image]
    bias: Tensor


def train_head(setting: Context, fold: int) -> None:
    """A fold from the model's features to the files that training leaves."""
    began = time.monotonic()
    recipe, metric, folder = setting.recipe, setting.competition.metric, setting.run.fold(fold)
    seed_torch(recipe.seed, 0, 0)  # random weights, too, are the same for all folds
    model, spec = build_model(replace(recipe, drop_path=0.0), setting.competition.classes)
    setting.run.keep_source(spec.source)
    normalise = Normaliser(spec, setting.device)
    model.to(setting.device).to(memory_format=normalise.layout)
    classifier = classifier_of(model, spec, normalise)
    features = all_features(setting, model, spec, normalise)
    head, strength = fit_head(setting, fold, features)
    classifier.load_state_dict(head._asdict())

    training, held_out = setting.training(fold), setting.held_out(fold)
    loss = evaluate("log_loss", setting.targets[training], answers(setting, head, features[:, training]))
    probs, truth = answers(setting, head, features[:, held_out]), setting.targets[held_out]
    score, seconds = evaluate(metric, truth, probs), time.monotonic() - began
    entry = {
        "epoch": 1,
        "step": 0,
        "lr": 0.0,
        "loss": loss,
        "log_loss": evaluate("log_loss", truth, probs),
        metric: score,
        "views": recipe.views,
        "images_per_s": round(len(training) / seconds, 1),
        "seconds": round(seconds, 1),
        "validation_seconds": 0.0,
        "memory_mb": memory_mb(),
        "l2": strength,
    }
    save_model(folder / "model.safetensors", model, spec)
    write_text(folder / "metrics.jsonl", json.dumps(entry) + "\n")
    setting.save_predictions(fold, probs)
    say(f"  fold {fold}  a head with L2 {strength:.2g}  loss {loss:.4f}  {metric} {score:.4f}")


# --- features ----------------------------------------------------------------------------------------


@torch.no_grad()
def classifier_of(model: nn.Module, spec: ModelSpec, normalise: Normaliser) -> nn.Linear:
    """The model's last layer, its weights drawn always alike; raises unless all that follows the features is linear."""
    model.eval()
    draws = torch.Generator().manual_seed(0)
    with suppress(Exception):  # each family lacks or answers something else in its own way
        classifier: Any = model.get_classifier()  # type: ignore[operator]
        for each in (classifier.weight, classifier.bias):  # some begin at nothing, which would prove nothing
            each.copy_(torch.randn(each.shape, generator=draws))
        shape = 2, spec.test_size, spec.test_size, 3
        images = normalise(torch.randint(256, shape, generator=draws, dtype=torch.uint8))
        found = F.linear(_features(model, images), classifier.weight, classifier.bias)
        if isinstance(classifier, nn.Linear) and torch.allclose(found, model(images), rtol=1e-3, atol=1e-3):
            return classifier
    what = f"the answer of {spec.architecture} is not one linear layer on its features, so no head can be fitted"
    raise PodiumError(f"{what}; leave out --linear and --head-first, or take another model")


@torch.inference_mode()
def all_features(setting: Context, model: nn.Module, spec: ModelSpec, normalise: Normaliser) -> NDArray[np.float32]:
    """[views, training images, numbers of an image], as they are kept or else computed; `classifier_of` comes first.
    What cannot be read is not a number in any of them."""
    rows = np.flatnonzero(setting.folds != LEFT_OUT)
    blocks = [rows[at : at + BLOCK] for at in range(0, len(rows), BLOCK)]
    whole = tensors_digest({name: each.cpu() for name, each in model.state_dict().items()}, "")
    keys = [_key(setting, block, spec, whole) for block in blocks]
    paths = [setting.run.path / "features" / f"{n}.npz" for n in range(len(blocks))]
    kept = {n: found for n in range(len(blocks)) if (found := _read(paths[n], keys[n])) is not None}
    missing = [n for n in range(len(blocks)) if n not in kept]
    if missing and setting.recipe.weights == "none":
        say("podium: warning: these features are those of random weights: fit for a trial, not for a submission")
    if missing:
        left = sum(len(blocks[n]) for n in missing)
        say(f"podium: the features of {plural(left, 'image')} come first, once for all folds")
    unseen = setting.images(rows, TestView(spec))
    for n, found in zip(missing, _computed(setting, model, normalise, unseen, missing), strict=True):
        kept[n] = found
        with atomic(paths[n]) as temporary, temporary.open("wb") as file:
            np.savez(file, features=found, key=np.array(keys[n]))
    views, _, numbers = kept[0].shape
    features = np.full((views, len(setting.folds), numbers), np.nan, np.float32)
    for n, block in enumerate(blocks):
        features[:, block] = kept.pop(n)
    return features


def _computed(
    setting: Context, model: nn.Module, normalise: Normaliser, unseen: ImageDataset, blocks: list[int]
) -> Iterator[NDArray[np.float32]]:
    """The features of the blocks, in turn."""
    recipe, count = setting.recipe, len(unseen.rows)
    steps = [_batches_of(range(n * BLOCK, min((n + 1) * BLOCK, count)), recipe.batch_size) for n in blocks]
    left = sum(len(step) for block in steps for step in block)
    in_turn = load_batches(unseen, [step for block in steps for step in block], setting.workers)
    progress = progress_bar(total=count, initial=count - left, desc="features", unit="image")

    def see(images: Tensor) -> Tensor:
        with autocast(setting.device, setting.precision):
            return torch.stack([_features(model, view).float() for view in views_of(normalise(images), recipe.views)])

    def attempt(images: int) -> None:
        see(torch.zeros(images, recipe.test_size, recipe.test_size, 3, dtype=torch.uint8))

    with explain_hardware_errors(recipe.batch_size, attempt), progress:
        for block in steps:
            found = []
            for images, _ in islice(in_turn, len(block)):
                found.append(see(images))
                progress.update(len(images))
            features: NDArray[np.float32] = torch.cat(found, 1).cpu().numpy()
            if not np.isfinite(features).all():
                raise PodiumError(f"the features of {recipe.model} are not numbers; try --precision float32")
            yield features


def _features(model: Any, images: Tensor) -> Tensor:
    found: Tensor = model.forward_head(model.forward_features(images), pre_logits=True)
    return found


def _batches_of(images: range, batch_size: int) -> list[list[Key]]:
    return [[(0, i) for i in images[at : at + batch_size]] for at in range(0, len(images), batch_size)]


def _key(setting: Context, rows: NDArray[np.int64], spec: ModelSpec, model: str) -> str:
    """What a block's features were made from."""
    images = setting.store.digest(setting.store.positions(setting.competition.train["image"].iloc[rows]))
    made_from = [asdict(spec), model, images, setting.recipe.views, setting.recipe.batch_size, str(setting.precision)]
    return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()


def _read(path: Path, key: str) -> NDArray[np.float32] | None:
    """A block that was kept, unless it is of something else or damaged."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            features: NDArray[np.float32] = file["features"]
            return features if str(file["key"]) == key else None
    except FileNotFoundError:
        return None
    except Exception as error:  # a damaged archive makes numpy and zipfile raise nearly anything
        say(f"podium: warning: {path}: cannot be read ({error}); its features are computed again")
        return None


# --- the head ----------------------------------------------------------------------------------------


@full_float32()
def fit_head(setting: Context, fold: int, features: NDArray[np.float32]) -> tuple[Head, float]:
    """A head for the features as they are, fitted to all images but the fold's, and the strength of its L2.

    It is fitted to standardised features, turned to their principal axes, where a step can be as long along each as
    its curvature allows: without, a fit of nearly as many steps ends far from its least.
    """
    rows = setting.training(fold)
    targets = torch.from_numpy(setting.targets[rows]).to(setting.device)
    seen = torch.from_numpy(features[:, rows]).to(setting.device)
    mean, deviation = seen.mean((0, 1)), seen.flatten(0, 1).std(0, correction=0)
    rounding = mean.abs() * torch.finfo(setting.precision).eps
    deviation = torch.where(deviation > rounding, deviation, math.inf)  # what varies no more says nothing
    seen.sub_(mean).div_(deviation)
    flat = seen.flatten(0, 1)
    values, axes = (each.to(setting.device) for each in torch.linalg.eigh((flat.T @ flat / len(flat)).cpu()))
    seen = seen @ axes

    def for_features(head: Head) -> Head:
        # Rounded as autocast will round it: the bias then makes up for the mean of what that changes.
        weight = (head.weight @ axes.T / deviation).to(setting.precision).float()
        return Head(weight, head.bias - weight @ mean)

    counts = torch.bincount(targets, minlength=len(setting.competition.classes)).float()
    head = Head(torch.zeros(len(counts), len(axes), device=setting.device), ((counts + 1) / len(targets)).log())
    strength, least, chooses = STRENGTHS[0], math.inf, _chooses(setting, fold, rows)
    tried, others = head, torch.from_numpy(~chooses).to(setting.device)
    for l2 in STRENGTHS if chooses.any() else ():
        tried = _fit(seen[:, others].flatten(0, 1), targets[others].repeat(len(seen)), l2, values, tried)
        probs = answers(setting, for_features(tried), features[:, rows[chooses]])
        loss = evaluate("log_loss", setting.targets[rows[chooses]], probs)
        if loss >= least:
            break
        least, strength, head = loss, l2, tried
    head = _fit(seen.flatten(0, 1), targets.repeat(len(seen)), strength, values, head)
    return for_features(head), strength


def _chooses(setting: Context, fold: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of a fold's training images choose the strength: another fold, since folds keep together what belongs
    together. Of two folds there is no other: then of each class every fifth image, from the second."""
    count = int(setting.folds.max()) + 1
    if count > 2:
        return np.asarray(setting.folds[rows] == (fold + 1) % count)
    of_class = pd.Series(setting.targets[rows])
    return np.asarray(of_class.groupby(of_class).cumcount() % 5 == 1)


def _fit(seen: Tensor, targets: Tensor, l2: float, values: Tensor, begin: Head) -> Head:
    """The least of the mean log loss and L2, from `begin` on; `values` are the variances along the axes of `seen`."""
    scale = (values.clamp(min=0) / len(begin.bias) + l2).rsqrt()
    scaled, bias = (begin.weight / scale).requires_grad_(), begin.bias.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [scaled, bias], max_iter=200, tolerance_grad=ENOUGH, tolerance_change=ENOUGH, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        weight = scaled * scale
        found = F.cross_entropy(F.linear(seen, weight, bias), targets) + l2 / 2 * weight.square().sum()
        found.backward()
        return found

    optimizer.step(loss)
    return Head((scaled * scale).detach(), bias.detach())


@torch.inference_mode()
def answers(setting: Context, head: Head, features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Probabilities, as `predict_proba` will find them: the mean of the views."""
    with autocast(setting.device, setting.precision):
        logits = F.linear(torch.from_numpy(features).to(setting.device), head.weight, head.bias)
    probs: NDArray[np.float32] = logits.float().softmax(-1).mean(0).cpu().numpy()
    return probs
