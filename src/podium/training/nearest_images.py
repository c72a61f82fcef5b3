"""Nearest neighbours: a head that keeps the frozen features of a fold's training images, and compares with them.

    podium train --model MODEL --linear --head neighbours[:K]
    podium train --from RUN --linear --head neighbours

How many images vote, and the temperature of their cosines, have the lowest log loss on training images that the others
do not include (`inner_split`). A backbone that was fine-tuned on these images tells them apart better than new ones, so
with --from the answers are too sure; a blend fits a temperature of its own.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from podium.basics.terminal import say
from podium.models.build import ModelSpec
from podium.models.neighbours_head import NeighboursHead, put_neighbours
from podium.models.normalise import Normaliser
from podium.models.predict import probs_of
from podium.options.option_kinds import NEIGHBOURS
from podium.options.recipe import voters_of
from podium.tasks.pool import Answers, pool_parts
from podium.tasks.task import ONE_LABEL
from podium.training.context import Context
from podium.training.frozen_features import Features, compute_features
from podium.training.linear_probe import inner_split, linear_layers

VOTERS = (1, 3, 10, 30)  # to choose from: few where classes have few images
TEMPERATURES = tuple(10 ** (-n / 8) for n in range(2, 21))  # 0.56 to 0.003
MOST_JUDGES = 1_000  # images: enough to choose two numbers; with 15,000 classes they take a minute
PART = 256  # images that are compared at once
LEAST_PROBABILITY = 1e-7  # that counts in the log loss


class Voting(NamedTuple):
    """How the nearest images make an answer."""

    voters: int
    temperature: float
    loss: float  # the mean log loss of the images that have chosen this


class FittedNeighbours(NamedTuple):
    head: NeighboursHead
    spec: ModelSpec
    features: Features
    voting: Voting

    @torch.inference_mode()
    def predict(self, rows: NDArray[np.int64]) -> Answers:
        """Returns probabilities as training predicts them: the mean of the views, then that of an image's boxes."""
        parts = []
        for part in torch.from_numpy(self.features.of(rows)).split(PART, 1):
            outputs = self.head(part.flatten(0, 1).to(self.head.gallery.device))
            parts.append(probs_of(outputs, self.spec).unflatten(0, part.shape[:2]).mean(0).cpu())
        probs: NDArray[np.float32] = torch.cat(parts).numpy() if parts else np.empty((0, self.head.classes), np.float32)
        return pool_parts(probs, self.features.counts_of(rows), ONE_LABEL)


def fit_neighbours(
    context: Context, fold: int, model: nn.Module, spec: ModelSpec, normalise: Normaliser
) -> FittedNeighbours:
    """Puts a head with the fold's training images into the model."""
    linear_layers(model, spec, normalise)  # refuses a model whose classifier gets something else than its features
    features = compute_features(context, model, spec, normalise)
    rows = features.known_among(context.images.training_rows(fold))
    voting = choose_voting(context, fold, features, rows)
    gallery, class_of = _gallery(
        context, features, np.append(rows, context.images.extra_rows)
    )  # all: heads of neighbours are fitted to no sample
    kept = len(gallery), min(voting.voters, len(gallery))
    head = put_neighbours(model, spec.architecture, *kept).to(context.device).eval()
    head.remember(gallery, class_of)
    head.temperature.fill_(voting.temperature)
    voting = voting._replace(voters=kept[1])
    return FittedNeighbours(head, replace(spec, head=NEIGHBOURS, neighbours=kept), features, voting)


@torch.inference_mode()
def choose_voting(context: Context, fold: int, features: Features, rows: NDArray[np.int64]) -> Voting:
    """Returns the number of voters and the temperature that suit training images which are no neighbours."""
    learns, judges = (rows[marked] for marked in inner_split(context.images, fold, rows))
    learns = np.append(learns, context.images.extra_rows)
    target_of_image = context.images.targets.values
    judges = judges[np.isin(target_of_image[judges], target_of_image[learns])]  # of others, no answer is right
    if len(judges) > MOST_JUDGES:
        judges = np.sort(np.random.default_rng(0).choice(judges, MOST_JUDGES, replace=False))
    gallery, class_of = _gallery(context, features, learns)
    given = voters_of(context.recipe.head)
    choices = [given] if given else [count for count in VOTERS if count <= max(1, len(gallery))]
    if not len(judges):
        say("podium: note: no training image has another of its class to compare with; how neighbours vote is a guess")
        return Voting(choices[0], TEMPERATURES[len(TEMPERATURES) // 2], math.log(len(context.competition.classes)))
    head = NeighboursHead(gallery.shape[1], len(context.competition.classes), len(gallery), choices[-1])
    head.to(context.device).remember(gallery, class_of)
    queries = torch.from_numpy(features.of(judges)).to(context.device)
    wanted = torch.from_numpy(target_of_image[judges].repeat(features.counts_of(judges))).to(context.device)
    losses = _losses(head, queries, wanted, choices)
    return min((Voting(*choice, loss) for choice, loss in losses.items()), key=lambda voting: voting.loss)


def _losses(
    head: NeighboursHead, queries: Tensor, wanted: Tensor, choices: list[int]
) -> dict[tuple[int, float], float]:
    """Returns the mean log loss of each number of voters and temperature; `queries` are [views, examples, features]."""
    losses = {(voters, temperature): 0.0 for voters in choices for temperature in TEMPERATURES}
    for part, own in zip(queries.split(PART, 1), wanted.split(PART), strict=True):
        nearest = head.nearest(part.flatten(0, 1), choices[-1])
        for voters, temperature in losses:
            probs = nearest.outputs(voters, temperature).softmax(1).unflatten(0, part.shape[:2]).mean(0)
            right = probs.gather(1, own[:, None]).double().clamp(min=LEAST_PROBABILITY)
            losses[voters, temperature] -= float(right.log().sum()) / len(wanted)
    return losses


def _gallery(context: Context, features: Features, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Returns the features of these images as they are, not of their other views, and their classes."""
    first_view = replace(features, values=features.values[:1])  # before a copy of all of them is made
    owners = rows.repeat(features.counts_of(rows))  # every box of an image is one
    class_of = torch.from_numpy(context.images.targets.values[owners])
    return torch.from_numpy(first_view.of(rows)[0]).to(context.device), class_of.to(context.device)
