"""Splits the training images into folds without leaks, and certifies what a split guarantees.

In: the audit (images/audit.py). Out: data/prepared/<slug>/folds.csv, and its certificate, folds.json.
Read folds_csv.py first; split.py deals the images to folds, certificate.py checks the result.
"""
