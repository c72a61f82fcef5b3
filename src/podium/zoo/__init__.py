"""Models that timm lacks, written with timm's layers and registered under names of their own.

In: nothing. Out: models in timm's registry, so that `--model NAME` and timm.create_model(NAME) find them.
Read registry.py first, then any of the others: each is one paper, with its command in the first lines.
"""
