"""DINO (Caron et al., 2021, arXiv 2104.14294): a student learns to say of a small crop what a teacher says of a large
one.

Both say it in `outputs` numbers that mean nothing by themselves. The teacher is the average of the student over the
past steps. Two things keep it from saying the same of all images: centring (what it says on average is subtracted) and
sharpening (a low temperature). Each alone fails: sharpening leads to one output for all, centring to no preference.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from podium.models.device import CPU

STUDENT_TEMPERATURE = 0.1
FIRST_TEACHER_TEMPERATURE, TEACHER_TEMPERATURE = 0.04, 0.07
# The temperature rises to its end during the first epochs, as in the paper; a shorter run keeps the first one, which
# is the one that the paper's short runs use.
TEMPERATURE_WARMUP = 30  # epochs
CENTRE_MOMENTUM = 0.9
# Of the teacher; rises to 1. The paper's 0.996 remembers 250 steps, nine epochs of the digits: too long for small data.
FIRST_MOMENTUM = 0.99
HIDDEN, BOTTLENECK = 1024, 256  # the paper's 2,048 would cost more than a small model itself


class Head(nn.Module):
    """Three layers, and a last one whose outputs are cosines: its rows and its input have the length 1.

    Batch norm is the paper's option, and small data need it: the features of random weights are nearly the same for all
    images. Without it, what they have in common fills the outputs, the little that differs is lost before the teacher
    can sharpen it, and after some hundred steps all outputs are equally probable, whatever the image.
    """

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Linear(features, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.GELU()),
            *(nn.Linear(HIDDEN, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.GELU()),
            nn.Linear(HIDDEN, BOTTLENECK),
        )
        self.last = nn.Parameter(torch.empty(outputs, BOTTLENECK, device=CPU))
        for module in self.layers:
            if isinstance(module, nn.Linear):
                nn.init.kaiming_normal_(module.weight)
                nn.init.zeros_(module.bias)
        nn.init.normal_(self.last)

    def forward(self, features: Tensor) -> Tensor:
        directions = F.normalize(self.layers(features).float(), dim=-1)
        return F.linear(directions, F.normalize(self.last, dim=-1))


class Network(nn.Module):
    """The backbone and its head, for the student or the teacher."""

    def __init__(self, backbone: nn.Module, head: Head) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    def group_matcher(self, coarse: bool = False) -> dict[str, str]:
        """Tells timm's optimisers the layers, of which both have the same learning rate."""
        return {"backbone": "^backbone", "head": "^head"}

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.backbone(images))
        return outputs


# --- the loss ----------------------------------------------------------------------------------------


def teacher_probs(outputs: Tensor, centre: Tensor, temperature: float) -> Tensor:
    """Returns what the teacher says: centred and sharpened."""
    return ((outputs - centre) / temperature).softmax(-1)


def dino_loss(student: Tensor, targets: Tensor) -> Tensor:
    """Returns the mean cross-entropy between a large crop, seen by the teacher, and another crop, seen by the student.

    `student` holds outputs [crops, images, outputs], the large crops first; `targets` probabilities of the large crops.
    """
    log_probs = (student / STUDENT_TEMPERATURE).log_softmax(-1)
    entropies = -torch.einsum("tio,sio->ts", targets, log_probs) / targets.shape[1]
    # All but the diagonal, where both see the same crop. (For a mask of booleans a GPU would wait.)
    teachers, students = entropies.shape
    between = range(0, teachers * (students + 1), students + 1)
    return torch.cat([entropies.flatten()[same + 1 : same + students + 1] for same in between]).mean()


def move_centre(centre: Tensor, outputs: Tensor) -> Tensor:
    """Returns the next centre: the teacher's mean output, averaged over about ten steps."""
    return centre * CENTRE_MOMENTUM + outputs.flatten(0, -2).mean(0) * (1 - CENTRE_MOMENTUM)


@torch.no_grad()
def move_teacher(teacher: nn.Module, student: nn.Module, momentum: float) -> None:
    """Moves the teacher's weights towards the student's. Batch norm's statistics are each network's own."""
    followers: list[Tensor] = list(teacher.parameters())
    leaders: list[Tensor] = list(student.parameters())
    torch._foreach_lerp_(followers, leaders, 1 - momentum)


# --- schedules ---------------------------------------------------------------------------------------


def momentum_at(step: int, total_steps: int) -> float:
    """Returns the teacher's momentum: it rises to 1 along half a cosine."""
    return 1 - (1 - FIRST_MOMENTUM) * 0.5 * (1 + math.cos(math.pi * step / total_steps))


def teacher_temperature_at(epoch: int, epochs: int) -> float:
    """Returns the teacher's temperature: a high one at the start is unstable."""
    if epochs < 2 * TEMPERATURE_WARMUP:
        return FIRST_TEACHER_TEMPERATURE
    rise = min(1.0, epoch / TEMPERATURE_WARMUP)
    return FIRST_TEACHER_TEMPERATURE + (TEACHER_TEMPERATURE - FIRST_TEACHER_TEMPERATURE) * rise
