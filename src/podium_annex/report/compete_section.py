"""Shows what `podium compete` has done: the score against the time, its members, each decision and what it brought.

Reads runs/<slug>/.compete/compete.jsonl (saved_runs/ledger.py) and the members' oof.npz; without that file, nothing.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from html import escape
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.basics.project_root import runs_folder
from podium.basics.terminal import duration, plural
from podium.blending.held_out import HeldOut, collect_held_out
from podium.competition.load import Competition
from podium.saved_runs.fold_names import fold_name
from podium.saved_runs.ledger import BEGUN, ENDED, FAILED, FOLDS, SUBMITTED, Ledger
from podium.saved_runs.run_folder import Run
from podium.tasks.metrics import METRICS, name_in_compete, score_of
from podium.tasks.task import ONE_LABEL
from podium_annex.report.charts import Line, Point, bar_chart, course_chart
from podium_annex.report.gallery import ImageCard, add_thumbnails
from podium_annex.report.sections import Cell, html_table, note, section

MINUTE = 60.0  # seconds
MOST_MEMBERS = 12  # in the table of pairs, and of those that are asked about an image
DISPUTED, MOST_BYTES = 24, 1_000_000  # images on which members disagree


def compete_section(competition: Competition) -> str:
    """Returns the section; nothing where the command has not trained."""
    ledger = Ledger(competition.slug, competition.root)
    if not ledger.of(ENDED):
        return ""
    weights, folder = _weights(ledger), runs_folder(competition.slug, competition.root)
    runs = [run for name in weights if (run := Run(folder / name)).finished()]
    metric = competition.metric
    name = name_in_compete(metric, competition.task)
    parts = [_course(ledger, metric), _members(ledger, metric, name)]
    with suppress(PodiumError):  # the classes have changed since
        held_out = _held_out(ledger, runs, competition) if len(runs) > 1 else None
        used = [number for number, run in enumerate(runs) if weights[run.name]]
        if held_out:
            parts.append(_agreement(runs, held_out))
        if held_out and len(used) > 1:
            own = replace(held_out, probs=held_out.probs[used])
            parts.append(_disputed(competition, [runs[number] for number in used], own))
    return section("compete", "Competing", *parts, _decisions(ledger))


def _weights(ledger: Ledger) -> dict[str, float]:
    """Returns the members of the last submission, those with the largest weights first."""
    submitted = ledger.of(SUBMITTED)
    recorded = submitted[-1].get("weights") or {} if submitted else {}
    weights = {name: weight for name, weight in dict(recorded).items() if isinstance(weight, int | float)}
    return dict(sorted(weights.items(), key=lambda item: -item[1])[:MOST_MEMBERS])


def _held_out(ledger: Ledger, runs: Sequence[Run], competition: Competition) -> HeldOut:
    """Returns the images by which the members were judged."""
    chosen = ledger.of(FOLDS)
    folds = chosen[-1]["judging"] if chosen else ()
    return collect_held_out(runs, competition.classes, None, competition.label_of, folds)


# --- score against time ------------------------------------------------------------------------------


def _course(ledger: Ledger, metric: str) -> str:
    """Draws the blend's score after each step, and each member's when it was trained."""
    steps, points, seen = [], [], set()
    for line in ledger.of(ENDED):
        minutes, error = line["worked"] / MINUTE, line.get("blend_error")
        if error is not None:
            steps.append((minutes, score_of(metric, error)))
        own = (line.get("errors") or {}).get(line["member"])
        if own is not None and line["member"] not in seen:
            seen.add(line["member"])
            points.append(Point(line["member"], minutes, score_of(metric, own)))
    blend = Line("blend", [minutes for minutes, _ in steps], [score for _, score in steps])
    better = "" if METRICS[metric]().better > 0 else " (lower is better)"
    chart = course_chart(f"{metric}{better}, held-out images", "minutes", blend, points)
    weights = bar_chart("weights of the last blend", {name: own for name, own in _weights(ledger).items() if own})
    text = (
        "The line: the score of the blend after each step. The points: the members, each when it was trained on all"
        " folds that judge. All are judged on held-out images, on those of fewer folds once members of few folds join."
    )
    return note(text) + f'<div class="charts">{chart}{weights}</div>'


# --- members -----------------------------------------------------------------------------------------


def _members(ledger: Ledger, metric: str, name_of_score: str) -> str:
    ended, weights = ledger.of(ENDED), _weights(ledger)
    errors: dict[str, float | None] = ended[-1].get("errors") or {}
    seconds: dict[str, float] = {}
    for line in ended:
        seconds[line["member"]] = seconds.get(line["member"], 0.0) + line["seconds"]
    names = dict.fromkeys([*weights, *errors, *seconds])
    rows: list[list[Cell]] = [
        [
            name,
            math.nan if (error := errors.get(name)) is None else score_of(metric, error),
            weights.get(name, 0.0),
            duration(seconds[name]) if name in seconds else "",
        ]
        for name in names
    ]
    text = "Weight: in the last submission. Without a score, a member has not been trained on all folds that judge."
    return f"<h3>Members</h3>{note(text)}{html_table(['member', name_of_score, 'weight', 'time'], rows)}"


def _agreement(runs: Sequence[Run], held_out: HeldOut) -> str:
    """Returns how often each pair of members gives the same answer."""
    if not held_out.targets.task.are_labels or not len(held_out):
        return ""
    answers = held_out.targets.answers(held_out.probs)
    share = np.ones((len(runs), len(runs)))
    for one, other in combinations(range(len(runs)), 2):
        same = answers[one] == answers[other]
        share[one, other] = share[other, one] = (same if same.ndim == 1 else same.all(1)).mean()
    texts = [[f"{value:.2%}" for value in row] for row in share]
    for number, row in enumerate(texts):
        row[number] = ""  # of the member and itself
    rows: list[list[Cell]] = [
        [f"{number} {run.name}", *row] for number, (run, row) in enumerate(zip(runs, texts, strict=True), 1)
    ]
    header = ["agreement", *(str(number) for number in range(1, len(runs) + 1))]
    text = f"The share of {plural(len(held_out), 'held-out image')} for which two members give the same answer."
    return f"<h3>Agreement</h3>{note(text)}{html_table(header, rows)}"


# --- images ------------------------------------------------------------------------------------------


def _disputed(competition: Competition, runs: Sequence[Run], held_out: HeldOut) -> str:
    """Shows the images on which the members disagree most, where an image has one label."""
    if competition.task is not ONE_LABEL or not len(held_out):
        return ""
    differs = (held_out.probs.argmax(2) != held_out.probs[0].argmax(1)).any(0)
    order = [number for number in disagreement(held_out.probs).argsort()[::-1].tolist() if differs[number]]
    file_of = dict(zip(competition.train["id"], competition.train["image"], strict=True))
    chosen = {name: number for number in order[:DISPUTED] if (name := str(held_out.ids[number])) in file_of}
    labels = [competition.classes[held_out.targets.values[number]] for number in chosen.values()]
    cards = [ImageCard(name, file_of[name], label) for name, label in zip(chosen, labels, strict=True)]
    shown = add_thumbnails(cards, competition.folder, MOST_BYTES, competition.card.value_range).cards
    figures = [_figure(card, runs, held_out.probs[:, chosen[card.id]], competition.classes) for card in shown]
    text = (
        f"Members that weigh answer differently for {plural(len(order), 'image')} of {len(held_out):,}. Shown are"
        " those for which their probabilities differ most: the label, and how many members give which answer."
    )
    pictures = f'<ul class="predicted"><li>{"".join(figures)}</li></ul>' if figures else ""
    return f"<h3>Images on which members disagree most</h3>{note(text)}{pictures}"


def disagreement(probs: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Returns how much the members' probabilities [members, images, classes] vary, for each image."""
    return np.asarray(probs.var(0).sum(1), np.float64)


