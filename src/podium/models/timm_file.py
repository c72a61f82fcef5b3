"""Writes a fold's model as one file that timm loads without Podium, and describes a model in timm's words.

The metadata of the file, under "timm", say in JSON how to build the model, how it wants its images, what its outputs
stand for, and their names. docs/api.md shows how to read it.
"""

import json
from pathlib import Path
from typing import Any

from podium.basics.errors import PodiumError
from podium.basics.image_size import sides_of
from podium.models.build import ModelSpec, flags_of_head, is_timms_head, module_of, size_options
from podium.models.hub import JOIN
from podium.models.model_file import SPEC_KEY, read_spec
from podium.models.tensors import load_tensors, save_tensors
from podium.tasks.task import NUMBERS, ONE_LABEL, SEVERAL_LABELS, SEVERAL_TARGETS

ENDING = ".safetensors"  # by which timm knows the format
MODES = {"squash": "squash", "pad": "border"}  # how images get the model's shape, as timm calls it
OUTPUTS = {  # what makes answers of the model's outputs
    ONE_LABEL.name: "softmax",
    SEVERAL_LABELS.name: "sigmoid",
    SEVERAL_TARGETS.name: "softmax of the classes of each column",
    NUMBERS.name: "output * deviation + mean; scales has the mean and the deviation of each",
}

ON_SCALES = {  # what is done to that number afterwards
    "none": "",
    "log1p": "; then the exponential of this number, minus 1",
    "rank": "; then the number of which this is the score, on straight lines between the pairs in curves",
}


def data_config(spec: ModelSpec) -> dict[str, Any]:
    """Returns how the model wants its images, as timm's `create_transform` takes it."""
    shares = {"crop_pct": 1.0, "crop_mode": MODES[spec.fit]} if spec.fit in MODES else {"crop_pct": spec.crop}
    size = (3, *sides_of(spec.test_size))
    return {"input_size": size, "interpolation": spec.interpolation, "mean": spec.mean, "std": spec.std, **shares}


def export_model(model_file: Path, path: Path) -> None:
    """Writes the model of a fold to `path`."""
    spec = read_spec(model_file)
    if path.suffix != ENDING:
        raise PodiumError(f"{path}: timm knows the format by the ending; call the file {path.stem}{ENDING}")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise PodiumError(f"{path}: cannot be written; name a file in a folder that exists")
    if JOIN in spec.architecture or not module_of(spec.architecture).startswith("timm."):
        raise PodiumError(f"{spec.architecture} is no model of timm, which could not load the file; use run.model()")
    if not is_timms_head(spec):
        raise PodiumError(f"timm cannot build a {spec.architecture} with {flags_of_head(spec)}; use run.model()")
    arguments = next(iter(spec.model_args), {})
    built_with = {**arguments, **size_options(spec.architecture, spec.image_size, arguments)}
    config: dict[str, Any] = {
        "create_model": {"model_name": spec.architecture, "num_classes": len(spec.classes), **built_with},
        "transform": data_config(spec),
        "classes": spec.classes,
        "outputs": OUTPUTS[spec.task] + ON_SCALES[spec.target_scale],
        "scales": spec.scales,
        **({"curves": spec.curves} if spec.curves else {}),
    }
    tensors, metadata = load_tensors(model_file)
    save_tensors(path, tensors, {SPEC_KEY: metadata[SPEC_KEY], "timm": json.dumps(config)})
