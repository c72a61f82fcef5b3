"""Holds what every room uses: errors, files and locks, the terminal, signals, the machine, a square's side, the annex.

In: nothing of the other rooms. Out: small parts that stand alone.
Read errors.py first, then disk.py and terminal.py.
"""
