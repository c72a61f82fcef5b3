"""Makes, once for all cells, what they read: the audit, the folds and the pixels."""

from collections.abc import Sequence
from pathlib import Path

from podium.competition.load import load_and_report
from podium.folds.folds_csv import folds_path, read_folds, write_folds
from podium.folds.strategies import Split
from podium.options.recipe import Options
from podium.training.open_regions import open_regions
from podium.training.plan import make_plan
from podium.training.request import Request, check_before_plan


def prepare(slug: str, root: Path, requests: Sequence[Request]) -> None:
    """Makes what is missing; refuses what a run would refuse. Runs of one model and size read the same pixels."""
    if not folds_path(slug, root).exists():
        write_folds(load_and_report(slug, root, requests[0].corrections), Split())
    for request in {_seen(request.options): request for request in requests}.values():
        open_regions(make_plan(check_before_plan(slug, root, request)), request.machine.keep_pixels)


def _seen(options: Options) -> tuple[object, ...]:
    return options.get("model"), options.get("image_size")


def folds_of(slug: str, root: Path, request: Request) -> list[int]:
    """Returns the folds that are asked for; all, if none is named."""
    if request.folds:
        return sorted(set(request.folds))
    return list(range(read_folds(load_and_report(slug, root, request.corrections)).count))
