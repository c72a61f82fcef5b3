"""Divides a command into cells for machines that share one folder: folds, predictions, workers of a search.

In: what a command does with one cell. Out: what it writes, as without the room, and a log of each cell in
runs/<slug>/.logs/. Read cells.py first, then cell_command.py (the process of a cell), then ray_tasks.py, slurm_jobs.py
and sky_file.py, which hand cells, or the whole command, to other programs.
"""
