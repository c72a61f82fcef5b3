"""What a run sees of its images: the boxes that it has kept, or what its recipe says of all images."""

from podium.containers.image_place import BORDER
from podium.disk import sha256
from podium.errors import PodiumError
from podium.images.regions import INSIDE_BORDERS, WHOLE, Regions, read_regions
from podium.saved_runs.run_folder import REGIONS, Run


def regions_of(run: Run) -> Regions:
    """Returns the parts of the images that a run was trained with; refuses boxes that were changed since."""
    region = run.recipe.get("region", "")
    if not has_boxes(run):
        return INSIDE_BORDERS if region == BORDER else WHOLE
    path = run.path / REGIONS
    if not path.is_file() or sha256(path) != run.recipe.get("region_sha256"):
        raise PodiumError(f"{path}: it is missing or was changed since the run was trained with --region; restore it")
    return read_regions(path, run.recipe.get("region_jitter", 0.0))


def has_boxes(run: Run) -> bool:
    """Returns whether the run sees boxes, which other images than the competition's do not have."""
    return run.recipe.get("region", "") not in ("", BORDER)
