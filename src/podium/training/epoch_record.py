"""The record of an epoch, a line of metrics.jsonl: the training loop and linear evaluation write the same one."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.metrics import evaluate
from podium.models.device import memory_mb


@dataclass(frozen=True)
class EpochRecord:
    epoch: int
    step: int
    lr: float
    loss: float  # mean over the training images
    images: int  # trained on in this epoch
    seconds: float  # of training
    validation_seconds: float
    views: str  # of the validation; the last record has the views that are submitted

    def scored(self, metric: str, targets: NDArray[np.int64], probs: NDArray[np.float32]) -> dict[str, Any]:
        """Returns the line, with the scores of the held-out images."""
        return {
            "epoch": self.epoch,
            "step": self.step,
            "lr": self.lr,
            "loss": self.loss,
            "log_loss": evaluate("log_loss", targets, probs),
            metric: evaluate(metric, targets, probs),
            "views": self.views,
            "images_per_s": round(self.images / max(self.seconds, 1e-9), 1),
            "seconds": round(self.seconds, 1),
            "validation_seconds": round(self.validation_seconds, 1),
            "memory_mb": memory_mb(),
        }
