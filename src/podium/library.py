"""Podium as a library: what `import podium` offers to notebooks and scripts. docs/api.md has an example of each name.

    import podium

    digits = podium.load("sample")
    run = podium.train(digits, "test_convnext", weights="none", epochs=3)
    podium.submit(digits)

Each function does what the command of its name does, prints the same, and raises `podium.PodiumError` with the same
message. Nothing heavy is imported before it is needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium import PodiumError
from podium.competition import load as competition_files
from podium.machine import Machine
from podium.project_root import find_root
from podium.terminal import plural
from podium.training import run_folder

__all__ = ["Competition", "Machine", "Run", "compare", "load", "runs", "submit", "train"]

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray
    from torch import nn


@dataclass(frozen=True, repr=False)
class Competition(competition_files.Competition):
    """A competition's images and labels: `train` and `test` are data frames, `classes` the labels."""

    root: Path

    def folds(
        self, k: int | None = None, group: str | None = None, seed: int = 0, force: bool = False
    ) -> "pd.DataFrame":
        """Returns id, target, fold and group of every training image.

        Makes five folds if there are none. With `k` or `group` it makes new ones; with `force` also if runs were
        trained on the present ones.
        """
        from podium.folds.folds_csv import folds_path, read_folds, read_groups, write_folds

        if not folds_path(self.slug, self.root).exists() or k is not None or group is not None:
            grouped = self if group is None else load(self.slug, self.root, group_column=group)
            in_use_by = [] if force else run_folder.names_of_runs_on_folds(self.slug, self.root)
            write_folds(grouped, self.root, 5 if k is None else k, seed, in_use_by)
        groups = self.train["id"].map(read_groups(self, self.root)).fillna("")
        return self.train[["id", "target"]].assign(fold=read_folds(self, self.root), group=groups)

    def __repr__(self) -> str:
        counts = f"{len(self.train):,} training images, {len(self.test):,} test images, {len(self.classes)} classes"
        return f"<podium.Competition {self.slug}: {counts}, {self.metric}>"


@dataclass(frozen=True, repr=False)
class Run(run_folder.Run):
    """A trained model per fold, with the predictions of each for the images that it has not seen."""

    def held_out(self) -> "pd.DataFrame":
        """Returns id, target, fold and the probability of every class, for the images of the finished folds."""
        import pandas as pd

        frames = []
        for fold in self.finished():
            predicted = self.out_of_fold(fold)
            targets = [predicted.classes[number] for number in predicted.target]
            facts = pd.DataFrame({"id": predicted.id, "target": targets, "fold": fold})
            frames.append(pd.concat([facts, pd.DataFrame(predicted.probs, columns=list(predicted.classes))], axis=1))
        return pd.concat(frames, ignore_index=True)

    def model(self, fold: int = 0) -> "nn.Module":
        """Returns a fold's model as timm built it, with the trained weights, in evaluation mode."""
        from podium.models.model_file import load_model

        return load_model(self.weights_path(fold))[0].eval()

    def predict(self, images: Any, machine: Machine | None = None) -> "pd.DataFrame":
        """Returns, for each image, the predicted class and the probability of every class: the mean of the folds.

        Takes paths of files and folders, and arrays of uint8 (height x width x 3).
        """
        from podium.submissions.blend import Blend
        from podium.submissions.predict_images import predict_images

        return predict_images({self: self.finished()}, Blend("equal", (1.0,), (1.0,)), images, machine).frame()

    def features(self, images: Any, fold: int = 0, machine: Machine | None = None) -> "NDArray[np.float32]":
        """Returns what the last layer of a fold's model gets: a row per image."""
        from podium.training.own_images import features_of_images

        return features_of_images(self, fold, images, (machine or Machine()).device)

    def __repr__(self) -> str:
        folds = self.finished()
        text = f"<podium.Run {self.name}: {len(folds)} of {plural(self.recipe['folds'], 'fold')}"
        if folds:
            metric = self.recipe["metric"]
            text += f", {metric} {sum(self.score(fold, metric) for fold in folds) / len(folds):.4f}"
        return text + ">"


def load(competition: str, root: str | Path | None = None, **settings: str) -> Competition:
    """Reads a competition's files; `settings` replace those of its card.

    Without `root`, it is PODIUM_ROOT, or the nearest folder with the data, from the current one upwards.
    """
    folder = find_root(root)
    loaded = competition_files.load_and_report(competition, folder, **settings)
    return Competition(**{field.name: getattr(loaded, field.name) for field in fields(loaded)}, root=folder)


def train(
    competition: Competition | str,
    model: str,
    folds: Sequence[int] | int = (),
    name: str | None = None,
    budget: float | None = None,
    machine: Machine | None = None,
    **options: Any,
) -> Run:
    """Trains a model on every fold, or resumes it; `options` are those of the recipe, such as lr or epochs.

    `budget` is in seconds. The default of `name` is the model's name.
    """
    from podium.training.plan import Request, make_plan
    from podium.training.train import train

    competition = _loaded(competition)
    competition.folds()
    numbers = [folds] if isinstance(folds, int) else list(folds)
    if not all(isinstance(number, int) for number in numbers):
        raise PodiumError(f"folds must be numbers, such as [0, 1], not {folds!r}")
    request = Request({"model": model, **options}, numbers, name, machine or Machine(), budget)
    return Run(train(make_plan(competition.slug, competition.root, request)).path)


def runs(competition: Competition | str, names: Sequence[str] | None = None) -> list[Run]:
    """Returns the runs with a finished fold, in the order of their names; or those of these names."""
    competition = _loaded(competition)
    found = run_folder.find_runs(competition.slug, competition.root, list(names) if names else None)
    return [Run(run.path) for run in found]


def submit(
    competition: Competition | str,
    runs: Sequence[Run | str] | None = None,
    name: str | None = None,
    blend: str | None = None,
    anyway: bool = False,
    machine: Machine | None = None,
) -> Path:
    """Blends the runs, writes the CSV and its lineage, and returns the CSV's path."""
    from podium.submissions.submission import SubmitOptions, submit

    competition = _loaded(competition)
    options = SubmitOptions(runs=_names(runs), name=name, blend=blend, anyway=anyway)
    return submit(competition, competition.root, options, machine)


def compare(competition: Competition | str, runs: Sequence[Run | str] | None = None) -> "pd.DataFrame":
    """Returns a row per run, the best first: its score, its gain over the best run with an interval, its costs."""
    from podium.submissions.compare import compare_runs

    competition = _loaded(competition)
    return compare_runs(competition, competition.root, _names(runs))


def _loaded(competition: Competition | str) -> Competition:
    return load(competition) if isinstance(competition, str) else competition


def _names(runs: Sequence[Run | str] | None) -> list[str] | None:
    return None if runs is None else [run if isinstance(run, str) else run.name for run in runs]
