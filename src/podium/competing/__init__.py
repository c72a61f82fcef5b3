"""Takes a competition and a time, and comes back with the best submission that Podium can make in it.

In: a competition with folds, and what can be had of models. Out: runs like any other, and
submissions/<slug>/compete.csv, which is there from the first minutes on and is replaced only by a better one.
Read journey.py first, then next_step.py (which step comes next, and why) and portfolio.py (what can be trained);
standing.py judges, ledger.py remembers, progress_table.py shows. one_model.py is the same for `train --model auto`.
"""
