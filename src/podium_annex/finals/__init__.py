"""Proposes which two submissions to choose before a competition ends, and says what is known of each.

In: a `Competition`, the lineages of its submissions, their runs, and the history of uploads. Out: a table, and
two pairs.
Read final.py first (the command), then private_scores.py (what honest and public scores say together).
"""
