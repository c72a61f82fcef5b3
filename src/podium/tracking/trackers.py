"""The programs that can follow a fold, one class each. Their packages are imported when a fold is followed.

Each keeps what it is told on this machine, and sends nothing to its makers, unless the user's environment says so.
"""

import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from podium.extras import refuse_without
from podium.saved_runs.fold_names import fold_folder_name

LONGEST_TEXT = 500  # characters of an option; MLflow limits them
TOLD_NOTHING = -1  # comes before the first epoch, 0


@dataclass(frozen=True)
class TrackedFold:
    folder: Path  # runs/<competition>/<run>
    fold: int
    recipe: Mapping[str, Any]  # recipe.json
    id: str = ""  # that the tracker gave it when it began; resuming goes on there
    last_epoch: int = TOLD_NOTHING  # that the tracker knows

    @property
    def competition(self) -> str:
        return self.folder.parent.name

    @property
    def name(self) -> str:
        return f"{self.folder.name}/{fold_folder_name(self.fold)}"

    @property
    def options(self) -> dict[str, str]:
        """Returns the recipe as short texts."""
        texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in self.recipe.items()}
        return {name: text[:LONGEST_TEXT] for name, text in texts.items()}


class Tracker(Protocol):
    """A fold that a program follows: it begins, or goes on, when the object is made."""

    id: str

    def record(self, epoch: int, numbers: Mapping[str, float]) -> None:
        """Shows the numbers of an epoch."""

    def end(self, is_finished: bool) -> None:
        """Lets go of the fold; one that is not finished may be resumed later."""


class TensorBoard:
    def __init__(self, fold: TrackedFold) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.id = ""
        folder = fold.folder / "tensorboard" / fold_folder_name(fold.fold)
        is_new = fold.last_epoch == TOLD_NOTHING
        if is_new:  # curves of a fold that was deleted would mix with the new ones
            shutil.rmtree(folder, ignore_errors=True)
        # What was written after the last epoch that is known, by a process that was killed, is not shown.
        self.writer = SummaryWriter(str(folder), purge_step=None if is_new else fold.last_epoch + 1)
        if is_new:
            self.writer.add_text("recipe", "\n".join(f"- {name}: {text}" for name, text in fold.options.items()))

    def record(self, epoch: int, numbers: Mapping[str, float]) -> None:
        for name, number in numbers.items():
            self.writer.add_scalar(name, number, epoch)
        self.writer.flush()

    def end(self, is_finished: bool) -> None:
        self.writer.close()


class MLflow:
    """Writes into runs/<competition>/mlflow.db, or where MLFLOW_TRACKING_URI says."""

    def __init__(self, fold: TrackedFold) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # training waits for a server that is away
        from mlflow import MlflowClient

        store = fold.folder.parent.absolute()
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        self.client = MlflowClient(tracking_uri=uri or f"sqlite:///{store / 'mlflow.db'}")
        if fold.id:
            self.id = fold.id
            self.client.update_run(self.id, status="RUNNING")
            return
        experiment = self.client.get_experiment_by_name(fold.competition)
        files = None if uri else (store / "mlflow-files").as_uri()
        number = experiment.experiment_id if experiment else self.client.create_experiment(fold.competition, files)
        self.id = self.client.create_run(number, run_name=fold.name).info.run_id
        for name, text in fold.options.items():
            self.client.log_param(self.id, name, text)

    def record(self, epoch: int, numbers: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)  # milliseconds
        self.client.log_batch(self.id, metrics=[Metric(name, number, now, epoch) for name, number in numbers.items()])

    def end(self, is_finished: bool) -> None:
        self.client.set_terminated(self.id, status="FINISHED" if is_finished else "KILLED")


class WandB:
    """Writes into runs/<competition>/<run>/wandb/, for `wandb sync`; sends it at once if WANDB_MODE is online."""

    def __init__(self, fold: TrackedFold) -> None:
        is_online = os.environ.get("WANDB_MODE") == "online"
        if not is_online:
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        self.id = fold.id or uuid.uuid4().hex
        self.run = wandb.init(
            project=fold.competition,
            group=fold.folder.name,
            name=fold.name,
            id=self.id,
            resume="allow",
            config=dict(fold.recipe),
            dir=str(fold.folder),
            mode="online" if is_online else "offline",
            settings=wandb.Settings(console="off", silent=True),  # what is printed is Podium's
        )

    def record(self, epoch: int, numbers: Mapping[str, float]) -> None:
        self.run.log(dict(numbers), step=epoch)

    def end(self, is_finished: bool) -> None:
        self.run.finish(exit_code=0 if is_finished else 1)


# Called as machine.py calls them, as the package of each, and as the extra of Podium that installs it.
TRACKERS: dict[str, Callable[[TrackedFold], Tracker]] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB}


def refuse_missing_packages(names: Sequence[str]) -> None:
    for name in names:
        refuse_without(name, f"--track {name}")
