"""Measures training on this machine, and shows that a fold comes out the same, to the bit, when it is trained again.

In: models, or a run. Out: images per second beside a plain loop around timm's model; what differs, if anything does.
Read bench.py, then verify_run.py.
"""
