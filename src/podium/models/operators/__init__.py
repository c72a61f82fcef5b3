"""Computes parts of a model, and Muon, faster than timm does, with the same results up to rounding.

In: a timm model, its device and precision. Out: the same model with some of its layers exchanged.
Read exchange.py first, which says what is exchanged and when; then layers.py. muon.py does the same for an optimiser.
"""
