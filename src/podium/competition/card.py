"""A competition's card, data/competitions/<slug>.toml: what its owner knows better than the files tell."""

import tomllib
from pathlib import Path
from typing import Any

from podium import PodiumError
from podium.metrics import METRICS
from podium.terminal import did_you_mean

KEYS = {
    "title": str,
    "url": str,
    "metric": str,
    "wants": str,  # "labels" or "probs"
    "train_table": str,  # "" where there is none and the folders are the classes
    "test_table": str,  # lists the test images where there is no sample submission
    "train_images": str,
    "test_images": str,
    "sample_submission": str,
    "id_column": str,
    "target_column": str,
    "positive": str,  # of two classes the one whose probability a single column holds
    "group_column": str,  # of images that belong together (a patient, a scene) and must share a fold
    "copies": str,  # which images count as one picture: "near", or "exact" where only the same file does
    "recipe": dict,  # this competition's own defaults for the options of a run
}
CHOICES = {"metric": tuple(METRICS), "wants": ("labels", "probs"), "copies": ("near", "exact")}

Card = dict[str, Any]


def read_card(slug: str, root: Path) -> Card:
    """The competition's card, checked; empty where there is none."""
    path = root / "data" / "competitions" / f"{slug}.toml"
    if not path.exists():
        return {}
    try:
        card = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PodiumError(f"{path}: {error.strerror}; delete it, or mend its rights") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PodiumError(f"{path}: {error}; mend it or delete it") from None
    for key, value in card.items():
        if key not in KEYS:
            hint = did_you_mean(key, KEYS, otherwise=f"there are {', '.join(KEYS)}")
            raise PodiumError(f"{path}: no setting '{key}'; {hint}")
        if not isinstance(value, KEYS[key]):
            raise PodiumError(f"{path}: {key} must be {'a table' if key == 'recipe' else 'text'}, not {value!r}")
        if value not in CHOICES.get(key, (value,)):
            raise PodiumError(f"{path}: {key} must be one of {', '.join(CHOICES[key])}, not '{value}'")
    return card


def in_card(*settings: str) -> str:
    """What to do where the files do not say enough: `write target_column = "NAME" in the competition's card`."""
    return f"write {' or '.join(settings)} in the competition's card"
