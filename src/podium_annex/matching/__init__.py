"""Says which images show the same individual: pairs of them by their similarity, or clusters.

In: a `Competition` whose labels are identities, and finished runs. Out: a CSV in submissions/<competition>/ and its
lineage.
Read match.py first (the command), then similarities.py (from features to similarities) and galleries.py (held-out
images that judge them); choose_way.py and clusters.py choose by these.
"""
