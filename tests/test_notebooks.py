"""The notebooks run from beginning to end on an empty folder, and are stored without what that prints."""

import ast
import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from PIL import Image, ImageOps

from tiny import podium_at, write_competition

NOTEBOOKS = sorted(Path(__file__).parents[1].glob("notebooks/*.ipynb"))
WITHOUT_TRAINING = "01_look_at_the_data"
ALL_FOLDS = ("05_errors_and_labels", "06_ensemble")  # these train them, so two are enough
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])


# Training on the digits takes a minute: before a release. The other notebooks run on the small competition each time.
ON_DIGITS = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.all] if path.stem != WITHOUT_TRAINING else [])
    for path in NOTEBOOKS
]
ELSEWHERE = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.all] if path.stem == WITHOUT_TRAINING else [])
    for path in NOTEBOOKS
]


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelManager]:
    """A kernel that runs this Python, without other kernels and without the user's settings, for all notebooks.

    To start one and import torch takes as long as most notebooks.
    """
    home = tmp_path_factory.mktemp("jupyter")
    folder = home / "kernels" / "python3"
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (folder / "kernel.json").write_text(
        json.dumps({"argv": command, "display_name": "this Python", "language": "python"})
    )
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JUPYTER_PATH", str(home))
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
            environment.setenv(name, str(home / name))
        environment.delenv("MPLBACKEND", raising=False)  # without it the kernel shows figures in the notebook
        environment.setenv("OMP_NUM_THREADS", "1")  # more of them wait for each other where others compute too
        manager = KernelManager(kernel_name="python3")
        manager.start_kernel()
        yield manager
        manager.shutdown_kernel(now=True)


def execute(notebook: nbformat.NotebookNode, kernel: KernelManager, folder: Path) -> tuple[dict[str, int], str]:
    """How many pictures each cell shows, and all that is printed; a cell that fails fails the test.

    The notebook begins without names, in this folder.
    """
    place = f"import os; os.chdir({str(folder)!r}); os.environ['PODIUM_ROOT'] = {str(folder)!r}"
    notebook.cells.insert(0, nbformat.v4.new_code_cell(f"%reset -f\n{place}"))
    client = NotebookClient(notebook, km=kernel, timeout=280)
    try:
        client.execute()
    finally:
        if client.kc:
            client.kc.stop_channels()
    pictures: dict[str, int] = {}
    text = ""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            assert output.output_type != "error"
            text += output.get("text", "")
            pictures[cell.id] = pictures.get(cell.id, 0) + ("image/png" in output.get("data", {}))
    assert "Warning" not in text
    return {name: count for name, count in pictures.items() if count}, text


def drawing_cells(notebook: nbformat.NotebookNode) -> set[str]:
    return {cell.id for cell in notebook.cells if cell.cell_type == "code" and "plt.show()" in cell.source}


def test_there_are_notebooks() -> None:
    assert [path.stem[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05", "06"]


@each_notebook
def test_begins_with_its_question(path: Path) -> None:
    first = nbformat.read(path, as_version=4).cells[0]
    assert first.cell_type == "markdown"
    title = first.source.splitlines()[0]
    assert title.startswith("# ")
    assert title.endswith("?")


@pytest.mark.slow
@pytest.mark.parametrize("path", ON_DIGITS)
def test_runs_from_clean(path: Path, kernel: KernelManager, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    pictures, text = execute(notebook, kernel, tmp_path)
    drawing = drawing_cells(notebook)
    assert drawing
    assert pictures == dict.fromkeys(drawing - {"duplicate-pairs"}, 1)  # no digit is a duplicate of another
    assert "Handwritten digits" in text
    assert "DIFFERENT" not in text  # a step by hand equals the model's own


@pytest.mark.annex
@pytest.mark.slow
@pytest.mark.parametrize("path", ELSEWHERE)
def test_another_competition(path: Path, kernel: KernelManager, tmp_path: Path) -> None:
    """Only the constant at the top changes. The competition is small, and one of its classes has a single image."""
    images = write_competition(tmp_path) / "train_image"
    ImageOps.mirror(Image.open(images / "000.jpg")).save(images / "001.jpg", "PNG")
    if path.stem in ALL_FOLDS:
        podium_at(tmp_path, "folds", "-c", "tiny", "--k", "2")
    notebook = nbformat.read(path, as_version=4)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert 'COMPETITION = "sample"' in first.source
    first.source = first.source.replace('COMPETITION = "sample"', 'COMPETITION = "tiny"')
    pictures, text = execute(notebook, kernel, tmp_path)
    assert pictures == dict.fromkeys(drawing_cells(notebook), 1)
    assert "tiny" in text
    assert not (tmp_path / "data" / "raw" / "sample").exists()
    assert (tmp_path / "runs" / "tiny").exists() == (path.stem != WITHOUT_TRAINING)


@pytest.mark.annex
@each_notebook
def test_what_it_imports_exists(path: Path) -> None:
    """As types are checked elsewhere: a name that moved shows here at once, not when the notebook runs."""
    for cell in nbformat.read(path, as_version=4).cells:
        for statement in ast.parse(cell.source.removeprefix("%%capture")).body if cell.cell_type == "code" else ():
            if isinstance(statement, ast.ImportFrom):
                module = importlib.import_module(str(statement.module))
                for name in statement.names:
                    assert hasattr(module, name.name) or importlib.util.find_spec(f"{module.__name__}.{name.name}")


@each_notebook
def test_it_needs_only_what_import_podium_offers(path: Path) -> None:
    """The third one tells of models of the annex, which it imports in one line."""
    code = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code")
    lines = re.findall(r"^ *(?:from|import) podium.*$", code, re.MULTILINE)
    of_models = ["from podium_annex.zoo import convnext_road as road"] if path.stem == "03_convnext_road" else []
    assert lines == ["import podium", *of_models]


@each_notebook
def test_is_stored_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    identifiers = [cell.id for cell in notebook.cells]
    assert len(set(identifiers)) == len(identifiers)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None
