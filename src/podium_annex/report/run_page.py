"""Writes the page of a run: its scores, curves, mistakes, doubtful labels, costs, recipe and submissions.

Reads runs/<slug>/<run>/, the images, duplicates.csv and the lineages of the submissions; writes
runs/<slug>/<run>/report.html.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.terminal import say
from podium.blending.expected_score import bootstrap_scores, percentile_interval
from podium.blending.held_out import HeldOut, number_groups
from podium.comparing.run_costs import costs_of
from podium.comparing.suspect_list import rank_labels
from podium.competition.build.corrections import drop_word
from podium.competition.load import Competition
from podium.folds.folds_csv import read_groups
from podium.saved_runs.doubts import doubt_about
from podium.saved_runs.epoch_record import EpochRecord
from podium.saved_runs.run_folder import Run
from podium.submissions.lineage import read_lineage
from podium.tasks.metrics import evaluate
from podium_annex.report import sections
from podium_annex.report.gallery import Gallery, ImageCard, add_thumbnails, card_of, choose_correct, choose_mistakes
from podium_annex.report.heat import add_heat
from podium_annex.report.numbers import (
    HeldOutImages,
    calibrated_probs,
    class_table,
    confusion_matrix,
    fold_scores,
    most_confused,
    order_by_confusion,
    read_held_out,
    reliability,
)
from podium_annex.report.page import page
from podium_annex.report.region_pictures import regions_section

REPORT = "report.html"
LINKS = {
    "#curves": "Learning curves",
    "#confusion": "Confusion matrix",
    "#gallery": "Images",
    "#regions": "Regions",
    "#classes": "Classes",
    "#calibration": "Calibration",
    "#costs": "Time and memory",
    "#recipe": "Recipe",
    "#lineage": "Submissions",
    f"../{REPORT}": "All runs",
}
MOST_BYTES = 8_000_000  # of a page, which a browser opens at once
OTHER_BYTES = 1_000_000  # of it for the style, the script and the pictures of where the model looks
MOST_IN_MATRIX = 150  # classes; a larger table is too wide to read, and to put it in order takes long
MOST_ROWS = 1000  # of the table of classes
MOST_SUSPECTS = 1000
MOST_PAIRS = 300  # of duplicates

Histories = Mapping[int, Sequence[EpochRecord]]


def run_page(competition: Competition, run: Run) -> str:
    """Returns the page."""
    images = read_held_out(run, competition)
    if not len(images):
        raise PodiumError(f"{run.path}: no held-out image has a label, so there is nothing to report")
    histories, class_count, is_trained = _read_histories(run), len(images.classes), not run.imported
    above = [
        sections.tiles(_headline(competition, run, images)),
        sections.learning_curves(histories, str(run.recipe["metric"])) if is_trained else "",
        _confusion(images),
    ]
    regions = regions_section(competition, run)
    below = [
        regions,
        sections.classes_section(class_table(images, most_confused(images, MOST_ROWS)), class_count),
        _calibration(images),
        sections.costs_section(histories, costs_of(run)) if is_trained else "",
        sections.recipe_section(run.recipe),
        sections.lineage_section(_lineages(competition, run)),
    ]
    taken = sum(len(text.encode()) for text in (*above, *below, *images.classes))
    gallery = make_gallery(competition, run, images, MOST_BYTES - OTHER_BYTES - taken)
    looks = add_heat(gallery.cards, run, competition) if is_trained else ""
    shown = sections.gallery_section(1 - images.is_wrong.mean(), gallery.left_out, looks)
    data = {
        "competition": competition.slug,
        "folder": Path(os.path.relpath(competition.folder.resolve(), run.path.resolve())).as_posix() + "/",
        "classes": list(images.classes),
        "drop": drop_word(images.classes),
        "cards": [card.as_json() for card in gallery.cards],
    }
    doubt = f"; {doubt_about(run)}" if doubt_about(run) else ""
    subtitle = f"{run.recipe['model']} on {competition.title}{_labels_used(competition, run)}{doubt}"
    absent = {*(() if regions else ("#regions",)), *(() if is_trained else ("#curves", "#costs"))}
    links = {link: name for link, name in LINKS.items() if link not in absent}
    return page(run.name, subtitle, [*above, shown, *below], data, links)


def _confusion(images: HeldOutImages) -> str:
    numbers = most_confused(images, MOST_IN_MATRIX)
    matrix = confusion_matrix(images, numbers)
    order = order_by_confusion(matrix)
    names = [images.classes[number] for number in numbers[order]]
    supports = np.bincount(images.targets, minlength=len(images.classes))[numbers[order]]
    return sections.confusion_section(matrix[order][:, order], names, supports.tolist(), len(images.classes))


def _calibration(images: HeldOutImages) -> str:
    calibrated, temperature = calibrated_probs(images)
    after = replace(reliability(calibrated, images.targets), temperature=temperature)
    return sections.calibration_section(reliability(images.probs, images.targets), after)


def _labels_used(competition: Competition, run: Run) -> str:
    """Says which labels the page shows, if any were corrected."""
    today, trained = competition.corrections, run.recipe.get("corrections_sha256")
    if not today.sha256 and not trained:
        return ""
    text = f"; with the labels of today: {today.describe()}" if today.sha256 else "; with the labels of the files"
    return text + (", as the run was trained" if trained == today.sha256 else "; the run was trained with others")


# --- numbers -----------------------------------------------------------------------------------------


def _headline(competition: Competition, run: Run, images: HeldOutImages) -> list[tuple[str, str, str]]:
    """Returns the first numbers of the page: name, value and remark."""
    metric, scores = competition.metric, fold_scores(images, competition.metric)  # today's, as make compare has it
    groups = number_groups(images.ids.tolist(), read_groups(competition))
    held_out = HeldOut(images.probs[None], images.truth, images.folds, groups)
    low, high = percentile_interval(bootstrap_scores(held_out, images.probs, metric))
    values = list(scores.values())
    spread = f"folds ± {np.std(values, ddof=1):z.4f}" if len(values) > 1 else "one fold"
    return [
        (metric, f"{evaluate(metric, images.truth, images.probs):z.4f}", f"95 %: {low:z.4f} to {high:z.4f}"),
        ("mean over the folds", f"{np.mean(values):z.4f}", f"{spread}, {len(values)} of {run.recipe['folds']} folds"),
        ("log loss", f"{evaluate('log_loss', images.truth, images.probs):z.4f}", "held-out images, as predicted"),
        ("held-out images", f"{len(images):,}", f"{int(images.is_wrong.sum()):,} of them wrong"),
    ]


def _read_histories(run: Run) -> Histories:
    """Returns the records of each finished fold; a damaged file is left out with a warning."""
    histories: dict[int, Sequence[EpochRecord]] = {}
    for fold in () if run.imported else run.finished():
        try:
            histories[fold] = run.history(fold)
        except PodiumError as damage:
            say(f"podium: warning: {damage}")
    return histories


def _lineages(competition: Competition, run: Run) -> list[str]:
    """Returns the lineages of the submissions that use the run."""
    texts = []
    for path in sorted((competition.root / "submissions" / competition.slug).glob("*.json")):
        try:
            lineage = read_lineage(path)
        except PodiumError:  # another file
            continue
        if any(used["run"] == run.name for used in lineage.content["runs"]):
            texts.append(lineage.describe())
    return texts


# --- images ------------------------------------------------------------------------------------------


def make_gallery(competition: Competition, run: Run, images: HeldOutImages, most_bytes: int) -> Gallery:
    """Returns the images that fit into so many bytes of the page, with their thumbnails, the most telling first."""
    file_of = dict(zip(competition.train["id"], competition.train["image"], strict=True))
    position_of = {str(image_id): position for position, image_id in enumerate(images.ids)}
    suggested = _suspects(competition, run)
    suspects = [position_of[image_id] for image_id in suggested if image_id in position_of]
    others = [*choose_mistakes(images), *choose_correct(images)]
    cards = [card_of(images, position, file_of) for position in dict.fromkeys([*suspects, *others])]
    for place, card in enumerate(cards[: len(suspects)], 1):
        card.suspect, card.suggested = place, suggested[card.id]
    pairs = pair_cards(competition)
    cards = [*cards[: len(suspects)], *pairs, *cards[len(suspects) :]]
    return add_thumbnails(cards, competition.folder, most_bytes, competition.card.value_range)


def _suspects(competition: Competition, run: Run) -> dict[str, str]:
    """Returns the images whose label is probably wrong, the most suspicious first, with the suggested labels."""
    try:
        ranked = rank_labels(competition, [run.name])
    except PodiumError as problem:  # a run of other classes, for example
        say(f"podium: warning: the report of {run.name} shows no doubtful labels: {problem}")
        return {}
    suspects = ranked[ranked["is_suspect"]].head(MOST_SUSPECTS)
    return dict(zip(suspects["id"], suspects["suggested"], strict=True))


def pair_cards(competition: Competition) -> list[ImageCard]:
    """Returns two cards for each pair of duplicates; pairs whose labels differ come first."""
    path = competition.root / "data" / "prepared" / competition.slug / "duplicates.csv"
    if not path.exists():
        return []
    pairs = pd.read_csv(path, dtype=str, keep_default_na=False)
    rows = {row.image: (row.id, row.target) for row in competition.train.itertuples()}
    rows |= {row.image: (row.id, "") for row in competition.test.itertuples() if row.image not in rows}
    known = [(first, second) for first, second in zip(pairs["first"], pairs["second"], strict=True)]
    known = [pair for pair in known if pair[0] in rows and pair[1] in rows]
    known.sort(key=lambda pair: _interest(rows[pair[0]][1], rows[pair[1]][1]))
    return [
        ImageCard(id=rows[image][0], image=image, label=rows[image][1], pair=number)
        for number, pair in enumerate(known[:MOST_PAIRS], 1)
        for image in pair
    ]


def _interest(label: str, other: str) -> int:
    """Orders pairs: different labels first, then a training and a test image, then the same label."""
    if label and other:
        return 2 if label == other else 0
    return 1
