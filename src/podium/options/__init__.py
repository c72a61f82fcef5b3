"""Holds the options of training: each with all its facts, in one file with all that hangs on it.

In: what a user, a card or a program wrote. Out: a checked `Recipe`, and its moves, which change a training.
Read recipe.py first, then knob.py and moves/; recipe_defaults.py says which kinds of models want which values.
"""
