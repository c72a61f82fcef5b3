"""Splits the training images into folds without leaks, and proves it.

In: the audit. Out: data/prepared/<slug>/folds.csv and folds.json, its certificate.
Read folds_csv.py first; split.py deals the images, certificate.py checks the result.
"""
