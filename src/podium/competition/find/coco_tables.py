"""Reads labels from JSON files in the form of COCO: lists of images, annotations and categories.

iWildCam, Herbarium and iNaturalist have them. Such a file counts as a table with a row for each annotation: the columns
of its image (id, file_name, location, ...) and its category_id; without annotations, a row for each image.
"""

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd

from podium.basics.errors import PodiumError
from podium.competition.find.csv_files import decode_text, note_on_encoding

MOST_FILES = 100  # JSON files; more of them describe an image each
HEAD = 2000  # bytes that show the form
KEYS = "annotations|images|categories|info|licenses|genera|institutions|distances|regions"

CAPITALS = {"imageId": "image_id", "labelId": "label_id"}  # as iMaterialist writes them


def is_coco(path: Path) -> bool:
    """Returns whether the file begins as COCO's do, or lists images with their file names."""
    if not path.is_file():  # reading a pipe would block
        return False
    try:
        with path.open("rb") as file:
            head = file.read(HEAD).decode("utf-8", "replace")
    except OSError:
        return False
    is_list = re.match(r"\s*\[\s*\{", head) and '"file_name"' in head
    return bool(is_list or re.match(rf'\s*\{{\s*"({KEYS})"\s*:\s*[\[{{]', head))


def read_coco_tables(
    folder: Path, name: str, id_column: str, for_training: bool
) -> tuple[pd.DataFrame, int, list[str]]:
    """Returns the rows of a table, how many come last that are for validation, and notes.

    They are in a file beside it: the rows of val2019.json join those of train2019.json.
    """
    rows = [read_coco(folder / name, id_column)]
    beside = sorted((folder / name).parent.glob("val*.json")) if for_training else []
    validation = [path for path in beside if re.fullmatch(r"val(idation)?[\W_\d]*", path.stem) and is_coco(path)]
    rows += [read_coco(path, id_column) for path in validation]
    count = sum(map(len, rows[1:]))
    notes = [f"the {count:,} rows of {validation[0].name} join those of {name}"] if validation else []
    notes += filter(None, [note_on_encoding(Path(name).name, rows[0].attrs["encoding"])])
    if validation:
        rows = [pd.concat(rows, ignore_index=True)]
        rows[0].index = pd.RangeIndex(1, len(rows[0]) + 1, name="line")
    return rows[0], count, notes


def read_coco(path: Path, id_column: str) -> pd.DataFrame:
    """Returns the rows, as text; the index counts the annotations, or the images, from 1.

    `id_column` is what the images' ids are to be called.
    """
    try:
        text, encoding = decode_text(path.read_bytes())
        content = json.loads(text)
        content = {"images": content} if isinstance(content, list) else content
        images = pd.DataFrame(content["images"]).rename(columns=CAPITALS)
        images = images.rename(columns={"image_id" if "image_id" in images else "id": id_column})
        rows = _annotated(images, content.get("annotations") or [], id_column)
    except UnicodeDecodeError as error:
        problem = f"byte {error.start:,} is not UTF-8"
        raise PodiumError(f"{path}: not a text of JSON ({problem}); save it as UTF-8, or download it again") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PodiumError(f"{path}: not a list of images with their labels ({error!r}); download it again") from None
    if rows.empty:
        raise PodiumError(f"{path}: no images; download it again")
    rows = rows.fillna("").map(lambda cell: cell if isinstance(cell, str) else str(cell)).astype(object)
    rows.index = pd.RangeIndex(1, len(rows) + 1, name="line")
    rows.attrs["encoding"] = encoding
    return rows


def _annotated(images: pd.DataFrame, annotations: list[dict[str, Any]], id_column: str) -> pd.DataFrame:
    if not annotations:
        return images
    labels = pd.DataFrame(annotations).drop(columns="id", errors="ignore").rename(columns=CAPITALS)
    labels = labels.rename(columns={"image_id": id_column})
    own = [name for name in ("category_id", "label_id", "bbox") if name in labels]
    if "label_id" in labels:  # several in a list become a cell of labels
        labels["label_id"] = labels["label_id"].map(
            lambda cell: " ".join(map(str, cell)) if isinstance(cell, list) else cell
        )
    return labels[[id_column, *own]].merge(images.drop(columns=own, errors="ignore"), on=id_column, how="left")
