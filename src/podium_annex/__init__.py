"""What teaches, draws, searches and exports: commands beside those that lead to a submission.

The rooms: explain, pretraining, exporting, scoring, report, searching. podium/cli/find_commands.py finds the commands;
nothing in podium imports this package.
"""
