"""Measurements: each is a command, python -m benchmarks.NAME, that prints a table of docs/benchmarks.md.

Read harness.py first (the command line, commands of podium, tables), then sets.py (the competitions that are measured).
"""
