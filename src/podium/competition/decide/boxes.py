"""Recognises competitions that search for objects, which Podium does not do."""

import re

from podium.basics.errors import PodiumError
from podium.competition.card import Card
from podium.competition.find.table import Table

FIRST_CELLS = 50
BOX_COLUMNS = (
    *({"bbox"}, {"bboxes"}, {"bounding_box"}, {"predictionstring"}),
    *({"xmin", "ymin"}, {"x_min", "y_min"}, {"x1", "y1", "x2", "y2"}, {"x", "y", "width", "height"}),
    {"x", "y", "w", "h"},
)
MASK_COLUMNS = {"encodedpixels", "rle", "rle_mask", "segmentation"}
BOX_CELL = re.compile(r"([^\d\s]\S*( -?\d+(\.\d+)?){4} ?)+")  # a name and four numbers, once or more


def refuse_boxes(card: Card, table: Table) -> None:
    """Raises if the training table says where objects are, unless the card names the column of labels."""
    if "target_column" in card:
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
            + card.advise('target_column = "NAME"')
        )
    if boxes:
        names = ", ".join(sorted(columns[name] for name in boxes))
        raise PodiumError(
            f"{table.path}, line 1: the boxes of objects ({names}) make this a competition of detection, which Podium"
            " does not do; if a column holds a label of the whole image, " + card.advise('target_column = "NAME"')
        )
