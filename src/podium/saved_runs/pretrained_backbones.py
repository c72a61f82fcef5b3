"""Finds the weights of pretrainings by their names. It imports nothing heavy: the first checks of a command use it."""

from pathlib import Path

from podium.project_root import runs_folder
from podium.recipe import names_pretraining

PRETRAINING, BACKBONE = "pretrain.json", "backbone.safetensors"  # files of `podium pretrain`


def find_backbone(slug: str, root: Path, weights: str) -> Path | None:
    """Returns the weights that --weights NAME means, if NAME is no file, but a finished pretraining."""
    path = runs_folder(slug, root) / weights / BACKBONE
    return path if names_pretraining(weights) and path.is_file() else None


def names_of_pretrainings(slug: str, root: Path) -> list[str]:
    """Returns the names of the finished pretrainings of a competition."""
    return sorted(path.parent.name for path in runs_folder(slug, root).glob(f"*/{BACKBONE}"))
