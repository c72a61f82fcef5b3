"""Divides the cells of a command among all machines that share one folder: folds, predictions, workers of a search.

In: what a command does with one cell. Out: what it writes, as without the room, and in runs/<slug>/.cells/ what became
of each cell. Read cell_board.py first (who works on what), then work.py (a worker), then cell_sweep.py (a command and
its cells); slurm_jobs.py and sky_file.py hand the cells to other programs, worker_processes.py to processes of this
machine, list_cells.py shows them.
"""
