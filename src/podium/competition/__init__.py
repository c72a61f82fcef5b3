"""Reads what a competition's files mean: ids, labels, classes, images, and the format of a submission.

In: data/raw/<slug>/ as Kaggle delivers it, the card data/competitions/<slug>.toml, and the corrections of labels beside
it. Out: a `Competition`.
Read load.py first: it calls the others in the order in which they work. Then layout.py: what is found out once, by the
guess_ modules, and followed by the read_ modules.
"""
