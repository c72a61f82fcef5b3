"""Measures what int8 costs: scores of the fold models before and after, on images that they have not seen.

The exported file is the mean of all fold models, and most of them have seen any given image, so no score of the file is
honest. Instead, each fold's model is made int8 alone, with ranges from images outside its fold, and answers images of
its fold; so does the same model in float32. The scores are those of all these answers together.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from podium.basics.terminal import progress_bar
from podium.competition.load import Competition
from podium.images.store import Store, open_store, side_of_run
from podium.models.build import ModelSpec
from podium.saved_runs.fold_names import holds_nothing_out
from podium.saved_runs.regions_of_run import regions_of
from podium.saved_runs.run_folder import Run
from podium.tasks.metrics import evaluate
from podium.tasks.task import joined
from podium.training.augment import TestView
from podium_annex.exporting.file_forms import open_onnx, write_onnx
from podium_annex.exporting.int8 import quantise
from podium_annex.exporting.whole_model import WholeModel

MOST_JUDGED = 2_000  # images, of all folds; each is answered by two files
CALIBRATING = 128  # images that ranges are measured on
BATCH = 16


@dataclass(frozen=True)
class Int8Loss:
    images: int
    before: dict[str, float]  # scores by the name of the metric
    after: dict[str, float]
    bits: int  # of the weights
    bytes_before: int = 0
    bytes_after: int = 0

    @property
    def changes(self) -> list[str]:
        return [
            f"{name} {self.after[name]:z.4f} in place of {score:z.4f} ({self.after[name] - score:+z.4f})"
            for name, score in self.before.items()
        ]

    @property
    def sizes(self) -> str:
        return f"{self.bytes_after / 1e6:.1f} MB in place of {self.bytes_before / 1e6:.1f} MB"

    def __str__(self) -> str:
        return f"{self.sizes}; on {self.images:,} held-out images {', '.join(self.changes)}"


@dataclass(frozen=True)
class ReadyImages:
    """The competition's training images as a model of a run sees them: of several boxes, the first."""

    competition: Competition
    store: Store
    spec: ModelSpec

    def of_fold(self, fold: int) -> "ReadyImages":
        return ReadyImages(self.competition, self.store.of_fold(fold), self.spec)

    @cached_property
    def positions(self) -> dict[str, int]:
        """Returns where the store has each image, by id, without those that cannot be read."""
        train = self.competition.train
        positions = self.store.examples(train).first
        pairs = zip(train["id"], positions.tolist(), self.store.bad(positions), strict=True)
        return {str(image_id): position for image_id, position, is_bad in pairs if not is_bad}

    def batches(self, ids: Sequence[str]) -> Iterator[Tensor]:
        positions = np.array([self.positions[image_id] for image_id in ids])
        reader = self.store.reader(positions)
        view = TestView(self.spec)
        for start in range(0, len(positions), BATCH):
            numbers = range(start, min(start + BATCH, len(positions)))
            yield torch.from_numpy(np.stack([view(reader(number)) for number in numbers]))

    def sample(self, held_out: Collection[str] = ()) -> Iterator[Tensor]:
        """Yields a few images, none of these."""
        ids = sorted(self.positions.keys() - set(held_out))
        return self.batches(np.random.default_rng(0).permutation(ids)[:CALIBRATING].tolist())


def open_images(competition: Competition, run: Run, spec: ModelSpec) -> ReadyImages:
    """Opens them as the run sees them; a fold's model may see boxes of its own."""
    side = side_of_run(spec.image_size, spec.test_size)
    return ReadyImages(competition, open_store(competition, side, regions=regions_of(run)), spec)


def measure_loss(
    run: Run, folds: Sequence[int], whole: WholeModel, images: ReadyImages, path: Path, bits: int
) -> Int8Loss:
    """Scores each fold's model, alone, in float32 and in int8; `path` is the file of all of them in float32."""
    floats, int8s, truths = [], [], []
    judging = sum(not holds_nothing_out(fold) for fold in folds)
    for number, fold in enumerate(folds):
        if holds_nothing_out(fold):
            continue
        held_out, seen = run.out_of_fold(fold), images.of_fold(fold)
        rows = np.flatnonzero([image_id in seen.positions for image_id in held_out.id])
        rows = np.sort(np.random.default_rng(fold).permutation(rows)[: max(1, MOST_JUDGED // judging)])
        spec, before, after = whole.specs[number], path, path.with_name("int8.onnx")
        if len(folds) > 1:  # else the file holds this model alone already
            before = path.with_name("float32.onnx")
            write_onnx(WholeModel([whole.models[number]], [spec], whole.views).eval(), spec, before)
        quantise(before, after, spec, seen.sample(held_out.id), bits)
        ids = held_out.id[rows].tolist()
        floats.append(_answers(before, seen, ids, f"fold {fold}, float32"))
        int8s.append(_answers(after, seen, ids, f"fold {fold}, int8"))
        truths.append(held_out.target[rows])
    targets = joined(truths)
    metrics = dict.fromkeys((str(run.recipe["metric"]), targets.task.loss))
    before_scores, after_scores = (
        {name: evaluate(name, targets, np.concatenate(answers)) for name in metrics} for answers in (floats, int8s)
    )
    return Int8Loss(len(targets), before_scores, after_scores, bits)


def _answers(path: Path, images: ReadyImages, ids: list[str], description: str) -> NDArray[np.float32]:
    answer, rows = open_onnx(path), []
    with progress_bar(total=len(ids), desc=description, unit="image") as progress:
        for batch in images.batches(ids):
            rows.append(answer(batch).numpy())
            progress.update(len(batch))
    return np.concatenate(rows)
