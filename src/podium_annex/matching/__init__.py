"""Says how similar images are: pairs of them, and clusters, for competitions of individuals.

Comes in: a competition whose training labels are identities, and finished runs. Goes out: a CSV of similarities or of
clusters, with its lineage. Read first: match.py, similarities.py.
"""
