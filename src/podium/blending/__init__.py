"""Chooses how the predictions of several runs become one, and how sure its score is.

In: out-of-fold predictions. Out: a Blend, a Decision and the expected score.
Read choose_blend.py first. blend_strategies.py fits the weights of the runs, stack.py a model on top of them;
choose_decision.py says which answers the metric rewards after the blend; nested.py scores both on images that they were
not fitted to; held_out.py reads what all of it is fitted to.
"""
