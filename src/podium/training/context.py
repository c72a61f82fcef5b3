"""A plan on a machine: what all folds of a run share while they train, whatever is trained.

`train` and `bench` open it alike.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from podium import PodiumError
from podium.competition.load import Competition
from podium.disk import sha256
from podium.images.store import Store, open_store, stored_side
from podium.machine import Machine
from podium.models.device import pick_device, pick_precision, prepare_device
from podium.recipe import Recipe
from podium.terminal import command_for, plural, say
from podium.training.augment import STEP, View, generator
from podium.training.loader import BatchSampler, ImageDataset, pick_workers
from podium.training.plan import Plan
from podium.training.prediction_files import Predictions
from podium.training.processes import Processes, join_processes
from podium.training.run_folder import Run

LEFT_OUT = -2  # the fold of an image that cannot be read


@dataclass(frozen=True)
class Context:
    plan: Plan
    store: Store
    folds: NDArray[np.int64]  # of every training image
    targets: NDArray[np.int64]
    device: torch.device
    precision: torch.dtype
    processes: Processes

    @property
    def machine(self) -> Machine:
        return self.plan.request.machine

    @property
    def competition(self) -> Competition:
        return self.plan.competition

    @property
    def run(self) -> Run:
        return self.plan.run

    @property
    def recipe(self) -> Recipe:
        return self.plan.recipe

    @property
    def workers(self) -> int:
        return pick_workers(self.machine.workers, self.device)

    def with_recipe(self, recipe: Recipe) -> "Context":
        return replace(self, plan=replace(self.plan, recipe=recipe))

    def training_rows(self, fold: int) -> NDArray[np.int64]:
        return np.flatnonzero((self.folds != fold) & (self.folds != LEFT_OUT))

    def held_out_rows(self, fold: int) -> NDArray[np.int64]:
        return np.flatnonzero(self.folds == fold)

    def images(self, rows: NDArray[np.int64], view: View) -> ImageDataset:
        positions = self.store.positions(self.competition.train["image"].iloc[rows])
        return ImageDataset(self.store.reader(positions), self.targets[rows], view, rows)

    def batch_sampler(self, fold: int) -> BatchSampler:
        recipe = self.recipe
        count = len(self.training_rows(fold))
        return BatchSampler(count, recipe.batch_size, recipe.epochs, (recipe.seed, fold), self.processes)

    def save_predictions(self, fold: int, probs: NDArray[np.float32]) -> None:
        """Writes oof.npz, the last file of a fold: it marks the fold as finished."""
        rows, folder = self.held_out_rows(fold), self.run.fold(fold)
        ids = self.competition.train["id"].to_numpy(dtype=str)[rows]
        weights_hash = sha256(folder / "model.safetensors")
        predictions = Predictions(ids, probs, self.targets[rows], self.competition.classes, weights_hash)
        predictions.save(folder / "oof.npz")


@contextmanager
def open_context(plan: Plan) -> Iterator[Context]:
    """Picks the device, joins the processes, locks the run and opens the pixel store."""
    machine = plan.request.machine
    device = pick_device(machine.device)
    prepare_device(device, machine.deterministic)
    recipe, competition = plan.recipe, plan.competition
    with join_processes(device) as processes, plan.run.lock() if processes.is_first else nullcontext():
        with processes.first_then_others():  # the first builds the store, the others find it
            side = stored_side(max(recipe.image_size, recipe.test_size))
            store = open_store(competition, plan.root, side, machine.keep_pixels)
            folds = _without_unreadable(plan, store)
        index = {label: number for number, label in enumerate(competition.classes)}
        yield Context(
            plan=plan,
            store=store,
            folds=folds,
            targets=np.array([index[label] for label in competition.train["target"]]),
            device=device,
            precision=pick_precision(recipe.precision, device),
            processes=processes,
        )


def _without_unreadable(plan: Plan, store: Store) -> NDArray[np.int64]:
    """Returns the folds without the images that cannot be read, if the recipe says so; else refuses them."""
    competition = plan.competition
    positions = store.positions(competition.train["image"])
    unreadable = store.bad(positions)
    if not unreadable.any():
        return plan.folds
    first = store.files[positions[unreadable][0]]
    count = plural(int(unreadable.sum()), "training image")
    problem = f"{count} cannot be read, {competition.folder / first.image} first ({first.reason})"
    if not plan.recipe.skip_bad:
        listing = command_for("audit", competition.slug)
        raise PodiumError(f"{problem}; {listing} lists them: replace them, or leave them out with --skip-bad")
    say(f"podium: warning: {problem}; they are left out")
    folds = np.where(unreadable, LEFT_OUT, plan.folds)
    for fold in range(plan.fold_count):
        if not (folds == fold).any():
            remedy = command_for("folds", competition.slug)
            raise PodiumError(f"without them, no image is left in fold {fold}; make new folds: {remedy}")
    return folds


def seed_torch(seed: int, fold: int, step: int, rank: int = 0) -> None:
    """Makes torch's own draws (initial weights, dropout) a function of the step and the process."""
    torch.manual_seed(int(generator(STEP, seed, fold, step, rank).integers(2**63)))
