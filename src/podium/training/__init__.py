"""Trains one model per fold, and resumes a stopped run with the same result.

In: folds.csv and the pixel store. Out: runs/<slug>/<run>/fold<k>/, with weights, metrics and out-of-fold predictions.
Read train.py first (all folds of a run), then loop.py (one fold).
"""
