"""Chooses how the predictions of several runs become one, and how sure its score is.

In: out-of-fold predictions. Out: a Blend, which is steps (pool, calibrate, average or stack, decide), and the expected
score. Read blend.py first, then choose_blend.py. shrunk.py and blend_strategies.py fit the weights of the runs,
stack.py has models on top of them; choose_pooling.py says how the images of an answer count, choose_decision.py which
answers the metric rewards; nested.py judges each step on images that it was not fitted to; held_out.py reads what all
of it is fitted to.
"""
