"""All that lies between pixels and answers, as one module: normalisation, the fold models, their views, the mean."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from podium.models.build import ModelSpec
from podium.models.device import CPU
from podium.models.normalise import Normaliser
from podium.models.predict import models_by_class, probs_of, views_of


class WholeModel(nn.Module):
    """Maps uint8 images [n, height, width, 3] to their probabilities, or numbers: the mean of all models and views."""

    scale: Tensor
    shift: Tensor
    shares: Tensor | None  # of each model in the answer of a class, where it is not the same for all

    def __init__(self, models: Sequence[nn.Module], specs: Sequence[ModelSpec], views: str) -> None:
        super().__init__()
        self.models, self.specs, self.views = nn.ModuleList(models), specs, views
        normalise = Normaliser(specs[0], CPU)  # the models of a run see the same images
        self.register_buffer("scale", normalise.scale)
        self.register_buffer("shift", normalise.shift)
        counts = torch.from_numpy(models_by_class(specs, specs[0].classes)).float()
        self.register_buffer("shares", None if counts.all() else counts / counts.sum(0))  # [models, classes]

    def forward(self, images: Tensor) -> Tensor:
        inputs = images.permute(0, 3, 1, 2).float() * self.scale + self.shift
        views = views_of(inputs, self.views)
        pairs = zip(self.models, self.specs, strict=True)
        answers = [probs_of(model(view), spec) for model, spec in pairs for view in views]
        if self.shares is not None:
            views_of_each = len(answers) // len(self.specs)
            shares = self.shares.repeat_interleave(views_of_each, 0) / views_of_each
            return (torch.stack(answers) * shares[:, None]).sum(0)
        return torch.stack(answers).mean(0)
