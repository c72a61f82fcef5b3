"""Reads what only a key of a competition's card asks for: images from elsewhere, further columns.

In: the card. Out: parts of a `Competition` that most competitions do not have; load.py imports them when it needs them.
Read extra_images.py first.
"""
