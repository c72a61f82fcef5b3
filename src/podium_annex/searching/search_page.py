"""Writes what a search has found as a page: runs/<competition>/search/<search>/report.html."""

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from optuna.trial import FrozenTrial, TrialState

from podium.basics.disk import write_text
from podium.basics.terminal import plural, say
from podium.options.recipe import describe_options
from podium_annex.report.charts import Line, line_chart
from podium_annex.report.page import page
from podium_annex.report.sections import Cell, html_table, note, section, tiles
from podium_annex.searching.search_report import Found, describe_judgement, find_importances, options_of
from podium_annex.searching.search_request import folder_of
from podium_annex.searching.study import DEFAULTS, OF_EACH_FOLD, SHORT_TRAINING

FILE = "report.html"
STATES = {
    TrialState.COMPLETE: "on all folds",
    TrialState.PRUNED: "stopped early",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "unfinished",
    TrialState.WAITING: "unfinished",
}
LINKS = {"#curves": "Curves", "#mattered": "What mattered", "#trials": "Trials", "#judgement": "Judgement"}
MOST_LINES = 6  # as many as the page has colours for


def write_page(found: Found) -> Path:
    path = folder_of(found.competition.slug, found.root, found.name) / FILE
    write_text(path, search_page(found))
    say(f"podium: wrote {path}")
    return path


def search_page(found: Found) -> str:
    trials = found.study.trials()
    parts = [
        tiles(_facts(found, trials)),
        _curves(found, trials),
        _what_mattered(trials),
        _trials(found, trials),
        section("judgement", "Judgement", f'<div class="wide"><pre>{escape(describe_judgement(found))}</pre></div>'),
    ]
    title = f"Search {found.name} of {found.competition.slug}"
    return page(title, plural(len(trials), "trial"), parts, {}, LINKS)


def _facts(found: Found, trials: Sequence[FrozenTrial]) -> list[tuple[str, str, str]]:
    metric, better, judgement = found.competition.metric, found.study.better, found.judge()
    stopped = sum(trial.state is TrialState.PRUNED for trial in trials)
    facts = [("trials", f"{len(trials)}", f"{stopped} stopped early")]
    if found.winner is not None:
        searched = better * (found.winner.value or 0.0)
        facts.append((f"best {metric} as searched", f"{searched:z.4f}", found.run(found.winner).name))
    if judgement is not None:
        low, high = judgement.gain.interval
        gain = f"95 %: {low:+z.4f} to {high:+z.4f}"
        facts.append(("gain over the defaults where nothing was searched", f"{judgement.gain.gain:+z.4f}", gain))
    return facts


def _curves(found: Found, trials: Sequence[FrozenTrial]) -> str:
    """Shows the scores in the order of the trials, and how those of the best trials change from fold to fold."""
    better, metric = found.study.better, found.competition.metric
    short = [(trial.number, trial.intermediate_values.get(SHORT_TRAINING, math.nan)) for trial in trials]
    whole = [
        (trial.number, trial.value)
        for trial in trials
        if trial.state is TrialState.COMPLETE and trial.value is not None
    ]
    best = [(number, max(value for other, value in whole if other <= number)) for number, _ in whole]
    lines = [
        Line(name, [number for number, _ in points], [better * value for _, value in points])
        for name, points in (("the best so far", best), ("all folds", whole), ("short training", short))
    ]
    charts = line_chart(f"{metric} of each trial", "trial", lines)
    ranked = sorted(trials, key=_rank)
    charts += line_chart(
        f"{metric} after a short training (0) and so many folds",
        "folds",
        [_line_of(found, trial) for trial in ranked[:MOST_LINES] if trial.intermediate_values],
    )
    text = "Only trials that did better than others after a short training were trained on all folds of the search."
    return section("curves", "Curves", note(text), f'<div class="charts">{charts}</div>')


def _rank(trial: FrozenTrial) -> tuple[bool, bool, float, int]:
    """Puts the defaults first, then those on all folds, the best first."""
    is_partial = trial.state is not TrialState.COMPLETE
    return DEFAULTS not in trial.user_attrs, is_partial, -_last_score(trial), trial.number


def _last_score(trial: FrozenTrial) -> float:
    return trial.intermediate_values[trial.last_step] if trial.last_step is not None else -math.inf


def _line_of(found: Found, trial: FrozenTrial) -> Line:
    steps = sorted(trial.intermediate_values)
    name = f"{found.run(trial).name}{', the defaults' if DEFAULTS in trial.user_attrs else ''}"
    values = [found.study.better * trial.intermediate_values[step] for step in steps]
    return Line(name, [step // OF_EACH_FOLD for step in steps], values)


def _what_mattered(trials: Sequence[FrozenTrial]) -> str:
    importances = sorted(find_importances(trials), key=lambda item: -item.share)
    if not importances:
        return section("mattered", "What mattered", note("Not known before twelve trials with scores that differ."))
    rows: list[list[Cell]] = [[item.option, item.share, item.low, item.high] for item in importances]
    text = (
        "The share of each option in the variance of the scores after the short trainings (fANOVA). From and to: the"
        " range of 90 % of the shares that resampled trials give. Where it is wide, nobody knows yet."
    )
    return section("mattered", "What mattered", note(text), html_table(["option", "share", "from", "to"], rows))


def _trials(found: Found, trials: Sequence[FrozenTrial]) -> str:
    rows: list[list[Cell]] = []
    for trial in trials:
        options = options_of(trial)
        model = options.pop("model", "")
        text = "the defaults" if DEFAULTS in trial.user_attrs else describe_options(options)
        score = found.study.better * _last_score(trial) if trial.last_step is not None else None
        row: list[Cell] = [found.run(trial).name, str(model), text, STATES[trial.state], score, found.time_of(trial)]
        rows.append(row)
    header = ["run", "model", "options", "state", f"last {found.competition.metric}", "per fold"]
    return section("trials", "Trials", html_table(header, rows, text_columns=4))
