"""Finds, builds, feeds, saves and loads timm models, and picks the device and the precision.

In: a recipe, and weights from the hub, a file or none. Out: a model, and probabilities for images.
Read build.py first, then predict.py, which makes all predictions.
"""
