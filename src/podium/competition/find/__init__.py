"""Finds what is there: files, images and the cells of tables, and which images a name means. It guesses nothing.

In: data/raw/<slug>/. Out: `Facts`.
Read find_files.py first, then match_images.py and facts.py.
"""
