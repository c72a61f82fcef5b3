"""One table of what runs predict, for notebooks and other programs; nothing is predicted for it.

    podium compare --predictions FILE.csv      or FILE.parquet

Reads runs/<slug>/*/fold<k>/{oof.npz, test.npz}. A row for each run and image: `run`, `role` (train or test), `id`,
`fold`, `target` (the label of today), and the probability of every class. Training images are predicted by the model of
the fold that holds them out, test images by the mean of all models, if all have predicted them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.disk import atomic
from podium.basics.errors import PodiumError
from podium.basics.extras import import_package
from podium.basics.terminal import command_for, plural, say
from podium.blending.blend import Probs
from podium.competition.load import Competition
from podium.saved_runs.run_folder import Run, find_runs
from podium.submissions.predict_test import models_that_count
from podium.tasks.task import class_columns
from podium.training.test_predictions import last_predictions

FACTS = ("run", "role", "id", "fold", "target")
TRAIN, TEST = "train", "test"  # roles


def prediction_frame(competition: Competition, runs: Sequence[Run]) -> pd.DataFrame:
    """Returns the table of these runs, which have the competition's classes."""
    classes = competition.classes
    frames = []
    for run in runs:
        for fold in run.finished():
            own = run.out_of_fold(fold).in_order_of(classes)
            known = own.with_labels(competition.label_of)
            targets = [known.target.task.decode(target, classes) for target in known.target.values]
            frames.append(_rows(competition, run, TRAIN, known.id, known.probs, fold=fold, target=targets))
        if not len(competition.test):
            continue
        if (probs := _of_test(competition, run)) is None:
            command = command_for("submit", competition.slug, runs=run.name)
            say(f"podium: note: {run.name} has not predicted the test images yet, so they are left out; {command} does")
        else:
            frames.append(
                _rows(competition, run, TEST, competition.test["id"].to_numpy(), probs, fold=pd.NA, target="")
            )
    return pd.concat(frames, ignore_index=True)


def write_predictions(
    competition: Competition, path: Path, names: list[str] | None, except_names: list[str] | None
) -> None:
    """Writes the table as CSV or Parquet, which the name's ending says."""
    is_parquet = path.suffix.lower() == ".parquet"
    if not is_parquet and path.suffix.lower() != ".csv":
        raise PodiumError(f"--predictions {path}: give it a name that ends in .csv or .parquet")
    if is_parquet:
        import_package("pyarrow", "formats", "--predictions FILE.parquet")
    frame = prediction_frame(competition, find_runs(competition.slug, competition.root, names, except_names))
    with atomic(path) as temporary:
        if is_parquet:
            frame.to_parquet(temporary, index=False)
        else:
            frame.to_csv(temporary, index=False, float_format="%.9g")
    say(f"podium: wrote {path}: {plural(len(frame), 'row')} of {plural(frame['run'].nunique(), 'run')}")


def _rows(
    competition: Competition, run: Run, role: str, ids: NDArray[Any], probs: NDArray[Any], **facts: object
) -> pd.DataFrame:
    rows = pd.DataFrame({"run": run.name, "role": role, "id": ids, **facts})
    rows["fold"] = rows["fold"].astype("Int64")  # test images have none
    columns = class_columns(competition.classes, FACTS)
    return pd.concat([rows, pd.DataFrame(probs, columns=columns)], axis=1)


def _of_test(competition: Competition, run: Run) -> Probs | None:
    """Returns the mean of the run's models; None if one has not predicted."""
    models = run.models()
    kept = [last_predictions(competition, run, fold) for fold in models]
    if any(one is None for one in kept):
        return None
    counts = models_that_count(competition, run, models)
    total = sum(one.probs.astype(np.float64) * counts[number] for number, one in enumerate(kept) if one is not None)
    return np.asarray(total / counts.sum(0))
