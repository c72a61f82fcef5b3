"""Tells the notebooks' stories as pages: `make stories`, or `python docs/make_stories.py [05 06]` for some of them.

Runs each notebook on the handwritten digits, in an empty folder, on the CPU and without a network. Writes
docs/stories/NAME.md: its text, what it prints and draws, and its code, folded; that of pictures is left out. The
metadata of a cell that draws hold the picture's `alt` text. It takes 16 minutes of processor time.
"""

import os
import re
import sys
from base64 import b64decode
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from PIL import Image

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PAGES = ROOT / "docs" / "stories"
MADE = """\
`make notebook` opens this notebook, [{file}](../../notebooks/{file}), to run it yourself, also on a competition of
your own. What it prints and draws here is of the sample competition, handwritten digits."""
SET_UP = """\
import matplotlib, pandas
matplotlib.rcParams |= {"svg.hashsalt": "podium", "svg.fonttype": "none", "figure.dpi": 72}
def as_markdown(table):
    table = table if table.index.name is None else table.reset_index()
    rows = [table.columns, ["---"] * table.shape[1], *table.itertuples(index=False)]
    return "\\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows)
pandas.DataFrame._repr_markdown_ = as_markdown
%config InlineBackend.figure_formats = ["svg", "png"]
"""
OF_NOTEBOOK = re.compile(r"(Choose \*Run|The other notebooks)")  # paragraphs that say nothing on a page
WITHOUT_WORDS = ("settings", "imports")  # cells that say nothing to a reader
FOLD, FOLD_END = "<details><summary>The code</summary>\n\n```python\n", "\n```\n\n</details>"
COLOURS, LARGE = (128, 64, 32), 60_000  # the most colours whose file is not large, in bytes
OFFLINE = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


def run(path: Path, folder: str) -> nbformat.NotebookNode:
    """Returns the notebook with what its cells print and draw."""
    notebook: nbformat.NotebookNode = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(SET_UP, id=WITHOUT_WORDS[0]))
    os.environ |= {**OFFLINE, "PODIUM_ROOT": folder, "IPYTHONDIR": f"{folder}/ipython"}
    os.environ.pop("MPLBACKEND", None)
    NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": folder}}).execute()
    return notebook


def page(notebook: nbformat.NotebookNode, path: Path, folder: str) -> str:
    """Returns the story; writes its pictures."""
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts += [text for text in cell.source.split("\n\n") if not OF_NOTEBOOK.match(text)]
        else:
            if cell.id not in WITHOUT_WORDS and "alt" not in cell.metadata:
                parts.append(f"{FOLD}{cell.source}{FOLD_END}")
            parts += shown(cell, path.stem)
    text = "\n\n".join(parts).replace(f"{FOLD_END}\n\n{FOLD}", "\n\n").replace(f"{folder}/", "")
    title, *others = text.split("\n\n")
    after = NOTEBOOKS[(NOTEBOOKS.index(path) + 1) % len(NOTEBOOKS)]
    following = nbformat.read(after, as_version=4).cells[0].source.partition("\n")[0].removeprefix("# ")
    end = f"The next story: [{following}]({after.stem}.md)"
    return "\n\n".join([title, others[0], MADE.format(file=path.name), *others[1:], end]) + "\n"


def shown(cell: nbformat.NotebookNode, story: str) -> Iterator[str]:
    """Yields what a cell prints and draws, as Markdown."""
    for output in cell.outputs:
        data = output.get("data", {})
        if output.get("name") == "stdout":
            yield f"```text\n{output.text.rstrip()}\n```"
        elif "image/png" in data:
            yield f"![{cell.metadata.alt}]({draw(data, f'{story[:2]}-{cell.id}')})"
        elif "text/markdown" in data:
            yield data["text/markdown"]


def draw(data: dict[str, str], name: str) -> str:
    """Writes a picture, lines and bars as SVG, images as PNG of few colours; returns its file's name."""
    if "<image" not in data["image/svg+xml"]:
        svg = re.sub(r" *<metadata>.*?</metadata>\n", "", data["image/svg+xml"], flags=re.DOTALL)
        (PAGES / f"{name}.svg").write_text(svg, encoding="utf-8")
        return f"{name}.svg"
    picture, file = Image.open(BytesIO(b64decode(data["image/png"]))).convert("RGB"), PAGES / f"{name}.png"
    for colours in COLOURS:
        picture.quantize(colours).save(file, optimize=True)
        if file.stat().st_size < LARGE:
            break
    return file.name


def main(chosen: list[str]) -> None:
    PAGES.mkdir(exist_ok=True)
    for path in NOTEBOOKS:
        if chosen and path.stem[:2] not in chosen:
            continue
        with TemporaryDirectory() as folder:
            notebook = run(path, folder)
            for picture in PAGES.glob(f"{path.stem[:2]}-*"):
                picture.unlink()
            (PAGES / f"{path.stem}.md").write_text(page(notebook, path, folder), encoding="utf-8")
        print(f"{(PAGES / path.stem).relative_to(ROOT)}.md", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
