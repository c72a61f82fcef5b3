"""Moves of training: each file owns a few options, with all that hangs on them.

In: ingredients of a training, such as its loss, the size of its images, a batch. Out: the same, changed.
Read move.py first (what a move can change), then mixing.py.
"""

from podium.options.moves.adjacent_images import AdjacentImages
from podium.options.moves.adjusting import Adjusting
from podium.options.moves.augmentations import Augmentations
from podium.options.moves.averaging import Averaging
from podium.options.moves.balancing import Balancing
from podium.options.moves.batch_norm import BatchNorm
from podium.options.moves.cleaning import Cleaning
from podium.options.moves.depth import Depth
from podium.options.moves.fast_operators import FastOperators
from podium.options.moves.fitted_head import FittedHead
from podium.options.moves.joined_columns import JoinedColumns
from podium.options.moves.joining import Joining
from podium.options.moves.layer_rates import LayerRates
from podium.options.moves.losses import Losses
from podium.options.moves.low_rank import LowRank
from podium.options.moves.mixing import Mixing
from podium.options.moves.move import Move
from podium.options.moves.optimizing import Optimizing
from podium.options.moves.pooled_features import PooledFeatures
from podium.options.moves.seen_parts import SeenParts
from podium.options.moves.shape import Shape
from podium.options.moves.sharpness import Sharpness
from podium.options.moves.sizes import Sizes

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
    JoinedColumns,
    Cleaning,
    FastOperators,
    SeenParts,
    AdjacentImages,
    Shape,
    Augmentations,
    Mixing,
    Sizes,
]
