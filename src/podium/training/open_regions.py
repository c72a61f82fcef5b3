"""Opens the store of what a run sees of its images (`--region`): the boxes are read, put into pixels, and cut out."""

from podium.basics.errors import PodiumError
from podium.basics.terminal import say
from podium.competition.load import Competition
from podium.images.region_tables import ReadBoxes, read_boxes_of_column, read_boxes_of_file, rows_in
from podium.images.regions import (
    INSIDE_BORDERS,
    WHOLE,
    Boxes,
    BoxesOfFolds,
    Regions,
    doubts_about,
    frame_of,
    make_boxes,
)
from podium.images.store import Store, open_store, side_of_run
from podium.images.tiles import tiles_of
from podium.options.moves.shape import Shape
from podium.training.finder import finder_of
from podium.training.plan import Plan


def open_regions(plan: Plan, keep: bool) -> Store:
    """Returns the store of the plan's images, or of the parts that its recipe wants; builds it if it does not exist."""
    recipe = plan.recipe
    side = side_of_run(recipe.image_size, recipe.test_size)
    regions = _regions_of(plan, side, keep) if plan.parts.is_on else WHOLE
    return open_store(plan.competition, side, keep, regions)


def _regions_of(plan: Plan, side: int, keep: bool) -> Regions:
    recipe, competition, parts, shape = plan.recipe, plan.competition, plan.parts, Shape.of(plan.recipe)
    if parts.are_inside_borders:
        return INSIDE_BORDERS
    whole = open_store(competition, side, None if keep else False)  # the audit's, as a rule: for the sizes
    files = dict(zip(whole.names.tolist(), whole.files, strict=True))

    def make(read: ReadBoxes) -> Boxes:
        boxes = make_boxes(read, files, frame_of(recipe.image_size, shape.fit))
        for doubt in doubts_about(read, files):
            say(f"podium: warning: {doubt}")
        _report(competition, boxes, read.source)
        return boxes

    if found := plan.found_regions:
        of_folds = {fold: make(read_boxes_of_file(path, competition)) for fold, path in found.items()}
        return BoxesOfFolds(of_folds=of_folds)
    if parts.finder:
        found_by = finder_of(competition, parts.finder)
        path = found_by.path(competition)
        if not path.exists():
            raise PodiumError(f"{path} is missing; podium train --region box:{parts.finder} writes it")
        return make(read_boxes_of_file(path, competition))
    if parts.tiles:
        rows = [row for table in (competition.train_in_files, competition.test) for row in rows_in(table)]
        return make(tiles_of(whole, rows, parts.tiles))
    if parts.file:
        return make(read_boxes_of_file(parts.file, competition))
    return make(read_boxes_of_column(parts.column, competition))


def _report(competition: Competition, boxes: Boxes, source: str) -> None:
    count = sum(map(len, boxes.of_row.values()))
    say(f"podium: boxes from {source}: {count:,}, of {len(boxes.of_row):,} images")
    for what, rows in (("training", competition.train), ("test", competition.test)):
        if missing := boxes.without(rows):
            say(f"podium: note: {missing:,} of {len(rows):,} {what} images have no box; they are seen whole")
