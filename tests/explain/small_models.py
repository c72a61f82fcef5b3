"""Models so small that their explanations can be computed by hand."""

import torch
from torch import Tensor, nn


class SmallConvNet(nn.Module):
    """Convolutions without padding changes, and a head that averages the map: the parts that timm's models have."""

    def __init__(self, *layers: nn.Module, classes: int = 2) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.num_features = next(layer.out_channels for layer in reversed(layers) if isinstance(layer, nn.Conv2d))
        self.head = nn.Linear(self.num_features, classes)

    def forward_features(self, images: Tensor) -> Tensor:
        features: Tensor = self.layers(images)
        return features

    def forward_head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.head(features.mean((2, 3)))
        return logits

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))


def averaging(channels: int = 3) -> nn.Conv2d:
    """Returns a convolution of 3 x 3 pixels to one channel whose weights are all the same."""
    convolution = nn.Conv2d(channels, 1, 3, padding=1, bias=False)
    nn.init.constant_(convolution.weight, 1 / 9)
    return convolution


def zoo_model(name: str, **options: object) -> nn.Module:
    import timm

    from podium.models.registry import register_zoo

    register_zoo()
    torch.manual_seed(0)
    model: nn.Module = timm.create_model(name, **{"num_classes": 5, **options})
    return model
