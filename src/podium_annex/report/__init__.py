"""Writes pages that show a run, and all runs of a competition, in a browser.

In: runs/<competition>/, the images, the audit's duplicates. Out: runs/<competition>/<run>/report.html and
runs/<competition>/report.html, each a single file that needs no network. Read write_report.py first, then numbers.py.
"""
