"""Reads what a competition's files mean: ids, labels, classes, images, and how a submission looks.

In: data/raw/<slug>/ as Kaggle delivers it, and the card data/competitions/<slug>.toml. Out: a `Competition`.
Read load.py first; it calls all the others.
"""
