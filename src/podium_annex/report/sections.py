"""The sections of a run's report, each a piece of HTML."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from podium.basics.terminal import amount, duration
from podium.comparing.suspect_list import CAUTION
from podium.saved_runs.epoch_record import EpochRecord
from podium_annex.report.charts import Line, line_chart, reliability_chart
from podium_annex.report.numbers import Ints, Reliability


class Link(NamedTuple):
    text: str
    address: str


Cell = str | int | float | Link | None


def section(name: str, title: str, *parts: str) -> str:
    return f'<section id="{name}"><h2>{escape(title)}</h2>{"".join(parts)}</section>'


def note(text: str) -> str:
    return f"<p class=note>{escape(text)}</p>"


def tiles(facts: Sequence[tuple[str, str, str]]) -> str:
    """Shows a few numbers: what, the number, and a remark."""
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(remark)}</small></dd></div>"
        for name, value, remark in facts
    )
    return f'<dl class="tiles">{items}</dl>'


def html_table(header: Sequence[str], rows: Sequence[Sequence[Cell]], text_columns: int = 1) -> str:
    """Returns a table that can be sorted by every column; None is shown as nothing."""
    heads = "".join(
        f'<th scope="col"{" class=text" if column < text_columns else ""}><button>{escape(name)}</button></th>'
        for column, name in enumerate(header)
    )
    lines = []
    for row in rows:
        cells = [_cell(value, column < text_columns) for column, value in enumerate(row)]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _cell(value: Cell, is_text: bool) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return '<td data-value=""></td>'
    if isinstance(value, Link):
        return f'<td class="text"><a href="{escape(value.address)}">{escape(value.text)}</a></td>'
    if is_text or isinstance(value, str):
        return f'<td class="text">{escape(str(value))}</td>' if is_text else f"<td>{escape(str(value))}</td>"
    text = f"{value:,}" if isinstance(value, int) else f"{value:z.4f}"
    return f'<td data-value="{value}">{text}</td>'


# --- the sections ------------------------------------------------------------------------------------


def learning_curves(histories: Mapping[int, Sequence[EpochRecord]], metric: str) -> str:
    """Shows the training loss, and the scores of the held-out images, after every epoch of every fold."""
    values = {
        "Loss in training": lambda record: record.loss,
        f"{metric}, held-out images": lambda record: record.scores.get(metric, math.nan),
        "log_loss, held-out images": lambda record: record.scores.get("log_loss", math.nan),
    }
    charts = []
    for title, value in values.items():
        lines = [
            Line(f"fold {fold}", [record.epoch for record in records], [value(record) for record in records])
            for fold, records in histories.items()
        ]
        if title.startswith("log_loss") and metric == "log_loss":
            continue
        charts.append(line_chart(title, "epoch", lines))
    text = (
        "The training loss is that of augmented images, so it may stay above the other. The last epoch counts. The"
        " scores are those of the training, with the labels of that time."
    )
    return section("curves", "Learning curves", note(text), f'<div class="charts">{"".join(charts)}</div>')


def confusion_section(matrix: Ints, classes: Sequence[str], supports: Sequence[int], all_classes: int) -> str:
    """Shows the confusion matrix as buttons, which choose the images of the gallery.

    `classes` are those of the rows and columns, `supports` how many images each has.
    """
    columns = "".join(f'<th scope="col"><div>{escape(name)}</div></th>' for name in classes)
    rows = []
    is_first = True
    for label, counts, support in zip(classes, matrix.tolist(), supports, strict=True):
        cells = []
        for predicted, count in zip(classes, counts, strict=True):
            if not count:
                cells.append("<td></td>")
                continue
            cells.append(_matrix_cell(label, predicted, count, count / support, is_first))
            is_first = False
        rows.append(f'<tr><th scope="row">{escape(label)}</th>{"".join(cells)}</tr>')
    text = (
        "Rows are labels, columns predictions; classes that are often confused stand side by side. A cell shows its"
        f" images in the gallery below. Arrow keys move between cells.{_which_classes(len(classes), all_classes)}"
    )
    table = f"<table><thead><tr><th></th>{columns}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return section("confusion", "Confusion matrix", note(text), f'<div class="wide matrix">{table}</div>')


def _matrix_cell(label: str, predicted: str, count: int, share: float, is_first: bool) -> str:
    kind = "diagonal" if label == predicted else "off"
    name = f"label {label}, predicted {predicted}: {count:,} images, {share:.1%} of the label"
    return (
        f'<td class="{kind}" style="--share:{share:z.3f}"><button data-label="{escape(label)}"'
        f' data-predicted="{escape(predicted)}" title="{escape(name)}" aria-label="{escape(name)}" aria-pressed="false"'
        f' tabindex="{0 if is_first else -1}">{count}</button></td>'
    )


def _which_classes(shown: int, all_classes: int) -> str:
    """Says which classes are shown, if not all are."""
    return f" Shown: the {shown:,} of {all_classes:,} classes with the most mistakes." if shown < all_classes else ""


def classes_section(rows: Sequence[Mapping[str, Any]], all_classes: int) -> str:
    header = ["class", "most often mistaken for", "images", "precision", "recall", "F1"]
    names = ("name", "mistaken_for", "support", "precision", "recall", "f1")
    ordered = sorted(rows, key=lambda row: -row["support"])
    table = html_table(header, [[row[name] for name in names] for row in ordered], text_columns=2)
    text = (
        "Precision: of the images predicted to be of the class, the share that is. Recall: of the class's images, the"
        f" share that is found. Click a heading to sort.{_which_classes(len(rows), all_classes)}"
    )
    return section("classes", "Classes", note(text), table)


def calibration_section(before: Reliability, after: Reliability) -> str:
    charts = reliability_chart("As predicted", before)
    charts += reliability_chart(f"Calibrated, temperature {after.temperature:.2f}", after)
    text = (
        "How often predictions of a confidence are right. Below the dashed line, the model is too sure of itself."
        " Calibration divides the logits by one number, the temperature, fitted to the other folds: above 1, it"
        " makes the model less sure. Calibration error: the mean distance of the points from the dashed line."
    )
    return section("calibration", "Calibration", note(text), f'<div class="charts">{charts}</div>')


def gallery_section(accuracy: float, left_out: int, heat: str) -> str:
    """The empty gallery; page.js fills it from the page's data. `heat` says what shows where the model looks."""
    kinds = {
        "suspects": "labels that are probably wrong",
        "mistakes": "mistakes",
        "correct": "correct predictions (examples)",
        "pairs": "duplicates",
    }
    orders = {
        "confidence": "most confident first",
        "suspect": "most suspect first",
        "label": "least probable label first",
        "pair": "pairs together",
        "id": "by id",
    }
    any_class = '<option value="">any</option>'  # page.js adds the classes
    text = (
        "A click on an image opens its file. Judge the labels that look wrong, and download the judgements as"
        " corrections.csv. Train with --corrections FILE (with make: CORRECTIONS=FILE) to use them. The model is right"
        f" in {accuracy:.1%} of the images: {CAUTION}."
    )
    if left_out:
        text += f" {left_out:,} more images did not fit into the page."
    state, heat = ("", heat) if heat else (" disabled", "where the model looks: not computed")
    look = f'<label class="inline"><input type="checkbox" id="look"{state}> {escape(heat)}</label>'
    controls = (
        f'<label>show<select id="kind">{_options(kinds)}</select></label>'
        f'<label>label<select id="label">{any_class}</select></label>'
        f'<label>predicted<select id="predicted">{any_class}</select></label>'
        f'<label>order<select id="order">{_options(orders)}</select></label>'
        f'<label>id contains<input id="find" type="search" size="10"></label>'
        f'<button class="button" id="clear" type="button">all classes</button>{look}'
    )
    marks = (
        '<div class="marks"><span id="marked" role="status"></span>'
        '<label>who, or why <input id="why" size="18"></label>'
        '<button class="button" id="download" type="button" disabled>Download corrections.csv</button>'
        '<button class="button" id="forget" type="button" disabled>Forget all judgements</button></div>'
    )
    return section(
        *("gallery", "Images", note(text), f'<div class="controls">{controls}</div>'),
        '<p id="count" role="status" tabindex="-1"></p><ul class="cards" id="cards"></ul>',
        '<button class="button" id="more" type="button" hidden>Show more</button>',
        marks,
    )