def _figure(card: ImageCard, runs: Sequence[Run], probs: NDArray[np.floating[Any]], classes: Sequence[str]) -> str:
    answers = [classes[number] for number in probs.argmax(1)]
    counts = sorted(((answers.count(answer), answer) for answer in set(answers)), key=lambda pair: (-pair[0], pair[1]))
    caption = ", ".join(f"{count}×{answer}" for count, answer in counts)
    said = [f"{run.name} {own.max():.0%} {answer}" for run, own, answer in zip(runs, probs, answers, strict=True)]
    title = escape(f"{card.id}: {card.label}; {', '.join(said)}")
    source = f"data:image/jpeg;base64,{card.thumbnail}"
    picture = f'<img src="{source}" alt="{title}" title="{title}">' if card.thumbnail else ""
    kind = "right" if counts[0][1] == card.label else "confused"
    return (
        f'<span class="{kind}">{picture}<small>is {escape(card.label)}</small><small>{escape(caption)}</small></span>'
    )


# --- decisions ---------------------------------------------------------------------------------------


def _decisions(ledger: Ledger) -> str:
    """Returns a row for each step: why it was taken, what it was expected to bring, and what it brought."""
    rows: list[list[Cell]] = []
    for number, line in enumerate(ledger.lines):
        place, why = len(rows) + 1, str(line.get("why", ""))
        if line["event"] == FOLDS:
            rows.append([place, "which folds judge", why, None, None, None, None])
        if line["event"] != BEGUN:
            continue
        later = (one for one in ledger.lines[number + 1 :] if one["event"] in (ENDED, FAILED, BEGUN))
        end = next(later, line)
        end = {} if end["event"] == BEGUN else end  # it was stopped
        why += f"; failed: {end['error']}" if "error" in end else ""
        step = f"{line['member']}, {', '.join(map(fold_name, line['folds']))}"
        gains = [_number(one.get("gain")) for one in (line, end)]
        rows.append([place, step, why, *gains, *(_whole(one.get("seconds")) for one in (line, end))])
    header = ["no.", "step", "why", "expected gain", "brought", "expected s", "took s"]
    text = "Gain: by how much the error of the blend falls; an error is how far a score is from the best possible one."
    return f"<h3>Decisions</h3>{note(text)}{html_table(header, rows, text_columns=3)}"


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _whole(seconds: Any) -> int | None:
    return round(seconds) if isinstance(seconds, int | float) else None
