"""Reads images that are not files of their own: rows of pixels, and members of HDF5, Parquet and TFRecord files.

In: the place of an image, such as `train.csv#12`. Out: the bytes of an image file, or pixels; nothing is unpacked.
Read image_place.py first (how such a place is written), then open_container.py (one interface to all kinds of files).
"""
