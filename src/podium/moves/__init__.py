"""Moves of training: each file owns a few options, with all that hangs on them.

In: ingredients of a training, such as its loss, the size of its images, a batch. Out: the same, changed.
Read move.py first (what a move can change), then mixing.py.
"""

from podium.moves.adjusting import Adjusting
from podium.moves.augmentations import Augmentations
from podium.moves.averaging import Averaging
from podium.moves.balancing import Balancing
from podium.moves.batch_norm import BatchNorm
from podium.moves.cleaning import Cleaning
from podium.moves.depth import Depth
from podium.moves.fast_operators import FastOperators
from podium.moves.fitted_head import FittedHead
from podium.moves.joining import Joining
from podium.moves.layer_rates import LayerRates
from podium.moves.losses import Losses
from podium.moves.low_rank import LowRank
from podium.moves.mixing import Mixing
from podium.moves.move import Move
from podium.moves.optimizing import Optimizing
from podium.moves.pooled_features import PooledFeatures
from podium.moves.seen_parts import SeenParts
from podium.moves.shape import Shape
from podium.moves.sharpness import Sharpness
from podium.moves.sizes import Sizes

# In the order in which they act, and in which a run is described: low-rank updates let learn what --freeze has frozen.
# extend.py adds those of a project.
MOVES: list[type[Move]] = [
    Depth,
    FittedHead,
    LayerRates,
    LowRank,
    BatchNorm,
    Losses,
    Adjusting,
    Balancing,
    Joining,
    Optimizing,
    Averaging,
    Sharpness,
    PooledFeatures,
    Cleaning,
    FastOperators,
    SeenParts,
    Shape,
    Augmentations,
    Mixing,
    Sizes,
]
