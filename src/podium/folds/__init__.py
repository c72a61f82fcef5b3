"""Splits the training images into folds without leaks, and certifies what a split guarantees.

In: the audit (images/audit.py). Out: data/prepared/<slug>/folds.csv, and its certificate, folds.json.
Read folds.py first, then folds_csv.py; strategies.py chooses how images are split, certificate.py checks the result.
"""
