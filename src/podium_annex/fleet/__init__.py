"""Divides a command into cells for machines that share one folder: folds, predictions, workers of a search.

In: what a command does with one cell. Out: what it writes, and a log. Read cells.py first, then cell_command.py.
"""
