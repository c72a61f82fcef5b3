"""Scores a CSV against the true labels, with the competition's own metric where it is known.

In: a submission, a solution and, if there is one, a `Competition`. Out: the score, as JSON.
Read score_csv.py first (the command), then solution.py (which pairs the rows), read_with_form.py (a known competition)
and read_without_form.py (none is known).
"""
