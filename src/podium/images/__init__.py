"""Decodes every image once, finds copies and damage, and keeps the pixels where training can read them fast.

In: a `Competition`. Out: data/prepared/<slug>/pixels-*/, audit.csv and duplicates.csv.
Read decode.py first (a file becomes pixels), then store.py (all files become one memory map).
"""
