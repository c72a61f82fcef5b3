"""Makes the pictures of the README: runs three notebooks in an empty folder and keeps one picture of each.

    python docs/make_pictures.py

Writes docs/pictures/*.png. It takes about four minutes on two CPU cores.
"""

import os
from base64 import b64decode
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from PIL import Image

ROOT = Path(__file__).parents[1]
PICTURES = {  # name: notebook and cell
    "attention": ("02_vit_from_the_inside", "attention-maps"),
    "road": ("03_convnext_road", "accuracy-against-cost"),
    "confusion": ("05_errors_and_labels", "confusion-matrix"),
}
COLOURS = 128  # keep a file below 60 kB


def main() -> None:
    for name, (notebook_name, cell_id) in PICTURES.items():
        notebook = nbformat.read(ROOT / "notebooks" / f"{notebook_name}.ipynb", as_version=4)
        with TemporaryDirectory() as folder:
            os.environ["PODIUM_ROOT"] = folder
            NotebookClient(notebook, timeout=600).execute()
        cell = next(cell for cell in notebook.cells if cell.id == cell_id)
        png = next(output.data["image/png"] for output in cell.outputs if "image/png" in output.get("data", {}))
        save_small(b64decode(png), ROOT / "docs" / "pictures" / f"{name}.png")


def save_small(png: bytes, path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    Image.open(BytesIO(png)).convert("RGB").quantize(COLOURS).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
