"""Reads and writes what a run keeps on disk: its recipe, checkpoints, records of epochs, weights and predictions.

In: runs/<slug>/<run>/. Out: the same.
Read run_folder.py first.
"""
