"""Searches the options of a run: Optuna proposes, Podium trains, and a fold that the search has not seen judges.

In: a request, folds. Out: trials, which are runs like any other, a study beside them, and a report.
Read search_space.py first (what is searched), then search.py (looks, trials, the judgement), then study.py.
"""
