"""Says how long training takes: measures a step, counts a fold's work in steps, forecasts, and divides a budget.

In: a recipe and the numbers of a fold's images. Out: seconds, to which other rooms give words.
Read measure_step.py first (the one step that is measured), then fold_work.py (what a fold is, in such steps).
"""
