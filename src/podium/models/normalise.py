"""Turns uint8 images into a model's input, on the device."""

from typing import TYPE_CHECKING

from podium.models.build import ModelSpec, family_of
from podium.models.device import is_cpu
from podium.models.hub import backbones_in

if TYPE_CHECKING:
    import torch
    from torch import Tensor

CRASH_WITH_CHANNELS_LAST = {"fastvit"}  # families: torch 2.15 corrupts its memory when these train on a CPU


class Normaliser:
    """Maps uint8 [n, height, width, channels] on any device to the model's input, in the memory `layout` of the model.

    Of more channels, the first, the fourth and so on are taken as red, as timm repeats the weights of the first layer.
    """

    def __init__(self, spec: ModelSpec, device: "torch.device") -> None:
        import torch

        self.layout = layout_for(spec, device)
        self.device, self.spec = device, spec  # the spec says how the output is read, too
        mean = torch.tensor(spec.mean, device=device) * 255
        std = torch.tensor(spec.std, device=device) * 255
        colours = torch.arange(spec.channel_count, device=device) % 3
        self.scale = (1 / std)[colours].view(1, -1, 1, 1)
        self.shift = (-mean / std)[colours].view(1, -1, 1, 1)

    def __call__(self, images: "Tensor") -> "Tensor":
        on_device = images.to(self.device, non_blocking=True).permute(0, 3, 1, 2).float()
        return on_device.contiguous(memory_format=self.layout).mul_(self.scale).add_(self.shift)


def layout_for(spec: ModelSpec, device: "torch.device") -> "torch.memory_format":
    """Returns the memory layout of the model's weights and inputs."""
    import torch

    families = {family_of(name) for name in backbones_in(spec.architecture)}
    crashes = is_cpu(device) and not families.isdisjoint(CRASH_WITH_CHANNELS_LAST)
    return torch.contiguous_format if crashes else torch.channels_last
