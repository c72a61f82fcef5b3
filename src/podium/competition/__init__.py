"""Reads what a competition's files mean: ids, labels, classes, images, and the format of a submission.

In: data/raw/<slug>/ as Kaggle delivers it, and the card data/competitions/<slug>.toml. Out: a `Competition`.
Read load.py first: it calls the others in the order in which they work.
"""
