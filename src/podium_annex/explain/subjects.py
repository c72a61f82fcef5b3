"""The models that `podium explain` explains, and the images that it takes for them."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from podium.basics.errors import PodiumError
from podium.basics.project_root import runs_folder
from podium.competition.card import read_card
from podium.competition.load import Competition, load
from podium.competition.value_range import ValueRange
from podium.images.decode import BadImage, Pixels, read_image
from podium.models.build import ModelSpec, build_with_own_classes
from podium.models.device import CPU
from podium.models.hub import check_weights_available, timm_name
from podium.models.model_file import load_model, read_spec
from podium.models.normalise import Normaliser
from podium.models.predict import probs_of
from podium.saved_runs.prediction_files import Predictions
from podium.saved_runs.regions_of_run import as_seen
from podium.saved_runs.run_folder import find_run
from podium.training.fold_model import open_model, prepare
from podium.training.own_images import list_images

IMAGES = 6  # without --images
MOST_IMAGES = 64  # the maps of all heads are kept, some megabytes for an image


@dataclass(frozen=True)
class ChosenImage:
    name: str  # an id, or the name of a file
    path: Path
    label: str = ""  # the true class, if it is known
    is_trained_on: bool = False  # by this model


@dataclass(frozen=True)
class Subject:
    """A model and the images that it is explained with, as the model sees them."""

    name: str
    model: nn.Module
    classes: tuple[str, ...]
    folder: Path  # of the pictures
    chosen: Sequence[ChosenImage]
    pixels: list[Pixels]
    inputs: Tensor
    probs: NDArray[np.float32]  # of every class, a row per image

    @property
    def predicted(self) -> NDArray[np.int64]:
        best: NDArray[np.int64] = self.probs.argmax(1)
        return best

    def texts(self) -> list[list[str]]:
        """Returns lines for each image: its name, true class, predicted class and probability."""
        lines = []
        for image, number, probs in zip(self.chosen, self.predicted, self.probs, strict=True):
            truth = [f"true: {image.label}"] if image.label else []
            seen = ["(trained on)"] if image.is_trained_on else []
            lines.append(
                [image.name, *seen, *truth, f"predicted: {self.classes[number]}", f"probability {probs[number]:.2f}"]
            )
        return lines


def subject_of_run(source: str, slug: str, root: Path, fold: int | None, wanted: Sequence[str]) -> Subject:
    """Returns a fold's model of a run (default: the first finished fold), with images that this fold held out."""
    run, slug = find_run(source, slug, root)
    competition = load(slug, root)
    finished = run.finished()
    number = finished[0] if fold is None else fold
    if number not in finished:
        raise PodiumError(
            f"fold {number} of {run.path} is not trained; its finished folds are {', '.join(map(str, finished))}"
        )
    model, spec = open_model(run, number)
    images = choose_images(as_seen(competition, run, number), run.out_of_fold(number), wanted)
    return _subject(f"{run.name}, fold {number}", model, spec, run.path / "explain", images)


def subject_of_model(name: str, weights: str, slug: str, root: Path, wanted: Sequence[str]) -> Subject:
    """Returns a model with the classifier of its weights."""
    read_card(slug, root)  # loads the files of the project, which may register models
    if not wanted:
        raise PodiumError("with --model, name image files or folders: --images FILE ...")
    images = [ChosenImage(path.name, path) for path in list_images(list(wanted))]
    model, spec = _load_or_build(name, weights)
    return _subject(name, model, spec, runs_folder(slug, root) / f"explain-{Path(name).name}", images)


def _load_or_build(name: str, weights: str) -> tuple[nn.Module, ModelSpec]:
    """Builds a model; a file that Podium has written knows its own model and classes."""
    spec = None
    if Path(weights).is_file():
        with suppress(PodiumError):
            spec = read_spec(Path(weights))
    if spec is None:
        check_weights_available(timm_name(name), weights)
        return build_with_own_classes(name, weights)
    if spec.architecture.partition(".")[0] != name.partition(".")[0]:
        raise PodiumError(f"{weights} holds {spec.architecture}, not {name}; use --model {spec.architecture}")
    if not spec.classes:
        raise PodiumError(f"{weights} has no classifier; train with --weights {weights}, and explain that run")
    return load_model(Path(weights))


def choose_images(competition: Competition, held_out: Predictions, wanted: Sequence[str]) -> list[ChosenImage]:
    """Returns the images of these ids, files and folders; without any, held-out images of all classes in turn."""
    rows = {row.id: row for row in competition.train.itertuples()}
    test = dict(zip(competition.test["id"], competition.test["image"], strict=True))
    unseen = set(held_out.id.tolist())
    chosen = []
    for word in wanted or _ids_of_all_classes(held_out):
        if word in rows:
            path = competition.folder / rows[word].image
            chosen.append(ChosenImage(word, path, rows[word].target, is_trained_on=word not in unseen))
        elif word in test:
            chosen.append(ChosenImage(word, competition.folder / test[word]))
        elif Path(word).exists():
            chosen += [ChosenImage(path.name, path) for path in list_images(word)]
        else:
            raise PodiumError(
                f"--images: '{word}' is neither an id of {competition.slug} nor a file; name one of these"
            )
    return chosen


def _ids_of_all_classes(held_out: Predictions) -> list[str]:
    """Returns the first image of every class, then the second, and so on."""
    values = held_out.target.values
    targets = values if values.ndim == 1 else values.argmax(1)  # or the first of several
    place_in_class = [int((targets[:row] == target).sum()) for row, target in enumerate(targets)]
    order = sorted(range(len(held_out.id)), key=lambda row: (place_in_class[row], targets[row]))
    return [str(held_out.id[row]) for row in order[:IMAGES]]


def _subject(name: str, model: nn.Module, spec: ModelSpec, folder: Path, images: Sequence[ChosenImage]) -> Subject:
    if len(images) > MOST_IMAGES:
        raise PodiumError(f"--images: {len(images):,} images are too many for a picture; name at most {MOST_IMAGES}")
    if spec.channels:
        raise PodiumError(
            f"{name} sees {len(spec.channels)} channels, and only three can be drawn; explain another run"
        )
    pixels = [prepare(_read(image.path, spec.value_range), spec) for image in images]
    inputs = Normaliser(spec, CPU)(torch.from_numpy(np.stack(pixels)))
    with torch.inference_mode():
        probs = torch.cat([probs_of(model.eval()(image), spec) for image in inputs.split(1)])
    return Subject(name, model, spec.classes, folder, images, pixels, inputs, probs.numpy())


def _read(path: Path, value_range: ValueRange | None) -> Pixels:
    try:
        return read_image(path, value_range)
    except BadImage as bad:
        raise PodiumError(f"{path}: cannot be read ({bad.reason}); choose other images with --images") from None
