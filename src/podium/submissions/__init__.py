"""Predicts the test images, blends the runs, and writes a submission that Kaggle accepts, with its lineage.

In: finished runs. Out: submissions/<slug>/<name>.csv and <name>.json.
Read submission.py first. choose_blend.py chooses a strategy, and blend_strategies.py fits the weights of the runs.
choose_decision.py says which answers the metric rewards after the blend (decision.py, decision_fits.py).
compare.py compares the runs; suspect_list.py lists the training labels that are probably wrong.
"""
