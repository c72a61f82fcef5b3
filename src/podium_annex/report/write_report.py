"""Writes the pages that show runs in a browser.

    podium report [-c SLUG] [--runs A B]

Writes runs/<slug>/<run>/report.html for each run and runs/<slug>/report.html for all.
"""

from pathlib import Path

from podium.basics.disk import write_text
from podium.basics.project_root import runs_folder
from podium.basics.terminal import busy_with, say
from podium.competition.load import Competition
from podium.saved_runs.run_folder import find_runs
from podium.tasks.task import ONE_LABEL
from podium_annex.report.competition_page import competition_page
from podium_annex.report.run_page import REPORT, run_page


@busy_with("writing the pages")
def write_reports(
    competition: Competition, names: list[str] | None = None, except_names: list[str] | None = None
) -> Path:
    """Writes the pages of the runs (default: all), and that of all runs; returns the path of the latter."""
    runs = find_runs(competition.slug, competition.root, names, except_names)
    if competition.task is not ONE_LABEL:
        problem = f"these have {competition.task.words.removesuffix(' an image')}, so there is one page for all"
        say(f"podium: pages of single runs show images with one label; {problem}")
        runs = []
    pages = {run.path / REPORT: run_page(competition, run) for run in runs}
    path = runs_folder(competition.slug, competition.root) / REPORT
    page_of_all = competition_page(competition, pages)
    for run_path, text in pages.items():  # all are made before one is written
        write_text(run_path, text)
        say(f"podium: wrote {run_path} ({run_path.stat().st_size / 1e6:.1f} MB)")
    write_text(path, page_of_all)
    say(f"podium: wrote {path}")
    return path
