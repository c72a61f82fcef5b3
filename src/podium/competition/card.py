"""A competition's card, data/competitions/<slug>.toml: the user's settings, which replace what Podium guesses.

`read_card` reads and checks it. `Card.advise` returns the advice to write something in it.
"""

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from podium import PodiumError
from podium.extension_files import load_extensions
from podium.metrics import METRICS
from podium.recipe import check_card_options
from podium.task import TASKS
from podium.terminal import did_you_mean

KEYS = {
    "title": str,
    "url": str,
    "metric": str,
    "task": str,  # what a model learns of an image: "one_label" or "several_labels"
    "wants": str,  # what a submission holds: "labels" or "probs"
    "train_table": str,  # "" if there is none: the folders are the classes
    "test_table": str,  # lists the test images if there is no sample submission
    "train_images": str,  # a folder
    "test_images": str,  # a folder
    "sample_submission": str,  # "" if there is none
    "id_column": str,
    "target_column": str,
    "positive": str,  # with two classes: the one whose probability a single column holds
    "group_column": str,  # images of one group (a patient, a scene) must share a fold
    "extend": str | list,  # files with the project's own metrics and other parts (docs/extend.md)
    "copies": str,  # which images count as duplicates: "near", or "exact" for identical files only
    "recipe": dict,  # this competition's defaults for the options of a run
}
CHOICES: dict[str, Collection[str]] = {
    "metric": METRICS,
    "task": TASKS,
    "wants": ("labels", "probs"),
    "copies": ("near", "exact"),
}


class Card(dict[str, Any]):
    """The settings in a card; none if there is no file."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self.path = path

    def advise(self, *settings: str) -> str:
        """Returns advice for an error message: `write target_column = "NAME" in data/competitions/it.toml`."""
        return f"write {' or '.join(settings)} in {self.path}"


def card_path(slug: str, root: Path) -> Path:
    return root / "data" / "competitions" / f"{slug}.toml"


def read_card(slug: str, root: Path) -> Card:
    """Returns the competition's card, checked; an empty one if there is no file.

    Also loads the extensions that the card and podium.toml name: every command that takes a competition comes here.
    """
    path = card_path(slug, root)
    if not path.exists():
        load_extensions(root)
        return Card(path, {})
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PodiumError(f"{path}: {error.strerror}; delete it, or fix its permissions") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PodiumError(f"{path}: {error}; correct it or delete it") from None
    for key, value in settings.items():
        if key not in KEYS:
            hint = did_you_mean(key, KEYS, otherwise=f"the settings are {', '.join(KEYS)}")
            raise PodiumError(f"{path}: no setting '{key}'; {hint}")
        if not isinstance(value, KEYS[key]):
            raise PodiumError(f"{path}: {key} must be {'a table' if key == 'recipe' else 'text'}, not {value!r}")
    load_extensions(root, settings.get("extend", ()), path)
    for key, value in settings.items():
        if value not in CHOICES.get(key, (value,)):
            raise PodiumError(f"{path}: {key} must be one of {', '.join(CHOICES[key])}, not '{value}'")
    check_card_options(settings.get("recipe", {}), f"{path}: [recipe]: ")
    return Card(path, settings)
