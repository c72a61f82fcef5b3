"""Opens the store of what a run sees of its images (`--region`): the boxes are read, put into pixels, and cut out."""

from podium.competition.region_tables import ReadBoxes, read_boxes_of_column, read_boxes_of_file
from podium.containers.image_place import BORDER
from podium.image_size import sides_of
from podium.images.regions import INSIDE_BORDERS, WHOLE, Boxes, Frame, Regions, make_boxes
from podium.images.store import Store, open_store, side_of_run
from podium.recipe import Recipe, file_of_region
from podium.terminal import say
from podium.training.plan import Plan


def open_regions(plan: Plan, keep: bool) -> Store:
    """Returns the store of the plan's images, or of the parts that its recipe wants; builds it if it does not exist."""
    recipe = plan.recipe
    side = side_of_run(recipe.image_size, recipe.test_size, recipe.region_jitter)
    regions = _regions_of(plan, side, keep) if recipe.region else WHOLE
    return open_store(plan.competition, plan.root, side, keep, regions)


def _regions_of(plan: Plan, side: int, keep: bool) -> Regions:
    recipe, competition = plan.recipe, plan.competition
    if recipe.region == BORDER:
        return INSIDE_BORDERS
    whole = open_store(competition, plan.root, side, None if keep else False)  # the audit's, as a rule: for the sizes
    files = dict(zip(whole.names.tolist(), whole.files, strict=True))
    boxes = make_boxes(_read(plan), files, _frame_of(recipe), recipe.region_jitter)
    _report(plan, boxes)
    return boxes


def _read(plan: Plan) -> ReadBoxes:
    region = plan.recipe.region
    if file := file_of_region(region):
        return read_boxes_of_file(file, plan.competition)
    return read_boxes_of_column(region, plan.competition, plan.root)


def _frame_of(recipe: Recipe) -> Frame:
    """With --fit crop a box grows to the shape of the images: else its own ends would be cut off."""
    height, width = sides_of(recipe.image_size)
    return Frame(recipe.region_margin, width / height if recipe.fit == "crop" else None)


def _report(plan: Plan, boxes: Boxes) -> None:
    competition = plan.competition
    count = sum(map(len, boxes.of_row.values()))
    say(f"podium: boxes from {plan.recipe.region}: {count:,}, of {len(boxes.of_row):,} images")
    for what, rows in (("training", competition.train), ("test", competition.test)):
        if missing := boxes.without(rows):
            say(f"podium: note: {missing:,} of {len(rows):,} {what} images have no box; they are seen whole")
