"""Exports the models of a run, and compares the file with them before it is kept.

    podium export RUN --onnx | --torch [--folds 0-2] [--views VIEWS] [--output FILE]

Writes FILE and, beside it, its model card, FILE.md. ONNX needs three more packages (PACKAGES).
"""

import importlib.util
import json
import logging
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from podium.competition.load import Competition
from podium.disk import atomic, write_text
from podium.errors import PodiumError
from podium.exporting.model_card import model_card
from podium.exporting.whole_model import WholeModel
from podium.image_size import sides_of, square_side
from podium.models.build import ModelSpec
from podium.models.device import CPU
from podium.models.model_file import load_model
from podium.models.timm_file import data_config
from podium.saved_runs.doubts import warn_of_code
from podium.saved_runs.run_folder import Run
from podium.terminal import first_line, plural, say
from podium.training.augment import border_colour

ENDINGS = {"onnx": ".onnx", "torch": ".pt2"}
PACKAGES = ("onnx", "onnxscript", "onnxruntime")
MOST_ONNX = 1.9e9  # bytes
TOLERANCE = 1e-4  # between the file's probabilities and those of the models (of numbers: of their deviation)
EXPORTABLE_VIEWS = {"none", "mirror", "flip", "turn"}  # ONNX has no operator for the others


def export_run(
    competition: Competition, run: Run, form: str, folds: Sequence[int] = (), views: str = "", path: Path | None = None
) -> Path:
    """Writes the mean of these folds' models (default: of all finished ones) and its card; returns the file's path."""
    path = path or run.path / f"{run.name}{ENDINGS[form]}"
    views = views or run.recipe["views"]
    folds = _checked(run, form, folds, views, path)
    warn_of_code(run)
    models, specs = zip(*(load_model(run.weights_path(fold)) for fold in folds), strict=True)
    whole = WholeModel([model.eval() for model in models], specs, views).eval()
    if "turn" in views.split("+"):
        square_side(specs[0].test_size, "--views turn")
    say(f"podium: exporting {plural(len(folds), 'model')} of {run.name}; this takes a minute")
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder) / path.name
        try:
            with _quiet_exporters():
                {"onnx": _write_onnx, "torch": _write_torch}[form](whole, specs[0], temporary)
                difference = _largest_difference(whole, {"onnx": _open_onnx, "torch": _open_torch}[form](temporary))
        except Exception as error:  # each exporter has its own
            problem = f"{run.name} cannot be exported as {form} ({first_line(error)})"
            raise PodiumError(f"{problem}; try --folds 0, or the other format") from None
        if not difference <= TOLERANCE:  # also if it is not a number
            raise PodiumError(
                f"the exported model differs from that of {run.name} by {difference:.2g}, more than {TOLERANCE:g};"
                " nothing was written: try --folds 0, or the other format"
            )
        with atomic(path) as written:
            shutil.copyfile(temporary, written)
    card = path.with_name(f"{path.name}.md")
    write_text(card, model_card(competition, run, folds, whole, path))
    say(f"podium: wrote {path} and its card, {card.name}; the answers differ by at most {difference:.1g}")
    return path


def _checked(run: Run, form: str, folds: Sequence[int], views: str, path: Path) -> Sequence[int]:
    """Returns the folds; refuses what cannot be exported before anything takes time."""
    finished = run.finished()
    if missing := [fold for fold in folds if fold not in finished] or ([0] if not finished else []):
        raise PodiumError(f"{run.path}: fold {missing[0]} is not finished; train it first")
    if path.suffix != ENDINGS[form]:
        raise PodiumError(
            f"{path}: call the file {path.stem}{ENDINGS[form]}, as programs know the format by its ending"
        )
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise PodiumError(f"{path}: cannot be written; name a file in a folder that exists")
    if unknown := set(views.split("+")) - EXPORTABLE_VIEWS:
        others = "+".join(view for view in views.split("+") if view not in unknown) or "none"
        raise PodiumError(f"the view {min(unknown)} cannot be exported; choose others, such as --views {others}")
    size = sum(run.weights_path(fold).stat().st_size for fold in folds or finished)
    if form == "onnx" and size > MOST_ONNX:
        gigabytes = f"{size / 1e9:.1f} GB"
        raise PodiumError(f"an ONNX file holds 2 GB, and these models have {gigabytes}; try --folds 0, or --torch")
    lacking = [name for name in PACKAGES if importlib.util.find_spec(name) is None] if form == "onnx" else []
    if lacking:
        install = f"pip install {' '.join(PACKAGES)}"
        raise PodiumError(f"--onnx needs packages that are not installed ({', '.join(lacking)}): {install}")
    return folds or finished


# --- writing -----------------------------------------------------------------------------------------


def _example(spec: ModelSpec, count: int) -> Tensor:
    rng = torch.Generator().manual_seed(count)
    shape = count, *sides_of(spec.test_size), 3
    return torch.randint(256, shape, dtype=torch.uint8, generator=rng, device=CPU)


def _write_torch(whole: WholeModel, spec: ModelSpec, path: Path) -> None:
    batch = torch.export.Dim("batch")
    program = torch.export.export(whole, (_example(spec, 2),), dynamic_shapes={"images": {0: batch}})
    torch.export.save(program, path, extra_files={"podium.json": json.dumps(_about(spec))})


def _write_onnx(whole: WholeModel, spec: ModelSpec, path: Path) -> None:
    import onnx

    torch.onnx.export(
        whole,
        (_example(spec, 2),),
        path,
        dynamo=True,
        input_names=["images"],
        output_names=["answers"],
        dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
        external_data=False,
        verbose=False,
    )
    model = onnx.load(path)
    for name, value in _about(spec).items():
        model.metadata_props.add(key=name, value=value if isinstance(value, str) else json.dumps(value))
    onnx.save(model, path)


def _about(spec: ModelSpec) -> dict[str, Any]:
    """Returns what a program needs to know: the names of the outputs, and how images get their size."""
    transform = {name: value for name, value in data_config(spec).items() if name not in ("mean", "std")}
    about = {"classes": spec.classes, "task": spec.task, "transform": transform, "border": border_colour(spec)}
    seen = {"range": str(spec.value_range) if spec.value_range else "", "part": spec.part}
    return {**about, **{name: value for name, value in seen.items() if value}}


@contextmanager
def _quiet_exporters() -> Iterator[None]:
    """Silences the exporters, which warn of their own code."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"), torch.no_grad():
            yield
    finally:
        logging.disable(before)


# --- checking ----------------------------------------------------------------------------------------


def _open_torch(path: Path) -> Callable[[Tensor], Tensor]:
    model: Callable[[Tensor], Tensor] = torch.export.load(path).module()
    return model


def _open_onnx(path: Path) -> Callable[[Tensor], Tensor]:
    import onnxruntime  # type: ignore[import-untyped]

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


def _largest_difference(whole: WholeModel, exported: Callable[[Tensor], Tensor]) -> float:
    """Compares the answers for batches of several sizes."""
    differences = []
    for count in (1, 2, 5):
        images = _example(whole.specs[0], count)
        scale = torch.tensor([deviation for _, deviation in whole.specs[0].scales] or [1.0], device=CPU)
        differences.append(((whole(images) - exported(images)).abs() / scale).max())
    return float(torch.stack(differences).max())  # not a number if any of them is none
