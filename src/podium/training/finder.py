"""A run that finds where to look: its numbers are a point, or a box, of each image (`--region box:SLUG/RUN`).

It belongs to another competition on the same images, with the same ids, whose targets are x and y, or those of a box.
Here are its checks, and the file that keeps what it finds; find_boxes.py asks its models.
"""

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

from podium.basics.errors import PodiumError
from podium.basics.project_root import prepared_folder
from podium.basics.terminal import first_few
from podium.competition.load import Competition
from podium.images.region_tables import WITH_CORNERS, WITH_SIDES
from podium.models.model_file import read_spec
from podium.saved_runs.imported_runs import refuse_imported
from podium.saved_runs.run_folder import Run, find_runs

POINTS = (("x", "y"), ("centerx", "centery"), ("centrex", "centrey"), ("cx", "cy"))


class Finder(NamedTuple):
    run: Run
    columns: tuple[int, ...]  # which of its numbers are those of the point or the box, in their order
    is_point: bool
    has_corners: bool

    def path(self, competition: Competition) -> Path:
        """Returns the file of the boxes that it finds in a competition's images."""
        weights = "".join(self.run.check_weights(fold) for fold in self.run.finished())
        images = competition.train_hash + competition.test_hash
        key = hashlib.sha256(f"{self.run.path.parent.name}{weights}{images}".encode()).hexdigest()
        return prepared_folder(competition.slug, competition.root) / f"boxes-{self.run.name}-{key[:12]}.csv"


def finder_of(competition: Competition, source: str) -> Finder:
    """Returns the run that a name means; refuses one that predicts nothing of a place."""
    slug, _, name = source.rpartition("/")
    flag = f"--region box:{source}"
    if not slug:
        raise PodiumError(f"{flag}: name the competition of the run, too: box:SLUG/RUN")
    (run,) = find_runs(slug, competition.root, [name])
    refuse_imported([run], flag)
    if not run.finished():
        raise PodiumError(f"{flag}: it has no finished fold; train it first")
    spec = read_spec(run.weights_path(run.finished()[0]))
    names = [re.sub("[ _-]", "", column.lower()) for column in spec.classes]
    for forms in (WITH_SIDES, WITH_CORNERS, POINTS):
        for form in forms:
            if spec.scales and set(form) <= set(names):
                columns = tuple(names.index(one) for one in form)
                return Finder(run, columns, forms is POINTS, forms is WITH_CORNERS)
    raise PodiumError(
        f"{flag}: it predicts {first_few(spec.classes)}; a run that finds a place predicts the numbers x and y, of a"
        " point, or left, top, right and bottom, of a box"
    )
