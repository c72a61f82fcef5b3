"""Shows the epochs of a run in other programs while it trains: TensorBoard, MLflow, Weights & Biases.

In: a run, and the records of its epochs. Out: a tracked run per fold, on this machine unless the user says otherwise.
Read tracking.py: what is told to the programs, and what if one fails; podium_annex/trackers.py has a class for each.
"""
