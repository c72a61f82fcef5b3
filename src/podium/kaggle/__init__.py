"""Talks to Kaggle: downloads, uploads, and trains or predicts on Kaggle's own machines.

In: a competition's slug, a submission or a run. Out: files in data/raw/, scores in history.csv, runs that came back.
Read download.py first, then kernels.py. inside_kernel.py is what runs on Kaggle's machines.
"""
