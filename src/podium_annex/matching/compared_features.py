"""The features by which images are compared: what the last layer of each model gets, of length 1, side by side.

The cosine of two such rows is the mean of the models' cosines, so several folds and runs are one matrix. Features are
kept on disk (training/frozen_features.py): a second call reads them.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.machine import Machine
from podium.basics.terminal import plural, say
from podium.images.store import Store
from podium.models.hardware_errors import explain_hardware_errors
from podium.options.moves.joined_columns import joins_columns
from podium.saved_runs.imported_runs import refuse_imported
from podium.saved_runs.run_folder import Run, has_shared_backbone
from podium.training.fold_model import FoldModel
from podium.training.test_predictions import read_features
from podium_annex.matching.similarities import Array, unit


class Looker(NamedTuple):
    """What looks at images: models of some runs, what each run sees of the images, and the machine."""

    stores: Mapping[Run, Store]
    machine: Machine

    def features(self, models: Mapping[Run, Sequence[int]], images: pd.DataFrame) -> Array:
        """Returns a row of length 1 for each image; one that cannot be read has zeros, and is like no other."""
        store = next(iter(self.stores.values()))
        readable = ~store.bad(store.examples(images).first)
        if not readable.all():
            first = images["id"].to_numpy()[~readable][0]
            say(f"podium: warning: {plural(int((~readable).sum()), 'image')} cannot be read, '{first}' first")
        blocks: list[Array] = []
        for run, folds in models.items():
            own = self._of_run(run, folds, images[readable])
            blocks += [block / np.sqrt(len(own) * len(models)) for block in own]
        seen = np.concatenate(blocks, 1)
        features = np.zeros((len(images), seen.shape[1]), np.float32)
        features[readable] = seen
        return unit(features)

    def _of_run(self, run: Run, folds: Sequence[int], images: pd.DataFrame) -> list[Array]:
        """Returns the features of each model; models that see the same and share their backbone give one block."""
        blocks: dict[str, Array] = {}
        with explain_hardware_errors():
            for fold in folds:
                model, store = FoldModel.load(run, fold, self.machine.device), self.stores[run].of_fold(fold)
                if not hasattr(model.model, "forward_head"):
                    raise PodiumError(
                        f"{run.name} gives no features: {model.spec.architecture} lacks timm's forward_head; name other"
                        " runs with --runs"
                    )
                examples = store.examples(images)
                shown = hashlib.sha256(examples.positions.tobytes()).hexdigest()
                key = f"{model.backbone.key()} {shown}"
                if key not in blocks:
                    values = unit(read_features(store, examples, model, self.machine)).mean(0)
                    sums = np.add.reduceat(values, examples.starts) if len(values) else values
                    blocks[key] = unit(sums)
        return list(blocks.values())


def refuse_featureless(runs: Sequence[Run]) -> None:
    """Raises if a run has no weights, or answers by more than the image."""
    refuse_imported(runs, "podium match")
    for run in runs:
        if joins_columns(run.recipe):
            raise PodiumError(
                f"{run.name} learned from the columns of the tables (--columns), which pairs of images lack; name other"
                " runs with --runs"
            )


def have_learned_no_label(runs: Sequence[Run]) -> bool:
    """Returns whether no label of the competition has changed a backbone: only heads were fitted."""
    return all(has_shared_backbone(run) for run in runs)
