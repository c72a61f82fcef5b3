"""Predicts the test images with the blend of the runs, and writes a submission that Kaggle accepts, with its lineage.

In: finished runs. Out: submissions/<slug>/<name>.csv and <name>.json.
Read submission.py first, then predict_test.py and record_lineage.py; rebuild_submission.py makes a CSV again.
"""
