"""Random numbers without a state: every draw is a function of the seed and of what it is for.

So a checkpoint holds no generator, and resumed training draws what it would have drawn without the interruption.
"""

import numpy as np
import torch

# What a random draw is for: each purpose has a stream of its own.
ORDER, AUGMENT, MIX, STEP, CROPS, LOW_RANK, BOX, OWN = range(8)


def generator(purpose: int, *key: int) -> np.random.Generator:
    """Returns independent random numbers for every purpose and key."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([purpose, *key])))


def seed_torch(seed: int, fold: int, step: int, rank: int = 0) -> None:
    """Makes torch's own draws (initial weights, dropout) a function of the step and the process."""
    torch.manual_seed(int(generator(STEP, seed, fold, step, rank).integers(2**63)))
