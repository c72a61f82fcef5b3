"""Models that timm lacks, written with timm's layers and registered under names of their own.

In: nothing. Out: models in timm's registry, so that `--model NAME` and timm.create_model(NAME) find them.
Read deepvit.py first: each file is one paper, with its command in the first lines. models/registry.py registers them.
"""
