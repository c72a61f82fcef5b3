"""Trains the cells of a command, each a fold of a run, on all machines that share one folder.

In: the requests of a command. Out: trained folds, as without the room, and in runs/<slug>/.cells/ what became of each.
Read cell_board.py first (who works on what), then work.py (a worker), then cell_sweep.py (a command and its cells);
slurm_jobs.py and sky_file.py hand the cells to other programs, list_cells.py shows them.
"""
