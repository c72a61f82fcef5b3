"""Finds the weights of pretrainings and of other competitions' runs by their names.

It imports nothing heavy: the first checks of a command use it.
"""

import re
from pathlib import Path

from podium.basics.disk import NAME_PATTERN
from podium.basics.errors import PodiumError
from podium.basics.project_root import runs_folder
from podium.options.recipe import names_pretraining

PRETRAINING, BACKBONE = "pretrain.json", "backbone.safetensors"  # files of `podium pretrain`
MODEL = "model.safetensors"  # of a fold


def find_backbone(slug: str, root: Path, weights: str) -> Path | None:
    """Returns the weights of a finished pretraining, or of another competition's run, if --weights names one.

    `SLUG/RUN` is the model of all images of that run, or else that of its first fold.
    """
    if names_pretraining(weights):
        path = runs_folder(slug, root) / weights / BACKBONE
        return path if path.is_file() else None
    other, _, run = weights.partition("/")
    if Path(weights).is_file() or not all(re.fullmatch(NAME_PATTERN, name) for name in (other, run)):
        return None
    folder = runs_folder(other, root) / run
    models = [folder / "all0" / MODEL, *sorted(folder.glob(f"fold*/{MODEL}"))]
    found = next((path for path in models if path.is_file()), None)
    if found and other == slug:
        raise PodiumError(
            f"--weights {weights}: a run of this competition has seen images that others hold out; go on from it, fold"
            f" by fold, with --from {run}"
        )
    return found


def names_of_pretrainings(slug: str, root: Path) -> list[str]:
    """Returns the names of the finished pretrainings of a competition."""
    return sorted(path.parent.name for path in runs_folder(slug, root).glob(f"*/{BACKBONE}"))
