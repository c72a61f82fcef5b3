"""Knowledge distillation: a student learns from finished runs as well as from the labels.

    podium train --model NAME --name STUDENT --teacher RUN[+RUN...]

Reads runs/<slug>/<teacher>/fold<k>/model.safetensors. The student's fold k is taught by the fold-k models only; see
earlier_runs.py.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from podium.basics.errors import PodiumError
from podium.basics.image_size import sides_of
from podium.models.device import autocast
from podium.models.normalise import Normaliser
from podium.models.place import place_model
from podium.models.predict import probs_of, scaled
from podium.options.moves.loss_functions import cross_entropy, loss_of_columns
from podium.saved_runs.run_folder import Run
from podium.tasks.task import TASKS
from podium.training.fold_model import open_model

# At 1, a confident teacher adds little to the label. Far above 2, its very small probabilities, which training has
# hardly shaped, count as much as those of the classes that it confuses.
TEMPERATURE = 2.0


class Teacher:
    """The fold's models of all teaching runs, as one. It draws no random numbers, so the student's do not change."""

    def __init__(self, runs: Sequence[Run], fold: int, student: Normaliser, precision: torch.dtype) -> None:
        self.device, self.precision, self.spec = student.device, precision, student.spec
        self.members = [Member(run, fold, student, precision) for run in runs]
        self.specs = [member.spec for member in self.members]

    @torch.no_grad()  # inference_mode would not let the result take part in the student's loss
    def __call__(self, inputs: Tensor) -> Tensor:
        """Returns the logarithm of the models' mean probabilities, or what the student should say for their numbers.

        The teacher gets the student's own inputs (crops, colours, mixtures): with another view it would teach what the
        student cannot see.
        """
        with autocast(self.device, self.precision):
            logits = [member.model(member.adapt(inputs)) for member in self.members]
        if not TASKS[self.spec.task].sums_to_one:
            means = torch.stack([probs_of(*pair) for pair in zip(logits, self.specs, strict=True)]).mean(0)
            return scaled(means, self.spec) if self.spec.scales else means.log()
        log_probs = torch.stack([member_logits.float().log_softmax(1) for member_logits in logits])
        return log_probs.logsumexp(0) - math.log(len(log_probs))

    def loss(self, inputs: Tensor, logits: Tensor, token_logits: Tensor | None) -> Tensor:
        """Returns the distance between student and teacher.

        A distillation token learns the teacher's predicted class: in the DeiT paper that scored higher than learning
        the teacher's probabilities.
        """
        taught, count = self(inputs), len(self.spec.classes)
        logits = logits[:, :count]  # further outputs have no teacher
        token_logits = None if token_logits is None else token_logits[:, :count]
        if not TASKS[self.spec.task].sums_to_one:
            outputs = logits if token_logits is None else token_logits
            if self.spec.scales:
                return F.mse_loss(outputs.float(), taught)
            if self.spec.parts:
                return loss_of_columns(self.spec.parts, cross_entropy, 0.0, outputs.float(), taught.exp())
            return F.binary_cross_entropy_with_logits(outputs.float(), taught.exp())
        if token_logits is not None:
            return F.cross_entropy(token_logits.float(), taught.argmax(1))
        softened = (taught / TEMPERATURE).log_softmax(1)
        student = (logits.float() / TEMPERATURE).log_softmax(1)
        # A temperature T divides the gradient by T squared. Multiplied by T squared, the loss keeps the same weight
        # relative to the labels' loss.
        return F.kl_div(student, softened, reduction="batchmean", log_target=True) * TEMPERATURE**2


class Member:
    """A fold's model of one run, and the student's inputs as it expects them."""

    def __init__(self, run: Run, fold: int, student: Normaliser, precision: torch.dtype) -> None:
        model, spec = open_model(run, fold)
        if spec.channels != student.spec.channels:
            raise PodiumError(
                f"--teacher {run.name}: it sees {spec.channel_count} channels, and this run"
                f" {student.spec.channel_count}; take a teacher with the same --adjacent and the same channels"
            )
        own = place_model(model, spec, student.device, precision)
        self.model: nn.Module = model.eval()
        self.spec, self.size, self.layout = spec, sides_of(spec.image_size), own.layout
        self.scale = own.scale / student.scale
        self.shift = own.shift - student.shift * self.scale

    def adapt(self, inputs: Tensor) -> Tensor:
        if inputs.shape[-2:] != self.size:
            inputs = F.interpolate(inputs, self.size, mode="bilinear", antialias=True)
        return (inputs * self.scale + self.shift).contiguous(memory_format=self.layout)


def separate_heads(student: nn.Module) -> None:
    """Lets a model with a head for the teacher (DeiT's and others) return (logits, that head's logits) in training.

    It predicts the mean of both. Where timm gives the switch to a model without such a head, nothing changes.
    """
    if hasattr(student, "set_distilled_training"):
        student.set_distilled_training(True)  # type: ignore[operator]
