"""Reads images that are not files of their own (rows of pixels, members of larger files), and files of numbers.

In: the place of an image, such as `train.csv#12`. Out: the bytes of an image file, or pixels; nothing is unpacked.
number_files.py takes the bytes of a file, such as NumPy's, and gives one picture of numbers.
Read image_place.py first (how such a place is written), then open_container.py (one interface to all kinds of files).
"""
