"""What finished runs say of the images that a student trains on, for it to learn from (knowledge distillation).

    podium train --model NAME --name STUDENT --teacher RUN[+RUN...]

Reads runs/<slug>/<teacher>/fold<k>/model.safetensors. The teacher of the student's fold k is the fold-k model of each
run: it has not seen the images held out of that fold either, so the student's out-of-fold score stays honest.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from podium import PodiumError
from podium.models.build import Normaliser, load_model
from podium.models.device import autocast
from podium.training.run_folder import Run, find_runs

# At 1 a teacher that is sure says little more than the label does; well above, the tail of its answer, which nothing
# has taught it, counts as much as the classes that it weighs against each other.
TEMPERATURE = 2.0


def find_teachers(names: str, student: Run, slug: str, root: Path, folds: Sequence[int]) -> list[Run]:
    """The runs that are to teach these folds of the student; told before anything takes time."""
    wanted = names.split("+")
    if student.name in wanted:
        raise PodiumError(
            f"run '{student.name}' cannot be its own teacher; give the student another name (--name RUN, with make"
            " NAME=RUN) or take another --teacher"
        )
    teachers = find_runs(slug, root, wanted)
    for teacher in teachers:
        missing = [fold for fold in folds if fold not in teacher.finished()]
        if missing:
            raise PodiumError(
                f"the teacher {teacher.name} has not finished fold {missing[0]}; run its training command again to go"
                f" on, or choose the student's --folds among {','.join(map(str, teacher.finished()))}"
            )
    return teachers


def check_teachers(
    teachers: Sequence[Run], folds: Sequence[int], classes: tuple[str, ...], identity: dict[str, Any]
) -> dict[str, str]:
    """The hashes of the weights that teach each fold; refuses teachers of other folds or data, which may have seen the
    images that score the student. The data's hash is of labels and files, not of pixels: the same at every size."""
    for teacher in teachers:
        alike = {
            "classes": all(teacher.out_of_fold(fold).classes == classes for fold in folds),
            "folds": teacher.recipe.get("folds_sha256") == identity["folds_sha256"],
            "data": teacher.recipe.get("data_sha256") == identity["data_sha256"],
        }
        for what, same in alike.items():
            if not same:
                raise PodiumError(
                    f"the teacher {teacher.name} was trained on other {what} than its student would be; train it"
                    " again under another name, or take another --teacher"
                )
    return {str(fold): "+".join(each.check_weights(fold) for each in teachers) for fold in folds}


class Teacher:
    """The fold's models of the runs that teach, as one. It draws nothing, so it leaves all draws as they were."""

    def __init__(self, runs: Sequence[Run], fold: int, student: Normaliser, precision: torch.dtype) -> None:
        self.device, self.precision = student.device, precision
        self.members = [Member(run.fold(fold) / "model.safetensors", student) for run in runs]

    @torch.no_grad()  # what inference_mode gives could not take part in the student's loss
    def __call__(self, inputs: Tensor) -> Tensor:
        """The logarithm of the mean of the models' probabilities, for inputs as the student gets them: the same
        crops, colours and mixtures, for a teacher that looks at another view teaches what cannot be seen."""
        with autocast(self.device, self.precision):
            logits = [each.model(each.see(inputs)) for each in self.members]
        thoughts = torch.stack([each.float().log_softmax(1) for each in logits])
        return thoughts.logsumexp(0) - math.log(len(thoughts))

    def loss(self, inputs: Tensor, logits: Tensor, token: Tensor | None) -> Tensor:
        """How far the student is from the teacher. What a distillation token answers is held against the class that
        the teacher decides for, which taught DeiT's more than its probabilities did."""
        taught = self(inputs)
        if token is not None:
            return F.cross_entropy(token.float(), taught.argmax(1))
        softened = (taught / TEMPERATURE).log_softmax(1)
        answer = (logits.float() / TEMPERATURE).log_softmax(1)
        # Softened twice, gradients are a T²-th: multiplied, they weigh the same beside the labels' at any temperature.
        return F.kl_div(answer, softened, reduction="batchmean", log_target=True) * TEMPERATURE**2


class Member:
    """A saved model, and the student's inputs as it wants them."""

    def __init__(self, path: Path, student: Normaliser) -> None:
        model, spec = load_model(path)
        own = Normaliser(spec, student.device)
        self.model: nn.Module = model.eval().to(student.device).to(memory_format=own.layout)
        self.size, self.layout = spec.image_size, own.layout
        self.scale = own.scale / student.scale
        self.shift = own.shift - student.shift * self.scale

    def see(self, inputs: Tensor) -> Tensor:
        if inputs.shape[-1] != self.size:
            inputs = F.interpolate(inputs, (self.size, self.size), mode="bilinear", antialias=True)
        return (inputs * self.scale + self.shift).contiguous(memory_format=self.layout)


def separate_heads(student: nn.Module) -> None:
    """Models with a head for the teacher, DeiT's and others, then answer training with (logits, the teacher's head's);
    prediction is the mean of both. Where timm gives the switch to a model without that head, nothing changes."""
    if hasattr(student, "set_distilled_training"):
        student.set_distilled_training(True)  # type: ignore[operator]
