"""Says what a model learns of an image, and how well it did: tasks, metrics, chance.

In: targets, and probabilities or numbers. Out: scores. Everything above may use it.
Read task.py first.
"""
