"""Recognises what Podium does not do: files of images in formats that it does not read, and the search for objects.

Reads the list of files and the header of the training table. Writes nothing.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from podium.competition.find_files import Files
from podium.competition.image_names import HEIC_REMEDY, HEIC_SUFFIXES
from podium.errors import PodiumError
from podium.terminal import first_few

if TYPE_CHECKING:
    from podium.competition.find_tables import Sources, Table

FORMATS = {  # by the end of the name
    **dict.fromkeys(sorted(HEIC_SUFFIXES), "HEIC"),
    **{".avif": "AVIF", ".jp2": "JPEG 2000", ".jxl": "JPEG XL", ".svg": "SVG"},
    **dict.fromkeys((".cr2", ".cr3", ".nef", ".arw", ".dng"), "raw photographs"),
    **{".dcm": "DICOM", ".dicom": "DICOM"},
    **{".svs": "whole slides", ".mrxs": "whole slides", ".ndpi": "whole slides"},
    **{".nii": "NIfTI", ".nii.gz": "NIfTI"},
    **{".npy": "NumPy", ".npz": "NumPy", ".bson": "BSON"},
}
FIRST_CELLS = 50
BOX_COLUMNS = (
    *({"bbox"}, {"bboxes"}, {"bounding_box"}, {"predictionstring"}),
    *({"xmin", "ymin"}, {"x_min", "y_min"}, {"x1", "y1", "x2", "y2"}, {"x", "y", "width", "height"}),
    {"x", "y", "w", "h"},
)
MASK_COLUMNS = {"encodedpixels", "rle", "rle_mask", "segmentation"}
BOX_CELL = re.compile(r"([^\d\s]\S*( -?\d+(\.\d+)?){4} ?)+")  # a name and four numbers, once or more


def unread_images(files: Files) -> str:
    """Returns which files of images Podium cannot read, and what to do, in words; "" if there are none."""
    counts, _ = count_unread(files.others)
    if not counts:
        return ""
    remedy = "convert them to PNG or JPEG files with the same names in the folders train_images/ and test_images/"
    if "DICOM" in counts or "NIfTI" in counts:
        remedy += ' (16 bits may need the card\'s range = "image")'
    if "HEIC" in counts:
        remedy = f"{HEIC_REMEDY}, or {remedy}"
    return f"Podium does not read its files {counts}; {remedy}"


def count_unread(others: Sequence[str]) -> tuple[str, str]:
    """Counts the files of images that Podium cannot read, and names some: `2 .heic (HEIC)`, `a.heic, b.heic`."""
    endings = {name: [ending for ending in FORMATS if name.lower().endswith(ending)][-1:] for name in others}
    counts = Counter(ending for found in endings.values() for ending in found)
    names = first_few(name for name, found in endings.items() if found)
    return ", ".join(f"{count:,} {ending} ({FORMATS[ending]})" for ending, count in counts.most_common()), names


def refuse_boxes(sources: "Sources", table: "Table") -> None:
    """Raises if the training table says where objects are, unless the card names the column of labels."""
    if "target_column" in sources.card:
        return
    columns = {str(column).strip().lower(): str(column) for column in table.rows.columns}
    boxes = next((names for names in BOX_COLUMNS if names <= set(columns)), None)
    first_rows = table.rows.head(FIRST_CELLS).to_numpy(object)
    for column, cells in zip(table.rows.columns, first_rows.T, strict=True):
        filled = [cell for cell in cells if cell != ""]
        if filled and all(BOX_CELL.fullmatch(cell) for cell in filled):
            boxes = {str(column).strip().lower()}
    masks = MASK_COLUMNS & set(columns)
    if masks:
        raise PodiumError(
            f"{table.path}, line 1: the outlines of objects ({columns[min(masks)]}) make this a competition of"
            " segmentation, which Podium does not do; if a column holds a label of the whole image, "
            + sources.card.advise('target_column = "NAME"')
        )
    if boxes:
        names = ", ".join(sorted(columns[name] for name in boxes))
        raise PodiumError(
            f"{table.path}, line 1: the boxes of objects ({names}) make this a competition of detection, which Podium"
            " does not do; if a column holds a label of the whole image, "
            + sources.card.advise('target_column = "NAME"')
        )
