"""Shows the epochs of a run in other programs while it trains: TensorBoard, MLflow, Weights & Biases.

In: a run, and the records of its epochs. Out: a tracked run per fold, on this machine unless the user says otherwise.
Read trackers.py first (one class per program), then tracking.py (what is told to them, and what if one fails).
"""
