"""Draws the first picture of a report: for each class, held-out images that were predicted to be of it.

Beside the right ones stand the mistakes, in a frame and with their label. The classes that are confused most come
first; all others are in the pages of the runs.
"""

from html import escape

import numpy as np

from podium.competition.load import Competition
from podium.saved_runs.run_folder import Run
from podium.tasks.task import ONE_LABEL
from podium_annex.report.gallery import ImageCard, add_thumbnails, card_of
from podium_annex.report.numbers import HeldOutImages, most_confused, read_held_out
from podium_annex.report.sections import note, section

CLASSES, RIGHT, WRONG = 10, 3, 3  # at most
MOST_BYTES = 1_000_000


def predicted_section(competition: Competition, run: Run) -> str:
    """Shows what the run predicts, where an image has one label."""
    if competition.task is not ONE_LABEL or not len(images := read_held_out(run, competition)):
        return ""
    rows = {int(number): choose_images(images, int(number)) for number in most_confused(images, CLASSES)}
    file_of = dict(zip(competition.train["id"], competition.train["image"], strict=True))
    cards = [card_of(images, position, file_of) for row in rows.values() for position in row]
    gallery = add_thumbnails(cards, competition.folder, MOST_BYTES, competition.card.value_range)
    shown = {card.id: card for card in gallery.cards}
    lines = []
    for number, row in rows.items():
        figures = [_figure(shown[name]) for position in row if (name := str(images.ids[position])) in shown]
        lines.append(f"<li><b>{escape(images.classes[number])}</b>{''.join(figures)}</li>")
    wrong, count = int(images.is_wrong.sum()), len(images)
    most = "" if len(rows) == len(images.classes) else f" The {len(rows)} classes with the most mistakes are shown."
    text = (
        f"Each row: held-out images that {run.name} predicts to be of this class; in a frame those that it confuses,"
        f" with their label. It is wrong in {wrong:,} of {count:,}.{most}"
    )
    pictures = f'<ul class="predicted">{"".join(lines)}</ul>'
    return section("predicted", "Predicted and confused", note(text), pictures)


def choose_images(images: HeldOutImages, number: int) -> list[int]:
    """Returns positions of images that are predicted to be of the class: the surest right and wrong ones."""
    predicted = np.flatnonzero(images.predicted == number)
    surest = predicted[np.argsort(-images.confidence[predicted], kind="stable")]
    is_wrong = images.is_wrong[surest]
    return [*surest[~is_wrong][:RIGHT].tolist(), *surest[is_wrong][:WRONG].tolist()]


def _figure(card: ImageCard) -> str:
    is_wrong = card.label != card.predicted
    caption = f"is {card.label}" if is_wrong else f"{card.confidence:.0%}"
    title = f"{card.id}: {card.label}, predicted {card.predicted} with {card.confidence:.0%}"
    source = f"data:image/jpeg;base64,{card.thumbnail}"
    picture = f'<img src="{source}" alt="{escape(title)}" title="{escape(title)}">' if card.thumbnail else ""
    return f'<span class="{"confused" if is_wrong else "right"}">{picture}<small>{escape(caption)}</small></span>'
