"""A head without weights: it compares an image's features with those of the training images, which it holds."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from podium.basics.errors import PodiumError
from podium.options.layers.heads import classifier_of, replace_module


class Nearest(NamedTuple):
    """The cosines between some images and the training images, as far as an answer depends on them."""

    of_class: Tensor  # [images, classes]: of the most similar training image of each class
    voters: Tensor  # [images, k]: of the most similar training images
    classes: Tensor  # [images, k]: of these

    def outputs(self, k: int, temperature: Tensor | float) -> Tensor:
        """Returns an output per class: the most similar image's, or that of all voters of the class together.

        The softmax of these outputs gives each class the share of exp(cosine / temperature) of its voters; a class
        without a voter counts by its most similar image.
        """
        voters, classes = self.voters[:, :k] / temperature, self.classes[:, :k]
        of_one_class = classes[:, :, None] == classes[:, None, :]
        lowest = torch.finfo(voters.dtype).min
        votes = torch.where(of_one_class, voters[:, None, :], lowest).logsumexp(2)
        return (self.of_class / temperature).scatter_reduce(1, classes, votes, "amax")


class NeighboursHead(nn.Module):
    """Answers by the training images whose features have the most similar direction."""

    gallery: Tensor  # [training images, features], each of length 1; a file holds it in 16 bits
    class_of: Tensor  # of each of them, by its number
    temperature: Tensor

    def __init__(self, features: int, classes: int, images: int, k: int) -> None:
        super().__init__()
        self.classes, self.k = classes, k
        self.register_buffer("gallery", torch.zeros(images, features))
        self.register_buffer("class_of", torch.zeros(images, dtype=torch.int64))
        self.register_buffer("temperature", torch.ones(()))

    @torch.no_grad()
    def remember(self, features: Tensor, class_of: Tensor) -> None:
        """Keeps training images, as a file will hold them: so a saved head answers as this one, to the bit."""
        self.gallery.copy_(F.normalize(features.float()).half())
        self.class_of.copy_(class_of)

    def forward(self, features: Tensor) -> Tensor:
        return self.nearest(features, self.k).outputs(self.k, self.temperature)

    def nearest(self, features: Tensor, k: int) -> Nearest:
        """Returns what any number of voters up to k, and any temperature, makes answers of."""
        with torch.autocast(features.device.type, enabled=False):  # 16 bits would not tell similar images apart
            cosines = F.linear(F.normalize(features.float()), self.gallery)
        # A class without a training image is as similar as the least similar image.
        least = cosines.amin(1, keepdim=True).expand(-1, self.classes)
        of_class = least.scatter_reduce(1, self.class_of.expand_as(cosines), cosines, "amax")
        voters, places = cosines.topk(min(k, len(self.gallery)))
        return Nearest(of_class, voters, self.class_of[places])

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)  # type: ignore[no-untyped-call]
        destination[f"{prefix}gallery"] = self.gallery.half()


def put_neighbours(model: nn.Module, architecture: str, images: int, k: int) -> NeighboursHead:
    """Exchanges the classifier for a head that has room for so many training images."""
    classifier = classifier_of(model)
    if classifier is None:
        raise PodiumError(
            f"{architecture} cannot use --head neighbours: it has several classifiers, or none; leave it out"
        )
    classes, features = classifier.layer.weight.shape[:2]
    head = NeighboursHead(features, classes, images, k)
    replace_module(model, classifier.name, head)
    return head
