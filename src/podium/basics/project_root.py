"""Finds the project's root, the folder that holds data/, runs/ and submissions/, and the folders in it."""

import os
from pathlib import Path

from podium.basics.disk import check_utf8
from podium.basics.errors import PodiumError

DEFAULT_COMPETITION = "boolart-image-classification"
VARIABLE = "PODIUM_ROOT"
DIGITS_SLUG = "sample"  # the handwritten digits
MARKS = ("data/raw", "data/competitions", "podium.toml")  # not data/ alone: many machines have a /data


def find_root(given: str | Path | None = None) -> Path:
    """Returns the given folder, or PODIUM_ROOT, or the nearest folder with the data, from the current one upwards."""
    origin = "--root" if given is not None else VARIABLE
    chosen = given if given is not None else os.environ.get(VARIABLE)
    if chosen:
        check_utf8(str(chosen), origin)
        root = Path(chosen)
        if not root.is_dir():
            raise PodiumError(f"{origin} {root}: no such folder; make it, or name another one")
        return root
    here = Path.cwd()
    for folder in (here, *here.parents):
        if any((folder / mark).exists() for mark in MARKS):
            return Path(os.path.relpath(folder))
    return Path()


def usual_competition(root: Path, fetches: bool = False) -> str:
    """Returns the competition that is meant where none is named: the only one that is here, or the default one.

    A command that fetches files means an archive that is not unpacked yet. The sample is there to try things; whoever
    means it says so.
    """
    raw = root / "data" / "raw"
    folders = {path.name for path in raw.glob("*/")}
    packed = {path.stem for path in raw.glob("*.zip") if not path.name.startswith(".")} - folders
    here = sorted((packed if fetches else packed | folders) - {DIGITS_SLUG})
    return here[0] if len(here) == 1 else DEFAULT_COMPETITION


def prepared_folder(slug: str, root: Path) -> Path:
    """Returns where what is computed from a competition's files is kept; all of it can be made again."""
    return root / "data" / "prepared" / slug


def runs_folder(slug: str, root: Path) -> Path:
    """Returns where the runs and pretrainings of a competition are."""
    return root / "runs" / slug
