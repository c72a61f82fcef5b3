"""Knowledge distillation: a student learns from finished runs as well as from the labels.

    podium train --model NAME --name STUDENT --teacher RUN[+RUN...]

Reads runs/<slug>/<teacher>/fold<k>/model.safetensors. The student's fold k is taught by the fold-k models only. They
have not seen the held-out images of that fold either, so the student's out-of-fold score stays honest.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from podium import PodiumError
from podium.models.device import autocast
from podium.models.model_file import load_model
from podium.models.normalise import Normaliser
from podium.training.run_folder import Run

# At 1, a confident teacher says little more than the label does. Far above 2, the tail of its probabilities, which
# nothing has trained, counts as much as the classes that it really compares.
TEMPERATURE = 2.0


def check_teachers(
    teachers: Sequence[Run], folds: Sequence[int], classes: tuple[str, ...], identity: Mapping[str, Any]
) -> dict[str, str]:
    """Returns the hashes of the weights that teach each fold; refuses teachers of other classes, folds or data.

    Such teachers may have seen the images that score the student. The data's hash covers labels and files, not pixels,
    so the teacher's image size does not matter.
    """
    for teacher in teachers:
        agrees = {
            "classes": all(teacher.out_of_fold(fold).classes == classes for fold in folds),
            "folds": teacher.recipe.get("folds_sha256") == identity["folds_sha256"],
            "data": teacher.recipe.get("data_sha256") == identity["data_sha256"],
        }
        for subject, is_same in agrees.items():
            if not is_same:
                raise PodiumError(
                    f"the teacher {teacher.name} was trained on other {subject} than its student would be; train it"
                    " again under another name, or take another --teacher"
                )
    return {str(fold): "+".join(teacher.check_weights(fold) for teacher in teachers) for fold in folds}


class Teacher:
    """The fold's models of all teaching runs, as one. It draws no random numbers, so the student's stay the same."""

    def __init__(self, runs: Sequence[Run], fold: int, student: Normaliser, precision: torch.dtype) -> None:
        self.device, self.precision = student.device, precision
        self.members = [Member(run.fold(fold) / "model.safetensors", student) for run in runs]

    @torch.no_grad()  # inference_mode would not let the result take part in the student's loss
    def __call__(self, inputs: Tensor) -> Tensor:
        """Returns the logarithm of the models' mean probabilities for the student's own inputs.

        The teacher must see the same crops, colours and mixtures: with another view it would teach what the student
        cannot see.
        """
        with autocast(self.device, self.precision):
            logits = [member.model(member.adapt(inputs)) for member in self.members]
        log_probs = torch.stack([member_logits.float().log_softmax(1) for member_logits in logits])
        return log_probs.logsumexp(0) - math.log(len(log_probs))

    def loss(self, inputs: Tensor, logits: Tensor, token_logits: Tensor | None) -> Tensor:
        """Returns how far the student is from the teacher.

        A distillation token is compared with the teacher's decision; DeiT learnt more from that than from its
        probabilities.
        """
        log_probs = self(inputs)
        if token_logits is not None:
            return F.cross_entropy(token_logits.float(), log_probs.argmax(1))
        softened = (log_probs / TEMPERATURE).log_softmax(1)
        answer = (logits.float() / TEMPERATURE).log_softmax(1)
        # The temperature divides the gradient by its square; multiplied by it, the loss has the same weight beside
        # that of the labels at any temperature.
        return F.kl_div(answer, softened, reduction="batchmean", log_target=True) * TEMPERATURE**2


class Member:
    """One saved model, and the student's inputs as it expects them."""

    def __init__(self, path: Path, student: Normaliser) -> None:
        model, spec = load_model(path)
        own = Normaliser(spec, student.device)
        self.model: nn.Module = model.eval().to(student.device).to(memory_format=own.layout)
        self.size, self.layout = spec.image_size, own.layout
        self.scale = own.scale / student.scale
        self.shift = own.shift - student.shift * self.scale

    def adapt(self, inputs: Tensor) -> Tensor:
        if inputs.shape[-1] != self.size:
            inputs = F.interpolate(inputs, (self.size, self.size), mode="bilinear", antialias=True)
        return (inputs * self.scale + self.shift).contiguous(memory_format=self.layout)


def separate_heads(student: nn.Module) -> None:
    """Lets a model with a head for the teacher (DeiT's and others) return (logits, that head's logits) in training.

    It predicts the mean of both. Where timm gives the switch to a model without such a head, nothing changes.
    """
    if hasattr(student, "set_distilled_training"):
        student.set_distilled_training(True)  # type: ignore[operator]
