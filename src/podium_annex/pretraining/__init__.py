"""Pretrains a model on a competition's own images, without their labels.

In: the pixel store, training and test images alike. Out: runs/<slug>/<name>/, with the weights that `podium train
--weights NAME` starts from.
Read pretrain.py first (the command), then dino.py (loss, centre and teacher) and pretraining_learner.py (a step).
"""
