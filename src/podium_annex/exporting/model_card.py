"""The card of an exported model, in Markdown: what it is, what it was trained on, how good it is, how to use it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from podium.basics.image_size import sides_of
from podium.basics.terminal import first_few, plural
from podium.competition.load import Competition
from podium.models.build import ModelSpec
from podium.options.moves.augmenter import border_colour
from podium.options.recipe import recipe_options
from podium.saved_runs.fold_names import holds_nothing_out
from podium.saved_runs.made_from import describe_images, licences_of, runs_before
from podium.saved_runs.regions_of_run import has_boxes
from podium.saved_runs.run_folder import Run
from podium.tasks.task import NUMBERS, ONE_LABEL, SEVERAL_LABELS
from podium_annex.exporting.int8 import is_dynamic
from podium_annex.exporting.int8_loss import Int8Loss
from podium_annex.exporting.whole_model import WholeModel

MEANINGS = {
    ONE_LABEL.name: "the probability of each class; they sum to 1",
    SEVERAL_LABELS.name: "the probability of each class; each stands for itself",
    NUMBERS.name: "a number for each name",
}
USES = {
    ".onnx": """import json, numpy as np, onnxruntime
session = onnxruntime.InferenceSession("{name}")
classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
images = np.zeros((4, {height}, {width}, 3), np.uint8)  # your images, RGB, in this size
answers = session.run(None, {{"images": images}})[0]
print(dict(zip(classes, answers[0])))""",
    ".pt2": """import torch
model = torch.export.load("{name}").module()
images = torch.zeros(4, {height}, {width}, 3, dtype=torch.uint8)  # your images, RGB, in this size
answers = model(images)""",
}


def model_card(
    competition: Competition,
    run: Run,
    folds: Sequence[int],
    whole: WholeModel,
    path: Path,
    loss: Int8Loss | None = None,
) -> str:
    spec, recipe = whole.specs[0], run.recipe
    height, width = sides_of(spec.test_size)
    use = USES[path.suffix].format(name=path.name, height=height, width=width)
    source = recipe.get("weights_source") or "random weights"
    known = recipe_options()
    values = {name: value for name, value in recipe.items() if name in known and value not in ("", None)}
    options = ", ".join(f"{name} {value}" for name, value in values.items())
    lines = [
        f"# {run.name} for {competition.slug}",
        "",
        f"The mean of {plural(len(folds), 'model')} ({spec.architecture}): {_models(folds)}."
        f" {_input_and_output(spec, whole.views)}",
        "",
        "## How good it is",
        "",
        *_scores(competition, run, folds),
        "",
        f"Each model alone, on the images outside its training, with the views {recipe['views']}. Images from elsewhere"
        " may be answered worse; measure that before you rely on it.",
        "",
        *(_int8(spec, loss) if loss else []),
        "## How to use it",
        "",
        f"{_part(run, spec)}{_preparation(spec)} Colours are normalised inside the model.",
        "",
        f"```python\n{use}\n```",
        "",
        "## What it was made from",
        "",
        f"- Competition {competition.slug}: {plural(len(competition.train), 'training image')}, data"
        f" {recipe.get('data_sha256', 'unknown')[:16]}, folds {recipe.get('folds_sha256', 'unknown')[:16]}. The"
        " competition's rules say what its data may be used for.",
        f"- Weights: {source}.",
        *_earlier(recipe),
        f"- Computed in {recipe.get('computed_in', 'an unknown precision')} on {recipe.get('device', 'unknown')}.",
        f"- Versions: {', '.join(f'{name} {version}' for name, version in recipe.get('versions', {}).items())}.",
        f"- Recipe: {options}.",
        "",
    ]
    return "\n".join(lines)


def _models(folds: Sequence[int]) -> str:
    """Says what each of the models was trained on."""
    numbers = [str(fold) for fold in folds if not holds_nothing_out(fold)]
    names = f"{'fold' if len(numbers) == 1 else 'folds'} {', '.join(numbers)}"
    named = f"{names}, each trained on the images outside its fold"
    whole = f"{len(folds) - len(numbers)} trained on all images, which no image scores"
    return "; ".join([*([named] if numbers else []), *([whole] if len(numbers) < len(folds) else [])])


def _earlier(recipe: dict[str, Any]) -> list[str]:
    """Lists what else may bind the use of the model: earlier runs, their weights, images from elsewhere."""
    lines = []
    if runs := runs_before(recipe):
        lines.append(f"- Learned from the runs {', '.join(runs)}.")
    if licences := licences_of(recipe):
        lines.append(f"- Licences of all pretrained weights before it: {'; '.join(licences)}.")
    if images := describe_images([recipe]):
        lines.append(f"- Images from elsewhere: {'; '.join(images)}.")
    return lines


def _part(run: Run, spec: ModelSpec) -> str:
    """Says which part of an image the models have learned from, if not from all of it."""
    if has_boxes(run):
        return "Cut the object out of the image, with a margin: the models have learned from boxes. "
    return "Cut off borders of one colour. " if spec.part else ""


def _preparation(spec: ModelSpec) -> str:
    """Says how an image gets its size, as prediction does it."""
    height, width = sides_of(spec.test_size)
    size = f"{height} x {width} pixels (height x width, {spec.interpolation})"
    text = {
        "crop": f"Take the largest box of this shape in the centre, {spec.crop:g} of it, and resize it to {size}.",
        "squash": f"Resize the whole image to {size}, whatever its shape.",
        "pad": f"Add borders of the colour {border_colour(spec)} until it has this shape, and resize it to {size}.",
    }[spec.fit]
    return text + (f" Values are mapped to 0 to 255 from the range {spec.value_range}." if spec.value_range else "")


def _input_and_output(spec: ModelSpec, views: str) -> str:
    height, width = sides_of(spec.test_size)
    meaning = MEANINGS.get(spec.task, "the probability of each class of each column")
    return (
        f"Input `images`: uint8 RGB, [any number, {height}, {width}, 3]. Output `answers`: {meaning}, in the order of"
        f" {first_few(spec.classes)}. Views averaged: {views}."
    )


def _int8(spec: ModelSpec, loss: Int8Loss) -> list[str]:
    ranges = "a range for each call (dynamic)" if is_dynamic(spec) else "ranges measured on training images (static)"
    bits = "with all bits, which overflow in x86 processors without VNNI" if loss.bits > 7 else "of seven bits"
    return [
        "## What int8 costs",
        "",
        f"The scores above are those of the models in float32. In this file, weights are int8 {bits}, and activations"
        f" have {ranges}: {loss.sizes}. On {loss.images:,} held-out images, each answered by the one model that was not"
        " trained on it, made int8 alone:",
        "",
        *(f"- {change}" for change in loss.changes),
        "",
    ]


def _scores(competition: Competition, run: Run, folds: Sequence[int]) -> list[str]:
    """Returns a line per score: its mean and range over the folds. Nothing scores a model of all images."""
    last = [run.history(fold)[-1].scores for fold in folds if not holds_nothing_out(fold)]
    lines = []
    for name in last[0] if last else ():
        values = np.array([scores[name] for scores in last])
        spread = f" ({values.min():z.4f} to {values.max():z.4f})" if len(values) > 1 else ""
        lines.append(f"- {name}: {values.mean():z.4f}{spread}")
    return lines
