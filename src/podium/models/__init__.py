"""Builds, feeds, saves and loads timm models, on the device that works here.

In: a recipe, and weights from the hub, a file or none. Out: a model, and probabilities for images.
Read build.py first, then predict.py, the one way from images to probabilities.
"""
