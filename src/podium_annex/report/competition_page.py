"""Makes the page of a competition: all its runs side by side, what they cost, how they differ, what `compete` did.

Reads runs/<slug>/*/, .compete/ beside them, and submissions/<slug>/history.csv. write_report.py writes it to
runs/<slug>/report.html.
"""

from collections.abc import Collection, Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from podium.basics.project_root import runs_folder
from podium.basics.terminal import amount, duration, plural
from podium.comparing.compare import compare_runs, find_disagreements
from podium.comparing.comparison_text import AS_PREDICTED, chance
from podium.comparing.pair_tests import compare_pairs
from podium.competition.describe import describe
from podium.competition.load import Competition
from podium.saved_runs.run_folder import Run
from podium.submissions.kaggle_scores import read_history
from podium_annex.report.comparison_picture import comparison_svg
from podium_annex.report.compete_section import compete_section
from podium_annex.report.page import page
from podium_annex.report.predicted import predicted_section
from podium_annex.report.run_page import REPORT
from podium_annex.report.sections import Cell, Link, html_table, note, section, tiles

MOST_RUNS = 12  # in the table of pairs
FEW_PAIRS = 10  # that the page shows at once; more are folded
LINKS = {
    "#predicted": "Predicted and confused",
    "#compete": "Competing",
    "#runs": "Runs",
    "#costs": "Scores and costs",
    "#pairs": "Pairs",
    "#kaggle": "Kaggle",
    "#data": "Data",
}


def competition_page(competition: Competition, pages: Collection[Path]) -> str:
    """Returns the page of all runs; those that have a page of their own, or get one of these, are linked."""
    runs = compare_runs(competition)
    folder = runs_folder(competition.slug, competition.root)
    best = runs.iloc[0]
    facts = [
        (f"best {best['metric']}", f"{best['score']:z.4f}", str(best["run"])),
        ("runs", f"{len(runs)}", f"{int((runs['left_out'] != '').sum())} left out of a blend"),
        ("training images", f"{len(competition.train):,}", f"{len(competition.classes)} classes"),
        ("test images", f"{len(competition.test):,}", ""),
    ]
    predicted = predicted_section(competition, Run(folder / str(best["run"])))
    competed = compete_section(competition)
    absent = {*(() if predicted else ("#predicted",)), *(() if competed else ("#compete",))}
    links = {link: text for link, text in LINKS.items() if link not in absent}
    parts = [
        tiles(facts),
        predicted,
        competed,
        _runs_section(runs, folder, pages),
        _costs_section(runs),
        _pairs_section(competition, runs),
        _kaggle_section(competition.root / "submissions" / competition.slug / "history.csv"),
        section("data", "Data", f'<div class="wide"><pre>{escape(describe(competition))}</pre></div>'),
    ]
    return page(competition.title, plural(len(runs), "run"), parts, {}, links)


def _runs_section(runs: pd.DataFrame, folder: Path, pages: Collection[Path]) -> str:
    header = ["run", "model", "folds", "score", "± folds", "log loss", "gain, 95 %", "left out because"]
    linked = {name for name in runs["run"] if (path := folder / name / REPORT) in pages or path.exists()}
    rows = [_run_row(row, place == 0, linked) for place, row in enumerate(runs.to_dict("records"))]
    text = (
        f"gain: the run's score minus that of the best run on the same images; 95 % interval. log loss: {AS_PREDICTED}."
    )
    return section("runs", "Runs", note(text), html_table(header, rows, text_columns=2))


def _run_row(row: Mapping[str, Any], is_best: bool, linked: Collection[str]) -> list[Cell]:
    name = str(row["run"])
    gain = "" if np.isnan(row["gain_low"]) else f"{row['gain_low']:+z.4f} to {row['gain_high']:+z.4f}"
    gain = "best" if is_best else gain
    return [
        Link(name, f"{name}/{REPORT}") if name in linked else name,
        *(row["model"], f"{row['folds']} of {row['folds_in_all']}", row["score"], row["fold_spread"]),
        *(row["log_loss"], gain, row["left_out"]),
    ]


def _costs_section(runs: pd.DataFrame) -> str:
    header = ["run", "size", "parameters", "multiply-adds", "img/s", "time"]
    table = html_table(header, [_costs_row(row) for row in runs.to_dict("records")])
    figure = f'<figure class="wide">{svg}</figure>' if (svg := comparison_svg(runs)) else ""
    return section("costs", "Scores and costs", figure, table)


def _costs_row(row: Mapping[str, Any]) -> list[Cell]:
    return [
        *(row["run"], str(row["image_size"])),
        "" if np.isnan(row["parameters"]) else amount(row["parameters"]),
        "" if np.isnan(row["multiply_adds"]) else amount(row["multiply_adds"]),
        "" if np.isnan(row["images_per_s"]) else f"{row['images_per_s']:,.0f}",
        "" if np.isnan(row["seconds"]) else duration(row["seconds"]),
    ]


def _pairs_section(competition: Competition, runs: pd.DataFrame) -> str:
    names = list(runs["run"].head(MOST_RUNS))
    if len(names) < 2:
        return section("pairs", "Pairs", note("Train a second run to compare it."))
    disagreements = find_disagreements(competition.slug, competition.root, names)
    rows: list[list[Cell]] = [
        [
            pair.run,
            pair.other,
            "" if np.isnan(differ := disagreements.loc[pair.run, pair.other]) else f"{differ:.2%}",
            pair.only_run,
            pair.only_other,
            chance(pair.p_corrected),
        ]
        for pair in compare_pairs(competition.slug, competition.root, names, labels=competition.label_of).itertuples()
    ]
    header = ["run A", "run B", "disagree", "only A right", "only B right", "p"]
    text = (
        "Runs with similar scores that often disagree gain most from a blend. p: McNemar's test, corrected for all"
        " pairs; below 0.05, one of the two is more accurate."
    )
    of_runs = f" of the first {len(names)} of {len(runs)} runs" if len(names) < len(runs) else ""
    summary = f"<summary>{plural(len(rows), 'pair')}{of_runs}</summary>"
    is_open = " open" if len(rows) <= FEW_PAIRS else ""  # more would make pages
    table = html_table(header, rows, text_columns=2)
    return section("pairs", "Pairs", note(text), f"<details{is_open}>{summary}{table}</details>")


def _kaggle_section(history: Path) -> str:
    if not history.exists():
        return section("kaggle", "Kaggle", note("Nothing has been uploaded yet."))
    rows: list[list[Cell]] = [
        [line.get("file", ""), line.get("status", ""), line.get("public_score", ""), line.get("private_score", "")]
        for line in read_history(history)
    ]
    return section("kaggle", "Kaggle", html_table(["file", "status", "public", "private"], rows, text_columns=2))
