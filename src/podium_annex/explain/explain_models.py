"""Explains the models of runs, or models of timm: draws pictures, and keeps the arrays that they show.

    podium explain RUN [--what grad_cam ...] [--images ID_OR_FILE ...] [--fold K]
    podium explain --model vit_small_patch32_224 --images photo.jpg

Reads a fold's model.safetensors and oof.npz. Writes runs/<slug>/<run>/explain/: a picture each, and explain.npz.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from podium.basics.disk import write_bytes
from podium.basics.errors import PodiumError
from podium.basics.terminal import busy_with, say
from podium_annex.explain.attention import attention_distance, attention_rollout, class_attention
from podium_annex.explain.distance_picture import draw_distances
from podium_annex.explain.draw_pictures import draw_filters, draw_maps, draw_positions, draw_receptive_fields
from podium_annex.explain.embeddings import patch_filters, position_similarity
from podium_annex.explain.gradients import ReceptiveField, grad_cam, receptive_field
from podium_annex.explain.picture_names import PICTURES
from podium_annex.explain.subjects import Subject, subject_of_model, subject_of_run

Arrays = dict[str, Any]


@busy_with("drawing")
def explain_models(
    slug: str,
    root: Path,
    *,
    runs: Sequence[str] = (),
    models: Sequence[str] = (),
    weights: str = "pretrained",
    pictures: Sequence[str] = tuple(PICTURES),
    images: Sequence[str] = (),
    fold: int | None = None,
    output: Path | None = None,
) -> list[Path]:
    """Returns the files that it has written; with several models, a picture compares their receptive fields.

    `weights` are those of `models`. All pictures are drawn before one is written: if a model is refused, those of the
    others stay as they were.
    """
    if not runs and not models:
        raise PodiumError("which model? Name a finished run, or a model of timm with --model NAME --images FILE ...")
    subjects = [subject_of_run(run, slug, root, fold, images) for run in runs]
    subjects += [subject_of_model(name, weights, slug, root, images) for name in models]
    written: dict[Path, bytes] = {}
    fields: dict[str, ReceptiveField] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for number, subject in enumerate(_in_folders(subjects, output)):
            folder = Path(scratch) / str(number)
            arrays, files = _explain(replace(subject, folder=folder), pictures)
            written |= {subject.folder / file.name: file.read_bytes() for file in files}
            if "receptive_field" in arrays:
                fields[subject.name] = ReceptiveField(
                    arrays["receptive_field"], arrays["receptive_field_centre"], float(arrays["receptive_field_side"])
                )
        if len(fields) > 1:
            path = Path(scratch) / "receptive_fields.png"
            draw_receptive_fields(path, fields)
            written[next(iter(written)).parent / path.name] = path.read_bytes()
    for path, content in written.items():
        write_bytes(path, content)
    return list(written)


def _in_folders(subjects: list[Subject], output: Path | None) -> list[Subject]:
    """Returns the subjects with the folders of their pictures: below `output`, a folder for each of several."""
    if output is None:
        return subjects
    if len(subjects) == 1:
        return [replace(subjects[0], folder=output)]
    return [replace(subject, folder=output / subject.name.replace(", ", "-").replace(" ", "")) for subject in subjects]


def _explain(subject: Subject, pictures: Sequence[str]) -> tuple[Arrays, list[Path]]:
    """Draws what this kind of model has, and says what it has not."""
    arrays: Arrays = {}
    written, problems = [], []
    for name in pictures:
        path = subject.folder / PICTURES[name]
        try:
            arrays |= DRAWN[name](subject, path)
            written.append(path)
        except PodiumError as error:
            problems.append(f"no {path.name}: {error}")
    if not written:
        raise PodiumError("; ".join(problems))
    for problem in problems:
        say(f"podium: {problem}")
    facts: Arrays = {"images": np.stack(subject.pixels), "names": np.array([image.name for image in subject.chosen])}
    facts |= {"classes": np.array(subject.classes), "probabilities": subject.probs}
    path = subject.folder / "explain.npz"
    np.savez_compressed(path, **facts, **arrays)
    return arrays, [*written, path]


# --- each picture: computes the arrays, draws them, and returns them ---------------------------------


def _class_attention(subject: Subject, path: Path) -> Arrays:
    heads = class_attention(subject.model, subject.inputs)
    title = f"{subject.name}: attention of the class token to the patches, last layer"
    draw_maps(path, subject.pixels, heads, title, subject.texts())
    return {"class_attention": heads}


def _attention_rollout(subject: Subject, path: Path) -> Arrays:
    maps = attention_rollout(subject.model, subject.inputs)
    draw_maps(path, subject.pixels, maps, f"{subject.name}: attention rolled out over the layers", subject.texts())
    return {"attention_rollout": maps}


def _attention_distance(subject: Subject, path: Path) -> Arrays:
    distances = attention_distance(subject.model, subject.inputs)
    draw_distances(path, distances, subject.name)
    return {"attention_distance": distances}


def _patch_filters(subject: Subject, path: Path) -> Arrays:
    filters = patch_filters(subject.model)
    draw_filters(path, filters, subject.name)
    return {"patch_filters": filters.components, "patch_filters_variance": filters.variance}


def _position_similarity(subject: Subject, path: Path) -> Arrays:
    similarity = position_similarity(subject.model)
    draw_positions(path, similarity, subject.name)
    return {"position_similarity": similarity}


def _grad_cam(subject: Subject, path: Path) -> Arrays:
    maps = grad_cam(subject.model, subject.inputs)
    draw_maps(path, subject.pixels, maps, f"{subject.name}: Grad-CAM of the predicted class", subject.texts())
    return {"grad_cam": maps}


def _receptive_field(subject: Subject, path: Path) -> Arrays:
    field = receptive_field(subject.model, subject.inputs)
    draw_receptive_fields(path, {subject.name: field})
    facts = {"receptive_field_centre": np.array(field.centre), "receptive_field_side": np.array(field.side)}
    return {"receptive_field": field.shares, **facts}


DRAWN: dict[str, Callable[[Subject, Path], Arrays]] = {
    "class_attention": _class_attention,
    "attention_rollout": _attention_rollout,
    "attention_distance": _attention_distance,
    "patch_filters": _patch_filters,
    "position_similarity": _position_similarity,
    "grad_cam": _grad_cam,
    "receptive_field": _receptive_field,
}
