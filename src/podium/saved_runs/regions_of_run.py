"""What a run sees of its images: the boxes that it has kept, or what its recipe says of all images."""

from dataclasses import replace
from pathlib import Path

from podium.basics.errors import PodiumError
from podium.competition.load import Competition
from podium.images.regions import INSIDE_BORDERS, REGIONS, WHOLE, BoxesOfFolds, Regions, read_regions
from podium.options.moves.seen_parts import SeenParts
from podium.saved_runs.run_folder import Run


def regions_of(run: Run) -> Regions:
    """Returns the parts of the images that a run was trained with; refuses boxes that were changed since."""
    parts = SeenParts.recorded(run.recipe)
    if not parts.are_boxes:
        return INSIDE_BORDERS if parts.are_inside_borders else WHOLE
    regions: Regions = WHOLE
    if parts.run:
        of_folds = {fold: read_regions(path) for fold, path in found_regions(run).items()}
        regions = BoxesOfFolds(of_folds=of_folds)
    elif files := region_files(run):
        regions = read_regions(files[0])
    if regions.sha256 != run.recipe.get("region_sha256"):
        where = run.path / ("fold*" if parts.run else "") / REGIONS
        raise PodiumError(f"{where}: it is missing or was changed since the run was trained with --region; restore it")
    return regions


def region_files(run: Run) -> list[Path]:
    """Returns the files that hold the boxes which a run sees."""
    if not has_boxes(run):
        return []
    if not SeenParts.recorded(run.recipe).run:
        return [path for path in [run.path / REGIONS] if path.is_file()]
    return list(found_regions(run).values())


def found_regions(run: Run) -> dict[int, Path]:
    """Returns the files of the boxes that belong to a fold's model alone."""
    paths = {fold: run.fold_folder(fold) / REGIONS for fold in range(run.recipe["folds"])}
    return {fold: path for fold, path in paths.items() if path.is_file()}


def as_seen(competition: Competition, run: Run, fold: int) -> Competition:
    """Returns the competition with the first box of each image, as a fold's model sees it, in its place.

    Borders stay: models that do not see them cut them off themselves (`ModelSpec.part`).
    """
    if not has_boxes(run):
        return competition
    regions = regions_of(run).of_fold(fold)
    train, test = (
        rows.assign(image=[places[0] for places in regions.places(rows)])
        for rows in (competition.train, competition.test)
    )
    return replace(competition, train=train, test=test)


def has_boxes(run: Run) -> bool:
    """Returns whether the run sees boxes, which other images than the competition's do not have."""
    return SeenParts.recorded(run.recipe).are_boxes
