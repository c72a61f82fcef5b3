"""Writes the pages that show runs in a browser.

    podium report [-c SLUG] [--runs A B]

Writes runs/<slug>/<run>/report.html for each run and runs/<slug>/report.html for all.
"""

from pathlib import Path

from podium.competition.load import Competition
from podium.report.competition_page import write_competition_page
from podium.report.run_page import write_run_page
from podium.task import ONE_LABEL
from podium.terminal import say
from podium.training.run_folder import find_runs


def write_reports(
    competition: Competition, root: Path, names: list[str] | None = None, except_names: list[str] | None = None
) -> Path:
    """Writes the pages of the runs (default: all), and that of all runs; returns the path of the latter."""
    runs = find_runs(competition.slug, root, names, except_names)
    if competition.task is not ONE_LABEL:
        problem = f"these have {competition.task.words.removesuffix(' an image')}, so there is one page for all"
        say(f"podium: pages of single runs show images with one label; {problem}")
        runs = []
    for run in runs:
        path = write_run_page(competition, root, run)
        say(f"podium: wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")
    path = write_competition_page(competition, root)
    say(f"podium: wrote {path}")
    return path
