"""Changes parts of a timm model after it is built: its head, its pooling, and which layers learn.

In: a model. Out: its head, or the model with other layers.
Read heads.py first.
"""
