"""Counts the trials of a search for `podium jobs`: those that have ended, and those that a process trains now."""

from pathlib import Path

from optuna.trial import TrialState

from podium.basics.terminal import plural
from podium_annex.searching.search_request import folder_of
from podium_annex.searching.study import FINISHED, JOURNAL, SearchStudy


def count_trials(slug: str, root: Path, name: str) -> str:
    """Returns how many trials are done, running and failed."""
    folder = folder_of(slug, root, name)
    if not (folder / JOURNAL).exists():
        return "no trial has begun"
    study = SearchStudy(folder, better=1)  # which scores are better makes no difference here
    done, failed = len(study.trials(*FINISHED)), len(study.trials(TrialState.FAIL))
    texts = [f"{plural(done, 'trial')} done", f"{study.count_busy()} running", f"{failed} failed" if failed else ""]
    return ", ".join(text for text in texts if text)
