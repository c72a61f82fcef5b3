"""The programs that can follow a fold (podium/training/tracking/find_trackers.py), one class each.

Their packages are imported when a fold is followed. Each keeps what it is told on this machine, and sends nothing to
its makers, unless the user's environment says so.
"""

import os
import shutil
import time
import uuid
from collections.abc import Callable, Mapping

from podium.saved_runs.fold_names import fold_folder_name
from podium.training.tracking.find_trackers import TOLD_NOTHING, TrackedFold, Tracker


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
