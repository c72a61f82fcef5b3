"""How well the features tell the classes apart: each image gets the class of its nearest neighbours.

Only this report uses labels; the pretraining does not.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

NEIGHBOURS = 10
TEMPERATURE = 0.07  # of the votes, as in the paper: nearer neighbours count more


def knn_accuracy(features: Tensor, labels: Tensor, classes: int) -> float:
    """Returns the share of images whose other nearest images, voting by similarity, have their class."""
    directions = F.normalize(features.float(), dim=-1)
    similarity = directions @ directions.T
    similarity.fill_diagonal_(-torch.inf)  # no image is its own neighbour
    nearest, places = similarity.topk(min(NEIGHBOURS, len(features) - 1))
    votes = torch.zeros(len(features), classes, device=features.device)
    votes.scatter_add_(1, labels[places], (nearest / TEMPERATURE).exp())
    return (votes.argmax(1) == labels).float().mean().item()
