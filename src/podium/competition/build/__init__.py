"""Builds what was decided: the rows, their labels and groups, the classes, the form of a submission and the metric.

In: `Tables` and the `Layout`. Out: the parts of a `Competition`.
Read read_rows.py first, then guess_submission.py and choose_metric.py.
"""
