"""Reads images in formats that few competitions have, or that need packages of their own: DICOM, NIfTI, HDF5, BSON.

In: a file, or its first bytes. Out: pixels or numbers of an image, as podium/containers reads those of other formats.
Read dicom.py first; readers.py beside this room lists them all.
"""
