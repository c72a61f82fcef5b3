"""Exports the models of a run, and compares the file with them before it is kept.

    podium export RUN --onnx [--int8 [8]] | --torch [--folds 0-2] [--views VIEWS] [--output FILE]

Writes FILE and, beside it, its model card, FILE.md. ONNX needs the extra `onnx`.
"""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from podium.basics.disk import atomic, write_text
from podium.basics.errors import PodiumError
from podium.basics.extras import refuse_without
from podium.basics.image_size import square_side
from podium.basics.terminal import first_line, plural, say
from podium.competition.load import Competition
from podium.models.model_file import load_model
from podium.models.predict import unit_of
from podium.options.moves.adjacent_images import adjacent_images
from podium.saved_runs.doubts import warn_of_edits
from podium.saved_runs.fold_names import fold_name, holds_nothing_out
from podium.saved_runs.imported_runs import refuse_imported
from podium.saved_runs.run_folder import Run
from podium_annex.exporting.file_forms import FORMS, Answer, example, quiet_exporters
from podium_annex.exporting.int8 import quantise
from podium_annex.exporting.int8_loss import Int8Loss, ReadyImages, measure_loss, open_images
from podium_annex.exporting.model_card import model_card
from podium_annex.exporting.whole_model import WholeModel

MOST_ONNX = 1.9e9  # bytes
TOLERANCE = 1e-4  # between the file's probabilities and those of the models (of numbers: of their deviation)
EXPORTABLE_VIEWS = {"none", "mirror", "flip", "turn"}  # ONNX has no operator for the others


def export_run(
    competition: Competition,
    run: Run,
    form_name: str,
    *,
    folds: Sequence[int] = (),
    views: str = "",
    path: Path | None = None,
    int8: int = 0,
) -> Path:
    """Writes the mean of these folds' models and its card; returns the file's path.

    By default it takes all finished folds and the run's views, and writes into the run's folder. `int8` is the number
    of bits of the weights; 0 means float32.
    """
    refuse_imported([run], "podium export")
    form = FORMS[form_name]
    path = path or run.path / f"{run.name}{'-int8' if int8 else ''}{form.ending}"
    views = views or run.recipe["views"]
    _refuse(run, form_name, folds, views, path, int8)
    folds = folds or run.models()
    warn_of_edits(run)
    models, specs = zip(*(load_model(run.weights_path(fold)) for fold in folds), strict=True)
    whole = WholeModel([model.eval() for model in models], specs, views).eval()
    if "turn" in views.split("+"):
        square_side(specs[0].test_size, "--views turn")
    images = open_images(competition, run, specs[0]) if int8 else None
    say(f"podium: exporting {plural(len(folds), 'model')} of {run.name}; this takes a minute")
    with tempfile.TemporaryDirectory() as folder:
        temporary, loss = Path(folder) / path.name, None
        with _explained(run, form_name):
            form.write(whole, specs[0], temporary)
            difference = _largest_difference(whole, form.open(temporary))
        if not difference <= TOLERANCE:  # also if it is not a number
            raise PodiumError(
                f"the exported model differs from that of {run.name} by {difference:.2g}, more than {TOLERANCE:g};"
                " nothing was written: try --folds 0, or the other format"
            )
        if images is not None:
            temporary, loss = _to_int8(run, folds, int8, whole, images, temporary)
        with atomic(path) as written:
            shutil.copyfile(temporary, written)
    card = path.with_name(f"{path.name}.md")
    write_text(card, model_card(competition, run, folds, whole, path, loss))
    say(f"podium: wrote {path} and its card, {card.name}; {_how_close(difference, loss)}")
    return path


def _to_int8(
    run: Run, folds: Sequence[int], int8: int, whole: WholeModel, images: ReadyImages, path: Path
) -> tuple[Path, Int8Loss]:
    """Returns the file in int8, and what that costs: of each fold's model on images that it has not seen."""
    smaller = path.with_name(f"int8-{path.name}")
    with _explained(run, "int8"):
        quantise(path, smaller, whole.specs[0], images.of_fold(folds[0]).sample(), int8)
        loss = measure_loss(run, folds, whole, images, path, int8)
    return smaller, replace(loss, bytes_before=path.stat().st_size, bytes_after=smaller.stat().st_size)


def _how_close(difference: float, loss: Int8Loss | None) -> str:
    return f"the answers differ by at most {difference:.1g}" if loss is None else f"{loss}"


@contextmanager
def _explained(run: Run, form: str) -> Iterator[None]:
    """Explains what an exporter cannot do; each has errors of its own."""
    try:
        with quiet_exporters():
            yield
    except PodiumError:
        raise
    except Exception as error:
        problem = f"{run.name} cannot be exported as {form} ({first_line(error)})"
        raise PodiumError(f"{problem}; try --folds 0, or the other format") from None


def _refuse(run: Run, form: str, folds: Sequence[int], views: str, path: Path, int8: int) -> None:
    """Refuses what cannot be exported before anything takes time."""
    finished = run.models()
    if int8 and form != "onnx":
        raise PodiumError("--int8 is for ONNX files; give --onnx, or leave out --int8")
    if missing := [fold for fold in folds if fold not in finished] or ([0] if not finished else []):
        raise PodiumError(f"{run.path}: {fold_name(missing[0])} is not finished; train it first")
    if int8 and all(map(holds_nothing_out, folds or finished)):
        raise PodiumError("--int8: no image says what it costs a model of all images; add a fold to --folds")
    if adjacent_images(run.recipe).is_on or run.recipe.get("channels"):
        raise PodiumError(
            f"{run.name} sees more than one image of three channels (--adjacent, or the card's channels), which no file"
            " for other programs has; export another run"
        )
    if path.suffix != FORMS[form].ending:
        raise PodiumError(
            f"{path}: call the file {path.stem}{FORMS[form].ending}, as programs know the format by its ending"
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
    if form == "onnx":
        refuse_without("onnx", "--onnx")


def _largest_difference(whole: WholeModel, exported: Answer) -> float:
    """Compares the answers for batches of several sizes."""
    differences = []
    for count in (1, 2, 5):
        images = example(whole.specs[0], count)
        differences.append(((whole(images) - exported(images)).abs() / unit_of(whole.specs[0])).max())
    return float(torch.stack(differences).max())  # not a number if any of them is none
