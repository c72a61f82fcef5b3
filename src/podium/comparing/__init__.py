"""Compares runs, in numbers and a picture, and lists the training labels that are probably wrong.

In: finished runs. Out: a table, a picture, a list of labels.
Read compare.py first; suspect_list.py lists the labels.
"""
