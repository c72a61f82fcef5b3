"""The folder of a pretraining, which is no run: it has no recipe.json and no folds.

    runs/<competition>/<name>/pretrain.json         options, hash of the images, versions
                              metrics.jsonl         a line per epoch
                              attention.png         what the class token looks at, if the model has one
                              backbone.safetensors  the teacher's weights, written last

A pretraining is finished when its backbone.safetensors is there.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from podium.basics.disk import locked, write_json, write_text
from podium.basics.errors import PodiumError
from podium.options.recipe import differences
from podium.saved_runs.checkpoint import checkpoints
from podium.saved_runs.pretrained_backbones import BACKBONE, PRETRAINING
from podium.saved_runs.run_folder import package_versions


@dataclass(frozen=True)
class PretrainingEpoch:
    """A line of metrics.jsonl."""

    epoch: int
    step: int
    lr: float
    loss: float
    teacher_entropy: float  # of the teacher's mean output, as a share of the most: 0 if all images get one output
    image_entropy: float  # mean over the images: 1 if the teacher says nothing of any image
    knn_accuracy: float
    images_per_s: float
    seconds: float
    gpu_mb: int | None

    def text(self) -> str:
        return (
            f"loss {self.loss:z.4f}  entropy {self.teacher_entropy:z.3f}, of an image {self.image_entropy:z.3f}"
            f"  k-NN accuracy {self.knn_accuracy:z.4f}"
        )


@dataclass(frozen=True)
class PretrainingFolder:
    path: Path

    @property
    def backbone(self) -> Path:
        return self.path / BACKBONE

    @property
    def is_finished(self) -> bool:
        return self.backbone.exists()

    @property
    def recorded_threads(self) -> int | None:
        """Returns how many threads it has begun with on a CPU; 0 for torch's own choice, as older ones have it."""
        return int(self._recorded().get("threads", 0)) if self.has_begun() else None

    def has_begun(self) -> bool:
        return self.is_finished or bool(checkpoints(self.path))

    def check_same(self, identity: Mapping[str, Any]) -> None:
        """Refuses the folder of a run, and anything that differs from what the pretraining was started with."""
        if (self.path / "recipe.json").exists() or list(self.path.glob("fold*/oof.npz")):
            raise PodiumError(f"{self.path} holds a run; choose another name for the pretraining (--name NAME)")
        if not self.has_begun():
            return
        changes = differences(self._recorded(), identity)
        if changes:
            raise PodiumError(
                f"{self.path} was started with other options: {'; '.join(changes)}. Give the same to resume, choose"
                " another name (--name NAME), or delete that folder to start it again"
            )

    def begin(self, identity: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Writes pretrain.json, or refuses to resume with other options or images."""
        self.check_same(identity)
        if not self.has_begun():
            write_json(self.path / PRETRAINING, {**identity, **facts, "versions": package_versions()})

    def write_history(self, epochs: Sequence[PretrainingEpoch]) -> None:
        write_text(self.path / "metrics.jsonl", "".join(json.dumps(asdict(epoch)) + "\n" for epoch in epochs))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps a second process out, and deletes what a killed one left."""
        with locked(self.path / ".lock") as is_mine:
            if not is_mine:
                raise PodiumError(f"{self.path} is being pretrained by another process; wait, or use --name")
            for temporary in self.path.glob(".*.tmp"):
                temporary.unlink()
            for checkpoint in checkpoints(self.path) if self.is_finished else ():
                checkpoint.unlink()
            yield

    def _recorded(self) -> dict[str, Any]:
        path = self.path / PRETRAINING
        try:
            recorded = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(recorded, dict):
                return recorded
            problem: object = "it is not a table"
        except (OSError, ValueError) as error:
            problem = error
        raise PodiumError(f"{path}: cannot be read ({problem}); restore it, or delete {self.path} and start it again")
