"""What a run costs: parameters, multiply-adds, speed, memory, time.

Reads runs/<slug>/<run>/fold<k>/model.safetensors, of which only the header, and metrics.jsonl.
"""

import math
from pathlib import Path
from statistics import median
from typing import Any

from podium.basics.errors import PodiumError
from podium.basics.light_torch import start_torch
from podium.basics.terminal import say
from podium.models.model_file import read_spec
from podium.options.recipe import count_views, fits_only_head
from podium.saved_runs.epoch_record import EpochRecord
from podium.saved_runs.run_folder import Run

# Tensors of batch norm, the fixed random projections of T2T-ViT, and the images that nearest neighbours keep.
OF_BATCH_NORM = ("running_mean", "running_var", "num_batches_tracked")
NOT_LEARNED = (*OF_BATCH_NORM, "attention1.w", "attention2.w", ".gallery", ".class_of", ".temperature")
OF_SEVERAL = ("scale", "shift")  # of the colours that several backbones expect
UNKNOWN = dict.fromkeys(("images_per_s", "predicted_per_s", "memory_mb", "seconds", "lr_least", "lr_most"), math.nan)
MOST_MULTIPLY_ADDS = 10**16  # of one image: nobody trains more, so a larger number is a mistake


def costs_of(run: Run) -> dict[str, Any]:
    """Returns the costs of training and prediction; NaN for those that the run's files do not tell."""
    if run.imported:
        return UNKNOWN | dict.fromkeys(("parameters", "multiply_adds"), math.nan)
    weights = run.fold_folder(run.finished()[0]) / "model.safetensors"
    costs = {"parameters": _count_parameters(weights), "multiply_adds": _multiply_adds(run, weights)}
    try:
        return costs | _measured_costs(run)
    except (PodiumError, LookupError, TypeError, ValueError) as error:
        say(f"podium: warning: {run.path}: {error}")
        return costs | UNKNOWN


def _measured_costs(run: Run) -> dict[str, float]:
    """Rates are medians over the folds of the last epoch, whose other work has settled; times are sums."""
    if run.ingredients:  # nothing was trained
        return UNKNOWN
    histories = [run.history(fold) for fold in run.finished()]
    images = [len(run.out_of_fold(fold).id) for fold in run.finished()]
    records = [record for history in histories for record in history]
    takes_no_steps = fits_only_head(run.recipe)  # those that it took would be of the head alone
    return {
        "images_per_s": math.nan if takes_no_steps else median(history[-1].images_per_s for history in histories),
        "predicted_per_s": median(map(_prediction_rate, histories, images)),
        "memory_mb": max(record.gpu_mb or record.memory_mb for record in records),
        "seconds": sum(record.seconds + record.validation_seconds for record in records),
        **_peak_rates(run, histories),
    }


def _peak_rates(run: Run, histories: list[list[EpochRecord]]) -> dict[str, float]:
    """Returns the lowest and the highest learning rate that the folds rose to: training may lower the recipe's."""
    usual = run.recipe.get("lr", math.nan)
    rates = [history[0].lr if history[0].is_start else usual for history in histories]
    return {"lr_least": min(rates), "lr_most": max(rates)}


def _prediction_rate(history: list[EpochRecord], images: int) -> float:
    """Returns how many images the last validation predicts in a second, each in one view."""
    last = history[-1]
    return images * count_views(last.views) / last.validation_seconds if last.validation_seconds else math.nan


def _count_parameters(path: Path) -> int:
    """Reads only the file's header."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            learned = [name for name in file.keys() if not name.endswith(NOT_LEARNED) and name not in OF_SEVERAL]  # noqa: SIM118
            return sum(math.prod(file.get_slice(name).get_shape()) for name in learned)
    except (SafetensorError, OSError) as error:
        raise PodiumError(
            f"{path}: cannot be read ({error}); restore it, or delete that fold and train it again"
        ) from None


def _multiply_adds(run: Run, path: Path) -> float:
    """Returns those of one image of the training size: recorded, or counted, which takes seconds, for an older run."""
    if 0 < (recorded := run.recipe.get("multiply_adds", 0)) < MOST_MULTIPLY_ADDS:
        return float(recorded)
    start_torch()
    from podium.models.costs import multiply_adds_at

    spec = read_spec(path)
    try:
        return multiply_adds_at(spec.architecture, spec.image_size, len(spec.classes))
    except Exception:  # an extension's model can raise anything, also where its file is not loaded now
        return math.nan
