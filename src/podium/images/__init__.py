"""Decodes every image once, finds duplicates and damaged files, and stores the pixels where training reads them fast.

In: a `Competition`. Out: data/prepared/<slug>/pixels-*/ (the store), audit.csv and duplicates.csv.
Read decode.py first (one file becomes pixels), then store.py (all decoded images of a competition), duplicates.py
(which images show the same picture) and audit.py (which writes both tables).
"""
