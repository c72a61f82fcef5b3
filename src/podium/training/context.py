"""What all folds of a run share, whatever is trained: the run, its recipe, the images and the machine.

Writes the last file of a fold, runs/<slug>/<run>/fold<k>/oof.npz.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from podium.competition.load import Competition
from podium.disk import sha256
from podium.images.store import Store
from podium.recipe import Recipe
from podium.training.augment import STEP, View, generator
from podium.training.loader import ImageDataset
from podium.training.processes import Processes
from podium.training.run_folder import Predictions, Run

LEFT_OUT = -2  # the fold of an image that cannot be read


@dataclass(frozen=True)
class Context:
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
    save_every: float = 300.0  # seconds
    compiled: bool = False
    group: Processes = field(default_factory=Processes)
    teachers: Sequence[Run] = ()

    def images(self, rows: NDArray[np.int64], view: View) -> ImageDataset:
        positions = self.store.positions(self.competition.train["image"].iloc[rows])
        return ImageDataset(self.store.reader(positions), self.targets[rows], view, rows)

    def training(self, fold: int) -> NDArray[np.int64]:
        return np.flatnonzero((self.folds != fold) & (self.folds != LEFT_OUT))

    def held_out(self, fold: int) -> NDArray[np.int64]:
        return np.flatnonzero(self.folds == fold)

    def save_predictions(self, fold: int, probs: NDArray[np.float32]) -> None:
        """The last file of a fold, by which it is known to be finished."""
        rows, folder = self.held_out(fold), self.run.fold(fold)
        ids = self.competition.train["id"].to_numpy(dtype=str)[rows]
        key = sha256(folder / "model.safetensors")
        Predictions(ids, probs, self.targets[rows], self.competition.classes, key).save(folder / "oof.npz")


def seed_torch(seed: int, fold: int, step: int, rank: int = 0) -> None:
    """What torch draws by itself, as weights and dropout, follows from the step and the process."""
    torch.manual_seed(int(generator(STEP, seed, fold, step, rank).integers(2**63)))
