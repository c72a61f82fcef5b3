"""Predicts the test images, blends the runs, and writes a submission that Kaggle accepts, with its lineage.

In: finished runs. Out: submissions/<slug>/<name>.csv and <name>.json.
Read submission.py first; blend.py and choose_blend.py weigh the runs.
"""