def _options(names: Mapping[str, str]) -> str:
    return "".join(f'<option value="{value}">{escape(text)}</option>' for value, text in names.items())


def costs_section(histories: Mapping[int, Sequence[EpochRecord]], costs: Mapping[str, float]) -> str:
    """Shows time and memory of each fold."""
    rows: list[list[Cell]] = [
        [
            str(fold),
            sum(not record.is_start for record in records),
            duration(sum(record.seconds for record in records)),
            duration(sum(record.validation_seconds for record in records)),
            round(records[-1].images_per_s),
            max(record.memory_mb for record in records),
            max((record.gpu_mb or 0 for record in records), default=0) or None,
        ]
        for fold, records in histories.items()
    ]
    header = ["fold", "epochs", "training", "validation", "images/s", "memory MB", "GPU memory MB"]
    if not any(row[-1] for row in rows):  # trained on a CPU
        header, rows = header[:-1], [row[:-1] for row in rows]
    text = f"{amount(costs['parameters'])} parameters, {amount(costs['multiply_adds'])} multiply-adds an image."
    return section("costs", "Time and memory", note(text), html_table(header, rows))


def recipe_section(recipe: Mapping[str, Any]) -> str:
    rows: list[list[Cell]] = []
    for name, value in recipe.items():
        if name not in ("versions", "origins"):
            rows.append([name.replace("_", " "), _plain(value)])
    versions = recipe.get("versions", {})
    rows.append(["versions", ", ".join(f"{name} {version}" for name, version in versions.items())])
    table = html_table(["option", "value"], rows, text_columns=2)
    return section("recipe", "Recipe", f"<details><summary>{len(rows)} options</summary>{table}</details>")


def lineage_section(lineages: Sequence[str]) -> str:
    """Shows the submissions that use the run, as `podium lineage` prints them."""
    if not lineages:
        return section("lineage", "Submissions", note("No submission uses this run yet."))
    texts = "".join(f'<div class="wide"><pre>{escape(text)}</pre></div>' for text in lineages)
    return section("lineage", "Submissions", note("As podium lineage prints them."), texts)


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_plain(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return "" if value is None else str(value)
