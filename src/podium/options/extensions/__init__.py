"""Adds a project's own metrics, losses, augmentations, views, splitters, readers and decisions.

In: the files that `extend` names in podium.toml or in a card. Out: rows in the tables of Podium's own parts.
Read extend.py first.
"""
