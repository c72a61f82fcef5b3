"""Reads the test rows: ids and images in the order of the submission.

From the sample submission, else from a table of test ids, else from the folder of test images. Without any of them,
there are no test rows: the competition can be trained on, but not submitted to.
"""

from collections import Counter
from pathlib import PurePosixPath

import pandas as pd

from podium.competition.answer_groups import read_test_images
from podium.competition.find_tables import Sources, refuse_blank_cells
from podium.competition.image_names import is_image_name
from podium.competition.match_images import ImagePool
from podium.errors import PodiumError


def read_test_rows(sources: Sources, id_column: str, train_id: str) -> pd.DataFrame:
    """Returns the rows (id, image, and answer if several images share one).

    `id_column` is the training table's id column, `train_id` one of its ids.
    """
    pool = sources.image_pool("test")
    if sources.answer_groups:
        rows, answers = read_test_images(sources, sources.answer_groups, pool)
        return rows.assign(answer=answers)
    table = sources.sample or sources.read_table("test_table")
    if table is None:
        return _read_test_folder(sources, pool, train_id)
    has_id_column = not sources.sample and id_column in table.rows  # the ids of a sample submission come first
    ids = table.rows[id_column if has_id_column else table.rows.columns[0]]
    refuse_blank_cells(ids, table.path, "id")
    repeated = ids[ids.duplicated()]
    if len(repeated):
        raise PodiumError(
            f"{table.path}, line {repeated.index[0]}: id '{repeated.iloc[0]}' appears twice; download again"
        )
    names = sources.find_image_names(table, ids, pool)
    return pd.DataFrame({"id": ids.to_numpy(), "image": pool.match(names, table.path)})


def _read_test_folder(sources: Sources, pool: ImagePool, train_id: str) -> pd.DataFrame:
    """Returns a row for each test image, with ids like the training ids: with or without the extension."""
    images = sorted(pool.list_images() if pool.folder else sources.files.images_with_role("test"))
    if not images:
        return pd.DataFrame({"id": [], "image": []}, dtype=object)
    has_extension = is_image_name(train_id)
    ids = [PurePosixPath(image).name if has_extension else PurePosixPath(image).stem for image in images]
    name, count = Counter(ids).most_common(1)[0]
    if count > 1:
        advice = sources.card.advise('test_images = "FOLDER"')
        raise PodiumError(f"{sources.files.folder}: {count} test images are called '{name}'; {advice}")
    return pd.DataFrame({"id": ids, "image": images})
