"""What teaches, draws, searches and exports: commands and models beside those that lead to a submission.

The rooms: zoo, formats, explain, pretraining, exporting, scoring, finals, matching, report, fleet, searching,
kaggle_machines, measuring.
Each imports only from those before it. beside.py finds what it brings; nothing in podium imports this package.
"""
