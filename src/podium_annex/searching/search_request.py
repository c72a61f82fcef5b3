"""What the user asks of a search, and all that can be refused before the tables are read.

Nothing heavy is imported before a misspelt name is found, nor where Optuna is not installed.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from podium.basics.errors import PodiumError
from podium.basics.extras import refuse_without
from podium.basics.image_size import ImageSize
from podium.basics.machine import Machine
from podium.basics.project_root import runs_folder
from podium.basics.torchrun import world_size
from podium.competition.card import read_card
from podium.models.hub import expand_pattern, timm_name
from podium.options.recipe import KNOBS, Options, flag_of
from podium.saved_runs.fold_names import holds_nothing_out
from podium.training.request import Request, check_request, check_weights

NO_END = "the short trainings of a search have no such end; search without it, and train the winner with it"
REFUSED = {  # options, and why a search cannot have them
    "linear": "a head on frozen features has no options to search; leave it out",
    "start": "a search starts from the weights of a model; leave it out",
}


@dataclass(frozen=True)
class SearchRequest:
    """What the user asked of a search."""

    models: Sequence[str]
    options: Options = field(default_factory=dict)  # of the recipe, which are not searched
    sizes: Sequence[ImageSize] = ()  # of images, to choose from; the first is that of the defaults
    folds: Sequence[int] = ()  # default: all; the last one judges the winner
    name: str = "search"
    machine: Machine = field(default_factory=Machine)
    trials: int = 40  # in all, also those of other processes and of earlier calls
    budget: float | None = None  # seconds
    started: float = field(default_factory=time.monotonic)  # the budget counts from this moment
    spent: float = 0.0  # seconds of the budget, by this worker of a queue before its job was queued again


def folder_of(slug: str, root: Path, name: str) -> Path:
    """Returns where the study of a search is kept; its trials are runs beside it."""
    return runs_folder(slug, root) / "search" / name


def check_search(slug: str, root: Path, request: SearchRequest, is_elsewhere: bool = False) -> tuple[str, ...]:
    """Returns the names of the models; refuses what needs no table to be refused.

    A machine elsewhere has weights of its own.
    """
    refuse_without("search", "podium search")
    if world_size() > 1:
        raise PodiumError("a search trains in one process; start the same command several times instead of torchrun")
    if not request.models:
        raise PodiumError("which models? For example: --model convnext_small vit_small_patch32_224")
    if any(map(holds_nothing_out, request.folds)):
        raise PodiumError("--folds all: a search needs held-out images; name folds, such as 0-4")
    if len(set(request.folds)) == 1:
        raise PodiumError("--folds: a search needs one fold to search on and another to judge; name two at least")
    if "image_size" in request.options and request.sizes:
        raise PodiumError("--image-size and --image-sizes contradict each other; give one of them")
    chosen = {**read_card(slug, root).get("recipe", {}), **request.options}
    ends = [name for name, own in KNOBS.items() if own.needs_end]
    for name, reason in {**REFUSED, **dict.fromkeys(ends, NO_END)}.items():
        if chosen.get(name):
            raise PodiumError(f"{flag_of(name)}: {reason}")
    if "auto" in request.models:
        raise PodiumError("--model auto makes a choice of its own; name the models to search among")
    models = tuple(dict.fromkeys(timm_name(name) for given in request.models for name in expand_pattern(given)))
    singles = [Request({**request.options, "model": model}, machine=request.machine) for model in models]
    for options in [check_request(slug, root, single) for single in singles]:
        check_weights(slug, root, options, only_shown=is_elsewhere)
    return models
