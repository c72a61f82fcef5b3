"""Decides what the tables and columns mean: which hold ids, targets, groups and images, each with its reason.

In: `Facts`. Out: `Tables`, and the `Layout`.
Read tables.py first, then layout.py and guess_layout.py.
"""
